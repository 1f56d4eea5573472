//! What metadata servers say of those who show tokens, asked once for all parts of a proxy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_protocol::{
    Kind, Refusal,
    group::{Vouch, Vouched},
};
use forebay_types::VolumeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{
    membership::{Meta, MetaError},
    writeback::Vouching,
};

/// How long the servers may take, in milliseconds.
const ANSWER_MS: u32 = 3_000;
/// How long nobody asks after none of them answered: threads that wait for them are not there for those who read.
const AWAY_FOR: Duration = Duration::from_millis(500);

type Shown = (VolumeId, Option<String>, Option<String>);
type Told = Arc<Mutex<Option<(Vouched, Instant)>>>;

/// What was said, and until when that counts.
pub(super) struct Vouches {
    meta: Meta,
    told: Mutex<FxHashMap<Shown, Told>>,
    /// Since when the servers are away, and why.
    away: Mutex<Option<(Instant, String)>>,
}

impl Vouches {
    pub(super) fn new(meta: Meta) -> Vouches {
        Vouches { meta, told: Mutex::default(), away: Mutex::default() }
    }

    fn told(&self, vouch: &Vouch) -> Told {
        let shown = (vouch.volume, vouch.token.clone(), vouch.certificate.clone());
        let mut told = self.told.lock();
        let counts = |told: &Told| {
            let in_use = Arc::strong_count(told) > 1;
            in_use || told.lock().as_ref().is_some_and(|(_, until)| Instant::now() < *until)
        };
        told.retain(|_, told| counts(told));
        Arc::clone(told.entry(shown).or_default())
    }

    fn is_away(&self) -> Option<String> {
        let away = self.away.lock();
        away.as_ref().filter(|(since, _)| since.elapsed() < AWAY_FOR).map(|(_, why)| why.clone())
    }
}

impl Vouching for Vouches {
    fn vouch(&self, vouch: &Vouch) -> Result<Vouched, Refusal> {
        let told = self.told(vouch);
        // Who shows the same waits for the one answer.
        let mut told = told.lock();
        if let Some((vouched, until)) = &*told
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            let for_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            return Ok(Vouched { for_ms, ..vouched.clone() });
        }
        if let Some(why) = self.is_away() {
            return Err(Refusal::Unavailable(why));
        }
        let asked = Instant::now();
        match self.meta.ask::<Vouched>(Kind::Vouch, vouch, ANSWER_MS) {
            Ok(vouched) => {
                *told = Some((vouched.clone(), asked + Duration::from_millis(vouched.for_ms)));
                Ok(vouched)
            }
            Err(MetaError::Unanswered(why)) => {
                *self.away.lock() = Some((Instant::now(), why.clone()));
                Err(Refusal::Unavailable(why))
            }
            Err(MetaError::Refused(why)) => {
                *told = None;
                Err(Refusal::Denied(why))
            }
        }
    }
}
