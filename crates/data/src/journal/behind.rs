//! Whole records, wherever they begin: what there is behind damage.

use std::ops::Range;

use forebay_format::{
    FormatError,
    record::{Changes, RECORD_HEAD_LEN, RECORD_MAGIC_BYTES, RecordHead},
};
use forebay_types::{Epoch, Sequence};

use super::found::FoundFile;
use crate::DataError;

/// A record all of whose checksums are right.
pub(super) struct Whole<'a> {
    pub(super) head: RecordHead,
    pub(super) data: &'a [u8],
    pub(super) changes: Changes,
    /// Where the next one begins.
    pub(super) end: usize,
}

impl<'a> Whole<'a> {
    /// The record at `at`, of any epoch where none is given. `None` where the journal ends there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(
        bytes: &'a [u8],
        at: usize,
        epoch: Option<Epoch>,
    ) -> Result<Option<Whole<'a>>, String> {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.iter().take(RECORD_HEAD_LEN).all(|byte| *byte == 0) {
            return Ok(None);
        }
        let torn = |error: FormatError| format!("is torn ({error})");
        let head = RecordHead::decode(rest).map_err(torn)?;
        if epoch.is_some_and(|epoch| head.epoch != epoch) {
            return Err(format!("is left over: an old record {} of epoch {}", head.sequence, head.epoch));
        }
        let (data_len, changes_len) = (head.data_len as usize, head.changes_len as usize);
        let parts = rest[RECORD_HEAD_LEN..].split_at_checked(data_len);
        let parts = parts.and_then(|(data, rest)| Some((data, rest.get(..changes_len)?)));
        let (data, changes) = parts.ok_or_else(|| "is torn".to_owned())?;
        let changes = head.check(data, changes).and_then(|()| Changes::decode(changes)).map_err(torn)?;
        Ok(Some(Whole { head, data, changes, end: at + RECORD_HEAD_LEN + data_len + changes_len }))
    }

    /// The first record from `at` on that is whole, of this epoch if one is given, and one of `wanted`; and where it begins.
    pub(super) fn find(
        bytes: &'a [u8],
        mut at: usize,
        epoch: Option<Epoch>,
        wanted: &Range<Sequence>,
    ) -> Option<(usize, Whole<'a>)> {
        loop {
            let rest = bytes.get(at..)?;
            at += rest.windows(RECORD_MAGIC_BYTES.len()).position(|window| window == RECORD_MAGIC_BYTES)?;
            if let Ok(Some(record)) = Whole::parse(bytes, at, epoch)
                && wanted.contains(&record.head.sequence)
            {
                return Some((at, record));
            }
            at += 1;
        }
    }
}

/// What is behind a place in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Behind {
    /// Whole records.
    pub(super) records: u64,
    /// The first of these.
    pub(super) first: Option<Sequence>,
    /// Up to where they say that all was on stable storage.
    pub(super) durable: Sequence,
}

impl Behind {
    /// Looks at the records of `bytes`, a file's, from `at` on, later than `after` and before `bound`; of any epoch where none is given.
    pub(super) fn look(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        epoch: Option<Epoch>,
        after: Sequence,
        bound: Option<Sequence>,
    ) {
        let mut wanted = after.next()..bound.unwrap_or(Sequence(u64::MAX));
        while let Some((_, record)) = Whole::find(bytes, at, epoch, &wanted) {
            self.records += 1;
            self.first = self.first.or(Some(record.head.sequence));
            self.durable = self.durable.max(record.changes.durable());
            wanted.start = record.head.sequence.next();
            at = record.end;
        }
    }

    /// Looks at all records of later files, but for those of an epoch before `epoch`.
    pub(super) fn look_at_files(&mut self, files: &[FoundFile], epoch: Epoch) -> Result<(), DataError> {
        for (index, file) in files.iter().enumerate().filter(|(_, file)| file.head.epoch >= epoch) {
            let bound = files.get(index + 1).map(|next| next.head.first);
            let before = Sequence(file.head.first.0.saturating_sub(1));
            self.look(&file.read()?, 0, Some(file.head.epoch), before, bound);
        }
        Ok(())
    }
}
