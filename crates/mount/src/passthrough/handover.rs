//! What the kernel was told of files that it reads by itself, for the process that takes a mount over.
//!
//! Guarantees: whoever goes on knows each number that the kernel has, which opens it serves by itself, and by which registration and
//! file: an open that comes later is answered with the same one, as the kernel demands. The files hold what they held, since nobody has changed anything
//! in between.
//!
//! As bytes it is a row of numbers, each 8 bytes, little-endian, without a version of its own (`docs/design/takeover.md`).

use std::{
    fs::File as OsFile,
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
};

use forebay_types::Ino;
use forebay_volume::PlainFile;

use super::{
    Passthrough,
    table::{File, Held, Table},
};

/// A file in the kernel's hands.
#[derive(Debug)]
struct HeldFile {
    /// The kernel's number for it.
    backing: NonZeroU32,
    plain: Arc<PlainFile>,
}

/// What is known of a file with two numbers.
#[derive(Debug)]
struct State {
    ino: Ino,
    lookups: u64,
    ready: bool,
    withheld: u32,
    sent: u32,
    through: u32,
    direct: Vec<u64>,
    held: Option<HeldFile>,
}

/// What another process needs to know of files that the kernel reads by itself.
#[derive(Debug)]
pub struct PassthroughHandover {
    files: Vec<State>,
    writers: Vec<(Ino, u32)>,
}

impl Passthrough {
    /// Takes everything out. The session is paused.
    pub(crate) fn hand_over(&self) -> PassthroughHandover {
        let Table { files, writers } = std::mem::take(&mut *self.table.lock());
        self.files.store(0, Ordering::SeqCst);
        let state = |(ino, file): (Ino, File)| State {
            ino,
            lookups: file.lookups,
            ready: file.ready,
            withheld: file.withheld,
            sent: file.sent,
            through: file.through,
            direct: file.direct.into_iter().collect(),
            held: file
                .held
                .map(|held| HeldFile { backing: held.backing.leave(), plain: held.lease.into_plain() }),
        };
        PassthroughHandover {
            files: files.into_iter().map(state).collect(),
            writers: writers.into_iter().collect(),
        }
    }

    /// Puts everything in place. The session has not begun to be served.
    pub(crate) fn take_over(&self, state: PassthroughHandover) {
        let mut table = self.table.lock();
        for State { ino, lookups, ready, withheld, sent, through, direct, held } in state.files {
            let held = held.and_then(|held| self.adopt(ino, held));
            let direct = direct.into_iter().collect();
            table
                .files
                .insert(ino, File { lookups, ready, withheld, sent, through, direct, held, idle: false });
        }
        table.writers.extend(state.writers);
        self.files.store(table.len(), Ordering::SeqCst);
    }

    fn adopt(&self, ino: Ino, held: HeldFile) -> Option<Held> {
        let backing = self.connection.get()?.files.adopt(held.backing)?;
        let lease = self.volume.adopt_assembled(ino, held.plain);
        if lease.is_none() {
            tracing::error!(%ino, "an assembled file was not taken over: who has it open may not see changes");
        }
        Some(Held { backing, lease: lease? })
    }
}

impl PassthroughHandover {
    /// The plain files, in the order in which [`PassthroughHandover::decode`] wants them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().filter_map(|file| Some(file.held.as_ref()?.plain.as_fd())).collect()
    }

    /// As bytes, without the descriptors.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut words = vec![self.files.len() as u64];
        for file in &self.files {
            let numbers = [file.withheld, file.sent, file.through].map(u64::from);
            words.extend([file.ino.0, file.lookups, u64::from(file.ready)].into_iter().chain(numbers));
            words.push(file.direct.len() as u64);
            words.extend(&file.direct);
            words.push(file.held.as_ref().map_or(0, |held| u64::from(held.backing.get())));
            if let Some(held) = &file.held {
                let sums = held.plain.sums();
                words.extend([held.plain.number(), sums.len() as u64]);
                words.extend(sums.into_iter().flat_map(|(piece, sum)| [piece, u64::from(sum)]));
            }
        }
        words.push(self.writers.len() as u64);
        words.extend(self.writers.iter().flat_map(|(ino, count)| [ino.0, u64::from(*count)]));
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// What these bytes and descriptors say. `None`: [`PassthroughHandover::encode`] made no such bytes.
    #[must_use]
    pub fn decode(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<PassthroughHandover> {
        let (words, rest) = bytes.as_chunks();
        let mut from = Words { words, descriptors: descriptors.into_iter() };
        let files = from.list(Words::state)?;
        let writers = from.list(|from| Some((Ino(from.next()?), from.narrow()?)))?;
        let all = from.words.is_empty() && rest.is_empty() && from.descriptors.next().is_none();
        all.then_some(PassthroughHandover { files, writers })
    }
}

struct Words<'a> {
    words: &'a [[u8; 8]],
    descriptors: std::vec::IntoIter<OwnedFd>,
}

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn narrow(&mut self) -> Option<u32> {
        u32::try_from(self.next()?).ok()
    }

    /// As many as the next number says: each takes a word at least.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.next()?).ok().filter(|count| *count <= self.words.len())?;
        (0..count).map(|_| each(self)).collect()
    }

    fn state(&mut self) -> Option<State> {
        Some(State {
            ino: Ino(self.next()?),
            lookups: self.next()?,
            ready: self.next()? != 0,
            withheld: self.narrow()?,
            sent: self.narrow()?,
            through: self.narrow()?,
            direct: self.list(Words::next)?,
            held: match NonZeroU32::new(self.narrow()?) {
                None => None,
                Some(backing) => Some(HeldFile { backing, plain: Arc::new(self.plain()?) }),
            },
        })
    }

    fn plain(&mut self) -> Option<PlainFile> {
        let number = self.next()?;
        let sums = self.list(|from| Some((from.next()?, from.narrow()?)))?;
        Some(PlainFile::from_parts(OsFile::from(self.descriptors.next()?), number, sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PassthroughHandover {
        let file = |ino, held| State {
            ino: Ino(ino),
            lookups: 3,
            ready: ino == 5,
            withheld: 1,
            sent: 2,
            through: 4,
            direct: vec![7, 1 << 40],
            held,
        };
        let plain = PlainFile::from_parts(tempfile::tempfile().unwrap(), 9, [(0, 5), (2, u32::MAX)]);
        let held = HeldFile { backing: NonZeroU32::MIN, plain: Arc::new(plain) };
        PassthroughHandover { files: vec![file(5, Some(held)), file(6, None)], writers: vec![(Ino(8), 2)] }
    }

    fn descriptors(state: &PassthroughHandover) -> Vec<OwnedFd> {
        state.descriptors().into_iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
    }

    #[test]
    fn the_bytes_say_what_was_known() {
        let state = state();
        let bytes = state.encode();
        let again = PassthroughHandover::decode(&bytes, descriptors(&state)).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!((again.files.len(), again.descriptors().len()), (2, 1));
    }

    #[test]
    fn other_bytes_are_refused() {
        let state = state();
        let bytes = state.encode();
        for len in 0..bytes.len() {
            assert!(PassthroughHandover::decode(&bytes[..len], descriptors(&state)).is_none(), "{len}");
        }
        assert!(PassthroughHandover::decode(&bytes, Vec::new()).is_none());
        let twice = [descriptors(&state), descriptors(&state)].into_iter().flatten().collect();
        assert!(PassthroughHandover::decode(&bytes, twice).is_none());
        let mut many = bytes;
        many[0..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(PassthroughHandover::decode(&many, descriptors(&state)).is_none());
    }
}
