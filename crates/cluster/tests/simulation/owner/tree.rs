//! Registers, files and names in an owner's memory, ahead of the engine by what is not committed yet.

use std::collections::{BTreeMap, BTreeSet};

use forebay_cluster::{Access, Need};
use forebay_types::Ino;

use crate::{
    engine::{Key, Rows, Value},
    messages::{GONE, IS_DIRECTORY, NOT_EMPTY, Name, Op, REFUSED, is_refused, listed, looked},
    world::ROOTS,
};

/// A row put or deleted.
pub type Change = (Key, Option<Value>);

#[derive(Debug)]
pub struct Tree {
    values: BTreeMap<Ino, (u64, bool)>,
    names: BTreeMap<Name, Ino>,
}

/// What an operation has done.
#[derive(Debug, Default)]
pub struct Done {
    pub value: u64,
    /// An inode that is gone.
    pub also: Ino,
    pub rows: Vec<Change>,
    pub changed: BTreeSet<Ino>,
}

impl Tree {
    pub fn load(rows: &Rows) -> Tree {
        let mut tree = Tree { values: BTreeMap::new(), names: BTreeMap::new() };
        for (key, value) in &rows.rows {
            match key {
                Key::Value(ino) => drop(tree.values.insert(*ino, (value[0], value[1] == 1))),
                Key::Name(name) => drop(tree.names.insert(*name, Ino(value[0]))),
                _ => {}
            }
        }
        tree
    }

    pub fn value(&self, ino: Ino) -> u64 {
        let at_first = if ino.0 <= 3 || ROOTS.contains(&ino) { 0 } else { GONE };
        self.values.get(&ino).map_or(at_first, |value| value.0)
    }

    fn is_directory(&self, ino: Ino) -> bool {
        ROOTS.contains(&ino) || self.values.get(&ino).is_some_and(|value| value.1)
    }

    fn is_empty(&self, directory: Ino) -> bool {
        self.names.range((directory, 0)..=(directory, u8::MAX)).next().is_none()
    }

    pub fn named(&self, name: Name) -> Option<Ino> {
        self.names.get(&name).copied()
    }

    /// The inodes that an operation looks at and changes, as names are now.
    pub fn needs(&self, op: Op) -> Vec<Need> {
        needs_of(op, &|name| self.named(name))
    }

    /// Those of steps, but for what they make and for the files of commits. What a name stands for at a step is what the steps before have let it stand for.
    pub fn needs_of_steps(&self, steps: &[Op]) -> Vec<Need> {
        let (mut names, mut made, mut needed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for step in steps.iter().filter(|step| step.renames()) {
            let named = |name| names.get(&name).copied().unwrap_or_else(|| self.named(name));
            needed.extend(needs_of(*step, &named).iter().map(|need| need.ino));
            match *step {
                Op::Make(name, ino, _) => {
                    made.insert(ino);
                    names.insert(name, Some(ino));
                }
                Op::Remove(name) => drop(names.insert(name, None)),
                Op::Rename(from, to) => {
                    let moved = named(from);
                    names.extend([(from, None), (to, moved)]);
                }
                _ => {}
            }
        }
        let needed = needed.difference(&made);
        needed.map(|ino| Need { ino: *ino, access: Access::Write }).collect()
    }

    /// Carries an operation out on registers, files and names.
    pub fn carry_out(&mut self, op: Op) -> Done {
        let mut done = Done::default();
        done.value = match op {
            Op::Read(ino) => self.value(ino),
            Op::Commit(..) if is_refused(op) => REFUSED,
            Op::Write(ino, value) | Op::Commit(ino, value, _) => self.write(ino, value, &mut done),
            Op::Move(from, to) => {
                let moved = self.value(from);
                self.write(from, 0, &mut done);
                self.write(to, moved, &mut done);
                moved
            }
            Op::Look(name) | Op::Make(name, ..) | Op::Remove(name) if self.value(name.0) == GONE => GONE,
            Op::List(directory) if self.value(directory) == GONE => GONE,
            Op::Rename(from, to) if [from, to].iter().any(|name| self.value(name.0) == GONE) => GONE,
            Op::Look(name) => self.named(name).map_or(0, |ino| looked(ino, self.value(ino))),
            Op::List(directory) => {
                let names = (0..3).filter_map(|name| Some((name, self.named((directory, name))?)));
                listed(names)
            }
            Op::Make(name, ..) if self.named(name).is_some() => 0,
            Op::Make(..) if is_refused(op) => REFUSED,
            Op::Make(name, ino, directory) => {
                self.name(name, Some(ino), &mut done);
                self.put(ino, Some((0, directory)), &mut done);
                1
            }
            Op::Remove(name) => match self.named(name) {
                None => 0,
                Some(ino) if !self.is_empty(ino) => NOT_EMPTY,
                Some(ino) => {
                    self.name(name, None, &mut done);
                    self.put(ino, None, &mut done);
                    done.also = ino;
                    ino.0
                }
            },
            Op::Rename(from, to) => self.rename(from, to, &mut done),
            _ => 0,
        };
        done
    }

    fn rename(&mut self, from: Name, to: Name, done: &mut Done) -> u64 {
        let (moved, replaced) = (self.named(from), self.named(to));
        if moved.into_iter().chain(replaced).any(|ino| self.is_directory(ino)) {
            return IS_DIRECTORY;
        }
        let Some(moved) = moved else { return 0 };
        if from != to {
            if let Some(replaced) = replaced {
                self.put(replaced, None, done);
                done.also = replaced;
            }
            self.name(from, None, done);
            self.name(to, Some(moved), done);
            done.changed.insert(moved);
        }
        moved.0
    }

    fn write(&mut self, ino: Ino, value: u64, done: &mut Done) -> u64 {
        if self.value(ino) == GONE {
            return GONE;
        }
        let directory = self.is_directory(ino);
        self.put(ino, Some((value, directory)), done);
        0
    }

    fn put(&mut self, ino: Ino, value: Option<(u64, bool)>, done: &mut Done) {
        done.changed.insert(ino);
        let row = value.map(|(value, directory)| [value, u64::from(directory), 0]);
        done.rows.push((Key::Value(ino), row));
        match value {
            Some(value) => drop(self.values.insert(ino, value)),
            None => drop(self.values.remove(&ino)),
        }
    }

    fn name(&mut self, name: Name, ino: Option<Ino>, done: &mut Done) {
        done.changed.insert(name.0);
        done.rows.push((Key::Name(name), ino.map(|ino| [ino.0, 0, 0])));
        match ino {
            Some(ino) => drop(self.names.insert(name, ino)),
            None => drop(self.names.remove(&name)),
        }
    }
}

fn needs_of(op: Op, named: &dyn Fn(Name) -> Option<Ino>) -> Vec<Need> {
    let (access, inos): (Access, Vec<Ino>) = match op {
        Op::Read(ino) | Op::List(ino) => (Access::Read, vec![ino]),
        Op::Look(name) => (Access::Read, [name.0].into_iter().chain(named(name)).collect()),
        Op::Write(ino, _) | Op::Commit(ino, ..) => (Access::Write, vec![ino]),
        Op::Move(from, to) => (Access::Write, vec![from, to]),
        Op::Make(name, ..) => (Access::Write, vec![name.0]),
        Op::Remove(name) => (Access::Write, [name.0].into_iter().chain(named(name)).collect()),
        Op::Rename(from, to) => {
            let inodes = named(from).into_iter().chain(named(to));
            (Access::Write, [from.0, to.0].into_iter().chain(inodes).collect())
        }
        _ => return Vec::new(),
    };
    inos.into_iter().map(|ino| Need { ino, access }).collect()
}
