//! Work that leaves nothing to do: everything in the store, and no object worth compacting.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use forebay_volume::{Volume, VolumeError};

use crate::{control::Progress, error::CliError};

/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);
/// A mount that is written to all the time always leaves something: so many rounds at most.
const ROUNDS: usize = 64;

/// Drains, and compacts until nothing changes. Tells of progress meanwhile.
pub(crate) fn settle(volume: &Volume, tell: &mut dyn FnMut(Progress)) -> Result<(), CliError> {
    watched(volume, tell, || {
        volume.drain(&mut |_| {})?;
        for _ in 0..ROUNDS {
            let before = held(volume);
            volume.compact()?;
            volume.drain(&mut |_| {})?;
            if held(volume) == before {
                break;
            }
        }
        Ok(())
    })
}

fn held(volume: &Volume) -> (u64, u64, u64) {
    let status = volume.status();
    (status.objects, status.stored_bytes, status.garbage_bytes)
}

/// Runs `work` and tells of what is dirty until it is done.
pub(crate) fn watched(
    volume: &Volume,
    tell: &mut dyn FnMut(Progress),
    work: impl FnOnce() -> Result<(), VolumeError> + Send,
) -> Result<(), CliError> {
    let caller = thread::current();
    // Said before the caller is woken: the thread itself is finished only a moment later.
    let done = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            done.store(true, Ordering::Release);
            caller.unpark();
            result
        });
        while !done.load(Ordering::Acquire) && !worker.is_finished() {
            tell(Progress { dirty_bytes: volume.dirty_bytes() });
            thread::park_timeout(TICK);
        }
        worker.join()
    });
    match result {
        Ok(result) => Ok(result?),
        Err(_) => Err(CliError::Told("a thread of this process panicked; the log tells more".to_owned())),
    }
}
