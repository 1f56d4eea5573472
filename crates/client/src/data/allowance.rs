//! Room that the owner has set aside for what is kept back here, where the volume has a limit: a write that finds none is told so, and not the `fsync` after it.
//!
//! What is taken in counts from the start of the mount, and a write stands at the position where it ends. Room reaches up to a position: what was kept back when it was asked for is
//! behind it already, and what comes in meanwhile stands before its end or not, in its order. So nothing has to be counted back when something is committed or dropped;
//! the next answer counts anew.

use std::time::{Duration, Instant};

use forebay_protocol::{Answer, Failure, Operation};

use super::Shared;
use crate::ClientError;

/// Bytes that are asked for beyond what is needed. The owner gives less where little is free.
const SPARE: u64 = 64 << 20;
/// When nothing was written for so long and nothing is kept back, others may have it.
const IDLE: Duration = Duration::from_secs(10);

/// How far there is room.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Whether the volume has a limit.
    limited: bool,
    /// Where the last write stands.
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

    /// Takes in so many bytes. Returns where they stand, if there is no room there.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        self.taken += bytes;
        if self.limited {
            self.used = Some(Instant::now());
        }
        self.lacks(self.taken).then_some(self.taken)
    }

    fn lacks(&self, position: u64) -> bool {
        self.limited && position > self.up_to
    }

    fn asks(&mut self, kept: u64) -> Asked {
        self.asking = true;
        Asked { taken: self.taken, kept, term: self.term }
    }

    fn is_told(&mut self, asked: Asked, bytes: Option<u64>) {
        if asked.term != self.term {
            return;
        }
        match bytes {
            Some(bytes) => self.up_to = (asked.taken + bytes).saturating_sub(asked.kept),
            None => self.begin(false),
        }
    }

    /// When what is to spare is to be given back, if nothing is kept back.
    fn due(&self, kept: u64) -> Option<Instant> {
        self.used.filter(|_| kept == 0 && !self.asking).map(|used| used + IDLE)
    }

    /// How long that is from now.
    pub(super) fn idle_for(&self, kept: u64, now: Instant) -> Option<Duration> {
        self.due(kept).map(|due| due.saturating_duration_since(now).max(Duration::from_millis(1)))
    }

    /// Whether what is to spare is to be given back now.
    pub(super) fn is_idle(&self, kept: u64, now: Instant) -> bool {
        self.due(kept).is_some_and(|due| due <= now)
    }
}

impl Shared {
    /// Has room set aside up to where a write stands. Where there is not enough of it, what is kept back is committed first: it may take less than it seemed.
    ///
    /// # Errors
    /// [`ClientError`]: [`Failure::NoSpace`] where the volume is full.
    pub(super) fn have_room_at(&self, position: u64) -> Result<(), ClientError> {
        let patience = self.asks.patience();
        let mut settled = false;
        loop {
            let mut line = self.line.lock();
            while line.allowance.asking && line.allowance.lacks(position) {
                if line.stop {
                    return Err(ClientError::Closed);
                }
                patience.wait(&self.changed, &mut line)?;
            }
            if !line.allowance.lacks(position) {
                return Ok(());
            }
            drop(line);
            if !self.ask_for_room(SPARE)? || !self.line.lock().allowance.lacks(position) {
                // Somebody else was first to ask, or there is room.
                continue;
            }
            if settled {
                return Err(ClientError::Failed(Failure::NoSpace));
            }
            self.settle(self.files.all(), true, &patience)?;
            settled = true;
        }
    }

    /// Asks for as much as is kept back now, and for more to spare; not while somebody else does. Returns whether it has asked.
    pub(super) fn ask_for_room(&self, spare: u64) -> Result<bool, ClientError> {
        let mut line = self.line.lock();
        if !line.allowance.limited || line.allowance.asking {
            return Ok(false);
        }
        let kept = line.kept;
        let asked = line.allowance.asks(kept);
        drop(line);
        let answer = self.asks.ask(Operation::Reserve { needs: kept, spare }, None);
        let mut line = self.line.lock();
        line.allowance.asking = false;
        let told = match answer.map(|response| response.answer) {
            Ok(Answer::Reserved(bytes)) => Ok(bytes),
            // A server of an earlier release knows nothing of this: its commits say when the volume is full.
            Err(ClientError::Unexpected(_)) => Ok(None),
            Ok(Answer::Failed(failure)) => Err(ClientError::Failed(failure)),
            Ok(other) => Err(ClientError::Unexpected(format!("{other:?} to what is to be set aside"))),
            Err(error) => Err(error),
        };
        if let Ok(bytes) = told {
            line.allowance.is_told(asked, bytes);
        }
        drop(line);
        self.changed.notify_all();
        told.map(|_| true)
    }

    /// Gives back what is to spare, as nothing was written for a while.
    pub(super) fn give_room_back(&self) {
        self.line.lock().allowance.used = None;
        if let Err(error) = self.ask_for_room(0) {
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
        assert_eq!(allowance.take(100), None, "no limit");
        allowance.begin(true);
        assert_eq!(allowance.take(10), Some(110));
        // 100 were committed, 10 are kept back.
        let asked = allowance.asks(10);
        assert_eq!(allowance.take(20), Some(130), "it came in after that was asked");
        allowance.is_told(asked, Some(25));
        assert!(!allowance.lacks(110) && !allowance.lacks(125));
        assert!(allowance.lacks(130), "of the 25, 10 were for what was there");
        // Both are committed; of what is kept back less is needed than there is.
        let asked = allowance.asks(0);
        allowance.is_told(asked, Some(5));
        assert_eq!(allowance.take(5), None);
        assert_eq!(allowance.take(1), Some(136));
        let asked = allowance.asks(6);
        allowance.is_told(asked, Some(4));
        assert!(allowance.lacks(136) && !allowance.lacks(134), "the first ones have it");
    }

    #[test]
    fn what_was_told_in_an_earlier_term_says_nothing() {
        let mut allowance = Allowance::default();
        allowance.begin(true);
        let position = allowance.take(10).unwrap();
        let asked = allowance.asks(10);
        allowance.begin(true);
        allowance.is_told(asked, Some(1000));
        assert!(allowance.lacks(position));
        let asked = allowance.asks(10);
        allowance.is_told(asked, None);
        assert!(!allowance.lacks(position), "it has no limit any more");
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
    }
}
