//! Inodes of which members cannot be told what is wanted, as their rows cannot be read: kept in memory, so that nobody takes for done what is not.

use std::collections::BTreeMap;

use forebay_protocol::PolicyKept;
use forebay_types::{Ino, PolicyId};

/// So many are remembered.
const INODES: usize = 1024;

/// An inode that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lacking {
    /// By which it goes, where that is known.
    pub(crate) policy: Option<PolicyId>,
    /// Bytes of it that may be to be in caches, as far as that is known.
    pub(crate) bytes: u64,
    /// For people.
    pub(crate) why: String,
}

/// Those that were found when they were looked at last.
#[derive(Debug, Default)]
pub(crate) struct Unread(BTreeMap<Ino, Lacking>);

impl Unread {
    /// From an inode to before another one, or to the last, no others than these were found. Returns those that were not known before.
    pub(crate) fn found(
        &mut self,
        (from, upto): (Ino, Option<Ino>),
        found: Vec<(Ino, Lacking)>,
    ) -> Vec<(Ino, String)> {
        let before: BTreeMap<Ino, Lacking> = match upto {
            Some(upto) if upto <= from => BTreeMap::new(),
            Some(upto) => self.0.extract_if(from..upto, |_, _| true).collect(),
            None => self.0.split_off(&from),
        };
        let mut new = Vec::new();
        for (ino, lacking) in found {
            if self.0.len() >= INODES {
                break;
            }
            if before.get(&ino) != Some(&lacking) {
                new.push((ino, lacking.why.clone()));
            }
            self.0.insert(ino, lacking);
        }
        new
    }

    /// Says of what members have that this is not all, where one of these goes by a policy that is `of` concern, or may do so.
    pub(crate) fn tell(&self, kept: &mut PolicyKept, of: impl Fn(PolicyId) -> bool) {
        for lacking in self.0.values().filter(|lacking| lacking.policy.is_none_or(&of)) {
            kept.whole = false;
            kept.sums.wanted = kept.sums.wanted.saturating_add(lacking.bytes);
            kept.sums.failed = kept.sums.failed.saturating_add(lacking.bytes);
            if kept.sums.why.is_empty() {
                kept.sums.why.clone_from(&lacking.why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(policy: Option<u64>, bytes: u64) -> Lacking {
        Lacking { policy: policy.map(PolicyId), bytes, why: format!("{bytes} bytes") }
    }

    fn told(unread: &Unread, policy: u64) -> (bool, u64, String) {
        let mut kept = PolicyKept { whole: true, ..PolicyKept::default() };
        unread.tell(&mut kept, |id| id == PolicyId(policy));
        assert_eq!(kept.sums.wanted, kept.sums.failed);
        (kept.whole, kept.sums.failed, kept.sums.why)
    }

    #[test]
    fn what_is_found_replaces_what_was_found_there_before() {
        let mut unread = Unread::default();
        let all: Vec<_> = (1..=4).map(|ino| (Ino(ino * 10), lacking(Some(ino % 2), ino))).collect();
        assert_eq!(unread.found((Ino(0), None), all.clone()).len(), 4);
        assert_eq!(unread.found((Ino(0), Some(Ino(30))), all[..2].to_vec()), [], "nothing new");
        assert_eq!(told(&unread, 1), (false, 4, "1 bytes".to_owned()));
        // The first of a page was not gone through to its end.
        assert_eq!(unread.found((Ino(20), Some(Ino(20))), Vec::new()), []);
        assert_eq!(told(&unread, 0).1, 6);
        assert_eq!(unread.found((Ino(10), Some(Ino(31))), all[1..2].to_vec()), []);
        assert_eq!((told(&unread, 1), told(&unread, 0).1), ((true, 0, String::new()), 6));
        unread.found((Ino(15), None), vec![(Ino(50), lacking(None, 0))]);
        assert_eq!(told(&unread, 7), (false, 0, "0 bytes".to_owned()), "it may go by any");
    }

    #[test]
    fn not_more_are_remembered_than_there_is_room_for() {
        let mut unread = Unread::default();
        let many: Vec<_> = (0..5000).map(|ino| (Ino(ino), lacking(None, 1))).collect();
        assert_eq!(unread.found((Ino(0), None), many.clone()).len(), INODES);
        assert_eq!(unread.found((Ino(0), None), many), [], "they are not said again and again");
        assert_eq!(unread.found((Ino(0), None), Vec::new()), []);
        assert_eq!(told(&unread, 1), (true, 0, String::new()));
    }
}
