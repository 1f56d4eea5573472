//! Keeping a volume while it is opened: others take one whose fence stands still, and reading all rows may take longer than they wait. Where the server's own beats keep it, nothing is put.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use forebay_cluster::{Claim, Ownership};
use forebay_engine::{Batch, Engine, EngineError, Outcome, settle};
use forebay_format::key::Key;

use crate::{
    take::{fence_value, read_fence},
    ticks::Ticks,
};

/// How often it is looked whether a beat is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a beat of which nobody can tell is asked for again once the work is done.
const TRIES: u32 = 100;

/// Does `work` while another thread puts beats. Returns the ownership, with no beat under way that may have been committed; `None` where it was lost, or nobody can tell.
pub(crate) fn while_beating<R>(
    ownership: Ownership,
    engine: &dyn Engine,
    ticks: &dyn Ticks,
    work: impl FnOnce() -> R,
) -> (Option<Ownership>, R) {
    let (done, ends) = mpsc::channel();
    thread::scope(|scope| {
        let beating = thread::Builder::new().name("fb-beat".to_owned());
        let beating = beating.spawn_scoped(scope, move || beat(ownership, engine, ticks, &ends));
        let result = work();
        // Also where the work panics: then the other thread ends before this one goes on.
        drop::<mpsc::Sender<()>>(done);
        let ownership = beating.ok().and_then(|beating| beating.join().ok().flatten());
        (ownership, result)
    })
}

fn beat(
    mut ownership: Ownership,
    engine: &dyn Engine,
    ticks: &dyn Ticks,
    ends: &Receiver<()>,
) -> Option<Ownership> {
    let (mut unknown, mut tries) = (false, 0);
    loop {
        let over = !matches!(ends.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout));
        match (over, unknown) {
            (true, false) => return Some(ownership),
            (true, true) if tries == TRIES => return None,
            (true, true) => {
                tries += 1;
                thread::sleep(LOOK_EVERY);
            }
            (false, _) => {}
        }
        // Between two rounds none is under way that is not unknown.
        if !unknown && ownership.beat_at().is_none_or(|at| at > ticks.now()) {
            continue;
        }
        let claim = ownership.begin(ticks.now())?;
        match commit(engine, &claim, unknown) {
            Ok(Outcome::Committed) => {
                ownership.committed();
                unknown = false;
            }
            Ok(Outcome::Unknown) => unknown = true,
            Ok(Outcome::Fenced) => match read_fence(engine) {
                Ok(found) => match ownership.fenced(found.for_owner(), ticks.now()) {
                    true => unknown = false,
                    false => return None,
                },
                // It may have been fenced by itself.
                Err(error) => {
                    tracing::warn!(%error, "the owner's fence cannot be read");
                    unknown = true;
                }
            },
            // Nothing was changed by this try, and by none before it unless nobody can tell.
            Err(error) => tracing::warn!(%error, "the metadata engine did not take a beat"),
        }
    }
}

fn commit(engine: &dyn Engine, claim: &Claim, again: bool) -> Result<Outcome, EngineError> {
    let (key, value) = (Key::Fence.encode(), fence_value(&claim.fence));
    let expect = vec![(key.clone(), claim.expect.as_ref().map(fence_value))];
    let batch = Batch { expect, rows: vec![(&key, Some(&value))] };
    if again { settle(engine, &batch, &key) } else { engine.commit(&batch) }
}
