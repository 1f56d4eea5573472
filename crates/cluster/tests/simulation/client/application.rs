//! What the application does, one operation after the other, and what each waits for.

use std::collections::BTreeMap;

use forebay_cluster::Lease;
use forebay_types::Ino;
use rand::RngExt;

use super::{Client, asking::Purpose};
use crate::{
    faults::Planted,
    history::{State, has_effect},
    messages::{GONE, Name, Op},
    world::{Context, LAST_BEGIN, REGISTERS, ROOTS},
};

/// An operation that has not returned.
#[derive(Clone, Debug)]
pub struct Doing {
    /// In the history.
    pub at: usize,
    pub op: Op,
    /// The owner was asked for it.
    pub asked: bool,
    /// Something else was asked for it, whose answer is awaited; the lease or the directory was asked for.
    waits: bool,
    learned: bool,
    /// What names stood for when that was asked for the operation.
    looked: BTreeMap<Name, Ino>,
}

impl Client {
    pub(super) fn application(&mut self, context: &mut Context<'_>) {
        if self.ahead.numbers.len() < 6 && !self.is_asking(Purpose::Numbers) {
            self.request(Purpose::Numbers, Op::Runs, None, context);
        }
        self.go_on(context);
        if context.now >= LAST_BEGIN {
            return;
        }
        if context.rng.random_bool(0.05) {
            let dirty: Vec<Ino> = self.dirty.keys().copied().collect();
            dirty.into_iter().for_each(|ino| self.flush(ino, context));
        }
        for _ in 0..context.rng.random_range(1..=4) {
            if self.doing.is_some() {
                return;
            }
            if let Some(op) = self.draw(context) {
                self.begin(op, context);
            }
        }
    }

    fn draw(&mut self, context: &mut Context<'_>) -> Option<Op> {
        if let Some(made) = self.files.last().copied()
            && !self.ahead.is_told(self.ahead.until(&[made]))
            && context.rng.random_bool(0.3)
        {
            // What was made ahead is written, and synced.
            return Some(if self.dirty.contains_key(&made) { Op::Fsync(made) } else { self.new_write(made) });
        }
        let register = Ino(context.rng.random_range(1..=REGISTERS as u64));
        let file = pick(&self.files, context);
        let directory = match pick(&self.directories, context) {
            Some(directory) if context.rng.random_bool(0.65) => directory,
            _ => ROOTS[context.rng.random_range(0..ROOTS.len())],
        };
        // In a directory that is always there the last name is for a directory, so that what a name is for is known.
        let is_root = ROOTS.contains(&directory);
        let any: Name = (directory, context.rng.random_range(0..3));
        let of_file: Name = (directory, context.rng.random_range(0..if is_root { 2 } else { 3 }));
        let drawn = context.rng.random_range(0..100);
        Some(match drawn {
            0..=13 => Op::Read(register),
            14..=27 => self.new_write(register),
            28..=31 => Op::Move(register, Ino(register.0 % REGISTERS as u64 + 1)),
            32..=36 if self.locks.contains(&register) => Op::Unlock(register),
            32..=36 => Op::Lock(register),
            37..=43 => Op::Fsync(if drawn % 2 == 0 { directory } else { file.unwrap_or(directory) }),
            44..=57 => self.kernel_look(any, context)?,
            58..=60 => Op::List(directory),
            61..=76 => Op::Make(any, self.ahead.numbers.pop_front()?, is_root && any.1 == 2),
            77..=83 => Op::Remove(any),
            84..=90 => {
                let to = match pick(&self.directories, context) {
                    Some(other) if context.rng.random_bool(0.3) => other,
                    _ => directory,
                };
                Op::Rename(of_file, (to, context.rng.random_range(0..2)))
            }
            91..=94 => Op::Read(file?),
            _ => self.new_write(file?),
        })
    }

    fn new_write(&mut self, ino: Ino) -> Op {
        self.written += 1;
        Op::Write(ino, (self.at as u64 + 1) * 1_000_000 + self.written)
    }

    /// A look, if the kernel does not know the name.
    fn kernel_look(&mut self, name: Name, context: &mut Context<'_>) -> Option<Op> {
        let asks_daemon = context.rng.random_bool(0.5);
        if !asks_daemon && self.kernel_resolves(name, context) { None } else { Some(Op::Look(name)) }
    }

    fn kernel_resolves(&mut self, name: Name, context: &mut Context<'_>) -> bool {
        let Some((ino, until)) = self.kernel.names.get(&name).copied() else { return false };
        if until <= context.clock {
            return false;
        }
        let op = Op::Resolve(name);
        let at = context.history.begin(self.at, op, context.now);
        self.saw(at, op, ino.0, &[name.0], context);
        true
    }

    fn kernel_reads_value(&mut self, ino: Ino, context: &mut Context<'_>) -> bool {
        let Some((value, until)) = self.kernel.values.get(&ino).copied() else { return false };
        if until <= context.clock {
            return false;
        }
        let at = context.history.begin(self.at, Op::Read(ino), context.now);
        self.saw(at, Op::Read(ino), value, &[ino], context);
        true
    }

    /// What applications read while the daemon stands still.
    pub fn kernel_reads(&mut self, context: &mut Context<'_>) {
        if self.doing.is_none() {
            let register = Ino(context.rng.random_range(1..=REGISTERS as u64));
            let ino = pick(&self.files, context).unwrap_or(register);
            self.kernel_reads_value(if context.rng.random_bool(0.7) { register } else { ino }, context);
            let directory = pick(&self.directories, context).unwrap_or(ROOTS[0]);
            self.kernel_resolves((directory, context.rng.random_range(0..3)), context);
        }
    }

    fn begin(&mut self, op: Op, context: &mut Context<'_>) {
        if let Op::Read(ino) = op
            && self.kernel_reads_value(ino, context)
        {
            return;
        }
        if let Op::Unlock(ino) = op {
            self.locks.remove(&ino);
        }
        let at = context.history.begin(self.at, op, context.now);
        let (asked, waits, learned, looked) = (false, false, false, BTreeMap::new());
        self.doing = Some(Doing { at, op, asked, waits, learned, looked });
        self.go_on(context);
    }

    /// Does what the application's operation waits for next, if that can be done.
    pub(super) fn go_on(&mut self, context: &mut Context<'_>) {
        let Some(doing) = self.doing.clone().filter(|doing| !doing.asked && !doing.waits) else { return };
        let Doing { at, op, .. } = doing;
        let over = match op {
            Op::Read(ino) => self.read(at, ino, context),
            Op::Write(ino, value) => self.write(at, ino, value, context),
            Op::Fsync(ino) => self.fsync(at, ino, context),
            Op::Lock(_) | Op::Unlock(_) => {
                self.ask(None, context);
                false
            }
            _ => self.name_operation(&doing, context),
        };
        if over {
            self.doing = None;
        }
    }

    fn ask(&mut self, wish: Option<Lease>, context: &mut Context<'_>) {
        if let Some(doing) = &mut self.doing {
            doing.asked = true;
            let op = doing.op;
            self.request(Purpose::Application, op, wish, context);
        }
    }

    fn ask_before(&mut self, purpose: Purpose, op: Op, wish: Option<Lease>, context: &mut Context<'_>) {
        if let Some(doing) = &mut self.doing {
            doing.waits = true;
            self.request(purpose, op, wish, context);
        }
    }

    /// The owner carries it out: not before it knows what was kept back of these.
    fn ask_when_told(&mut self, inos: &[Ino], wish: Option<Lease>, context: &mut Context<'_>) {
        inos.iter().for_each(|ino| self.flush(*ino, context));
        let is_clean = inos.iter().all(|ino| !self.dirty.contains_key(ino));
        if is_clean && self.ahead.is_told(self.ahead.until(inos)) {
            self.ask(wish, context);
        }
    }

    fn read(&mut self, at: usize, ino: Ino, context: &mut Context<'_>) -> bool {
        if let Some(value) = self.known_value(ino, context) {
            self.tell_kernel(ino, value, context);
            self.saw(at, Op::Read(ino), value, &[ino], context);
            return true;
        }
        let wish = context.rng.random_bool(0.8).then_some(Lease::Read);
        self.ask_when_told(&[ino], wish, context);
        false
    }

    fn write(&mut self, at: usize, ino: Ino, value: u64, context: &mut Context<'_>) -> bool {
        if self.has(ino, Lease::Write, context) && self.known.values.contains_key(&ino) {
            self.keep_back(at, ino, value, context);
            return true;
        }
        let is_told = self.ahead.is_told(self.ahead.until(&[ino]));
        let waited = self.doing.as_ref().is_some_and(|doing| doing.learned);
        if is_told && !waited && !self.dirty.contains_key(&ino) && context.rng.random_bool(0.5) {
            self.ask_before(Purpose::Acquire(value), Op::Read(ino), Some(Lease::Write), context);
        } else {
            self.ask_when_told(&[ino], Some(Lease::Read), context);
        }
        false
    }

    /// The answer to a request for the lease to write: what it was for is done under it, or by the owner.
    pub(super) fn acquired(&mut self, ino: Ino, value: u64, may: bool, context: &mut Context<'_>) {
        let Some(doing) = &mut self.doing else { return };
        (doing.waits, doing.learned) = (false, true);
        let at = doing.at;
        if may && self.has(ino, Lease::Write, context) {
            self.doing = None;
            self.keep_back(at, ino, value, context);
        } else {
            self.go_on(context);
        }
    }

    fn fsync(&mut self, at: usize, ino: Ino, context: &mut Context<'_>) -> bool {
        self.flush(ino, context);
        let is_told = self.ahead.is_told(self.ahead.until(&[ino]));
        let too_early = context.planted(Planted::SyncsBeforeStep) && self.is_along(ino);
        let is_clean = !self.dirty.contains_key(&ino) || too_early;
        if !is_clean || !(is_told || context.planted(Planted::SyncsTooEarly)) {
            return false;
        }
        let failed = self.failures.remove(&ino);
        context.history.synced(at, failed, context.now);
        self.last_done = context.now;
        true
    }

    fn name_operation(&mut self, doing: &Doing, context: &mut Context<'_>) -> bool {
        let Doing { at, op, .. } = *doing;
        let looked = |name: &Name| doing.looked.get(name).copied();
        // What is removed or moved is settled first: a name never survives without its bytes.
        let known = |name: &Name| self.ahead.named(*name).or_else(|| self.known_name(*name, context));
        let known = |name: &Name| known(name).or_else(|| looked(name));
        let children: Vec<Ino> = op.names().iter().filter_map(known).collect();
        if op.changes() {
            let mut concerned: Vec<Ino> = op.inos().into_iter().chain(children.iter().copied()).collect();
            if let Op::Rename(from, _) = op
                && context.planted(Planted::MovesBeforeData)
            {
                let moved = known(&from);
                concerned.retain(|ino| Some(*ino) != moved);
            }
            concerned.iter().for_each(|ino| self.flush(*ino, context));
            if concerned.iter().any(|ino| self.dirty.contains_key(ino)) {
                return false;
            }
        }
        if self.here(at, op, context) {
            return true;
        }
        if let Op::Look(name) = op
            && let Some(ino) = self.known_name(name, context)
            && let Some(value) = if ino.0 == 0 { Some(0) } else { self.known_value(ino, context) }
        {
            self.tell_kernel_name(name, ino, context);
            self.saw(at, op, ino.0 << 32 | value, &[name.0, ino], context);
            return true;
        }
        self.there(doing, &children, context);
        false
    }

    /// Sends an operation on names on to the owner, after what it depends on.
    fn there(&mut self, doing: &Doing, children: &[Ino], context: &mut Context<'_>) {
        let op = doing.op;
        let concerned: Vec<Ino> = op.inos().into_iter().chain(children.iter().copied()).collect();
        // Changes of names survive as a prefix: one at the owner comes after all that was done here.
        let until = match op.renames() && !context.planted(Planted::OvertakesQueue) {
            true => self.ahead.last(),
            false => self.ahead.until(&concerned),
        };
        if !self.ahead.is_told(until) {
            return;
        }
        if let Op::Make((directory, _), ..) = op
            && !doing.learned
        {
            self.doing.iter_mut().for_each(|doing| doing.learned = true);
            if self.ahead.count_make(directory) {
                let op = Op::List(directory);
                self.ask_before(Purpose::Learn(directory), op, Some(Lease::Write), context);
                return;
            }
        }
        // What a name stands for is looked up before it is removed or moved.
        let names = if matches!(op, Op::Remove(_) | Op::Rename(..)) { op.names() } else { Vec::new() };
        for name in names {
            if self.known_name(name, context).is_none() && !doing.looked.contains_key(&name) {
                self.ask_before(Purpose::Before, Op::Look(name), Some(Lease::Read), context);
                return;
            }
        }
        let wish = if matches!(op, Op::Make(_, _, true)) { Lease::Write } else { Lease::Read };
        self.ask(Some(wish), context);
    }

    /// What was asked for before the application's operation is answered.
    pub(super) fn asked_before(&mut self, context: &mut Context<'_>) {
        self.doing.iter_mut().for_each(|doing| doing.waits = false);
        self.go_on(context);
    }

    pub(super) fn application_answered(
        &mut self,
        purpose: Purpose,
        op: Op,
        value: u64,
        context: &mut Context<'_>,
    ) {
        let Some(doing) = &mut self.doing else { return };
        if let (Purpose::Before, Op::Look(name)) = (purpose, op) {
            let ino = if value == GONE { Ino(0) } else { Ino(value >> 32) };
            doing.looked.insert(name, ino);
            self.asked_before(context);
            return;
        }
        let at = doing.at;
        self.doing = None;
        if let Op::Lock(ino) = op
            && value == 1
        {
            self.locks.insert(ino);
        }
        self.heard_of(op, value);
        match op {
            Op::Look(_) if value != GONE => self.saw(at, op, value, &[Ino(value >> 32)], context),
            _ => context.history.end(at, value, context.now, State::Done),
        }
        self.last_done = context.now;
    }

    /// What the application has come to know of.
    pub(super) fn heard_of(&mut self, op: Op, value: u64) {
        let (name, ino) = match op {
            _ if value == GONE => return,
            Op::Make(name, ino, _) if has_effect(op, value) => (name, ino),
            Op::Look(name) => (name, Ino(value >> 32)),
            _ => return,
        };
        if ino.0 == 0 {
            return;
        }
        let is_directory = ROOTS.contains(&name.0) && name.1 == 2;
        let heard = if is_directory { &mut self.directories } else { &mut self.files };
        heard.retain(|known| *known != ino);
        heard.push(ino);
        if heard.len() > if is_directory { 2 } else { 4 } {
            heard.remove(0);
        }
    }
}

fn pick(inos: &[Ino], context: &mut Context<'_>) -> Option<Ino> {
    (!inos.is_empty()).then(|| inos[context.rng.random_range(0..inos.len())])
}
