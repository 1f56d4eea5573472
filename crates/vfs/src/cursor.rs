//! A place in a directory that changes while it is listed.
//!
//! Entries come in the order of their names. A cookie is the number of entries before; the names given out are kept, so that an earlier
//! cookie names the same place for as long as the directory is open. Guarantees: an entry that is there the whole time is listed exactly
//! once; going back to a cookie gives the entries that followed it, with the same cookies, less those that are gone by then, and
//! without any that came to stand between them; each entry is one that the directory had at a moment of the very call that gives it: the kernel keeps what a listing with attributes
//! says as if it had looked each name up.

use std::{cmp::Ordering, collections::VecDeque, sync::Arc};

use forebay_format::{Decoder, Encoder, FormatError};
use forebay_meta::{DirEntry, Inode};
use forebay_types::{Attr, FileKind, Ino};

use crate::{
    error::VfsError,
    handover::{items, list},
};

/// Entries that are fetched at a time.
const PAGE: usize = 512;
/// Cookies after `.` and `..`.
const DOT: u64 = 1;
const DOTS: u64 = 2;

/// An entry as a listing gives it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it stands for.
    pub ino: Ino,
    /// What that is.
    pub kind: FileKind,
    /// Where a listing goes on after it.
    pub cookie: u64,
    /// Its attributes, if they were asked for; never of `.` and `..`.
    pub attr: Option<Attr>,
}

/// Where a cursor gets about so many entries after a name.
pub(crate) type Fetch<'a> = dyn Fn(Option<&[u8]>, usize) -> Result<Vec<DirEntry>, VfsError> + 'a;

/// The place.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The names given out, one behind the other, and where each ends.
    names: Vec<u8>,
    ends: Vec<usize>,
    /// Entries before the next one to be given.
    at: usize,
    /// What was fetched and not yet looked at, and the name of what was looked at last.
    ahead: VecDeque<DirEntry>,
    seen: Option<Vec<u8>>,
    /// The directory as it was before that was fetched. Any change of its names puts another inode in the place of this one, so while it is the very same they are what they were. (Its times
    /// do not tell: the clock stands still for milliseconds.)
    of: Option<Arc<Inode>>,
}

/// A cursor without what it has fetched ahead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    names: Vec<u8>,
    ends: Vec<usize>,
    at: usize,
    seen: Option<Vec<u8>>,
}

impl Place {
    #[cfg(test)]
    pub(crate) fn of(names: &[&[u8]], at: usize, seen: Option<&[u8]>) -> Place {
        let ends =
            names.iter().scan(0, |end, name| Some(std::mem::replace(end, *end + name.len()) + name.len()));
        Place { names: names.concat(), ends: ends.collect(), at, seen: seen.map(<[u8]>::to_vec) }
    }

    pub(crate) fn encode(&self, to: &mut Encoder<'_>) {
        to.bytes(&self.names);
        list(to, &self.ends, |to, end| to.varint(*end as u64));
        to.varint(self.at as u64);
        list(to, self.seen.as_slice(), |to, seen| to.bytes(seen));
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Place, FormatError> {
        let number = |from: &mut Decoder<'_>| Ok(usize::try_from(from.varint()?).unwrap_or(usize::MAX));
        let names = from.bytes()?.to_vec();
        let (ends, at) = (items(from, number)?, number(from)?);
        let seen = items(from, |from| Ok(from.bytes()?.to_vec()))?.pop();
        if !ends.is_sorted() || ends.last().is_some_and(|last| *last != names.len()) || at > ends.len() {
            let detail = "names and their ends do not fit together".to_owned();
            return Err(FormatError::Invalid { what: "the place in a directory", detail });
        }
        Ok(Place { names, ends, at, seen })
    }
}

impl Cursor {
    /// Where it is. What was fetched ahead is fetched again from there.
    pub(crate) fn place(&self) -> Place {
        let Cursor { names, ends, at, seen, .. } = self;
        Place { names: names.clone(), ends: ends.clone(), at: *at, seen: seen.clone() }
    }

    /// One that goes on there.
    pub(crate) fn at(place: Place) -> Cursor {
        let Place { names, ends, at, seen } = place;
        Cursor { names, ends, at, seen, ..Cursor::default() }
    }

    /// Gives entries from `cookie` on to `emit` until it takes no more, of the directory as it is now.
    pub(crate) fn list(
        &mut self,
        cookie: u64,
        directory: &Arc<Inode>,
        fetch: &Fetch<'_>,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let (this, parent) = (directory.ino, directory.row.parent);
        let dot = |name, ino, cookie| Listed { name, ino, kind: FileKind::Directory, cookie, attr: None };
        if cookie < DOT && !emit(dot(b".", this, DOT)) {
            return Ok(());
        }
        if cookie < DOTS && !emit(dot(b"..", parent, DOTS)) {
            return Ok(());
        }
        if cookie == 0 {
            self.rewind();
        }
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, directory)) {
            self.ahead.clear();
            self.of = Some(Arc::clone(directory));
        }
        let index = usize::try_from(cookie.saturating_sub(DOTS)).unwrap_or(usize::MAX);
        self.seek(index);
        while let Some((entry, known)) = self.next(fetch)? {
            if self.at < index {
                self.step(entry, known);
                continue;
            }
            let listed = Listed {
                name: &entry.name,
                ino: entry.ino,
                kind: entry.kind,
                cookie: self.at as u64 + 1 + DOTS,
                attr: None,
            };
            if !emit(listed) {
                self.ahead.push_front(entry);
                return Ok(());
            }
            self.step(entry, known);
        }
        Ok(())
    }

    fn rewind(&mut self) {
        *self = Cursor {
            names: std::mem::take(&mut self.names),
            ends: std::mem::take(&mut self.ends),
            ..Cursor::default()
        };
        self.names.clear();
        self.ends.clear();
    }

    fn name(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.names.get(start..end)
    }

    /// Goes back to where `index` entries were before; forward at most to the last place known.
    fn seek(&mut self, index: usize) {
        let index = index.min(self.ends.len());
        if index != self.at {
            self.at = index;
            self.ahead.clear();
            self.seen = index.checked_sub(1).and_then(|last| self.name(last)).map(<[u8]>::to_vec);
        }
    }

    /// The entry at the cursor, and whether it was given out before.
    fn next(&mut self, fetch: &Fetch<'_>) -> Result<Option<(DirEntry, bool)>, VfsError> {
        loop {
            let Some(entry) = self.ahead.pop_front() else {
                self.ahead = fetch(self.seen.as_deref(), PAGE)?.into();
                if self.ahead.is_empty() {
                    self.at = self.ends.len();
                    return Ok(None);
                }
                continue;
            };
            let order = self.name(self.at).map(|known| entry.name.as_slice().cmp(known));
            match order {
                None => return Ok(Some((entry, false))),
                Some(Ordering::Equal) => return Ok(Some((entry, true))),
                // It came after the listing had passed here.
                Some(Ordering::Less) => self.seen = Some(entry.name),
                // The one that was here is gone.
                Some(Ordering::Greater) => {
                    self.at += 1;
                    self.ahead.push_front(entry);
                }
            }
        }
    }

    fn step(&mut self, entry: DirEntry, known: bool) {
        if !known {
            self.names.extend_from_slice(&entry.name);
            self.ends.push(self.names.len());
        }
        self.at += 1;
        self.seen = Some(entry.name);
    }
}

#[cfg(test)]
mod tests;
