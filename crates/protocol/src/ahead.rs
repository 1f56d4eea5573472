//! What a client has carried out before it tells the owner.

use std::collections::BTreeMap;

use forebay_format::{Decoder, Encoder, FormatError};
use forebay_types::{Ino, Timespec};

use crate::{
    answer::Failure,
    operation::Operation,
    word::{Word, lists, wrong},
};

/// An operation that a client has carried out by itself, with what it chose. Only those on names, attributes and extended attributes may be, and commits: what one tells was written,
/// so that the client has its bytes still where it is refused.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it was carried out.
    pub time: Timespec,
    /// The number of the inode that it has made.
    pub made: Option<Ino>,
    /// What was done.
    pub operation: Operation,
}

/// Tags of the operations that a step may have.
const FIRST: u8 = 32;
const LAST: u8 = 41;
const COMMIT: u8 = 43;

impl Step {
    /// Whether a client may carry this out before it tells the owner.
    #[must_use]
    pub fn may_be(operation: &Operation) -> bool {
        use Operation::{
            Commit, Link, Make, RemoveXattr, Rename, Rmdir, SetAtime, SetAttr, SetXattr, Unlink,
        };
        matches!(
            operation,
            Make(..)
                | Link(..)
                | Unlink(..)
                | Rmdir(..)
                | Rename { .. }
                | SetAttr(..)
                | SetAtime(..)
                | SetXattr(..)
                | RemoveXattr(..)
                | Commit(_)
        )
    }
}

/// What is not as a client has told, because the owner has refused steps: the names that these were about, and the inodes that they were to make or to give a name.
///
/// What comes after a refused step and names or touches any of it would be about something else, so it is refused for the same reason: by the owner within a request,
/// by the client in what waits (rule 3 of `docs/design/delegation.md`).
#[derive(Clone, Debug, Default)]
pub struct Undone {
    names: BTreeMap<Ino, BTreeMap<Vec<u8>, Failure>>,
    inos: BTreeMap<Ino, Failure>,
}

impl Undone {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.inos.is_empty()
    }

    /// A step was refused, and why.
    pub fn add(&mut self, step: &Step, why: Failure) {
        for (parent, name) in names(&step.operation) {
            self.names.entry(parent).or_default().insert(name.to_vec(), why);
        }
        self.inos.extend(step.made.map(|ino| (ino, why)));
        // Another name of it may be its last one now, and is not to be taken away for the one that it did not get.
        if let Operation::Link(ino, ..) = step.operation {
            self.inos.insert(ino, why);
        }
    }

    /// Why an operation is not to be carried out, if it depends on any of it. `inos`: what it makes, looks at or changes, also by name.
    pub fn concerns(&self, operation: &Operation, inos: impl IntoIterator<Item = Ino>) -> Option<Failure> {
        let of_name = |(parent, name): (Ino, &[u8])| self.names.get(&parent)?.get(name).copied();
        let of_ino = || inos.into_iter().find_map(|ino| self.inos.get(&ino).copied());
        names(operation).find_map(of_name).or_else(of_ino)
    }
}

/// The names that an operation makes, moves or takes away.
fn names(operation: &Operation) -> impl Iterator<Item = (Ino, &[u8])> {
    let (one, other): (_, Option<(Ino, &[u8])>) = match operation {
        Operation::Make(parent, name, _)
        | Operation::Link(_, parent, name)
        | Operation::Unlink(parent, name, _)
        | Operation::Rmdir(parent, name, _) => (Some((*parent, name.as_slice())), None),
        Operation::Rename { from, name, to, new_name, .. } => {
            (Some((*from, name.as_slice())), Some((*to, new_name.as_slice())))
        }
        _ => (None, None),
    };
    one.into_iter().chain(other)
}

impl Operation {
    /// The names that it makes, moves or takes away, each in its directory.
    pub fn names(&self) -> impl Iterator<Item = (Ino, &[u8])> {
        names(self)
    }

    /// Whether it makes, moves or takes away a name.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        self.names().next().is_some()
    }
}

impl Word for Step {
    fn put(&self, to: &mut Encoder<'_>) {
        self.time.put(to);
        self.made.put(to);
        self.operation.put(to);
    }

    /// The operation's tag is looked at before the operation: one that contains others would take as much stack as somebody likes.
    fn take(from: &mut Decoder<'_>) -> Result<Step, FormatError> {
        let (time, made) = (Word::take(from)?, Word::take(from)?);
        match from.rest().first().copied() {
            Some(FIRST..=LAST | COMMIT) => {}
            tag => return Err(wrong(format!("{tag:?} is no operation that a client carries out ahead"))),
        }
        let operation = Operation::take(from)?;
        if !Step::may_be(&operation) {
            return Err(wrong("an operation that no client carries out ahead".to_owned()));
        }
        Ok(Step { time, made, operation })
    }
}

lists!(Step);
