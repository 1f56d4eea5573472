//! Which servers live, and which of them a volume should be with. No I/O and no clock of its own.
//!
//! Guarantees: servers that see the same rows agree on where each volume should be; one that comes or goes moves only the volumes that are to be
//! with it; none is taken for dead because the registry was slow to be read, or not to be read at all: only by a look that began long enough after its beat was seen to move. What is
//! decided here is never a question of safety: who owns a volume is decided by its fence alone.

use std::{collections::BTreeMap, time::Duration};

use forebay_cluster::{Moment, ServerId};
use forebay_types::VolumeId;
use sha2::{Digest, Sha256};

use crate::registry::MemberRow;

/// A server lives until a look that began so long after its beat was seen to move finds that it has not moved again.
pub const LIVES_FOR: Duration = Duration::from_secs(4);
/// A row whose beat has not moved for so long is taken away.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// A server has lived for so long before others give up for it what should be with it.
pub const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// How much later than its preferred server another one takes a volume that is to be had: that one looks twice a second. Clients of a server that was killed wait for as much longer.
pub const HEAD_START: Duration = Duration::from_secs(1);
/// Who gave a volume up and got it back keeps it for so long: the preferred server does not get on with it.
pub const KEPT_AFTER_RETURN: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
struct Known {
    row: MemberRow,
    /// When the beat was last seen to have moved; where it was not yet, when the row was first seen.
    moved: Moment,
    /// Since when it has moved without a gap; `None` where it was not seen to move.
    since: Option<Moment>,
}

/// The servers as one of them sees them.
#[derive(Debug)]
pub struct Members {
    own: ServerId,
    address: String,
    /// Whether there can be no other, whatever rows are left.
    alone: bool,
    known: BTreeMap<ServerId, Known>,
    /// When the last look began that told anything.
    looked: Moment,
}

impl Members {
    /// The view of a server that has just started. `alone`: one server at a time has the place, so all rows but its own are of servers that have ended.
    #[must_use]
    pub fn new(own: ServerId, address: String, alone: bool) -> Members {
        Members { own, address, alone, known: BTreeMap::new(), looked: Moment::default() }
    }

    /// Takes in the rows of all members, as a read found them that began and ended at these times.
    pub fn saw(&mut self, rows: Vec<(ServerId, MemberRow)>, (began, now): (Moment, Moment)) {
        self.looked = self.looked.max(began);
        let mut before = std::mem::take(&mut self.known);
        for (id, row) in rows {
            let known = match before.remove(&id) {
                Some(known) if known.row.beat == row.beat => Known { row, ..known },
                Some(known) => {
                    let goes_on = now.since(known.moved) < LIVES_FOR;
                    let since = known.since.filter(|_| goes_on).or(Some(now));
                    Known { row, moved: now, since }
                }
                None => Known { row, moved: now, since: None },
            };
            self.known.insert(id, known);
        }
    }

    /// The servers that live as far as was seen, this one among them, with their addresses, in the order of their ids.
    #[must_use]
    pub fn living(&self) -> Vec<(ServerId, &str)> {
        let others = self.known.iter().filter(|(id, known)| **id != self.own && self.lives(known));
        let mut living: Vec<_> = others.map(|(id, known)| (*id, known.row.address.as_str())).collect();
        living.push((self.own, self.address.as_str()));
        living.sort_unstable();
        living
    }

    /// The address of a server that lives and that this is not so of.
    #[must_use]
    pub fn other_than(&self, is: impl Fn(&MemberRow) -> bool) -> Option<&str> {
        let found =
            |(id, known): &(&ServerId, &Known)| **id != self.own && self.lives(known) && !is(&known.row);
        self.known.iter().find(found).map(|(_, known)| known.row.address.as_str())
    }

    /// Servers whose rows are to be taken away.
    #[must_use]
    pub fn forgotten(&self) -> Vec<ServerId> {
        let gone = |(id, known): &(&ServerId, &Known)| {
            **id != self.own && self.looked.since(known.moved) >= FORGOTTEN_AFTER
        };
        self.known.iter().filter(gone).map(|(id, _)| *id).collect()
    }

    /// Another server that lives and says that it is reached where this one is.
    #[must_use]
    pub fn twin(&self) -> Option<ServerId> {
        let twin = |(id, known): &(&ServerId, &Known)| {
            **id != self.own
                && known.row.address == self.address
                && known.since.is_some()
                && self.lives(known)
        };
        self.known.iter().find(twin).map(|(id, _)| *id)
    }

    /// Whether a former process may still live at this one's address: its beat is to be watched for [`LIVES_FOR`].
    #[must_use]
    pub fn may_have_twin(&self) -> bool {
        self.known
            .iter()
            .any(|(id, known)| *id != self.own && known.row.address == self.address && self.lives(known))
    }

    /// The living server that a volume should be with.
    #[must_use]
    pub fn preferred(&self, volume: VolumeId) -> ServerId {
        self.preferred_beside(volume, None)
    }

    /// The same if another server does not count.
    fn preferred_beside(&self, volume: VolumeId, gone: Option<ServerId>) -> ServerId {
        let living = self.living().into_iter().filter(|(id, _)| *id == self.own || Some(*id) != gone);
        living.max_by_key(|(id, address)| (weight(volume, address), *id)).map_or(self.own, |(id, _)| id)
    }

    /// The address of the server that a volume should be with, if that is another one.
    #[must_use]
    pub fn preferred_elsewhere(&self, volume: VolumeId) -> Option<&str> {
        let preferred = self.preferred(volume);
        self.known.get(&preferred).filter(|_| preferred != self.own).map(|known| known.row.address.as_str())
    }

    /// Whether a volume should be with this server, and others that live have been seen to for so long that they know it, too. Whoever takes it then may shut out who has it.
    #[must_use]
    pub fn alone_or_settled(&self, volume: VolumeId, settled: Duration) -> bool {
        let mut others = self.known.iter().filter(|(id, known)| **id != self.own && self.lives(known));
        let long = |known: &Known| known.since.is_some_and(|since| self.looked.since(since) >= settled);
        self.preferred(volume) == self.own && others.all(|(_, known)| long(known))
    }

    /// Whether this server takes a volume that has been to be had since `free`. `silent`: the server that has it as far as its fence says, but has not been heard of; nobody waits for that one,
    /// which may be known to be dead only later.
    #[must_use]
    pub fn takes(&self, volume: VolumeId, silent: Option<ServerId>, free: Moment, now: Moment) -> bool {
        now.since(free) >= HEAD_START || self.preferred_beside(volume, silent) == self.own
    }

    /// The server for which this one gives a volume up, if any: one that was heard of lately.
    #[must_use]
    pub fn gives_up_for(&self, volume: VolumeId, now: Moment) -> Option<&str> {
        let preferred = self.known.get(&self.preferred(volume))?;
        let settled = preferred.since.is_some_and(|since| now.since(since) >= SETTLED_AFTER);
        let gives_up =
            preferred.row.address != self.address && settled && now.since(preferred.moved) < LIVES_FOR;
        gives_up.then_some(preferred.row.address.as_str())
    }

    fn lives(&self, known: &Known) -> bool {
        !self.alone && self.looked.since(known.moved) < LIVES_FOR
    }
}

/// Rendezvous hashing: the server with the greatest weight has the volume. By addresses, so that a server that was restarted has what it had.
fn weight(volume: VolumeId, address: &str) -> [u8; 32] {
    Sha256::new().chain_update(volume.0).chain_update(address.as_bytes()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ServerId = ServerId([1; 16]);
    const OTHER: ServerId = ServerId([2; 16]);

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    /// A look that took no time.
    fn at_once(seconds: u64) -> (Moment, Moment) {
        (at(seconds), at(seconds))
    }

    fn row(address: &str, beat: u64) -> MemberRow {
        MemberRow { address: address.to_owned(), beat, release: String::new() }
    }

    fn both(beat: u64) -> Vec<(ServerId, MemberRow)> {
        vec![(OWN, row("own:1", beat)), (OTHER, row("other:1", beat))]
    }

    fn members() -> Members {
        Members::new(OWN, "own:1".to_owned(), false)
    }

    /// A volume that should be with the other server, or with this one.
    fn volume(of: ServerId, members: &Members) -> VolumeId {
        (0..=255).map(|byte| VolumeId([byte; 16])).find(|id| members.preferred(*id) == of).unwrap()
    }

    #[test]
    fn alone_it_takes_everything_at_once() {
        let members = members();
        for byte in 0..=255 {
            assert!(members.takes(VolumeId([byte; 16]), None, at(0), at(0)));
            assert_eq!(members.gives_up_for(VolumeId([byte; 16]), at(100)), None);
        }
    }

    #[test]
    fn where_one_server_at_a_time_has_the_place_no_other_lives() {
        let mut members = Members::new(OWN, "own:1".to_owned(), true);
        let former = (ServerId([3; 16]), row("own:1", 9));
        members.saw([both(1), vec![former.clone()]].concat(), at_once(0));
        assert_eq!(members.living(), [(OWN, "own:1")]);
        assert!(!members.may_have_twin(), "a former process at the same address");
        assert!((0..=255).all(|byte| members.takes(VolumeId([byte; 16]), None, at(0), at(0))));
        members.saw([both(1), vec![former]].concat(), at_once(60));
        assert_eq!(members.forgotten(), [OTHER, ServerId([3; 16])]);
    }

    #[test]
    fn a_server_lives_while_its_beat_moves() {
        let mut members = members();
        for second in 0..10 {
            members.saw(both(second), at_once(second));
        }
        for (second, living) in [(12, 2), (13, 1), (68, 1)] {
            members.saw(both(9), at_once(second));
            assert_eq!((members.living().len(), members.forgotten()), (living, vec![]));
        }
        members.saw(both(9), at_once(69));
        assert_eq!(members.forgotten(), [OTHER]);
        members.saw(vec![(OWN, row("own:1", 1))], at_once(70));
        members.saw(vec![(OWN, row("own:1", 1))], at_once(200));
        assert_eq!(members.forgotten(), [], "never itself");
    }

    #[test]
    fn a_registry_that_is_slow_or_away_kills_nobody() {
        let mut members = members();
        members.saw(both(0), at_once(0));
        let ours = volume(OWN, &members);
        // The rows are as they were when the look began.
        members.saw(both(0), (at(1), at(9)));
        assert_eq!((members.living().len(), members.alone_or_settled(ours, SETTLED_AFTER)), (2, false));
        members.saw(both(0), (at(4), at(12)));
        assert_eq!((members.living().len(), members.alone_or_settled(ours, SETTLED_AFTER)), (1, true));
        // One that was seen to move by the end of a look may have moved since it began.
        members.saw(both(1), (at(13), at(30)));
        members.saw(both(1), (at(31), at(50)));
        assert_eq!(members.living().len(), 2);
        assert!(!members.alone_or_settled(ours, SETTLED_AFTER), "it does not know of this one");
        let theirs = volume(OTHER, &members);
        assert_eq!(members.gives_up_for(theirs, at(50)), None, "nor is anything given up for it");
        for round in 0..40 {
            members.saw(both(round), (at(60 + round * 10), at(69 + round * 10)));
            assert_eq!(members.living().len(), 2);
        }
    }

    #[test]
    fn others_have_a_head_start_and_no_more() {
        let mut members = members();
        members.saw(both(1), at_once(0));
        let (ours, theirs) = (volume(OWN, &members), volume(OTHER, &members));
        assert!(members.takes(ours, None, at(0), at(0)));
        assert!(!members.takes(theirs, None, at(0), at(0)));
        assert!(members.takes(theirs, None, at(0), at(1)), "it does not wait for good");
        assert!(members.takes(theirs, Some(OTHER), at(0), at(0)), "who is silent is not waited for");
        assert!(!members.takes(theirs, Some(ServerId([3; 16])), at(0), at(0)), "another one may be");
        assert!(!members.takes(theirs, Some(OWN), at(0), at(0)), "nor where a claim of its own was lost");
        members.saw(both(1), at_once(4));
        assert!(members.takes(theirs, None, at(4), at(4)), "the other one is dead");
    }

    #[test]
    fn a_volume_is_given_up_when_its_preferred_server_has_settled() {
        let mut members = members();
        members.saw(both(0), at_once(0));
        let (ours, theirs) = (volume(OWN, &members), volume(OTHER, &members));
        assert_eq!(members.gives_up_for(theirs, at(3)), None, "its beat was not seen to move");
        for second in 1..=5 {
            assert_eq!(members.gives_up_for(theirs, at(second)), None);
            members.saw(both(second), at_once(second));
        }
        assert_eq!(members.gives_up_for(theirs, at(6)), Some("other:1"));
        assert_eq!(members.gives_up_for(ours, at(6)), None);
        assert_eq!(members.gives_up_for(theirs, at(10)), None, "it died");
        members.saw(both(7), at_once(20));
        assert_eq!(members.gives_up_for(theirs, at(21)), None, "it has to settle again");
    }

    #[test]
    fn one_server_more_moves_only_what_goes_to_it() {
        let ids = |count: u8| (1..=count).map(|id| (ServerId([id; 16]), row(&format!("host{id}:1"), 1)));
        let with = |count: u8| {
            let mut members = Members::new(OWN, "host1:1".to_owned(), false);
            members.saw(ids(count).collect(), at_once(0));
            members
        };
        let (four, five) = (with(4), with(5));
        let mut counts = BTreeMap::<ServerId, u32>::new();
        for number in 0..1000_u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_le_bytes());
            let (before, after) = (four.preferred(VolumeId(id)), five.preferred(VolumeId(id)));
            assert!(after == before || after == ServerId([5; 16]));
            *counts.entry(after).or_default() += 1;
        }
        assert_eq!(counts.len(), 5);
        assert!(counts.values().all(|count| (140..=260).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_twin_is_one_whose_beat_moves_at_the_same_address() {
        let mut members = members();
        let twins = |beat| vec![(OWN, row("own:1", beat)), (OTHER, row("own:1", 5))];
        members.saw(twins(1), at_once(0));
        assert!(members.may_have_twin());
        members.saw(twins(2), at_once(3));
        assert_eq!((members.twin(), members.may_have_twin()), (None, true));
        members.saw(twins(3), (at(3), at(9)));
        assert!(members.may_have_twin(), "that look began too early to tell");
        members.saw(twins(4), at_once(10));
        assert!(!members.may_have_twin(), "it is what was left of a former process");
        members.saw(vec![(OTHER, row("own:1", 6))], at_once(11));
        assert_eq!(members.twin(), Some(OTHER));
    }
}
