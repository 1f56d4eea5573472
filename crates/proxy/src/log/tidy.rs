//! What the thread does between rounds: the next file is made ready, files that nothing needs are removed, the oldest one is emptied.
//!
//! A file is removed only when it is the oldest: a record that takes something back is never gone before what it takes back. What a live segment needs of it was
//! appended anew and synced before.

use std::sync::Arc;

use bytes::Bytes;
use forebay_format::member_log::{BYTES_MAX, RECORD_HEAD_LEN};
use forebay_group::{MemberLog, Piece};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::MutexGuard;

use super::{
    BARE, DiskFile, LogOptions, Shared,
    disk::is_full,
    read::{SPARE, file_name},
    state::{State, Urgency},
};

/// Where a piece lies on the disk.
pub(super) struct PlaceOnDisk {
    file: Arc<dyn DiskFile>,
    offset: u64,
}

pub(super) fn place_of(state: &State, piece: &Piece) -> Option<PlaceOnDisk> {
    let file = state.file_at(piece.position)?;
    let offset = file.offset(piece.position) + RECORD_HEAD_LEN as u64;
    Some(PlaceOnDisk { file: file.file.clone()?, offset })
}

/// The bytes of a piece, if they are what they were.
pub(super) fn read_piece(place: &PlaceOnDisk, piece: &Piece) -> Option<Bytes> {
    let mut bytes = vec![0; usize::try_from(piece.len).ok()?];
    let read = place.file.read(place.offset, &mut bytes);
    let whole = read.is_ok_and(|read| read == bytes.len()) && crc32c::crc32c(&bytes) == piece.check;
    whole.then(|| bytes.into())
}

/// Whether there is something to do here.
pub(super) fn wanted(shared: &Shared, state: &State) -> bool {
    wants_spare(state) || removable(state).is_some() || to_move(&shared.options, state).is_some()
}

/// Does what there is to do, in small steps.
pub(super) fn tidy<'a>(shared: &'a Arc<Shared>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    if state.failed.is_some() || state.closing {
        return state;
    }
    if wants_spare(&state) {
        make_spare(shared, &mut state);
    }
    free(shared, &mut state);
    state.write_owed(&shared.options);
    if state.is_idle() {
        // Whatever is dropped later says so.
        state.dropped = false;
    }
    if let Some(upto) = to_move(&shared.options, &state) {
        move_from(shared, &mut state, upto);
    }
    state
}

/// Removes the files that nothing needs.
pub(super) fn free(shared: &Shared, state: &mut MutexGuard<'_, State>) {
    while let Some(number) = removable(state) {
        if !remove(shared, state, number) {
            break;
        }
    }
}

fn wants_spare(state: &State) -> bool {
    // The one that was there may be the file that is being made just now.
    state.spare.is_none() && !state.spare_refused && state.files.iter().all(|file| file.file.is_some())
}

fn make_spare(shared: &Shared, state: &mut MutexGuard<'_, State>) {
    let len = shared.options.file_len;
    let made = MutexGuard::unlocked(state, || shared.options.disk.create(SPARE, len));
    match made {
        Ok(_) => state.spare = Some(len),
        Err(error) => {
            state.spare_refused = true;
            match is_full(&error) {
                true => tracing::warn!(
                    "the disk of the log is full: other members take what is written, this one what frees space alone; make room (beside --cache-size the log takes half as much \
                     and 1 GiB)"
                ),
                false => tracing::error!("the log's next file cannot be made: {error}"),
            }
        }
    }
}

/// The oldest file, if nothing needs it.
fn removable(state: &State) -> Option<u64> {
    let oldest = state.files.front().filter(|_| state.dropped && state.files.len() > 1)?;
    let needed = state.volumes.values().filter_map(MemberLog::oldest).min().unwrap_or(state.synced);
    // What comes later is on stable storage, what was moved included, and the next file begins with what is known of the log.
    let next = state.files.get(1)?;
    let told = next.file.is_some() && state.synced > next.first;
    (oldest.end <= needed && told && state.synced >= state.moved_upto).then_some(oldest.number)
}

fn remove(shared: &Shared, state: &mut MutexGuard<'_, State>, number: u64) -> bool {
    let disk = &shared.options.disk;
    let name = file_name(number);
    let gone = MutexGuard::unlocked(state, || disk.remove(&name).and_then(|()| disk.sync_names()));
    match gone {
        Ok(()) => {
            state.files.retain(|file| file.number != number);
            state.spare_refused = false;
            true
        }
        Err(error) => {
            tracing::error!("a file of the log cannot be removed: {error}");
            state.dropped = false;
            false
        }
    }
}

/// Up to which position the log is to be emptied, where it has grown too long and it is worth it.
fn to_move(options: &LogOptions, state: &State) -> Option<u64> {
    let oldest = state.files.front().filter(|_| state.files.len() > 1)?;
    let pressed = state.len() > options.len_max || (state.spare.is_none() && state.spare_refused);
    if !pressed || !state.is_idle() || state.move_refused {
        return None;
    }
    let needing = state.volumes.values().any(|log| log.oldest().is_some_and(|at| at < oldest.end));
    let dirty = state.dirty();
    let worth =
        dirty.saturating_mul(2) <= state.len() || live_in(state, oldest.end).saturating_mul(2) <= oldest.len;
    // Without another file there has to be room in this one for what is moved.
    let room = state.spare.is_some() || live_in(state, oldest.end) < options.reserve / 2;
    (needing && worth && room).then_some(oldest.end)
}

fn live_in(state: &State, upto: u64) -> u64 {
    let pieces = state.volumes.values().flat_map(|log| {
        log.needing(upto)
            .into_iter()
            .filter_map(|segment| log.kept(segment))
            .flat_map(|kept| kept.pieces.iter())
    });
    pieces.filter(|piece| piece.position < upto).map(|piece| piece.len).sum()
}

/// Appends some of what is needed of the log before `upto` anew.
fn move_from(shared: &Shared, state: &mut MutexGuard<'_, State>, upto: u64) {
    let options = &shared.options;
    let synced = state.synced;
    let mut some: Vec<(VolumeId, SegmentId, Piece)> = Vec::new();
    let mut said: Vec<(VolumeId, SegmentId)> = Vec::new();
    let mut bytes = 0;
    'all: for (volume, log) in &state.volumes {
        for segment in log.needing(upto) {
            let Some(kept) = log.kept(segment) else { continue };
            for piece in kept.pieces.iter().filter(|piece| piece.position < upto.min(synced)) {
                some.push((*volume, segment, *piece));
                bytes += piece.len;
                if bytes >= u64::from(BYTES_MAX) {
                    break 'all;
                }
            }
            said.push((*volume, segment));
        }
    }
    let places: Vec<_> = some.iter().map(|(_, _, piece)| place_of(state, piece)).collect();
    let read = MutexGuard::unlocked(state, || {
        let read = some.iter().zip(&places);
        read.map(|((_, _, piece), place)| place.as_ref().and_then(|place| read_piece(place, piece)))
            .collect::<Vec<_>>()
    });
    for ((volume, segment, piece), bytes) in some.into_iter().zip(read) {
        let Some(bytes) = bytes else {
            tracing::error!(%segment, offset = piece.offset, "a copy cannot be read back: it counts for nothing");
            state.volume(volume).unreadable(segment, piece.offset);
            continue;
        };
        let size = BARE + piece.len.next_multiple_of(BARE);
        let Ok(place) = state.place(size, Urgency::Reclaim, options) else {
            state.move_refused = true;
            break;
        };
        state.volume(volume).begin_at(place);
        if let Some(record) = state.volume(volume).again(segment, &piece, bytes) {
            state.write(volume, &record, true, options);
            shared.counts.lock().moved_bytes += piece.len;
        }
    }
    for (volume, segment) in said {
        let Ok(place) = state.place(BARE, Urgency::Reclaim, options) else {
            state.move_refused = true;
            break;
        };
        state.volume(volume).begin_at(place);
        if let Some(record) = state.volume(volume).say_again(segment, upto) {
            state.write(volume, &record, false, options);
        }
    }
    state.moved_upto = state.end;
    state.dropped = true;
}
