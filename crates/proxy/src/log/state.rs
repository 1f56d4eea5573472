//! What the log has, and what is on its way to the disk. One lock guards it; nothing here waits.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use forebay_env::{direct::Blocks, rounds::Company};
use forebay_format::member_log::{BLOCK, FILE_HEAD_LEN, RECORD_HEAD_LEN, RecordHead, RecordKind};
use forebay_group::{MemberLog, Record, ViewEpoch};
use forebay_types::{Epoch, SegmentId, VolumeId};

use super::{DiskFile, Failure, LogOptions, PutError};

/// So many appends are refused between two attempts to get space on a full disk.
const SPARE_PAUSE: u32 = 32;
/// Buffers that are kept for the next round.
const IDLE_MAX: usize = 8;

/// What a record is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// Anything that can be refused when the disk is full.
    Normal,
    /// What frees space, or makes it possible.
    Reclaim,
}

/// A file of the log.
pub(super) struct LogFile {
    pub(super) number: u64,
    /// The position of its first record.
    pub(super) first: u64,
    /// The position behind its last one; of the file that is being written, of all that have been placed.
    pub(super) end: u64,
    /// Bytes that it takes on the disk.
    pub(super) len: u64,
    /// Nothing for a file that is still to be made.
    pub(super) file: Option<Arc<dyn DiskFile>>,
}

impl LogFile {
    /// Where a position is in it.
    pub(super) fn offset(&self, position: u64) -> u64 {
        FILE_HEAD_LEN as u64 + (position - self.first)
    }
}

/// Blocks for one file.
pub(super) struct Chunk {
    /// The file's number.
    pub(super) file: u64,
    /// The position of the first byte: a multiple of [`BLOCK`].
    pub(super) position: u64,
    pub(super) blocks: Blocks,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.position + self.blocks.len() as u64
    }
}

pub(super) struct State {
    pub(super) volumes: BTreeMap<VolumeId, MemberLog>,
    /// The oldest first; the last one is being filled.
    pub(super) files: VecDeque<LogFile>,
    /// Where the next record goes.
    pub(super) end: u64,
    filling: Option<Chunk>,
    queue: VecDeque<Chunk>,
    /// Buffers to be used again.
    idle: Vec<Blocks>,
    pub(super) pending: u64,
    /// The length of the file that will be next: its space is there.
    pub(super) spare: Option<u64>,
    /// When there was none: it is tried again when something was freed, and after some appends that were refused.
    pub(super) spare_refused: bool,
    refused: u32,
    /// The disk has no room even for what was placed.
    pub(super) stuck: bool,
    /// What is left of the oldest file has no place; until something is dropped.
    pub(super) move_refused: bool,
    pub(super) synced: u64,
    pub(super) company: Company,
    pub(super) failed: Option<Failure>,
    /// Copies that were given up when there was no room for a record of it.
    pub(super) owed: Vec<(VolumeId, SegmentId)>,
    /// Something was dropped since files were removed.
    pub(super) dropped: bool,
    /// What was appended anew has to be synced up to here before a file is removed.
    pub(super) moved_upto: u64,
    pub(super) closing: bool,
    pub(super) view: ViewEpoch,
    /// Records between these positions were lost.
    pub(super) lost: Option<(u64, u64)>,
}

impl State {
    pub(super) fn new(volumes: BTreeMap<VolumeId, MemberLog>, files: VecDeque<LogFile>, end: u64) -> State {
        State {
            volumes,
            files,
            end,
            filling: None,
            queue: VecDeque::new(),
            idle: Vec::new(),
            pending: 0,
            spare: None,
            spare_refused: false,
            refused: 0,
            stuck: false,
            move_refused: false,
            synced: end,
            company: Company::default(),
            failed: None,
            owed: Vec::new(),
            dropped: true,
            moved_upto: 0,
            closing: false,
            view: ViewEpoch(0),
            lost: None,
        }
    }

    /// What a volume has; of one that was not heard of, nothing.
    pub(super) fn volume(&mut self, id: VolumeId) -> &mut MemberLog {
        let lost_before = self.lost.map_or(0, |(_, to)| to);
        self.volumes.entry(id).or_insert_with(|| {
            let mut log = MemberLog::new();
            log.replayed(lost_before);
            log
        })
    }

    pub(super) fn dirty(&self) -> u64 {
        self.volumes.values().map(MemberLog::dirty).sum()
    }

    /// Bytes of all files.
    pub(super) fn len(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.filling.is_none() && self.queue.is_empty()
    }

    /// Finds the place for a record of this size, in the next file where this one has no room.
    pub(super) fn place(
        &mut self,
        size: u64,
        urgency: Urgency,
        options: &LogOptions,
    ) -> Result<u64, PutError> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        let filled = self.filling.as_ref().map_or(0, |chunk| chunk.blocks.len() as u64);
        if filled > 0 && filled + size > options.chunk as u64 {
            self.close_chunk();
        }
        let free = self.free();
        let spared = urgency == Urgency::Normal && self.spare.is_none() && free < size + options.reserve;
        if spared || (urgency == Urgency::Normal && self.stuck) {
            return Err(self.full());
        }
        if free < size {
            let len = self.spare.take().ok_or_else(|| self.full())?;
            self.next_file(len, options);
            if self.free() < size {
                return Err(PutError::Full);
            }
        }
        Ok(self.end)
    }

    fn full(&mut self) -> PutError {
        self.refused += 1;
        if self.refused.is_multiple_of(SPARE_PAUSE) {
            self.spare_refused = false;
        }
        PutError::Full
    }

    /// Writes the records of what was given up without one, as far as there is room. One that is here again has none: it would go with it.
    pub(super) fn write_owed(&mut self, options: &LogOptions) {
        while let Some((volume, segment)) = self.owed.last().copied() {
            if !self.volume(volume).has(segment) {
                let Ok(place) = self.place(RECORD_HEAD_LEN as u64, Urgency::Normal, options) else { return };
                self.volume(volume).begin_at(place);
                self.write(volume, &Record::Drop { segment }, false, options);
            }
            self.owed.pop();
        }
    }

    /// Bytes that the current file has left.
    fn free(&self) -> u64 {
        self.files.back().map_or(0, |file| {
            (file.first + file.len).saturating_sub(FILE_HEAD_LEN as u64).saturating_sub(self.end)
        })
    }

    fn next_file(&mut self, len: u64, options: &LogOptions) {
        self.close_chunk();
        self.end = self.end.next_multiple_of(BLOCK);
        let number = self.files.back().map_or(0, |file| file.number) + 1;
        self.files.push_back(LogFile { number, first: self.end, end: self.end, len, file: None });
        self.begin_file(options);
    }

    /// What each file begins with, so that it is still known when those before it are gone.
    pub(super) fn begin_file(&mut self, options: &LogOptions) {
        let head = RecordHead {
            kind: RecordKind::View,
            synced: self.synced,
            volume: VolumeId([0; 16]),
            segment: SegmentId(0),
            epoch: Epoch(self.view.0),
            offset: 0,
            len: 0,
            check: 0,
        };
        self.put(&head, &[], options);
        if let Some((from, to)) = self.lost {
            self.put(
                &RecordHead { kind: RecordKind::Lost, epoch: Epoch(from), offset: to, ..head },
                &[],
                options,
            );
        }
    }

    /// Writes a record to the place that was found for it.
    pub(super) fn write(&mut self, volume: VolumeId, record: &Record, again: bool, options: &LogOptions) {
        let (segment, synced) = (record.segment(), self.synced);
        let head = |kind, epoch, offset, check| RecordHead {
            kind,
            synced,
            volume,
            segment,
            epoch,
            offset,
            len: 0,
            check,
        };
        match record {
            Record::Append(append) => {
                let kind = if again { RecordKind::Again } else { RecordKind::Append };
                let head = head(kind, append.epoch, append.offset, append.check);
                self.put(&RecordHead { len: append.bytes.len() as u32, ..head }, &append.bytes, options);
            }
            Record::Fence { epoch, .. } => self.put(&head(RecordKind::Fence, *epoch, 0, 0), &[], options),
            Record::Seal { epoch, len, check, .. } => {
                self.put(&head(RecordKind::Seal, *epoch, *len, *check), &[], options);
            }
            Record::Drop { .. } => {
                (self.dropped, self.move_refused) = (true, false);
                self.put(&head(RecordKind::Drop, Epoch(0), 0, 0), &[], options);
            }
        }
    }

    /// Says which view was acknowledged.
    pub(super) fn write_view(&mut self, view: ViewEpoch, options: &LogOptions) {
        self.view = view;
        let head = RecordHead {
            kind: RecordKind::View,
            synced: self.synced,
            volume: VolumeId([0; 16]),
            segment: SegmentId(0),
            epoch: Epoch(view.0),
            offset: 0,
            len: 0,
            check: 0,
        };
        self.put(&head, &[], options);
    }

    fn put(&mut self, head: &RecordHead, bytes: &[u8], options: &LogOptions) {
        let position = self.end;
        let number = self.files.back().map_or(0, |file| file.number);
        let idle = &mut self.idle;
        let chunk = self.filling.get_or_insert_with(|| {
            let blocks = idle.pop().unwrap_or_else(|| Blocks::with_capacity(options.chunk));
            Chunk { file: number, position, blocks }
        });
        chunk.blocks.extend(&head.encode(&options.incarnation.0, position));
        chunk.blocks.extend(bytes);
        let padding = head.size() as usize - RECORD_HEAD_LEN - bytes.len();
        chunk.blocks.extend(&[0; RECORD_HEAD_LEN][..padding]);
        self.pending += head.size();
        self.end = position + head.size();
        self.note_end();
    }

    fn note_end(&mut self) {
        let end = self.end;
        if let Some(file) = self.files.back_mut() {
            file.end = end;
        }
    }

    fn close_chunk(&mut self) {
        let Some(mut chunk) = self.filling.take() else { return };
        let before = chunk.blocks.len() as u64;
        chunk.blocks.pad();
        self.pending += chunk.blocks.len() as u64 - before;
        self.end = chunk.end();
        self.note_end();
        self.queue.push_back(chunk);
    }

    /// All that is to be written, in its order. What comes from now on goes behind it.
    pub(super) fn take_chunks(&mut self) -> VecDeque<Chunk> {
        self.close_chunk();
        self.pending = 0;
        std::mem::take(&mut self.queue)
    }

    /// The chunk is in its file.
    pub(super) fn written(&mut self, mut chunk: Chunk) {
        if self.idle.len() < IDLE_MAX {
            chunk.blocks.clear();
            self.idle.push(chunk.blocks);
        }
    }

    /// The file that has a position.
    pub(super) fn file_at(&self, position: u64) -> Option<&LogFile> {
        let after = self.files.partition_point(|file| file.first <= position);
        self.files.get(after.checked_sub(1)?)
    }
}
