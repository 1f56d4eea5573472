//! A group that a volume is to be read through no longer: what its members alone may have is to be in the store first.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_protocol::group::SetsOf;

use super::losses::{self, Said};
use crate::{args::ServersArgs, control::Progress, error::CliError, output, progress::DrainBar, size::human};

/// How often the owner is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Nothing gets on for so long: that is said. What an idle writer has open is sealed within 30 s.
const STALLED: Duration = Duration::from_secs(45);
/// How long no server need answer: another one may be taking over.
const UNHEARD: Duration = Duration::from_secs(60);

/// Waits until members of these groups have nothing of a volume that the store has not. The volume is of class `object` already, so its owner lets nothing be added: two looks in a row at which it
/// says that nothing is left are enough, as an operation that was under way at the first one is counted at the second. `is_object` says whether that is so still.
pub(crate) fn wait(
    servers: &ServersArgs,
    volume: &str,
    groups: &[String],
    mut is_object: impl FnMut() -> Result<bool, CliError>,
) -> Result<(), CliError> {
    let (mut watch, mut bar, began) = (Watch::default(), DrainBar::new("putting"), Instant::now());
    let mut heard = Instant::now();
    loop {
        let of = SetsOf { group: None, list: true, files: false };
        let left = match losses::ask(servers, &of).and_then(|said| Ok((said, is_object()?))) {
            Ok((_, false)) => {
                return Err(CliError::Told(format!(
                    "somebody has given '{volume}' another durability meanwhile: no group is taken away"
                )));
            }
            Ok((said, true)) => {
                heard = Instant::now();
                left(&said, volume, groups)
            }
            Err(error) if heard.elapsed() >= UNHEARD => return Err(error),
            Err(error) => Left::NotKnown(error.to_string()),
        };
        match watch.look(left, began.elapsed()) {
            Seen::Over => return Ok(()),
            Seen::Left(Some(dirty_bytes)) => bar.at(Progress { dirty_bytes }),
            Seen::Left(None) => {}
            Seen::Stalled(why) => output::note(&format_args!(
                "{why}. It goes on once that has changed. `--group` may also be given again later: what is written goes to the store by now"
            )),
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// What is left, as far as the owner has said. Of a group in which nothing is, it says that, too.
fn left(said: &Said, volume: &str, groups: &[String]) -> Left {
    if let Some(why) = said.unheard.get(volume) {
        return Left::NotKnown(why.clone());
    }
    let mut bytes = 0;
    for group in groups {
        match said.sets.iter().find(|one| one.volume == volume && one.group == *group) {
            Some(one) => bytes += one.open.bytes + one.sealed.bytes,
            None => return Left::NotKnown(format!("the owner has not said what is left in '{group}'")),
        }
    }
    Left::Bytes(bytes)
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Left {
    Bytes(u64),
    /// And why.
    NotKnown(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Over,
    /// So many bytes, where that is known.
    Left(Option<u64>),
    /// Nothing gets on, and what is known of it. It comes once, and again once something has got on.
    Stalled(String),
}

/// Knows no clock: times are since the beginning.
#[derive(Default)]
struct Watch {
    last: Option<Left>,
    since: Duration,
    is_said: bool,
}

impl Watch {
    fn look(&mut self, left: Left, now: Duration) -> Seen {
        if self.last.as_ref() == Some(&left) {
            if left == Left::Bytes(0) {
                return Seen::Over;
            }
        } else {
            (self.last, self.since, self.is_said) = (Some(left.clone()), now, false);
        }
        let waits = self.is_said || now < self.since + STALLED;
        self.is_said |= !waits;
        match left {
            Left::Bytes(bytes) if waits => Seen::Left(Some(bytes)),
            Left::NotKnown(_) if waits => Seen::Left(None),
            Left::NotKnown(why) => {
                Seen::Stalled(format!("what the group's members alone have is not known: {why}"))
            }
            Left::Bytes(bytes) => Seen::Stalled(format!(
                "nothing has got on for {} s: {} are left at the group's members. Their logs say whether they reach the store, `forebay group lost` whether one is missing",
                STALLED.as_secs(),
                human(bytes)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_protocol::group::{Tally, VolumeSets};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn not_known() -> Left {
        Left::NotKnown("nobody owns it now".to_owned())
    }

    #[test]
    fn it_is_over_once_two_looks_in_a_row_find_nothing() {
        let mut watch = Watch::default();
        let looks = [Left::Bytes(0), Left::Bytes(5), Left::Bytes(0), not_known(), Left::Bytes(0)];
        for (at, left) in (0..).zip(looks) {
            assert_ne!(watch.look(left, at * SECOND), Seen::Over);
        }
        assert_eq!(watch.look(Left::Bytes(0), 5 * SECOND), Seen::Over);
    }

    #[test]
    fn what_does_not_get_on_is_said_once_and_again_after_it_did() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(Left::Bytes(4096), SECOND), Seen::Left(Some(4096)));
        assert_eq!(watch.look(Left::Bytes(4096), STALLED), Seen::Left(Some(4096)), "it is a second short");
        let said = watch.look(Left::Bytes(4096), SECOND + STALLED);
        assert!(matches!(&said, Seen::Stalled(why) if why.contains("4.00 KiB")), "{said:?}");
        assert_eq!(watch.look(Left::Bytes(4096), 3 * STALLED), Seen::Left(Some(4096)));
        assert_eq!(watch.look(not_known(), 3 * STALLED), Seen::Left(None));
        let said = watch.look(not_known(), 4 * STALLED);
        assert!(matches!(&said, Seen::Stalled(why) if why.contains("nobody owns")), "{said:?}");
    }

    #[test]
    fn what_the_owner_has_not_said_is_not_nothing() {
        let of = |volume: &str, group: &str, bytes| VolumeSets {
            volume: volume.to_owned(),
            group: group.to_owned(),
            open: Tally { segments: 1, bytes },
            sealed: Tally { segments: 1, bytes: 1 },
            ..VolumeSets::default()
        };
        let sets = vec![of("v", "a", 5), of("v", "b", 7), of("w", "a", 100)];
        let mut said = Said { sets, unheard: BTreeMap::new() };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(left(&said, "v", &names(&["a"])), Left::Bytes(6));
        assert_eq!(left(&said, "v", &names(&["a", "b"])), Left::Bytes(14));
        assert!(matches!(left(&said, "v", &names(&["a", "c"])), Left::NotKnown(_)));
        said.unheard.insert("v".to_owned(), "nobody owns it now".to_owned());
        assert_eq!(left(&said, "v", &names(&["a"])), not_known());
    }
}
