//! What metadata servers say of those who show tokens, asked once for all parts of a proxy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_group::GroupId;
use forebay_protocol::{
    Kind, Refusal,
    group::{Vouch, VouchIn, Vouched},
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
/// How long servers are taken for those of an older release that said so: the next one that is asked may be of a later one.
const OLDER_FOR: Duration = Duration::from_mins(1);

type Shown = (VolumeId, Option<String>, Option<String>);
type Told = Arc<Mutex<Option<(Vouched, Instant)>>>;

/// What was said, and until when that counts.
pub(super) struct Vouches {
    meta: Meta,
    /// Whose member this process is.
    group: GroupId,
    told: Mutex<FxHashMap<Shown, Told>>,
    /// Since when servers do not know [`Kind::VouchIn`].
    older: Mutex<Option<Instant>>,
    /// Since when the servers are away, and why.
    away: Mutex<Option<(Instant, String)>>,
}

impl Vouches {
    pub(super) fn new(meta: Meta, group: GroupId) -> Vouches {
        Vouches { meta, group, told: Mutex::default(), older: Mutex::default(), away: Mutex::default() }
    }

    /// Servers of an older release know of the first group of a volume alone.
    fn ask(&self, vouch: &Vouch) -> Result<Vouched, MetaError> {
        let is_older = self.older.lock().is_some_and(|since| since.elapsed() < OLDER_FOR);
        if !is_older {
            let asked = VouchIn { group: self.group, vouch: vouch.clone() };
            match self.meta.ask(Kind::VouchIn, &asked, ANSWER_MS) {
                Err(MetaError::Unsupported(_)) => *self.older.lock() = Some(Instant::now()),
                told => return told,
            }
        }
        self.meta.ask(Kind::Vouch, vouch, ANSWER_MS)
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
        match self.ask(vouch) {
            Ok(vouched) => {
                *told = Some((vouched.clone(), asked + Duration::from_millis(vouched.for_ms)));
                Ok(vouched)
            }
            Err(MetaError::Unanswered(why)) => {
                *self.away.lock() = Some((Instant::now(), why.clone()));
                Err(Refusal::Unavailable(why))
            }
            Err(MetaError::Refused(why) | MetaError::Unsupported(why)) => {
                *told = None;
                Err(Refusal::Denied(why))
            }
        }
    }
}
