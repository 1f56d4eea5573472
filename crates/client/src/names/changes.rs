//! Own changes on their way: what they touch is not kept of answers that may be older.
//!
//! The owner recalls nothing from the session that changes something. So what an own change touches is dropped before it is sent, and of every answer that was on
//! its way at the same time nothing of it is taken in: nobody here knows which of the two came first.

use forebay_types::Ino;
use rustc_hash::FxHashMap;

/// Touched things that are remembered of one request; of one that more happened beside, nothing is kept.
const REMEMBERED: usize = 64;

/// Something that a change changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Touch {
    /// An inode's attributes and contents.
    Inode(Ino),
    /// What a name stands for.
    Name(Ino, Vec<u8>),
    /// A directory's listing.
    List(Ino),
    /// Extended attributes.
    Xattrs(Ino),
}

/// What was touched while a request was under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Beside(Option<Vec<Touch>>);

impl Beside {
    fn add(&mut self, touches: &[Touch]) {
        if let Some(known) = &mut self.0 {
            known.extend_from_slice(touches);
            if known.len() > REMEMBERED {
                self.0 = None;
            }
        }
    }

    fn has(&self, touch: &Touch) -> bool {
        self.0.as_ref().is_none_or(|known| known.contains(touch))
    }
}

/// Requests under way.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    next: u64,
    under_way: FxHashMap<u64, Beside>,
    busy: FxHashMap<Touch, u32>,
    inodes: FxHashMap<Ino, u32>,
}

impl Changes {
    /// A request begins that touches this; returns its name here.
    pub(crate) fn begin(&mut self, touches: &[Touch]) -> u64 {
        self.tell_others(touches);
        for touch in touches {
            *self.busy.entry(touch.clone()).or_default() += 1;
            if let Touch::Inode(ino) = touch {
                *self.inodes.entry(*ino).or_default() += 1;
            }
        }
        self.next += 1;
        self.under_way.insert(self.next, Beside(Some(Vec::new())));
        self.next
    }

    /// It has ended.
    pub(crate) fn end(&mut self, id: u64, touches: &[Touch]) -> Beside {
        let beside = self.under_way.remove(&id).unwrap_or(Beside(None));
        for touch in touches {
            less(&mut self.busy, touch);
            if let Touch::Inode(ino) = touch {
                less(&mut self.inodes, ino);
            }
        }
        self.tell_others(touches);
        beside
    }

    /// Something turned out to be touched by what has just ended.
    pub(crate) fn tell_others(&mut self, touches: &[Touch]) {
        if !touches.is_empty() {
            self.under_way.values_mut().for_each(|beside| beside.add(touches));
        }
    }

    /// Whether what an ended request was told of this may be kept.
    pub(crate) fn is_clean(&self, beside: &Beside, touch: &Touch) -> bool {
        !beside.has(touch) && !self.busy.contains_key(touch)
    }

    /// Whether a change of this inode is under way.
    pub(crate) fn is_busy(&self, ino: Ino) -> bool {
        !self.inodes.is_empty() && self.inodes.contains_key(&ino)
    }

    /// Whether any request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

fn less<K: std::hash::Hash + Eq + Clone>(counts: &mut FxHashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Touch = Touch::Inode(Ino(5));

    #[test]
    fn what_changed_beside_a_request_is_not_kept_of_its_answer() {
        let mut changes = Changes::default();
        let look = changes.begin(&[]);
        let change = changes.begin(&[FILE]);
        assert!(changes.is_busy(Ino(5)));
        let later = changes.begin(&[]);
        let own = changes.end(change, &[FILE]);
        assert!(changes.is_clean(&own, &FILE), "its own answer is the latest");
        let (look, later) = (changes.end(look, &[]), changes.end(later, &[]));
        assert!(!changes.is_clean(&look, &FILE));
        assert!(!changes.is_clean(&later, &FILE), "it began before the change ended");
        assert!(changes.is_clean(&look, &Touch::List(Ino(5))));
        let after = changes.begin(&[]);
        let after = changes.end(after, &[]);
        assert!(changes.is_clean(&after, &FILE));
        assert!(!changes.is_busy(Ino(5)) && changes.is_idle());
    }

    #[test]
    fn of_two_changes_at_once_neither_answer_is_kept() {
        let mut changes = Changes::default();
        let one = changes.begin(&[FILE]);
        let two = changes.begin(&[FILE]);
        let one = changes.end(one, &[FILE]);
        assert!(!changes.is_clean(&one, &FILE));
        let two = changes.end(two, &[FILE]);
        assert!(!changes.is_clean(&two, &FILE));
    }

    #[test]
    fn a_request_beside_too_much_keeps_nothing() {
        let mut changes = Changes::default();
        let look = changes.begin(&[]);
        for at in 0..=REMEMBERED as u64 {
            let touch = [Touch::Inode(Ino(100 + at))];
            let change = changes.begin(&touch);
            changes.end(change, &touch);
        }
        let look = changes.end(look, &[]);
        assert!(!changes.is_clean(&look, &FILE));
    }
}
