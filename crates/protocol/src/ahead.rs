//! What a client has carried out before it tells the owner.

use forebay_format::{Decoder, Encoder, FormatError};
use forebay_types::{Ino, Timespec};

use crate::{
    operation::Operation,
    word::{Word, lists, wrong},
};

/// An operation that a client has carried out by itself, with what it chose. Only those on names, attributes and extended attributes may be.
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

impl Step {
    /// Whether a client may carry this out before it tells the owner.
    #[must_use]
    pub fn may_be(operation: &Operation) -> bool {
        use Operation::{Link, Make, RemoveXattr, Rename, Rmdir, SetAtime, SetAttr, SetXattr, Unlink};
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
        )
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
        match from.rest().first() {
            Some(FIRST..=LAST) => {}
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
