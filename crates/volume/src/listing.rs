//! The next page of a directory that is being listed, read while the one before is given out.
//!
//! Who lists a large directory and the thread that reads ahead of it work on two processors: names and inodes of a page take about as long to read as the kernel and the program need to take one in.
//! Guarantee: a page is given only where the directory is what it was before the page was read, so nobody is told of a name what a look-up would not have said.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
};

use forebay_meta::{DirEntry, Inode, MetaError};
use forebay_types::Ino;
use parking_lot::{Condvar, Mutex};

use crate::Volume;

/// Pages that are kept: so many directories can be listed at a time. At most 200 KiB of ordinary names.
const PAGES: usize = 8;

/// A page: this directory's entries after this name, about so many.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    dir: Ino,
    after: Vec<u8>,
    limit: usize,
}

#[derive(Debug)]
enum Page {
    Wanted,
    /// The thread is at it.
    Begun,
    /// The directory as it was before, and what was read.
    Read(Arc<Inode>, Vec<DirEntry>),
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    pages: VecDeque<(Place, Page)>,
    runs: bool,
}

impl State {
    fn forget(&mut self) {
        self.pages.retain(|(_, page)| matches!(page, Page::Begun));
    }

    fn position(&self, place: &Place) -> Option<usize> {
        self.pages.iter().position(|(known, _)| known == place)
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Pages that are read ahead. The thread that reads them ends with it, at the latest.
#[derive(Debug, Default)]
pub(crate) struct Listing(Arc<Shared>);

impl Listing {
    /// Starts the thread. It holds the volume only while it reads.
    ///
    /// # Errors
    /// No thread can be started: then nothing is read ahead.
    pub(crate) fn start(&self, volume: Weak<Volume>) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.0);
        shared.state.lock().runs = true;
        thread::Builder::new().name("fb-listing".to_owned()).spawn(move || {
            while let Some(mut turn) = Turn::next(&shared) {
                turn.read = volume.upgrade().and_then(|volume| volume.read_page(&turn.place).ok());
            }
        })
    }

    /// Ends the thread, once it has read what it is at.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.runs = false;
        state.forget();
        self.0.changed.notify_all();
    }

    /// Forgets what was read.
    pub(crate) fn clear(&self) {
        self.0.state.lock().forget();
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// What was read of this place, with the directory as it was before. One that is being read is waited for; one that is not begun is the caller's.
    fn take(&self, place: &Place) -> Option<(Arc<Inode>, Vec<DirEntry>)> {
        let mut state = self.state.lock();
        loop {
            let at = state.position(place)?;
            if matches!(state.pages.get(at), Some((_, Page::Begun))) {
                self.changed.wait(&mut state);
                continue;
            }
            return match state.pages.remove(at) {
                Some((_, Page::Read(dir, entries))) => Some((dir, entries)),
                _ => None,
            };
        }
    }

    /// Has this place read by the thread, in the place of the oldest one that nobody came for.
    fn ask(&self, place: Place) {
        let mut state = self.state.lock();
        if !state.runs || state.position(&place).is_some() {
            return;
        }
        if state.pages.len() >= PAGES {
            let Some(oldest) = state.pages.iter().position(|(_, page)| !matches!(page, Page::Begun)) else {
                return;
            };
            state.pages.remove(oldest);
        }
        state.pages.push_back((place, Page::Wanted));
        self.changed.notify_all();
    }
}

/// A page that the thread is at. Whatever becomes of it, who waits for it is told.
struct Turn<'a> {
    shared: &'a Shared,
    place: Place,
    /// What was read; `None` where it could not be: who comes for it meets the error.
    read: Option<(Arc<Inode>, Vec<DirEntry>)>,
}

impl Turn<'_> {
    /// The next page to be read, waited for; `None` at the end.
    fn next(shared: &Shared) -> Option<Turn<'_>> {
        let mut state = shared.state.lock();
        while state.runs {
            if let Some((place, page)) = state.pages.iter_mut().find(|(_, page)| matches!(page, Page::Wanted))
            {
                *page = Page::Begun;
                return Some(Turn { shared, place: place.clone(), read: None });
            }
            shared.changed.wait(&mut state);
        }
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let read = self.read.take().filter(|_| state.runs);
        let known = state.pages.iter_mut().find(|(place, _)| *place == self.place);
        if let (Some((_, page)), Some((dir, entries))) = (known, read) {
            *page = Page::Read(dir, entries);
        } else {
            state.pages.retain(|(place, _)| *place != self.place);
        }
        self.shared.changed.notify_all();
    }
}

impl Volume {
    /// About `limit` entries of a directory after a name, with their inodes brought into the cache. Where more may follow, these are read meanwhile.
    pub(crate) fn page_with_inodes(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirEntry>, MetaError> {
        let ahead = after.and_then(|after| self.page_ahead(Place { dir, after: after.to_vec(), limit }));
        let entries = match ahead {
            Some(entries) => entries,
            None => self.read_entries(dir, after, limit)?,
        };
        // A page may be a little shorter than was asked for; one that is much shorter is the last.
        if let Some(last) = entries.last().filter(|_| entries.len() > limit / 2) {
            self.listing.0.ask(Place { dir, after: last.name.clone(), limit });
        }
        Ok(entries)
    }

    /// What was read ahead of a place, unless the directory has changed since: each change of its names puts another inode in the place of the one that is known.
    fn page_ahead(&self, place: Place) -> Option<Vec<DirEntry>> {
        let (before, entries) = self.listing.0.take(&place)?;
        let now = self.ns.inode(self.subvolume, place.dir).ok()?;
        Arc::ptr_eq(&before, &now).then_some(entries)
    }

    fn read_page(&self, place: &Place) -> Result<(Arc<Inode>, Vec<DirEntry>), MetaError> {
        let dir = self.ns.inode(self.subvolume, place.dir)?;
        Ok((dir, self.read_entries(place.dir, Some(&place.after), place.limit)?))
    }

    fn read_entries(&self, dir: Ino, after: Option<&[u8]>, limit: usize) -> Result<Vec<DirEntry>, MetaError> {
        let entries = self.ns.entries(self.subvolume, dir, after, limit)?;
        self.ns.prefetch_inodes(self.subvolume, entries.iter().map(|entry| entry.ino))?;
        Ok(entries)
    }
}

#[cfg(test)]
mod tests;
