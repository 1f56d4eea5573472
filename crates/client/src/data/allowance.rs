//! Room that the owner has set aside for what is kept back here, where the volume has a limit: a write that finds none is told so, and not the `fsync` after it.
//!
//! What is taken in counts from the start of the mount, and room reaches up to a position in that: what was kept back when it was asked for is behind it already, and what comes in
//! meanwhile comes before its end. So nothing has to be counted back when something is committed or dropped; the next answer counts anew.

use std::time::{Duration, Instant};

use forebay_protocol::{Answer, Failure, Operation};

use super::Shared;
use crate::{ClientError, link::Patience};

/// Bytes that are asked for beyond what is needed. The owner gives less where little is free.
const SPARE: u64 = 64 << 20;
/// When nothing was written for so long and nothing is kept back, others may have it.
const IDLE: Duration = Duration::from_secs(10);
/// How long who found no room waits for the owner to take back what was set aside.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(1);

/// How far there is room.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Whether the volume has a limit.
    limited: bool,
    /// Bytes that were ever taken in.
    taken: u64,
    /// Up to where there is room.
    up_to: u64,
    /// Whether somebody asks just now.
    asking: bool,
    /// Rises when what was told before counts no longer.
    term: u64,
    /// The last write, while what is to spare has not been given back.
    used: Option<Instant>,
}

/// What stood where when the owner was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    taken: u64,
    kept: u64,
    term: u64,
}

impl Allowance {
    /// That the volume has a limit, or has none: nothing is set aside, as far as is known.
    pub(super) fn begin(&mut self, limited: bool) {
        (self.limited, self.up_to, self.term) = (limited, 0, self.term + 1);
    }

    /// Takes in so many bytes.
    pub(super) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        if self.limited {
            self.used = Some(Instant::now());
        }
    }

    /// Whether there is no room for so many bytes more.
    pub(super) fn lacks(&self, bytes: u64) -> bool {
        self.limited && self.taken + bytes > self.up_to
    }

    /// Asks for so many bytes beside what is kept back: from now on no more than these are certain, whether or not the answer comes.
    fn asks(&mut self, kept: u64, bytes: u64) -> Asked {
        self.asking = true;
        self.up_to = self.up_to.min(self.taken + bytes);
        Asked { taken: self.taken, kept, term: self.term }
    }

    /// Returns whether that counts.
    fn is_told(&mut self, asked: Asked, bytes: Option<u64>) -> bool {
        if asked.term != self.term {
            return false;
        }
        match bytes {
            Some(bytes) => self.up_to = (asked.taken + bytes).saturating_sub(asked.kept),
            None => self.begin(false),
        }
        true
    }

    /// When what is to spare is to be given back, if nothing is kept back.
    fn due(&self, kept: u64) -> Option<Instant> {
        self.used.filter(|_| kept == 0 && !self.asking).map(|used| used + IDLE)
    }

    /// How long that is from now.
    pub(super) fn idle_for(&self, kept: u64, now: Instant) -> Option<Duration> {
        self.due(kept).map(|due| due.saturating_duration_since(now).max(Duration::from_millis(1)))
    }

    /// Whether what is to spare is to be given back now. Whoever is told so gives it back: nobody is told again before the next write.
    pub(super) fn is_idle(&mut self, kept: u64, now: Instant) -> bool {
        let idle = self.due(kept).is_some_and(|due| due <= now);
        self.used = self.used.filter(|_| !idle);
        idle
    }
}

impl Shared {
    /// Has room set aside for so many bytes more than are kept back. Where there is not enough of it, what is kept back is committed first: it may take less than it seemed.
    /// The caller holds no right to a file: what is kept back of others may need rights of other clients.
    ///
    /// # Errors
    /// [`ClientError`]: [`Failure::NoSpace`] where the volume is full.
    pub(super) fn make_room(&self, bytes: u64) -> Result<(), ClientError> {
        let patience = self.asks.patience();
        let made = self.make_room_within(bytes, &patience);
        if made.is_err() {
            // What there is of it is no use here, and others may do with it.
            if let Err(error) = self.ask_for_room(0, 0, &Patience::new(Some(GIVE_BACK_WITHIN), None)) {
                tracing::debug!(%error, "room that was set aside could not be given back");
            }
            self.work.notify_one();
        }
        made
    }

    fn make_room_within(&self, bytes: u64, patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut settled = None;
        loop {
            let mut line = self.line.lock();
            while line.allowance.asking && line.allowance.lacks(bytes) {
                if line.stop {
                    return Err(ClientError::Closed);
                }
                patience.wait(&self.changed, &mut line)?;
            }
            if !line.allowance.lacks(bytes) {
                return Ok(());
            }
            drop(line);
            if !self.ask_for_room(bytes, SPARE, patience)? || !self.line.lock().allowance.lacks(bytes) {
                // Somebody else was first to ask, or there is room.
                continue;
            }
            match settled {
                Some(Ok(())) => return Err(ClientError::Failed(Failure::NoSpace)),
                Some(Err(why)) => return Err(why),
                None => {}
            }
            // That some file could not be committed matters only where there is not enough room after all.
            settled = match self.settle(self.files.all(), true, patience) {
                Err(why @ (ClientError::Closed | ClientError::Interrupted | ClientError::TimedOut(_))) => {
                    return Err(why);
                }
                settled => Some(settled),
            };
        }
    }

    /// Asks for as much as is kept back now, for `bytes` more, and for some to spare; not while somebody else does. Returns whether it was told something that counts.
    pub(super) fn ask_for_room(
        &self,
        bytes: u64,
        spare: u64,
        patience: &Patience<'_>,
    ) -> Result<bool, ClientError> {
        let mut line = self.line.lock();
        if !line.allowance.limited || line.allowance.asking {
            return Ok(false);
        }
        let kept = line.kept;
        let asked = line.allowance.asks(kept, bytes);
        drop(line);
        let operation = Operation::Reserve { needs: kept + bytes, spare };
        let answer = self.asks.ask_within(self.asks.session(), operation, None, patience);
        let mut line = self.line.lock();
        line.allowance.asking = false;
        let told = match answer.map(|response| response.answer) {
            Ok(Answer::Reserved(bytes)) => Ok(line.allowance.is_told(asked, bytes)),
            Ok(Answer::Failed(failure)) => Err(ClientError::Failed(failure)),
            Ok(other) => Err(ClientError::Unexpected(format!("{other:?} to what is to be set aside"))),
            Err(ClientError::Unexpected(why)) => {
                tracing::warn!(
                    why,
                    "the server sets no room aside: that the volume is full is said by fsync"
                );
                Ok(line.allowance.is_told(asked, None))
            }
            // The next session says whether there is a limit.
            Err(ClientError::SessionEnded) => Ok(false),
            Err(error) => Err(error),
        };
        drop(line);
        self.changed.notify_all();
        told
    }

    /// Gives back what is to spare, as nothing was written for a while.
    pub(super) fn give_room_back(&self) {
        if let Err(error) = self.ask_for_room(0, 0, &self.asks.patience()) {
            tracing::debug!(%error, "room that was set aside could not be given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_reaches_up_to_a_position_whatever_is_committed_meanwhile() {
        let mut allowance = Allowance::default();
        assert!(!allowance.lacks(1000), "no limit");
        allowance.take(100);
        allowance.begin(true);
        assert!(allowance.lacks(1));
        // The 100 were committed, 10 are kept back.
        allowance.take(10);
        let asked = allowance.asks(10, 5);
        allowance.take(20);
        assert!(allowance.is_told(asked, Some(35)));
        assert!(
            !allowance.lacks(5) && allowance.lacks(6),
            "of the 35, 10 were for what was there, and 20 came in"
        );
        // All is committed; of what is kept back less is needed than there is.
        let asked = allowance.asks(0, 5);
        allowance.is_told(asked, Some(5));
        allowance.take(5);
        assert!(allowance.lacks(1));
        allowance.take(6);
        let asked = allowance.asks(6, 5);
        allowance.is_told(asked, Some(4));
        assert!(allowance.lacks(0), "some of it went beyond");
    }

    #[test]
    fn what_may_have_been_given_back_is_not_relied_on() {
        let mut allowance = Allowance::default();
        allowance.begin(true);
        let asked = allowance.asks(0, 100);
        allowance.is_told(asked, Some(1000));
        allowance.take(10);
        assert!(!allowance.lacks(990));
        // More is asked for than there is, and no answer comes: what there was stays.
        allowance.asks(10, 2000);
        assert!(!allowance.lacks(990));
        // All but 50 is given back, and no answer comes.
        allowance.asks(10, 50);
        assert!(!allowance.lacks(50) && allowance.lacks(51));
        allowance.asks(10, 0);
        assert!(!allowance.lacks(0) && allowance.lacks(1));
    }

    #[test]
    fn what_was_told_in_an_earlier_term_says_nothing() {
        let mut allowance = Allowance::default();
        allowance.begin(true);
        let asked = allowance.asks(0, 5);
        allowance.begin(true);
        assert!(!allowance.is_told(asked, Some(1000)));
        assert!(allowance.lacks(10));
        let asked = allowance.asks(0, 5);
        assert!(allowance.is_told(asked, None));
        assert!(!allowance.lacks(10), "it has no limit any more");
    }

    #[test]
    fn what_is_to_spare_is_given_back_once_nothing_is_written() {
        let mut allowance = Allowance::default();
        let now = Instant::now();
        assert_eq!(allowance.idle_for(0, now), None, "nothing was written");
        allowance.begin(true);
        allowance.take(10);
        assert_eq!(allowance.idle_for(10, now), None, "it is kept back");
        assert!(!allowance.is_idle(0, now));
        assert!(allowance.is_idle(0, now + 2 * IDLE));
        assert!(!allowance.is_idle(0, now + 2 * IDLE), "one gives it back");
    }
}
