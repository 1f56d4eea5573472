//! The workload: several threads that do what applications do, each in its own names, all at once.
//!
//! Guarantees: every operation is valid where it is done, so each failure is a finding; every operation is recorded; one
//! seed gives each thread the same operations, whatever the timing. A file is changed by one thread only, except the one
//! to which all append.

use super::history::{Clock, History, Op, Record};
use super::log::Change;
use super::pattern::{self, FileId};
use super::rich;
use super::rng::Rng;
use super::target::Target;
use super::worker::{Stop, Worker};

/// The file to which all threads append.
pub const APPENDED: &str = "shared/log";

const PAGE: u64 = 4096;
const MIB: usize = 1 << 20;

/// What a workload does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides every operation.
    pub seed: u64,
    /// How many threads, at least 1.
    pub threads: u16,
    /// Steps of each thread in one round; a step is one to about ten operations.
    pub steps: u32,
    /// Bytes that each thread may write as large streams, in all rounds together.
    pub stream_bytes: u64,
    /// Whether the target can do everything, not only what the smallest file system can.
    pub rich: bool,
}

/// Runs `plan` on `target` to its end, or until the clock's kill.
pub fn run<T: Target>(target: &T, clock: &Clock<'_>, plan: &Plan) -> History {
    let mut crew = Crew::new(target, clock, plan);
    crew.work();
    crew.history()
}

/// The threads of a workload, which may work in several rounds. Between two rounds they have no file open.
pub struct Crew<'a, T: Target> {
    plan: Plan,
    /// The number of the worker that does the set-up; the threads have those after it. 0 for the first crew of a volume.
    first: u16,
    /// The first does the set-up and speaks for all between rounds.
    workers: Vec<Worker<'a, T>>,
    failures: Vec<String>,
    ready: bool,
    stopped: bool,
}

impl<'a, T: Target> Crew<'a, T> {
    /// A crew that has done nothing yet.
    pub fn new(target: &'a T, clock: &'a Clock<'a>, plan: &Plan) -> Self {
        Self::after(target, clock, plan, 0)
    }

    /// A crew for a volume on which others have worked, whose threads have the numbers below `first`. It leaves alone what they have and what all
    /// share.
    pub fn after(target: &'a T, clock: &'a Clock<'a>, plan: &Plan, first: u16) -> Self {
        let mut rng = Rng::new(plan.seed ^ u64::from(first).rotate_right(8));
        let threads = first..=first.saturating_add(plan.threads);
        let workers = threads.map(|thread| Worker::new(target, clock, thread, first > 0, rng.fork()));
        let workers = workers.collect();
        Self { plan: *plan, first, workers, failures: Vec::new(), ready: false, stopped: false }
    }

    /// One round: each thread does the steps of the plan. The first round begins with the set-up. False when the crew
    /// has come to an end, by the clock's kill or a failure.
    pub fn work(&mut self) -> bool {
        let plan = self.plan;
        let Some((first, others)) = self.workers.split_first_mut().filter(|_| !self.stopped) else {
            return false;
        };
        let mut results = Vec::new();
        if !self.ready {
            results.push(Ok(set_up(first, self.first, plan.threads)));
            self.ready = true;
        }
        if results.iter().all(|result| matches!(result, Ok(Ok(())))) {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    others.iter_mut().map(|worker| scope.spawn(move || work(worker, &plan))).collect();
                results.extend(threads.into_iter().map(std::thread::ScopedJoinHandle::join));
            });
        }
        for result in results {
            self.stopped |= !matches!(result, Ok(Ok(())));
            match result {
                Ok(Ok(()) | Err(Stop::Killed)) => {}
                Ok(Err(Stop::Full(_))) => self.failures.push("no space to give space back".to_owned()),
                Ok(Err(Stop::Failed(told))) => self.failures.push(told),
                Err(_) => self.failures.push("a thread of the workload panicked".to_owned()),
            }
        }
        !self.stopped
    }

    /// Notes something that failed.
    pub fn fail(&mut self, told: String) {
        self.failures.push(told);
    }

    /// Does something after whose success all that was done before is durable, such as a clean unmount, and records it.
    ///
    /// # Errors
    /// The error of `call`.
    pub fn settle<E>(&mut self, call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let Some(first) = self.workers.first_mut() else { return Ok(()) };
        let start = first.clock.now();
        call()?;
        first.records.push(Record { op: Op::SyncAll, start, end: Some(first.clock.now()) });
        Ok(())
    }

    /// What was done.
    #[must_use]
    pub fn history(self) -> History {
        let mut history = History { failures: self.failures, ..History::default() };
        for worker in self.workers {
            history.threads.push(worker.records);
            history.inodes.extend(worker.inodes);
        }
        history
    }
}

fn set_up<T: Target>(worker: &mut Worker<'_, T>, first: u16, threads: u16) -> Result<(), Stop> {
    if first == 0 {
        worker.mkdir("shared")?;
        let (file, handle) = worker.create(APPENDED)?;
        worker.sync(file, &handle)?;
        worker.close_new(file, handle)?;
    }
    for thread in 1..=threads {
        worker.mkdir(&format!("t{}", first + thread))?;
    }
    worker.sync_directory("")
}

fn work<T: Target>(worker: &mut Worker<'_, T>, plan: &Plan) -> Result<(), Stop> {
    if worker.dirs.is_empty() {
        worker.dirs.push(format!("t{}", worker.thread));
    }
    for _ in 0..plan.steps {
        if worker.clock.killed() {
            return Err(Stop::Killed);
        }
        let done = match worker.rng.below(if plan.rich { 128 } else { 100 }) {
            0..20 => create(worker),
            20..29 => overwrite(worker),
            29..37 => append(worker),
            37..41 => stream(worker, plan.stream_bytes),
            41..50 => rename(worker),
            50..53 => exchange(worker),
            53..57 => link(worker),
            57..64 => unlink(worker),
            64..68 => make_directory(worker),
            68..71 => remove_directory(worker),
            71..74 => move_directory(worker),
            74..77 => truncate(worker),
            77..80 => punch(worker),
            80..84 => sync_some(worker),
            84..86 => sync_some_directory(worker),
            86..89 => write_synced(worker),
            89..92 => copy(worker),
            92..95 => transaction(worker),
            95..98 => append_shared(worker),
            98 => replace_by_rename(worker),
            99 => write_unlinked(worker),
            100..104 => rich::replace_as_editors_do(worker),
            104..108 => rich::name_when_written(worker),
            108..112 => rich::grow(worker),
            112..114 => rich::zero(worker),
            114..116 => rich::allocate(worker),
            116..118 => rich::start_over(worker),
            118..123 => rich::set_attribute(worker),
            123..126 => rich::store_mapped(worker),
            _ => rich::stream_long(worker, plan.stream_bytes),
        };
        match done {
            Err(Stop::Full(file)) => relieve(worker, file)?,
            done => done?,
        }
    }
    while let Some((file, handle)) = worker.held.pop() {
        worker.close_new(file, handle)?;
    }
    Ok(())
}

/// After a full disk: a file that may have been written in part goes with all its names, and another one too. Nothing of this may fail for
/// space.
fn relieve<T: Target>(worker: &mut Worker<'_, T>, file: Option<FileId>) -> Result<(), Stop> {
    worker.held.clear();
    let written = file.and_then(|file| worker.files.get(&file)).map(|live| live.paths.clone());
    for path in written.unwrap_or_default() {
        worker.unlink(&path)?;
    }
    match worker.some_file() {
        Some((_, path)) => worker.unlink(&path),
        None => Ok(()),
    }
}

pub(super) fn free_name<T: Target>(worker: &mut Worker<'_, T>) -> Option<String> {
    (0..16).find_map(|_| Some(worker.some_name()).filter(|name| !worker.is_taken(name)))
}

pub(super) fn small_len(rng: &mut Rng) -> usize {
    let len = match rng.below(4) {
        0 => rng.between(1, 64),
        1 => rng.between(1, 1024),
        2 => rng.between(1, 4096),
        _ => rng.between(1, 40_000),
    };
    usize::try_from(len).unwrap_or(1)
}

fn create<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some(path) = free_name(worker) else { return unlink(worker) };
    let (file, handle) = worker.create(&path)?;
    for _ in 0..worker.rng.below(3) {
        let len = small_len(&mut worker.rng);
        let offset = worker.len_of(file);
        worker.write(file, &handle, offset, len)?;
    }
    if worker.rng.chance(1, 4) {
        worker.sync(file, &handle)?;
    }
    if worker.rng.chance(1, 5) && worker.held.len() < 3 {
        worker.held.push((file, handle));
        return Ok(());
    }
    worker.close_new(file, handle)
}

/// Opens a file with a name, does something to it and closes it; nothing when there is none.
pub(super) fn with_file<T: Target>(
    worker: &mut Worker<'_, T>,
    sync: bool,
    body: impl FnOnce(&mut Worker<'_, T>, FileId, &T::File) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let Some((file, path)) = worker.some_file() else { return create(worker) };
    let handle = worker.quietly("open", |target| target.open(&path, sync))?;
    body(worker, file, &handle)?;
    worker.target.close(handle);
    Ok(())
}

fn overwrite<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        for _ in 0..worker.rng.between(1, 4) {
            let offset = worker.rng.below(worker.len_of(file) + 1);
            let len = small_len(&mut worker.rng);
            worker.write(file, handle, offset, len)?;
        }
        if worker.rng.chance(1, 4) { worker.sync(file, handle) } else { Ok(()) }
    })
}

pub(super) fn append<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        for _ in 0..worker.rng.between(1, 3) {
            let gap = if worker.rng.chance(1, 8) { worker.rng.below(100_000) } else { 0 };
            let offset = worker.len_of(file) + gap;
            let len = small_len(&mut worker.rng);
            worker.write(file, handle, offset, len)?;
        }
        if worker.rng.chance(1, 6) { worker.sync(file, handle) } else { Ok(()) }
    })
}

fn stream<T: Target>(worker: &mut Worker<'_, T>, allowed: u64) -> Result<(), Stop> {
    let Some(path) = free_name(worker).filter(|_| worker.streamed < allowed) else { return append(worker) };
    let (file, handle) = worker.create(&path)?;
    for _ in 0..worker.rng.between(1, 3) {
        let offset = worker.len_of(file);
        worker.write(file, &handle, offset, MIB)?;
        worker.streamed += MIB as u64;
    }
    if worker.rng.chance(1, 3) {
        worker.sync(file, &handle)?;
    }
    worker.close_new(file, handle)
}

fn rename<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some((file, from)) = worker.some_file() else { return create(worker) };
    let to = worker.some_name();
    // Between two names of one file a rename does nothing, and over a link it would need one more model.
    if worker.owner(&to) == Some(file) || worker.symlinks.contains(&to) {
        return Ok(());
    }
    worker.rename_file(file, &from, &to)
}

/// How editors and package installers replace a file: new bytes, sometimes synced, then a rename over the old name.
fn replace_by_rename<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some(from) = free_name(worker) else { return unlink(worker) };
    let (file, handle) = worker.create(&from)?;
    let len = small_len(&mut worker.rng);
    worker.write(file, &handle, 0, len)?;
    if worker.rng.chance(1, 3) {
        worker.sync(file, &handle)?;
    }
    worker.close_new(file, handle)?;
    let to = worker.some_name();
    if worker.owner(&to) == Some(file) || worker.symlinks.contains(&to) {
        return Ok(());
    }
    worker.rename_file(file, &from, &to)
}

fn exchange<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let (Some((one, one_path)), Some((other, other_path))) = (worker.some_file(), worker.some_file()) else {
        return create(worker);
    };
    if one == other { Ok(()) } else { worker.exchange((one_path, one), (other_path, other)) }
}

fn link<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    if worker.rng.chance(1, 4) {
        let Some(path) = free_name(worker) else { return unlink(worker) };
        let target = format!("target-{}", worker.rng.below(1000));
        let op = Op::Symlink { path: path.clone(), target: target.clone() };
        worker.act(op, |on| on.symlink(&target, &path))?;
        worker.symlinks.push(path);
        return Ok(());
    }
    let (Some((file, from)), Some(to)) = (worker.some_file(), free_name(worker)) else {
        return create(worker);
    };
    worker.link(file, &from, &to)
}

pub(super) fn unlink<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let links = worker.symlinks.len();
    if links > 0 && worker.rng.chance(1, 5) {
        let path = worker.symlinks[worker.rng.index(links)].clone();
        return worker.unlink(&path);
    }
    match worker.some_file() {
        Some((_, path)) => worker.unlink(&path),
        None => Ok(()),
    }
}

fn make_directory<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let path = worker.new_directory_name();
    worker.mkdir(&path)
}

fn remove_directory<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let empty = worker.dirs.iter().skip(1).position(|dir| {
        let inside = format!("{dir}/");
        let files = worker.files.values().flat_map(|live| &live.paths);
        !files.chain(&worker.symlinks).chain(&worker.dirs).any(|path| path.starts_with(&inside))
    });
    let Some(at) = empty else { return make_directory(worker) };
    let path = worker.dirs.remove(at + 1);
    worker.act(Op::Rmdir { path: path.clone() }, |target| target.rmdir(&path))
}

fn move_directory<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let count = worker.dirs.len();
    if count < 2 {
        return make_directory(worker);
    }
    let from = worker.dirs[1 + worker.rng.index(count - 1)].clone();
    let to = worker.new_directory_name();
    if to.starts_with(&format!("{from}/")) { Ok(()) } else { worker.rename_directory(&from, &to) }
}

fn truncate<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        let old = worker.len_of(file);
        let len =
            if worker.rng.chance(2, 3) { worker.rng.below(old + 1) } else { old + worker.rng.below(9000) };
        worker.change(file, handle, &Change::SetLen(len))
    })
}

fn punch<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        let offset = worker.rng.below(worker.len_of(file) + 1);
        let len = worker.rng.between(1, 20_000);
        worker.change(file, handle, &Change::Zero { offset, len })
    })
}

fn sync_some<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    if let Some((file, handle)) = worker.held.pop() {
        let len = small_len(&mut worker.rng);
        let offset = worker.len_of(file);
        worker.write(file, &handle, offset, len)?;
        worker.sync(file, &handle)?;
        return worker.close_new(file, handle);
    }
    with_file(worker, false, |worker, file, handle| worker.sync(file, handle))
}

fn sync_some_directory<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let shared = worker.rng.chance(1, 3) && !worker.alone;
    let at = worker.rng.index(worker.dirs.len());
    let path = if shared { "shared".to_owned() } else { worker.dirs[at].clone() };
    worker.sync_directory(&path)
}

fn write_synced<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, true, |worker, file, handle| {
        let offset = worker.rng.below(worker.len_of(file) + 1);
        let len = small_len(&mut worker.rng).min(8192);
        worker.write_synced(file, handle, offset, len)
    })
}

fn copy<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some((source, path)) = worker.some_file() else { return create(worker) };
    let from = worker.quietly("open", |target| target.open(&path, false))?;
    let result = with_file(worker, false, |worker, file, handle| {
        if file == source {
            return Ok(());
        }
        let offset = worker.rng.below(worker.len_of(source) / PAGE + 1) * PAGE;
        let place = worker.rng.below(worker.len_of(file) / PAGE + 2) * PAGE;
        let len = worker.rng.between(1, 300_000);
        worker.copy((source, &from, offset), (file, handle, place), len)
    });
    worker.target.close(from);
    result
}

/// SQLite's rollback journal: old pages to a journal, synced with its directory; pages overwritten, synced; journal gone.
fn transaction<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let base = worker.dirs[0].clone();
    let (database, rollback) = (format!("{base}/db"), format!("{base}/db-journal"));
    let (file, handle) = match worker.owner(&database) {
        Some(file) => (file, worker.quietly("open", |target| target.open(&database, false))?),
        None => worker.create(&database)?,
    };
    let (journal, journal_handle) = match worker.owner(&rollback) {
        Some(_) => return worker.unlink(&rollback),
        None => worker.create(&rollback)?,
    };
    worker.write(journal, &journal_handle, 512, 3 * 4104)?;
    worker.sync(journal, &journal_handle)?;
    worker.write(journal, &journal_handle, 0, 28)?;
    worker.sync(journal, &journal_handle)?;
    worker.sync_directory(&base)?;
    for _ in 0..3 {
        let page = worker.rng.below(16);
        worker.write(file, &handle, page * PAGE, 4096)?;
    }
    worker.sync(file, &handle)?;
    worker.target.close(handle);
    worker.close_new(journal, journal_handle)?;
    worker.unlink(&rollback)
}

fn append_shared<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    if worker.alone {
        return append(worker);
    }
    for _ in 0..worker.rng.between(1, 4) {
        let number = worker.appended;
        let data = pattern::append_record(worker.thread, number);
        worker.act(Op::Append { number }, |target| target.append(APPENDED, &data))?;
        worker.appended += 1;
    }
    if worker.rng.chance(1, 3) {
        let handle = worker.quietly("open", |target| target.open(APPENDED, false))?;
        worker.act(Op::SyncAppended, |target| target.sync(&handle, false))?;
        worker.target.close(handle);
    }
    Ok(())
}

/// An open file whose last name goes, written and synced afterwards.
fn write_unlinked<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some(path) = free_name(worker) else { return unlink(worker) };
    let (file, handle) = worker.create(&path)?;
    worker.write(file, &handle, 0, 5000)?;
    worker.unlink(&path)?;
    worker.write(file, &handle, 5000, 700)?;
    worker.sync(file, &handle)?;
    worker.close_new(file, handle)
}
