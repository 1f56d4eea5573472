//! What operations do one after the other: registers, files with a value, directories with names. Can be changed back.

use forebay_types::Ino;
use rustc_hash::FxHashMap;

use crate::{
    messages::{GONE, IS_DIRECTORY, NOT_EMPTY, Name, Op, REFUSED, is_refused, listed, looked},
    world::{REGISTERS, ROOTS},
};

/// What is known of an inode: its value, whether it is a directory, how many names it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Key {
    Value(Ino),
    Kind(Ino),
    Count(Ino),
    Name(Name),
}

/// Everything, and how to change it back.
#[derive(Debug, Default)]
pub struct Tree {
    now: FxHashMap<Key, u64>,
    undo: Vec<(Key, u64)>,
    digest: u128,
}

/// Two numbers as one that looks random.
pub fn mix(one: u64, other: u64) -> u128 {
    let step = |x: u64| {
        let x = (x ^ x >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
        let x = (x ^ x >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
        x ^ x >> 33
    };
    let low = step(step(one.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ other);
    let high = step(step(low ^ one.rotate_left(32)).wrapping_add(other));
    u128::from(high) << 64 | u128::from(low)
}

impl Key {
    fn number(self) -> u64 {
        match self {
            Key::Value(ino) => ino.0 * 8,
            Key::Kind(ino) => ino.0 * 8 + 1,
            Key::Count(ino) => ino.0 * 8 + 2,
            Key::Name((ino, name)) => ino.0 * 8 + 3 + u64::from(name),
        }
    }

    fn at_first(self) -> u64 {
        match self {
            Key::Value(ino) if ino.0 <= REGISTERS as u64 || ROOTS.contains(&ino) => 0,
            Key::Value(_) => GONE,
            Key::Kind(ino) => u64::from(ROOTS.contains(&ino)),
            Key::Count(_) | Key::Name(_) => 0,
        }
    }
}

impl Tree {
    /// Where it is in the changes, to come [`Tree::back_to`].
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    pub fn back_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some((key, value)) = self.undo.pop() {
                self.put(key, value);
            }
        }
    }

    /// A number for what everything is.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Carries an operation out, and says whether it answers this; where not, things are to be changed back.
    pub fn carry_out(&mut self, op: Op, answer: Option<u64>) -> bool {
        let answers = self.answer(op);
        answer.is_none_or(|answer| answer == answers)
    }

    fn get(&self, key: Key) -> u64 {
        self.now.get(&key).copied().unwrap_or_else(|| key.at_first())
    }

    /// Returns the value before.
    fn put(&mut self, key: Key, value: u64) -> u64 {
        let before = self.now.insert(key, value).unwrap_or_else(|| key.at_first());
        for value in [before, value] {
            if value != key.at_first() {
                self.digest ^= mix(key.number(), value);
            }
        }
        before
    }

    fn set(&mut self, key: Key, value: u64) {
        let before = self.put(key, value);
        self.undo.push((key, before));
    }

    fn named(&self, name: Name) -> Ino {
        Ino(self.get(Key::Name(name)))
    }

    /// Gives a name another inode, or none (0).
    fn name(&mut self, name: Name, ino: Ino) {
        let before = self.named(name);
        let count = self.get(Key::Count(name.0)) + u64::from(ino.0 != 0) - u64::from(before.0 != 0);
        self.set(Key::Name(name), ino.0);
        self.set(Key::Count(name.0), count);
    }

    /// Carries an operation out, and says what it answers.
    pub fn answer(&mut self, op: Op) -> u64 {
        let value = |tree: &Tree, ino| tree.get(Key::Value(ino));
        match op {
            Op::Read(ino) => value(self, ino),
            Op::Write(ino, _) if value(self, ino) == GONE => GONE,
            Op::Write(ino, to) => {
                self.set(Key::Value(ino), to);
                0
            }
            Op::Move(from, to) => {
                let moved = value(self, from);
                self.set(Key::Value(from), 0);
                self.set(Key::Value(to), moved);
                moved
            }
            Op::Look(name) | Op::Resolve(name) | Op::Make(name, ..) | Op::Remove(name)
                if value(self, name.0) == GONE =>
            {
                // A name's directory: where it is gone, nothing has it.
                if matches!(op, Op::Resolve(_)) { 0 } else { GONE }
            }
            Op::List(directory) if value(self, directory) == GONE => GONE,
            Op::Rename(from, to) if value(self, from.0) == GONE || value(self, to.0) == GONE => GONE,
            Op::Look(name) => match self.named(name) {
                Ino(0) => 0,
                ino => looked(ino, value(self, ino)),
            },
            Op::Resolve(name) => self.named(name).0,
            Op::List(directory) => {
                let names = (0..3).map(|name| (name, self.named((directory, name))));
                listed(names)
            }
            Op::Make(name, ..) if self.named(name).0 != 0 => 0,
            Op::Make(..) if is_refused(op) => REFUSED,
            Op::Make(name, ino, directory) => {
                self.name(name, ino);
                self.set(Key::Value(ino), 0);
                self.set(Key::Kind(ino), u64::from(directory));
                1
            }
            Op::Remove(name) => self.remove(name),
            Op::Rename(from, to) => self.rename(from, to),
            Op::Fsync(_) | Op::Runs | Op::Commit(..) | Op::Ahead | Op::Lock(_) | Op::Unlock(_) => 0,
        }
    }

    fn remove(&mut self, name: Name) -> u64 {
        let ino = self.named(name);
        if self.get(Key::Count(ino)) != 0 {
            return NOT_EMPTY;
        }
        if ino.0 != 0 {
            self.name(name, Ino(0));
            self.set(Key::Value(ino), GONE);
        }
        ino.0
    }

    fn rename(&mut self, from: Name, to: Name) -> u64 {
        let (moved, replaced) = (self.named(from), self.named(to));
        if [moved, replaced].iter().any(|ino| self.get(Key::Kind(*ino)) == 1) {
            return IS_DIRECTORY;
        }
        if moved.0 != 0 && from != to {
            if replaced.0 != 0 {
                self.set(Key::Value(replaced), GONE);
            }
            self.name(to, moved);
            self.name(from, Ino(0));
        }
        moved.0
    }
}
