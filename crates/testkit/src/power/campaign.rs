//! Lives of real volumes that end in a crash: the disk below, the workload above, the oracle behind.
//!
//! A *power* life runs the workload once on a volume on the emulated disk and then visits many points of the disk's log: each
//! gives an image, which is mounted, read, judged, written to, unmounted and sometimes checked by `fsck`. In a part of them
//! the power goes a second time, while the first image is being recovered. A *kill* life ends with `kill -9` at a random
//! moment, on a plain directory. No crash depends on another.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::{Cutter, Rules, points_to_cut};
use super::daemon::{Daemon, PATIENCE, Program, Trouble, supervise};
use super::disk::Disk;
use super::history::{Clock, History, Moment};
use super::image::Image;
use super::layer::Layer;
use super::observe::Observed;
use super::oracle::judge;
use super::rng::Rng;
use super::target::Mounted;
use super::workload::{Crew, Plan};

/// One life and how it is to end.
#[derive(Debug, Clone)]
pub struct Life {
    /// What is tested.
    pub program: Program,
    /// An empty directory of its own.
    pub place: PathBuf,
    /// What the workload does; its seed also decides where the crash is.
    pub plan: Plan,
    /// How often the workload runs on, with a clean unmount in between; at least 1.
    pub rounds: u32,
    /// Every how many crashes `fsck` runs; 0 for never.
    pub fsck_every: u64,
}

/// A crash after which not all was as promised.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Which crash: seed, point and rules.
    pub crash: String,
    /// What was wrong.
    pub told: Vec<String>,
}

/// What came of one life.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many crashes there were.
    pub crashes: u64,
    /// How many operations the workload did.
    pub operations: usize,
    /// How many points the disk logged; 0 in a kill.
    pub points: u64,
    /// The crashes that broke a promise.
    pub findings: Vec<Finding>,
}

impl Life {
    /// Lives once and cuts the power at `cuts` points, under `rules`.
    ///
    /// # Errors
    /// When the test itself cannot go on. What the program does wrong is in the outcome.
    pub fn power(&self, cuts: u64, rules: Rules) -> Result<Outcome, Trouble> {
        let at = self.directory("mnt")?;
        let layer = self.layer(Arc::default(), "disk")?;
        let volume = layer.path().join("vol");
        self.program.create(&volume)?;
        let first = layer.disk().points();
        let disk = Arc::clone(layer.disk());
        let history = self.work(&volume, &at, &Clock::new(move || disk.points()), u64::MAX)?;
        let log = layer.disk().log();
        layer.unmount().map_err(Trouble::io("unmount", &self.place))?;
        let mut outcome =
            Outcome { operations: history.len(), points: log.len() as u64, ..Outcome::default() };
        outcome.note(format!("seed {}", self.plan.seed), history.failures.clone());
        let mut rng = Rng::new(self.plan.seed);
        let mut cutter = Cutter::new(&log, rules);
        for (nth, point) in (1..).zip(points_to_cut(&log, first, cuts, &mut rng)) {
            let image = cutter.image(point, &mut rng);
            let crash = Crash { life: self, history: &history, moment: Moment { point }, at: &at, nth };
            let again = nth % 6 == 0;
            let told =
                if again { crash.twice(&image, rules, &mut rng)? } else { crash.judge_image(&image)? };
            outcome.crashes += 1;
            let name = format!(
                "seed {}, {:?} names, cut {nth} at point {point} of {}{}",
                self.plan.seed,
                rules.names,
                log.len(),
                if again { ", and again while recovering" } else { "" }
            );
            if !told.is_empty() && outcome.findings.is_empty() {
                self.keep(&image)?;
            }
            outcome.note(name, told);
        }
        Ok(outcome)
    }

    /// Lives once and ends by `kill -9`.
    ///
    /// # Errors
    /// As [`Life::power`].
    pub fn kill(&self) -> Result<Outcome, Trouble> {
        let at = self.directory("mnt")?;
        let volume = self.place.join("vol");
        self.program.create(&volume)?;
        let clock = Clock::new(|| 0);
        let mut rng = Rng::new(self.plan.seed);
        // An operation takes two ticks of the clock, and a step two or three operations.
        let most = u64::from(self.plan.threads) * u64::from(self.plan.steps) * u64::from(self.rounds) * 5;
        let moment = rng.between(1, most);
        let history = self.work(&volume, &at, &clock, moment)?;
        let mut outcome = Outcome { crashes: 1, operations: history.len(), ..Outcome::default() };
        let crash =
            Crash { life: self, history: &history, moment: Moment::END, at: &at, nth: self.plan.seed };
        let mut told = history.failures.clone();
        told.extend(crash.judge_volume(&volume)?);
        outcome.note(format!("seed {}, killed at tick {moment}", self.plan.seed), told);
        fs::remove_dir_all(&volume).map_err(Trouble::io("remove", &volume))?;
        Ok(outcome)
    }

    /// Runs the workload on a mount of `volume`, with a clean unmount between rounds, and kills the daemon: at tick `moment` of
    /// the clock, at the latest when all is done.
    fn work(&self, volume: &Path, at: &Path, clock: &Clock<'_>, moment: u64) -> Result<History, Trouble> {
        let target = Mounted::new(at);
        let mut crew = Crew::new(&target, clock, &self.plan);
        let mut failures = Vec::new();
        for round in 1..=self.rounds.max(1) {
            let mut daemon = self.program.mount(volume, at)?;
            let strike = |ticks| {
                if ticks >= moment {
                    clock.kill();
                }
                ticks >= moment
            };
            let (worked, hung) = supervise(&mut daemon, || clock.ticks(), strike, || crew.work());
            if hung {
                failures.push(format!("no operation was answered for {} s", PATIENCE.as_secs()));
            }
            if !worked.unwrap_or(false) || clock.killed() || round == self.rounds {
                daemon.kill();
                break;
            }
            if let Err(trouble) = crew.settle(|| daemon.unmount()) {
                failures.push(trouble.to_string());
                break;
            }
        }
        let mut history = crew.history();
        history.failures.extend(failures);
        Ok(history)
    }

    fn directory(&self, name: &str) -> Result<PathBuf, Trouble> {
        let path = self.place.join(name);
        fs::create_dir_all(&path).map_err(Trouble::io("create directory", &path))?;
        Ok(path)
    }

    fn layer(&self, disk: Arc<Disk>, name: &str) -> Result<Layer, Trouble> {
        let path = self.directory(name)?;
        Layer::mount(disk, &path).map_err(Trouble::io("mount the emulated disk on", &path))
    }

    /// Lays the first image that broke a promise aside, to be looked at.
    fn keep(&self, image: &Image) -> Result<(), Trouble> {
        let path = self.directory("kept")?;
        image.write_to(&path).map_err(Trouble::io("keep an image in", &path))
    }
}

impl Outcome {
    fn note(&mut self, crash: String, told: Vec<String>) {
        if !told.is_empty() {
            self.findings.push(Finding { crash, told });
        }
    }
}

/// One crash of a life.
struct Crash<'a> {
    life: &'a Life,
    history: &'a History,
    moment: Moment,
    at: &'a Path,
    nth: u64,
}

impl Crash<'_> {
    fn judge_image(&self, image: &Image) -> Result<Vec<String>, Trouble> {
        let root = self.life.directory("image")?;
        image.write_to(&root).map_err(Trouble::io("lay out an image in", &root))?;
        let told = self.judge_volume(&root.join("vol"));
        fs::remove_dir_all(&root).map_err(Trouble::io("remove", &root))?;
        told
    }

    /// Mounts the image on another emulated disk, cuts its power while it recovers or is read, and judges both.
    fn twice(&self, image: &Image, rules: Rules, rng: &mut Rng) -> Result<Vec<String>, Trouble> {
        let disk = Arc::new(Disk::default());
        image.load_into(&disk).map_err(|errno| Trouble::Io {
            what: "load an image for",
            path: self.at.to_owned(),
            error: errno.into(),
        })?;
        let first = disk.points();
        let layer = self.life.layer(Arc::clone(&disk), "disk")?;
        let mut daemon = match self.life.program.mount(&layer.path().join("vol"), self.at) {
            Ok(daemon) => daemon,
            Err(trouble) => return Ok(vec![trouble.to_string()]),
        };
        let mut told = self.judge_mount(&mut daemon, false);
        daemon.kill();
        let log = disk.log();
        layer.unmount().map_err(Trouble::io("unmount", self.at))?;
        let point = rng.between(first, log.len() as u64);
        let second = Cutter::new(&log, rules).image(point, rng);
        told.extend(
            self.judge_image(&second)?.into_iter().map(|told| format!("after the second cut: {told}")),
        );
        Ok(told)
    }

    /// Mounts what is left, judges it, works on, unmounts and checks. Trouble with the program is a finding too.
    fn judge_volume(&self, volume: &Path) -> Result<Vec<String>, Trouble> {
        let mut daemon = match self.life.program.mount(volume, self.at) {
            Ok(daemon) => daemon,
            Err(trouble) => return Ok(vec![trouble.to_string()]),
        };
        let mut told = self.judge_mount(&mut daemon, true);
        told.extend(self.leave(daemon, volume).err().map(|trouble| trouble.to_string()));
        Ok(told)
    }

    /// Reads and judges what is mounted, and works on there if asked to.
    fn judge_mount(&self, daemon: &mut Daemon, and_work: bool) -> Vec<String> {
        let look = || {
            let seen = Observed::read(self.at);
            let worked = if and_work { work_on(self.at) } else { Ok(()) };
            (seen, worked)
        };
        let (looked, hung) = supervise(daemon, || 0, |_| false, look);
        let Ok((seen, worked)) = looked else { return vec!["reading the tree panicked".to_owned()] };
        let mut told = judge(self.history, self.moment, &seen);
        told.extend(worked.err().map(|error| format!("work cannot go on: {error}")));
        if hung {
            told.push(format!("reading was not done after {} s", PATIENCE.as_secs()));
        }
        told
    }

    fn leave(&self, daemon: Daemon, volume: &Path) -> Result<(), Trouble> {
        daemon.unmount()?;
        let every = self.life.fsck_every;
        if every > 0 && self.nth.is_multiple_of(every) { self.life.program.fsck(volume) } else { Ok(()) }
    }
}

/// Does a little of everything and takes it away again.
fn work_on(root: &Path) -> io::Result<()> {
    let dir = root.join("after-the-crash");
    fs::create_dir(&dir)?;
    let (old, new) = (dir.join("old"), dir.join("new"));
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let mut file = File::create(&old)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    file.write_all_at(b"changed", 5000)?;
    drop(file);
    fs::hard_link(&old, dir.join("link"))?;
    fs::rename(&old, &new)?;
    File::open(&dir)?.sync_all()?;
    let read = fs::read(&new)?;
    if read.len() != bytes.len() || &read[5000..5007] != b"changed" || read[5007..] != bytes[5007..] {
        return Err(io::Error::other("a new file does not have the bytes that were written"));
    }
    fs::remove_dir_all(&dir)
}

/// Runs `life` with each sync of the program left out in turn, until a promise is broken or `lives` have passed.
///
/// # Errors
/// When the test itself cannot go on.
pub fn removal(
    life: &Life,
    lives: u64,
    cuts: u64,
    rules: Rules,
    mut tell: impl FnMut(&str, Option<&Finding>),
) -> Result<HashMap<String, bool>, Trouble> {
    let mut found = HashMap::new();
    for name in life.program.sync_points()? {
        let mut first = None;
        for nth in 0..lives {
            let mut broken = life.clone();
            broken.place = life.directory(&format!("{name}-{nth}"))?;
            broken.plan.seed = life.plan.seed + nth;
            broken.program.environment.push(("FOREBAY_SKIP_SYNC".to_owned(), name.clone()));
            first = broken.power(cuts, rules)?.findings.into_iter().next();
            if first.is_some() {
                break;
            }
        }
        tell(&name, first.as_ref());
        found.insert(name, first.is_some());
    }
    Ok(found)
}
