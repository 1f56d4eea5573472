use forebay_types::Ino;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    along::{Commits, Outcome},
    numbers::Numbers,
    passing::Naming,
    queue::Queue,
    table::{Most, Table},
    waiters::Waiters,
};
use crate::error::ClientError;

/// How often something is made in a directory before it is asked for.
const MAKES: u32 = 2;
const MAKES_MAX: u32 = 512;
/// Names that are read of a directory for each that was made in it, at most: what is made at the owner waits for a commit, in which about so many are read.
const NAMES_A_MAKE: u64 = 1024;
/// Directories that are counted.
const COUNTED: usize = 10_000;

/// How it goes with a directory that is not delegated.
#[derive(Clone, Copy, Debug)]
struct Makes {
    seen: u32,
    wanted: u32,
}

/// Everything, under one lock that is held for no longer than an operation on the table takes.
pub(super) struct State {
    /// The session that it is all of.
    pub(super) session: u64,
    pub(super) table: Table,
    pub(super) queue: Queue,
    pub(super) numbers: Numbers,
    /// Inodes that operations at the owner change.
    pub(super) busy: FxHashMap<Ino, u32>,
    /// Names that operations at the owner change.
    pub(super) naming: Naming,
    /// Directories that are being read to be delegated, and whether they still may be.
    pub(super) learning: FxHashMap<Ino, bool>,
    makes: FxHashMap<Ino, Makes>,
    /// How often an operation that changes something was begun or ended at the owner.
    pub(super) passed: u64,
    /// [`State::passed`] when it was last looked, for its sake, whether too much is known.
    pub(super) looked: u64,
    /// Directories that are being made at the owner, and what else was changed there meanwhile.
    pub(super) making: u32,
    pub(super) beside: FxHashSet<Ino>,
    /// What has not taken place, until somebody is told.
    pub(super) failures: FxHashMap<Ino, ClientError>,
    pub(super) failure: Option<ClientError>,
    pub(super) waiters: Waiters,
    pub(super) commits: Commits,
    /// A request is under way that tells the owner what is first in the queue.
    pub(super) sending: bool,
    /// The thread that ships what nobody waits for does not look for it before it is woken.
    pub(super) asleep: bool,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn new(session: u64, block_size: u32) -> State {
        State {
            session,
            table: Table::new(block_size),
            queue: Queue::default(),
            numbers: Numbers::default(),
            busy: FxHashMap::default(),
            naming: Naming::default(),
            learning: FxHashMap::default(),
            makes: FxHashMap::default(),
            passed: 0,
            looked: 0,
            making: 0,
            beside: FxHashSet::default(),
            failures: FxHashMap::default(),
            failure: None,
            waiters: Waiters::default(),
            commits: Commits::default(),
            sending: false,
            asleep: false,
            closed: false,
        }
    }

    /// Everything that waits is lost. Returns what it concerns.
    pub(super) fn lose(&mut self, why: &ClientError) -> Vec<Ino> {
        let lost = self.queue.take(usize::MAX);
        if let Some(first) = lost.first() {
            self.waiters.lost(first.number, why);
        }
        lost.iter().for_each(|item| self.commits.end(item.number, || Outcome::Lost(why.clone())));
        let mut inos: Vec<Ino> = lost.iter().flat_map(|item| &item.touched).copied().collect();
        inos.sort_unstable();
        inos.dedup();
        self.fail(&inos, why);
        self.table.clear();
        inos
    }

    pub(super) fn fail(&mut self, inos: &[Ino], why: &ClientError) {
        if !inos.is_empty() {
            self.failures.extend(inos.iter().map(|ino| (*ino, why.clone())));
            self.failure = Some(why.clone());
        }
    }

    /// Something is made in a directory that is not delegated. Returns whether it is worth asking for.
    pub(super) fn count_make(&mut self, directory: Ino) -> bool {
        if self.makes.len() >= COUNTED {
            self.makes.clear();
        }
        let makes = self.makes.entry(directory).or_insert(Makes { seen: 0, wanted: MAKES });
        makes.seen += 1;
        makes.seen >= makes.wanted && !self.learning.contains_key(&directory)
    }

    /// A directory is delegated: should it be forgotten, it is asked for again when as much was made in it as before.
    pub(super) fn begin_to_count(&mut self, directory: Ino) {
        if let Some(makes) = self.makes.get_mut(&directory) {
            makes.seen = 0;
        }
    }

    /// Somebody else wants the directory, or it is not to be had: it is asked for less soon.
    pub(super) fn put_off(&mut self, directory: Ino) {
        let makes = self.makes.entry(directory).or_insert(Makes { seen: 0, wanted: MAKES });
        *makes = Makes { seen: 0, wanted: (makes.wanted * 4).min(MAKES_MAX) };
    }

    /// Whether a directory with so many names is worth reading now: else it is asked for when more was made in it.
    pub(super) fn is_worth(&mut self, directory: Ino, names: u64) -> bool {
        let wanted = u32::try_from(names / NAMES_A_MAKE).unwrap_or(u32::MAX);
        let Some(makes) = self.makes.get_mut(&directory) else { return true };
        makes.wanted = makes.wanted.max(wanted);
        makes.seen >= wanted
    }

    pub(super) fn is_busy(&self, inos: &[Ino]) -> bool {
        !self.busy.is_empty() && inos.iter().any(|ino| self.busy.contains_key(ino))
    }

    pub(super) fn make_busy(&mut self, inos: &[Ino]) {
        self.passed += u64::from(!inos.is_empty());
        if self.making > 0 {
            self.beside.extend(inos);
        }
        for ino in inos {
            *self.busy.entry(*ino).or_default() += 1;
        }
    }

    /// A directory was made at the owner, or nobody knows whether.
    pub(super) fn made_one(&mut self) {
        self.making -= 1;
        if self.making == 0 {
            self.beside.clear();
        }
    }

    pub(super) fn no_longer_busy(&mut self, inos: &[Ino]) {
        self.passed += u64::from(!inos.is_empty());
        for ino in inos {
            if let Some(count) = self.busy.get_mut(ino) {
                *count -= 1;
                if *count == 0 {
                    self.busy.remove(ino);
                }
            }
        }
    }

    /// Forgets what is known and need not be, where that is too much.
    pub(super) fn shrink(&mut self, most: Most) {
        let (queue, busy) = (&self.queue, &self.busy);
        let needed = |ino| queue.concerns(ino) || busy.contains_key(&ino);
        let large = self.table.shrink(most, 2 * queue.len(), needed);
        large.into_iter().for_each(|directory| self.put_off(directory));
    }
}
