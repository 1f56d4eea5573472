//! The thread that writes.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;

use super::{
    Durable, Failure, Shared,
    disk::is_full,
    open::name_file,
    read::file_name,
    state::{Chunk, State},
    tidy,
};

/// The pause before a write is tried again for which the disk had no room.
const FULL_PAUSE: Duration = Duration::from_millis(200);

/// Writes and syncs until the log is closed or fails.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    loop {
        state = tidy::tidy(shared, state);
        while state.is_idle() && !state.closing && state.failed.is_none() && !tidy::wanted(shared, &state) {
            shared.work.wait(&mut state);
        }
        if state.failed.is_some() || (state.is_idle() && state.closing) {
            break;
        }
        if !state.is_idle() {
            state = round(shared, state);
        }
    }
    if state.failed.is_none() {
        state.failed = Some(shared.closed());
    }
    let failed = state.failed.clone();
    shared.durable.send_modify(|durable| durable.failed = failed);
}

/// One round for all who are here.
fn round<'a>(shared: &'a Arc<Shared>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    while !state.closing
        && let Some(until) = state.company.wait()
    {
        if shared.work.wait_until(&mut state, until).timed_out() {
            break;
        }
    }
    let served = state.company.set_off();
    let from = Instant::now();
    let chunks = state.take_chunks();
    let upto = state.end;
    let written = MutexGuard::unlocked(&mut state, || write_all(shared, chunks));
    let now = Instant::now();
    state.company.back(served, now - from, now);
    match written {
        Ok(()) => {
            state.synced = upto;
            state.volumes.values_mut().for_each(|log| log.synced(upto));
            shared.durable.send_replace(Durable { upto, failed: None });
        }
        Err(failure) => {
            tracing::error!("{failure}");
            state.failed = Some(failure);
        }
    }
    let mut counts = shared.counts.lock();
    counts.syncs += 1;
    counts.sync_micros += u64::try_from((now - from).as_micros()).unwrap_or(u64::MAX);
    drop(counts);
    state
}

fn write_all(shared: &Shared, chunks: VecDeque<Chunk>) -> Result<(), Failure> {
    let mut last = None;
    for chunk in chunks {
        if last.is_some_and(|last| last != chunk.file) {
            // Everything before a file is on stable storage before the file is there.
            sync(shared, last)?;
        }
        last = Some(chunk.file);
        write(shared, &chunk)?;
        shared.state.lock().written(chunk);
    }
    sync(shared, last)
}

fn write(shared: &Shared, chunk: &Chunk) -> Result<(), Failure> {
    let (file, offset) = ready(shared, chunk)?;
    loop {
        match file.write_blocks(offset, chunk.blocks.as_slice()) {
            // Nothing was promised yet. Whoever waits goes elsewhere; what drops are to free is freed meanwhile.
            Err(error) if is_full(&error) && !shared.state.lock().closing => {
                let mut state = shared.state.lock();
                if !std::mem::replace(&mut state.stuck, true) {
                    tracing::warn!("the log waits for room on the disk: {error}");
                }
                tidy::free(shared, &mut state);
                drop(state);
                std::thread::sleep(FULL_PAUSE);
            }
            Err(error) => {
                let path = shared.options.disk.path(&file_name(chunk.file));
                return Err(Failure::new("write to", path, error));
            }
            Ok(()) => {
                shared.state.lock().stuck = false;
                return Ok(());
            }
        }
    }
}

/// The file of a chunk, which is made if it is the first one in it, and the chunk's place.
fn ready(shared: &Shared, chunk: &Chunk) -> Result<(Arc<dyn super::DiskFile>, u64), Failure> {
    let gone = || {
        let path = shared.options.disk.path(&file_name(chunk.file));
        Failure::new("find", path, std::io::ErrorKind::NotFound.into())
    };
    let (file, first, offset) = {
        let state = shared.state.lock();
        let file = state.files.iter().find(|file| file.number == chunk.file).ok_or_else(gone)?;
        (file.file.clone(), file.first, file.offset(chunk.position))
    };
    if let Some(file) = file {
        return Ok((file, offset));
    }
    let options = &shared.options;
    let spare = options
        .disk
        .open(super::read::SPARE)
        .map_err(|error| Failure::new("open", options.disk.path(super::read::SPARE), error))?;
    name_file(options, &spare, chunk.file, first)?;
    let mut state = shared.state.lock();
    let entry = state.files.iter_mut().find(|file| file.number == chunk.file).ok_or_else(gone)?;
    entry.file = Some(Arc::clone(&spare));
    Ok((spare, offset))
}

fn sync(shared: &Shared, number: Option<u64>) -> Result<(), Failure> {
    let Some(number) = number else { return Ok(()) };
    let file = {
        let state = shared.state.lock();
        state.files.iter().find(|file| file.number == number).and_then(|file| file.file.clone())
    };
    let Some(file) = file else { return Ok(()) };
    file.sync().map_err(|error| Failure::new("sync", shared.options.disk.path(&file_name(number)), error))
}
