//! Standing by until a volume is to be had.

use std::{sync::Arc, time::Duration};

use forebay_cluster::{Claim, Fence, Moment, Ownership, ServerId, Terms};
use forebay_engine::{Batch, Engine, EngineError, Outcome, Writers, settle};
use forebay_format::{key::Key, moving_row::MovingRow, row::Row, shared_row::FenceRow};
use forebay_meta::MetaError;
use forebay_types::Epoch;

use crate::ticks::Ticks;

/// How often a server that stands by looks at the fence.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A volume that this server has taken.
#[derive(Debug)]
pub struct Taken {
    pub(crate) ownership: Ownership,
}

/// What a server that stands by is asked and told.
pub trait StandsBy {
    /// Waits this long, or less.
    fn pause(&mut self, time: Duration);

    /// Whether to stand by no more. Asked at least every half second.
    fn stopped(&self) -> bool;

    /// The fence as it was just read.
    fn saw(&mut self, _fence: Option<&Fence>) {}

    /// When the last beat of this server began that was committed to the place that it has alone, if it has one so.
    fn beat(&self) -> Option<Moment> {
        None
    }

    /// Whether to take the volume, which is to be had now. Asked again after a pause where not.
    fn takes(&mut self, _now: Moment) -> bool {
        true
    }
}

/// Waits until the volume in `engine` is free or its owner is not heard of, as `ownership` tells, and takes it. `None` once it is to stand by no more, where nobody may own these
/// rows (they are on their way to another engine, or there), and where an engine with one writer has to be opened again.
///
/// # Errors
/// [`EngineError`] where the engine fails for good; while it is unreachable, it is asked again.
pub fn stand_by(
    engine: &Arc<dyn Engine>,
    mut ownership: Ownership,
    ticks: &dyn Ticks,
    by: &mut dyn StandsBy,
) -> Result<Option<Taken>, MetaError> {
    while !by.stopped() {
        match read_fence(engine.as_ref()) {
            Ok(Found::Closed(_)) => return Ok(None),
            Ok(Found::Fence(found)) => {
                let now = ticks.now();
                by.saw(found.as_ref());
                if let Some(begun) = by.beat() {
                    ownership.renew(begun);
                }
                if let Some(claim) = ownership.saw(found, now)
                    && by.takes(now)
                {
                    match commit_claim(engine.as_ref(), &claim)? {
                        Some(Outcome::Committed) => {
                            ownership.claimed(claim, now);
                            return Ok(Some(Taken { ownership }));
                        }
                        // It may be this engine that is shut out, of which no other claim is taken either: it has to be opened again.
                        Some(Outcome::Fenced) if engine.writers() == Writers::One => {
                            by.pause(LOOK_EVERY);
                            return Ok(None);
                        }
                        _ => {}
                    }
                }
            }
            Err(MetaError::Engine(error)) if may_pass(&error) => {
                tracing::warn!(%error, "the metadata engine does not answer");
            }
            Err(error) => return Err(error),
        }
        by.pause(LOOK_EVERY);
    }
    Ok(None)
}

/// [`stand_by`] of a server that takes whatever is to be had, with two closures.
///
/// # Errors
/// As there.
pub fn take(
    engine: &Arc<dyn Engine>,
    (server, address): (ServerId, &str),
    terms: Terms,
    ticks: &dyn Ticks,
    pause: impl FnMut(Duration),
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Taken>, MetaError> {
    let ownership = Ownership::new(server, address.to_owned(), terms);
    stand_by(engine, ownership, ticks, &mut Plain(pause, stopped))
}

struct Plain<'a, P>(P, &'a dyn Fn() -> bool);

impl<P: FnMut(Duration)> StandsBy for Plain<'_, P> {
    fn pause(&mut self, time: Duration) {
        (self.0)(time);
    }

    fn stopped(&self) -> bool {
        (self.1)()
    }
}

/// Whether an engine that failed so may work again.
pub(crate) fn may_pass(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Unreachable { .. } | EngineError::NoSpace { .. } | EngineError::Failed { .. }
    )
}

/// What stands where an owner has its fence.
pub(crate) enum Found {
    /// A fence, if there ever was one.
    Fence(Option<Fence>),
    /// What nobody may take, since this term.
    Closed(Epoch),
}

impl Found {
    /// What it means for an owner: a volume that is elsewhere is another one's.
    pub(crate) fn for_owner(self) -> Option<Fence> {
        match self {
            Found::Fence(fence) => fence,
            Found::Closed(epoch) => Some(Fence { epoch, server: None, address: String::new(), beat: 0 }),
        }
    }
}

pub(crate) fn read_fence(engine: &dyn Engine) -> Result<Found, MetaError> {
    let Some(value) = engine.get(&Key::Fence.encode())? else { return Ok(Found::Fence(None)) };
    let wrong = |source| MetaError::Damaged { row: "the owner's fence".to_owned(), source };
    if MovingRow::is_meant(&value) {
        return Ok(Found::Closed(match MovingRow::decode(&value).map_err(wrong)? {
            MovingRow::Moved { epoch, .. } => epoch,
            MovingRow::Incoming { .. } => Epoch(0),
        }));
    }
    let FenceRow { epoch, server, beat, address } = FenceRow::decode(&value).map_err(wrong)?;
    Ok(Found::Fence(Some(Fence { epoch, server: server.map(ServerId), address, beat })))
}

pub(crate) fn fence_value(fence: &Fence) -> Vec<u8> {
    let Fence { epoch, server, address, beat } = fence.clone();
    FenceRow { epoch, server: server.map(|server| server.0), beat, address }.encode()
}

/// What became of a claim. Where nobody can tell, it was not made: it is made again from what the row says then.
fn commit_claim(engine: &dyn Engine, claim: &Claim) -> Result<Option<Outcome>, MetaError> {
    let (key, value) = (Key::Fence.encode(), fence_value(&claim.fence));
    let expect = vec![(key.clone(), claim.expect.as_ref().map(fence_value))];
    let batch = Batch { expect, rows: vec![(&key, Some(&value))] };
    let outcome = match engine.commit(&batch) {
        Ok(Outcome::Unknown) => settle(engine, &batch, &key),
        other => other,
    };
    match outcome {
        Ok(outcome) => Ok(Some(outcome)),
        Err(error) if may_pass(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
