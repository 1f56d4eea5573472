//! One side of the comparison: its directory, its daemon, and the order of a measurement on it.
//!
//! Order that must hold: chill or warm (by the workload), processor time, operations, processor time, drain, processor
//! time, observation. A step that writes is drained before the next one begins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::crew::{Clock, Crew, Done, Tally};
use crate::plan::Requests;
use crate::{Cache, Error, Family, Place, Plan, Probe, Side, Workload, files, pattern, process};

/// What one round of one workload gave on one side.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    /// From the first operation until what was written was synced by name; for workloads that write.
    pub(crate) synced: Option<Duration>,
    /// From the first operation until nothing was pending; for workloads that write.
    pub(crate) drained: Option<Duration>,
    /// The daemon's processor time during the operations, and until nothing was pending.
    pub(crate) processor: Option<(Duration, Duration)>,
    /// Processor time of this process during the operations.
    pub(crate) client: Duration,
    /// The daemon's most memory so far, bytes.
    pub(crate) peak_memory: Option<u64>,
    /// What the probe observed once drained.
    pub(crate) observed: BTreeMap<String, f64>,
    /// By how much that grew, for workloads that write.
    pub(crate) grown: BTreeMap<String, f64>,
    /// What the kernel asked during the operations.
    pub(crate) requests: Option<BTreeMap<String, u64>>,
    /// Caches of the process behind the mount that were emptied before, in words.
    pub(crate) emptied: Vec<String>,
}

impl Sample {
    /// What a rival did: one operation of so many bytes.
    pub(crate) fn of_rival(bytes: u64, elapsed: Duration, client: Duration) -> Self {
        let mut tally = Tally::new();
        (tally.done, tally.elapsed) = (Done::bytes(bytes), elapsed);
        tally.latency.saturating_record(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1));
        Self {
            tally,
            synced: None,
            drained: None,
            processor: None,
            client,
            peak_memory: None,
            observed: BTreeMap::new(),
            grown: BTreeMap::new(),
            requests: None,
            emptied: Vec::new(),
        }
    }
}

/// One side, with the directory that everything is made in.
#[derive(Debug)]
pub(crate) struct Stage<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) side: Side,
    pub(crate) place: Place,
    probe: &'p Probe,
    root: PathBuf,
    stop: &'p AtomicBool,
    /// What the last [`Stage::chill`] emptied, until a measurement takes it.
    emptied: Mutex<Vec<String>>,
    removed: bool,
}

impl<'p> Stage<'p> {
    /// Whether what is read is what was written.
    pub(crate) fn keeps_data(&self) -> bool {
        !self.probe.forgets_data
    }

    /// Checks what was read of a file; of a file system that keeps no contents only the length.
    pub(crate) fn check(&self, read: &[u8], file: u64, offset: u64, length: usize) -> Result<(), u64> {
        match self.probe.forgets_data {
            true if read.len() == length => Ok(()),
            true => Err(offset + read.len() as u64),
            false => pattern::check(read, file, offset, length),
        }
    }

    /// Makes the benchmark's own directory in `place`.
    pub(crate) fn set(plan: &'p Plan, side: Side, place: Place, stop: &'p AtomicBool) -> Result<Self, Error> {
        let probe = match side {
            Side::Target => &plan.target_probe,
            Side::Reference => &plan.reference_probe,
        };
        let mut attempt = 0;
        let root = loop {
            let root = place.path.join(format!("forebay-bench-{}-{attempt}", std::process::id()));
            match fs::create_dir(&root) {
                Ok(()) => break root,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 10_000 => {
                    attempt += 1
                }
                Err(source) => return Err(Error::Directory { path: place.path, source }),
            }
        };
        Ok(Self { plan, side, place, probe, root, stop, emptied: Mutex::default(), removed: false })
    }

    /// The directory of a family.
    pub(crate) fn family(&self, family: Family) -> PathBuf {
        self.root.join(family.directory())
    }

    /// The directory of one job of a family.
    pub(crate) fn job(&self, family: Family, job: usize) -> PathBuf {
        self.family(family).join(format!("job-{job}"))
    }

    /// The jobs of `workload`.
    pub(crate) fn crew(&self, workload: Workload) -> Crew<'p> {
        let jobs = match workload.family() {
            Family::Many => self.plan.sizes.many_jobs,
            Family::Large => 1,
            _ => self.plan.jobs,
        };
        Crew { jobs, stop: self.stop, workload }
    }

    /// Whether `workload` can have the cache state it asks for; if not, why.
    pub(crate) fn cache(&self, workload: Workload) -> Result<Cache, String> {
        if workload == Workload::StatCollecting && self.probe.collect.is_none() {
            return Err(format!("{} on the {}: nothing is known that collects", workload.title(), self.side));
        }
        if !workload.cold() {
            return Ok(Cache::Warm);
        }
        let machine = self.plan.drop_caches && may_drop_caches();
        let daemon = self.probe.chill.is_some();
        let names = machine || (daemon && self.probe.chill_forgets_names);
        if workload.cold_names() && !names {
            let why = match self.plan.drop_caches {
                true => "names stay cached: dropping the kernel's caches takes root and a writable /proc/sys",
                false => "names stay cached: this run was told to keep the kernel's caches",
            };
            return Err(format!("{} on the {}: {why}", workload.title(), self.side));
        }
        if self.place.in_memory() && !daemon {
            let why = format!("{} keeps everything in memory", self.place.file_system);
            return Err(format!("{} on the {}: {why}", workload.title(), self.side));
        }
        Ok(Cache::Cold { names, daemon })
    }

    /// Empties the caches that `workload` must not find full. Everything of the family is clean by then.
    pub(crate) fn chill(&self, workload: Workload) -> Result<(), Error> {
        if let Some(chill) = &self.probe.chill {
            let emptied = chill().map_err(|source| self.callback("empty the caches of", source))?;
            *self.emptied.lock().unwrap_or_else(PoisonError::into_inner) = emptied;
        }
        if workload.cold_data() {
            files::each_file(&self.family(workload.family()), &mut files::forget_contents)?;
        }
        if self.plan.drop_caches && may_drop_caches() {
            let path = Path::new(DROP_CACHES);
            fs::write(path, "3").map_err(crate::error::at("write", path))?;
        }
        Ok(())
    }

    /// Waits until nothing is pending: syncfs, the probe's drain.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        files::sync_file_system(&self.root)?;
        match &self.probe.drain {
            Some(drain) => drain().map_err(|source| self.callback("drain", source)),
            None => Ok(()),
        }
    }

    /// Runs `pass` once, and then until the probe says of one that it was warm: what was done before, by the last measurement too, says nothing of this one's caches.
    pub(crate) fn warm(&self, pass: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        let begin = Instant::now();
        let Some(warmed) = &self.probe.warmed else { return pass() };
        let since_last_asked = || warmed().map_err(|source| self.callback("warm", source));
        since_last_asked()?;
        pass()?;
        while !since_last_asked()? {
            if begin.elapsed() > WARMING_MAX {
                let source = std::io::Error::other("after a minute of passes it is not warm yet");
                return Err(self.callback("warm", source));
            }
            std::thread::sleep(BETWEEN_PASSES);
            pass()?;
        }
        Ok(())
    }

    /// Collects what there is to collect, where the probe knows how.
    pub(crate) fn collect(&self) -> Result<(), Error> {
        match &self.probe.collect {
            Some(collect) => collect().map_err(|source| self.callback("collect the garbage of", source)),
            None => Ok(()),
        }
    }

    /// Runs the jobs of a step and drains it: `durable` are the files and directories to fsync by name.
    pub(crate) fn measure<T>(
        &self,
        workload: Workload,
        durable: &[PathBuf],
        prepare: impl Fn(usize) -> Result<T, Error> + Sync,
        work: impl Fn(&mut Clock<'_>, usize, T) -> Result<(), Error> + Sync,
    ) -> Result<Sample, Error> {
        let emptied = std::mem::take(&mut *self.emptied.lock().unwrap_or_else(PoisonError::into_inner));
        let held = if workload.writes() { self.observe()? } else { BTreeMap::new() };
        let asked = self.requests()?;
        let before = self.processor_time()?;
        let client = process::own_time().unwrap_or_default();
        let tally = self.crew(workload).run(prepare, work)?;
        let client = process::own_time().unwrap_or_default().saturating_sub(client);
        let acknowledged = self.processor_time()?;
        let requests = asked.zip(self.requests()?).map(|(before, after)| more(&before, after));
        let drain = Instant::now();
        durable.iter().try_for_each(|path| files::sync(path))?;
        let synced = workload.writes().then(|| tally.elapsed + drain.elapsed());
        if workload.writes() || self.probe.drain.is_some() {
            self.settle()?;
        }
        let drained = workload.writes().then(|| tally.elapsed + drain.elapsed());
        let settled = self.processor_time()?;
        let processor = match (before, acknowledged, settled) {
            (Some(from), Some(middle), Some(to)) => {
                Some((middle.saturating_sub(from), to.saturating_sub(from)))
            }
            _ => None,
        };
        let peak_memory = self.peak_memory()?;
        let observed = self.observe()?;
        let growth = |(name, before): (&String, &f64)| Some((name.clone(), observed.get(name)? - before));
        let grown = held.iter().filter_map(growth).collect();
        Ok(Sample {
            tally,
            synced,
            drained,
            processor,
            client,
            peak_memory,
            observed,
            grown,
            requests,
            emptied,
        })
    }

    fn observe(&self) -> Result<BTreeMap<String, f64>, Error> {
        match &self.probe.observe {
            Some(observe) => observe().map_err(|source| self.callback("observe", source)),
            None => Ok(BTreeMap::new()),
        }
    }

    fn requests(&self) -> Result<Option<BTreeMap<String, u64>>, Error> {
        let count =
            |requests: &Requests| requests().map_err(|source| self.callback("count requests of", source));
        self.probe.requests.as_ref().map(count).transpose()
    }

    /// Most memory so far of the process behind this side, bytes.
    pub(crate) fn peak_memory(&self) -> Result<Option<u64>, Error> {
        self.of_daemon(process::peak_memory)
    }

    fn processor_time(&self) -> Result<Option<Duration>, Error> {
        self.of_daemon(process::processor_time)
    }

    fn of_daemon<T>(&self, look: impl Fn(u32) -> std::io::Result<T>) -> Result<Option<T>, Error> {
        let path = || self.place.path.clone();
        let look = |pid| look(pid).map_err(|source| Error::Process { pid, path: path(), source });
        self.probe.pid.map(look).transpose()
    }

    fn callback(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::Callback { what, path: self.place.path.clone(), source }
    }

    /// Removes what a family made, and waits until that is done with.
    pub(crate) fn clear(&self, family: Family) -> Result<(), Error> {
        remove(&self.family(family))?;
        self.settle()
    }

    /// Removes everything. Without this call it is removed on drop, and a failure then goes unseen.
    pub(crate) fn strike(mut self) -> Result<(), Error> {
        self.removed = true;
        remove(&self.root)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if !self.removed {
            // An earlier error is on its way to the caller and says more than this one would.
            let _ = remove(&self.root);
        }
    }
}

/// What was counted since `before`, without what was not.
fn more(before: &BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = |(name, count): (String, u64)| {
        let more = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
        (more > 0).then_some((name, more))
    };
    after.into_iter().filter_map(since).collect()
}

/// How long passes of warming are repeated at most, and how long is waited between two.
const WARMING_MAX: Duration = Duration::from_secs(60);
const BETWEEN_PASSES: Duration = Duration::from_millis(300);

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Whether this process may open the kernel's switch for writing. Opening it drops nothing.
fn may_drop_caches() -> bool {
    fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Remove { path: path.to_path_buf(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use super::*;

    #[test]
    fn a_pass_is_warm_by_what_was_opened_in_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (opened, stop) = (Arc::new(AtomicU32::new(1)), AtomicBool::new(false));
        let counted = Arc::clone(&opened);
        let mut plan = Plan::new(dir.path(), true);
        plan.target_probe.warmed = Some(Box::new(move || Ok(counted.swap(0, SeqCst) > 0)));
        let place = Place::of(dir.path()).expect("a place");
        let stage = Stage::set(&plan, Side::Target, place, &stop).expect("a stage");
        // The last measurement has opened it; the third pass is the first that does again.
        for warm_from in [3, 1] {
            let passes = AtomicU32::new(0);
            let pass = || {
                let at = passes.fetch_add(1, SeqCst) + 1;
                opened.fetch_add(u32::from(at >= warm_from), SeqCst);
                Ok(())
            };
            stage.warm(pass).expect("it gets warm");
            assert_eq!(passes.load(SeqCst), warm_from);
            opened.store(1, SeqCst);
        }
    }
}
