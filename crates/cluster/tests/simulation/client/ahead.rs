//! Working ahead of the owner (`docs/design/delegation.md`): delegated directories, what is carried out in them, and what the owner says to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_cluster::Lease;
use forebay_types::Ino;

use super::{Client, asking::Purpose, queue::Queue, queue::Queued};
use crate::{
    faults::Planted,
    history::{History, has_effect},
    messages::{GONE, IS_DIRECTORY, NOT_EMPTY, Name, Op, listed, looked, unlisted},
    owner::Wrong,
    world::{Context, RUN},
};

/// Steps of one request at most.
const STEPS: usize = 12;
/// How often something is made in a directory before it is asked for.
const MAKES: u32 = 2;
const MAKES_MAX: u32 = 32;

#[derive(Debug, Default)]
pub struct Ahead {
    /// Delegated directories, and all of their names.
    table: BTreeMap<Ino, BTreeMap<u8, Ino>>,
    /// Files that were made here.
    rows: BTreeSet<Ino>,
    queue: Queue,
    /// How many of the queue are under way.
    under_way: Option<usize>,
    pub numbers: VecDeque<Ino>,
    /// How often something was made in a directory that is not delegated, and how often it is to be.
    makes: BTreeMap<Ino, (u32, u32)>,
}

impl Ahead {
    pub fn is_delegated(&self, directory: Ino) -> bool {
        self.table.contains_key(&directory)
    }

    pub fn delegate(&mut self, directory: Ino, listed: u64) {
        self.table.insert(directory, unlisted(listed).collect());
    }

    pub fn forget(&mut self, ino: Ino) {
        self.table.remove(&ino);
        self.rows.remove(&ino);
    }

    pub fn retain(&mut self, may: &dyn Fn(Ino) -> bool) {
        self.table.retain(|ino, _| may(*ino));
        self.rows.retain(|ino| may(*ino));
    }

    /// Something is made in a directory that is not delegated. Returns whether it is worth asking for.
    pub fn count_make(&mut self, directory: Ino) -> bool {
        let makes = self.makes.entry(directory).or_insert((0, MAKES));
        makes.0 += 1;
        makes.0 >= makes.1
    }

    /// Somebody else wants the directory: it is asked for less soon.
    pub fn put_off(&mut self, directory: Ino) {
        let makes = self.makes.entry(directory).or_insert((0, MAKES));
        *makes = (0, (makes.1 * 2).min(MAKES_MAX));
    }

    pub fn add_run(&mut self, run: u64) {
        self.numbers.extend((0..RUN).map(|index| Ino(run * RUN + index)));
    }

    /// The number of the last operation that is not told.
    pub fn last(&self) -> u64 {
        self.queue.last()
    }

    pub fn until(&self, inos: &[Ino]) -> u64 {
        self.queue.until(inos)
    }

    /// Puts a commit behind what was done here, and returns its number. It concerns nothing: it was not answered, and who waits for it has the bytes still.
    pub fn along(&mut self, commit: Op, at: usize, now: u64) -> u64 {
        self.queue.push(commit, at, now, Vec::new())
    }

    pub fn is_told(&self, number: u64) -> bool {
        self.queue.is_told(number)
    }

    /// When the oldest of what is not told was done.
    pub fn oldest(&self) -> Option<u64> {
        self.queue.items.front().map(|item| item.time)
    }

    pub fn named(&self, name: Name) -> Option<Ino> {
        self.table.get(&name.0)?.get(&name.1).copied()
    }

    fn is_known(&self, ino: Ino) -> bool {
        self.rows.contains(&ino) || self.is_delegated(ino)
    }

    /// The inodes on which the lease to write is needed for an operation to be carried out here; `None` where it is not to be.
    pub fn inside(&self, op: Op) -> Option<Vec<Ino>> {
        let names = match op {
            Op::Look(name) | Op::Make(name, ..) | Op::Remove(name) => vec![name],
            Op::Rename(from, to) => vec![from, to],
            Op::List(directory) => return self.is_delegated(directory).then(|| vec![directory]),
            _ => return None,
        };
        let mut needed: Vec<Ino> = names.iter().map(|name| name.0).collect();
        if !names.iter().all(|name| self.is_delegated(name.0)) {
            return None;
        }
        if !matches!(op, Op::Make(..)) {
            let children: Vec<Ino> = names.iter().filter_map(|name| self.named(*name)).collect();
            if !children.iter().all(|ino| self.is_known(*ino)) {
                return None;
            }
            needed.extend(children);
        }
        Some(needed)
    }

    /// Carries an operation out. Returns what it answers, and the inodes that it has changed.
    pub fn carry_out(&mut self, op: Op, value: impl Fn(Ino) -> u64) -> (u64, Vec<Ino>) {
        match op {
            Op::Look(name) => (self.named(name).map_or(0, |ino| looked(ino, value(ino))), Vec::new()),
            Op::List(directory) => {
                let names = self.table.get(&directory).into_iter().flatten();
                (listed(names.map(|(name, ino)| (*name, *ino))), Vec::new())
            }
            Op::Make(name, ..) if self.named(name).is_some() => (0, Vec::new()),
            Op::Make(name, ino, directory) => {
                self.put(name, Some(ino));
                if directory {
                    self.table.insert(ino, BTreeMap::new());
                } else {
                    self.rows.insert(ino);
                }
                (1, vec![name.0, ino])
            }
            Op::Remove(name) => match self.named(name) {
                None => (0, Vec::new()),
                Some(ino) if self.table.get(&ino).is_some_and(|names| !names.is_empty()) => {
                    (NOT_EMPTY, Vec::new())
                }
                Some(ino) => {
                    self.put(name, None);
                    self.forget(ino);
                    (ino.0, vec![name.0, ino])
                }
            },
            Op::Rename(from, to) => self.rename(from, to),
            _ => (0, Vec::new()),
        }
    }

    fn rename(&mut self, from: Name, to: Name) -> (u64, Vec<Ino>) {
        let (moved, replaced) = (self.named(from), self.named(to));
        if moved.into_iter().chain(replaced).any(|ino| self.is_delegated(ino)) {
            return (IS_DIRECTORY, Vec::new());
        }
        let Some(moved) = moved.filter(|_| from != to) else {
            return (moved.map_or(0, |ino| ino.0), Vec::new());
        };
        if let Some(replaced) = replaced {
            self.forget(replaced);
        }
        self.put(from, None);
        self.put(to, Some(moved));
        (moved.0, [from.0, to.0, moved].into_iter().chain(replaced).collect())
    }

    fn put(&mut self, name: Name, ino: Option<Ino>) {
        let Some(names) = self.table.get_mut(&name.0) else { return };
        match ino {
            Some(ino) => drop(names.insert(name.1, ino)),
            None => drop(names.remove(&name.1)),
        }
    }

    /// Something was answered that may have been by what is not told yet. Returns whether so.
    pub fn saw(&mut self, at: usize, op: Op, inos: &[Ino]) -> bool {
        // What is told after that has nothing to do with it: the bytes of a file may be at the owner before.
        let last = self.queue.until(inos);
        match self.queue.items.iter_mut().find(|item| item.number == last) {
            Some(item) => item.seen.push((at, op)),
            None => return false,
        }
        true
    }

    /// The session is over: what waits is lost, and what is under way was carried out or not. Returns what it concerns.
    pub fn lose(&mut self, history: &mut History, keeps_part: bool) -> Vec<Ino> {
        let all = self.queue.take(usize::MAX);
        let inos: Vec<Ino> = all.iter().flat_map(|item| &item.touched).copied().collect();
        let count = self.under_way.take().unwrap_or(0).min(all.len());
        let sent: Vec<usize> = all[..count].iter().map(|item| item.at).collect();
        history.unknown(&sent);
        for item in &all {
            history.lost(item.at);
            item.seen.iter().for_each(|(at, _)| history.lost(*at));
        }
        self.table.clear();
        self.rows.clear();
        self.numbers.clear();
        if keeps_part {
            self.queue.items.extend(all.into_iter().skip(count.max(1)));
        }
        inos
    }
}

impl Client {
    /// Tells the owner, one request at a time; what collects meanwhile is the next one.
    pub(super) fn ship(&mut self, context: &mut Context<'_>) {
        let queue = &mut self.ahead.queue.items;
        if self.ahead.under_way.is_some() || queue.is_empty() {
            return;
        }
        if context.planted(Planted::OutOfOrder) {
            queue.rotate_left(1);
        }
        let steps: Vec<Op> = queue.iter().take(STEPS).map(|item| item.op).collect();
        self.ahead.under_way = Some(steps.len());
        self.request_with(Purpose::Ship, Op::Ahead, Some(Lease::Write), steps, context);
    }

    /// What became of the first operations of the queue: `failed` has a bit for each that the owner has not carried out.
    pub(super) fn shipped(&mut self, failed: u64, context: &mut Context<'_>) {
        let Some(count) = self.ahead.under_way.take() else { return };
        if failed == GONE {
            let what = format!("client {}: the owner refuses what was done ahead", self.at);
            context.history.finds(what);
            return;
        }
        let told = self.ahead.queue.take(count);
        let (mut wrong, mut commits) = (Wrong::default(), Vec::new());
        for (at, item) in told.iter().enumerate() {
            let refused = failed >> at & 1 == 1;
            match item.op {
                Op::Commit(ino, ..) => commits.push((ino, item.number, refused)),
                _ if refused => self.fail(item, &mut wrong, context),
                _ => context.history.told(item.at),
            }
            settle_seen(&item.seen, &wrong, context);
        }
        if !wrong.is_empty() && !context.planted(Planted::GoesOnAfterRefusal) {
            self.fail_what_depends(&mut wrong, context);
        }
        for (ino, number, refused) in commits {
            self.went_along(ino, number, refused, context);
        }
        self.give_back_more(context);
    }

    /// What waits and depends on what has failed fails, too: at the owner it would be about something else.
    fn fail_what_depends(&mut self, wrong: &mut Wrong, context: &mut Context<'_>) {
        for mut item in std::mem::take(&mut self.ahead.queue.items) {
            // A commit of what was not made is for the owner to refuse.
            if wrong.concerns(item.op) && !matches!(item.op, Op::Commit(..)) {
                self.fail(&item, wrong, context);
                settle_seen(&item.seen, wrong, context);
                continue;
            }
            item.seen.retain(|(at, op)| {
                let lost = wrong.concerns(*op);
                if lost {
                    context.history.refused(*at);
                }
                !lost
            });
            self.ahead.queue.items.push_back(item);
        }
    }

    fn fail(&mut self, item: &Queued, wrong: &mut Wrong, context: &mut Context<'_>) {
        wrong.add(item.op);
        context.history.refused(item.at);
        for ino in &item.touched {
            self.failures.insert(*ino);
            self.ahead.forget(*ino);
            self.known.forget(*ino);
            self.kernel.forget(*ino);
        }
        if let Op::Make(_, made, _) = item.op {
            self.lose_dirty(made, context.history);
        }
    }

    /// Whether the owner need not be asked: carries the operation out, where the leases for it count.
    pub(super) fn here(&mut self, at: usize, op: Op, context: &mut Context<'_>) -> bool {
        let Some(needed) = self.ahead.inside(op) else { return false };
        if !needed.iter().all(|ino| self.has(*ino, Lease::Write, context)) {
            return false;
        }
        let values = &self.known.values;
        let (value, touched) = self.ahead.carry_out(op, |ino| values.get(&ino).copied().unwrap_or(0));
        if touched.is_empty() {
            // That a directory has names is seen of them.
            let seen = match op {
                Op::Remove(name) if value == NOT_EMPTY => Op::List(self.ahead.named(name).unwrap_or(name.0)),
                op => op,
            };
            self.saw(at, seen, value, &needed, context);
        } else {
            self.change_here(at, op, (value, touched), context);
        }
        for name in op.names() {
            let ino = self.ahead.named(name).unwrap_or(Ino(0));
            self.known.names.remove(&name);
            self.tell_kernel_name(name, ino, context);
        }
        self.heard_of(op, value);
        true
    }

    fn change_here(
        &mut self,
        at: usize,
        op: Op,
        (value, touched): (u64, Vec<Ino>),
        context: &mut Context<'_>,
    ) {
        context.history.end(at, value, context.now, crate::history::State::Done);
        context.history.keeps_back(at);
        self.last_done = context.now;
        if let Op::Make(_, ino, _) = op {
            if let Some(held) = &mut self.held {
                held.made(ino);
            }
            self.known.values.insert(ino, 0);
        }
        let renamed = matches!(op, Op::Rename(..)).then_some(Ino(value));
        for gone in touched.iter().filter(|ino| !matches!(op, Op::Make(..)) && Some(**ino) != renamed) {
            if !op.inos().contains(gone) {
                self.known.forget(*gone);
                self.kernel.forget(*gone);
            }
        }
        debug_assert!(has_effect(op, value), "{op:?} has changed something");
        self.ahead.queue.push(op, at, context.now, touched);
    }
}

/// What was answered after an operation is known to stay, or was by something that has not taken place.
fn settle_seen(seen: &[(usize, Op)], wrong: &Wrong, context: &mut Context<'_>) {
    for (at, op) in seen {
        if wrong.concerns(*op) {
            context.history.refused(*at);
        } else {
            context.history.told(*at);
        }
    }
}
