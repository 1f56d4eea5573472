//! Names of the objects in the bucket that are not data. Numbers are hexadecimal and padded, so that names sort as they do.

use forebay_types::{Epoch, Sequence};

pub(crate) const OWNER: &str = "owner";
pub(crate) const CONFIG: &str = "meta/config";
pub(crate) const BASES: &str = "meta/base";
pub(crate) const DELTAS: &str = "meta/delta";
pub(crate) const CHUNKS: &str = "journal";
const WHOLE: &str = "whole";

/// A base: the rows as they were at record `from` or later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BaseName {
    pub(crate) from: Sequence,
    pub(crate) epoch: Epoch,
    /// Tells attempts of one epoch apart.
    pub(crate) attempt: u64,
}

/// The rows of one checkpoint. Sorts by the last record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DeltaName {
    pub(crate) last: Sequence,
    pub(crate) first: Sequence,
    pub(crate) epoch: Epoch,
}

/// A piece of the journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ChunkName {
    pub(crate) epoch: Epoch,
    /// Counts the attempts of one epoch.
    pub(crate) number: u64,
    pub(crate) first: Sequence,
    pub(crate) last: Sequence,
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split('-');
    for number in &mut numbers {
        *number = u64::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

impl BaseName {
    fn dir(&self) -> String {
        format!("{BASES}/{:016x}-{:08x}-{:04x}", self.from.0, self.epoch.0, self.attempt)
    }

    pub(crate) fn part(&self, number: u64) -> String {
        format!("{}/{number:06x}", self.dir())
    }

    pub(crate) fn whole(&self) -> String {
        format!("{}/{WHOLE}", self.dir())
    }

    /// The base that a key belongs to, and whether the key says that it is whole.
    pub(crate) fn parse(key: &str) -> Option<(BaseName, bool)> {
        let (dir, last) = key.strip_prefix(BASES)?.strip_prefix('/')?.split_once('/')?;
        let [from, epoch, attempt] = numbers(dir)?;
        Some((BaseName { from: Sequence(from), epoch: Epoch(epoch), attempt }, last == WHOLE))
    }
}

impl DeltaName {
    /// The name below the prefix of all deltas, which is also that of the file that waits to be put.
    pub(crate) fn file(&self) -> String {
        format!("{:016x}-{:016x}-{:08x}", self.last.0, self.first.0, self.epoch.0)
    }

    pub(crate) fn key(&self) -> String {
        format!("{DELTAS}/{}", self.file())
    }

    pub(crate) fn parse_file(name: &str) -> Option<DeltaName> {
        let [last, first, epoch] = numbers(name)?;
        Some(DeltaName { last: Sequence(last), first: Sequence(first), epoch: Epoch(epoch) })
    }

    pub(crate) fn parse(key: &str) -> Option<DeltaName> {
        DeltaName::parse_file(key.strip_prefix(DELTAS)?.strip_prefix('/')?)
    }
}

impl ChunkName {
    pub(crate) fn key(&self) -> String {
        format!(
            "{CHUNKS}/{:08x}/{:08x}-{:016x}-{:016x}",
            self.epoch.0, self.number, self.first.0, self.last.0
        )
    }

    pub(crate) fn parse(key: &str) -> Option<ChunkName> {
        let (epoch, rest) = key.strip_prefix(CHUNKS)?.strip_prefix('/')?.split_once('/')?;
        let [number, first, last] = numbers(rest)?;
        let [epoch] = numbers(epoch)?;
        Some(ChunkName { epoch: Epoch(epoch), number, first: Sequence(first), last: Sequence(last) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let (epoch, first, last) = (Epoch(0x12), Sequence(5), Sequence(1 << 40));
        let base = BaseName { from: first, epoch, attempt: 3 };
        assert_eq!(BaseName::parse(&base.part(7)), Some((base, false)));
        assert_eq!(BaseName::parse(&base.whole()), Some((base, true)));
        let delta = DeltaName { last, first, epoch };
        assert_eq!(DeltaName::parse(&delta.key()), Some(delta));
        let chunk = ChunkName { epoch, number: 9, first, last };
        assert_eq!(ChunkName::parse(&chunk.key()), Some(chunk));
        for other in ["owner", "journal/x/y", "meta/delta/1-2", "meta/delta/1-2-3-4", "meta/base/1-2-3"] {
            assert!(BaseName::parse(other).is_none() && DeltaName::parse(other).is_none());
            assert!(ChunkName::parse(other).is_none());
        }
    }
}
