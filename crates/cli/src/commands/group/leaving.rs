//! A group that a volume is to be read through no longer: what its members alone may have is to be in the store first.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_protocol::group::{SetsOf, VolumeSets};

use super::losses;
use crate::{args::ServersArgs, control::Progress, error::CliError, output, progress::DrainBar};

/// How often the owner is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Mounts hear within 10 s that a volume's class is another one; what they write until then is over the group's members.
const FOLLOWED: Duration = Duration::from_secs(11);
/// Nothing gets on for so long: that is said. What an idle writer has open is sealed within 30 s.
const STALLED: Duration = Duration::from_secs(45);

/// Waits until members of these groups have nothing of a volume that the store has not. The volume is of class `object` already.
pub(crate) fn wait(servers: &ServersArgs, volume: &str, groups: &[String]) -> Result<(), CliError> {
    let (mut watch, mut bar, began) = (Watch::default(), DrainBar::new("putting"), Instant::now());
    loop {
        let said = losses::ask(servers, &SetsOf { group: None, list: false, files: false })?;
        let left = match said.unheard.get(volume) {
            Some(why) => Left::NotKnown(why.clone()),
            None => Left::Bytes(left(&said.sets, volume, groups)),
        };
        match watch.look(left, began.elapsed()) {
            Seen::Over => return Ok(()),
            Seen::Left(dirty_bytes) => bar.at(Progress { dirty_bytes }),
            Seen::Stalled(why) => output::note(&format_args!(
                "{why}. It goes on once that has changed; `--group` may be given again later, the volume is written to the store by now"
            )),
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn left(sets: &[VolumeSets], volume: &str, groups: &[String]) -> u64 {
    let goes = |one: &&VolumeSets| one.volume == volume && groups.contains(&one.group);
    sets.iter().filter(goes).map(|one| one.open.bytes + one.sealed.bytes).sum()
}

/// What is left, as far as the owner has said.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Left {
    Bytes(u64),
    /// And why.
    NotKnown(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// Nothing was left for as long as mounts may take to hear of it.
    Over,
    /// So many bytes.
    Left(u64),
    /// Nothing gets on, and what is known of it. It comes once, and again once something has got on.
    Stalled(String),
}

/// Knows no clock: times are since the beginning.
#[derive(Default)]
struct Watch {
    none_since: Option<Duration>,
    last: Option<Left>,
    since: Duration,
    is_said: bool,
}

impl Watch {
    fn look(&mut self, left: Left, now: Duration) -> Seen {
        self.none_since = self.none_since.or(Some(now)).filter(|_| left == Left::Bytes(0));
        if self.none_since.is_some_and(|since| now >= since + FOLLOWED) {
            return Seen::Over;
        }
        if self.last.as_ref() != Some(&left) {
            (self.last, self.since, self.is_said) = (Some(left.clone()), now, false);
        }
        let bytes = match &left {
            Left::Bytes(bytes) => *bytes,
            Left::NotKnown(_) => 0,
        };
        if left == Left::Bytes(0) || now < self.since + STALLED || self.is_said {
            return Seen::Left(bytes);
        }
        self.is_said = true;
        Seen::Stalled(match left {
            Left::NotKnown(why) => format!("what the group's members alone have is not known: {why}"),
            Left::Bytes(bytes) => format!(
                "nothing has got on for {} s: {} are left at the group's members. Their logs say whether they reach the store, `forebay group lost` whether one is missing",
                STALLED.as_secs(),
                crate::size::human(bytes)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_is_over_once_nothing_was_left_for_as_long_as_mounts_take() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(Left::Bytes(0), Duration::ZERO), Seen::Left(0));
        assert_eq!(watch.look(Left::Bytes(0), FOLLOWED - SECOND), Seen::Left(0));
        // A mount that had not heard of it.
        assert_eq!(watch.look(Left::Bytes(5), FOLLOWED), Seen::Left(5));
        assert_eq!(watch.look(Left::Bytes(0), 2 * FOLLOWED), Seen::Left(0));
        assert_eq!(watch.look(Left::Bytes(0), 3 * FOLLOWED), Seen::Over);
    }

    #[test]
    fn an_owner_that_is_not_heard_is_no_word_that_nothing_is_left() {
        let mut watch = Watch::default();
        let not_known = || Left::NotKnown("nobody owns it now".to_owned());
        assert_eq!(watch.look(Left::Bytes(0), Duration::ZERO), Seen::Left(0));
        assert_eq!(watch.look(not_known(), SECOND), Seen::Left(0));
        assert_eq!(watch.look(Left::Bytes(0), FOLLOWED), Seen::Left(0), "it counts from here");
        assert_eq!(watch.look(not_known(), FOLLOWED + SECOND), Seen::Left(0));
        let said = watch.look(not_known(), FOLLOWED + SECOND + STALLED);
        assert!(matches!(&said, Seen::Stalled(why) if why.contains("nobody owns")), "{said:?}");
        assert_eq!(watch.look(not_known(), FOLLOWED + 2 * STALLED), Seen::Left(0), "once");
    }
}
