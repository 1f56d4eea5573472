//! Lives of real volumes that end in a crash: the disk below, the workload above, the oracle behind.
//!
//! A *power* life runs the workload once on a volume on the emulated disk and then visits many points of the disk's log: each
//! gives an image, which is mounted, read, judged, written to, unmounted and sometimes checked by `fsck`. In a part of them
//! the power goes again and again, while the image is being recovered and worked on. A *kill* life ends with `kill -9` at a random
//! moment, on a plain directory. No crash depends on another.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::beside::open_beside;
use super::bucket::{BUCKET, shipped};
use super::crash::{Crash, VOLUME, Wreck};
use super::cut::{Cutter, Rules, points_to_cut};
use super::daemon::{PATIENCE, Program, Trouble, supervise};
use super::disk::Disk;
use super::history::{Clock, History, Moment};
use super::image::Image;
use super::layer::Layer;
use super::rng::Rng;
use super::slow::slow_below;
use super::target::Mounted;
use super::workload::{Crew, Plan};

/// Where the data of a volume rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAt {
    /// In the volume's own directory.
    Inside,
    /// In another directory of the same disk.
    Beside,
    /// On another disk, which loses its power at the same time or not at all.
    Apart,
}

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
    /// Every how many cuts the power goes up to three times more, while the volume is recovered and worked on; 0 for never.
    pub again_every: u64,
    /// Where the store is.
    pub store: StoreAt,
    /// Whether what is synced is in the store: class `object`.
    pub object: bool,
    /// Whether everything is sealed, stored, checkpointed and compacted all the time while the workload runs.
    pub busy: bool,
    /// Whether syncs in the store take 20 ms, so that it has something to do at many more points.
    pub slow: bool,
    /// Whether files are open for reading by the kernel itself while the workload changes them, from its second round on. The mount options must
    /// allow it for files of 4 KiB.
    pub beside: bool,
    /// Bytes that the disk has room for beyond the new volume; none for as many as are wanted.
    pub room: Option<u64>,
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
    /// Opens that the kernel served by itself while the workload ran.
    pub beside: u64,
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
        let layer = self.layer(Arc::new(self.new_disk()), "disk")?;
        let volume = layer.path().join(VOLUME);
        self.create(&volume)?;
        let first = layer.disk().points();
        let disk = Arc::clone(layer.disk());
        let clock = Clock::new(move || disk.points());
        if let Some(room) = self.room {
            layer.disk().limit(room);
            clock.may_be_full();
        }
        let (history, beside) = self.work(&volume, &at, &clock, u64::MAX)?;
        let log = layer.disk().log();
        layer.unmount().map_err(Trouble::io("unmount", &self.place))?;
        let mut outcome =
            Outcome { operations: history.len(), points: log.len() as u64, beside, ..Outcome::default() };
        outcome.note(format!("seed {}", self.plan.seed), history.failures.clone());
        let mut rng = Rng::new(self.plan.seed);
        let mut cutter = Cutter::new(&log, rules);
        for (nth, point) in (1..).zip(points_to_cut(&log, first, cuts, &mut rng)) {
            let image = cutter.image_where(point, self.lasting(&mut rng), &mut rng);
            let mut wreck = Wreck {
                history: Cow::Borrowed(&history),
                moments: vec![Moment::cut(point)],
                shipped: vec![shipped(&log, point)],
                volume: Some(VOLUME.to_owned()),
                relic: None,
                image,
            };
            let fate = self.fate(&mut wreck, (&log, first, point), rules, &mut rng);
            let again = self.again_every > 0 && nth % self.again_every == 0;
            let depth = if again { rng.between(1, 3) } else { 0 };
            let (kept, crash) = (wreck.image.clone(), Crash { life: self, at: &at, nth });
            let told = if depth > 0 {
                crash.judge_again(wreck, depth, rules, &mut rng)?
            } else {
                crash.judge(&wreck)?
            };
            outcome.crashes += 1;
            let name = format!(
                "seed {}, {:?} names, cut {nth} at point {point} of {}{fate}{}",
                self.plan.seed,
                rules.names,
                log.len(),
                if depth > 0 { format!(", and {depth} times again") } else { String::new() }
            );
            if !told.is_empty() && outcome.findings.is_empty() {
                self.keep(&kept)?;
            }
            outcome.note(name, told);
        }
        Ok(outcome)
    }

    /// What else happens in a cut where the store is elsewhere, in words: nothing, or the machine is lost with its disk, or an older state of
    /// that comes to light.
    fn fate(
        &self,
        wreck: &mut Wreck<'_>,
        (log, first, point): (&[super::log::Event], u64, u64),
        rules: Rules,
        rng: &mut Rng,
    ) -> &'static str {
        match (self.store, rng.below(4)) {
            (StoreAt::Inside, _) | (_, 0 | 1) => "",
            (StoreAt::Apart, 2) => {
                wreck.lose_machine(self.object);
                let older = Cutter::new(log, rules).image(rng.between(first, point), rng);
                wreck.image.join(&older.part(VOLUME, true));
                wreck.relic = Some(VOLUME);
                ", an older state of the machine's disk left"
            }
            _ => {
                wreck.lose_machine(self.object);
                ", the machine lost"
            }
        }
    }

    /// Lives once and ends by `kill -9`; where the store is elsewhere, sometimes with the loss of the machine.
    ///
    /// # Errors
    /// As [`Life::power`].
    pub fn kill(&self) -> Result<Outcome, Trouble> {
        let at = self.directory("mnt")?;
        let root = self.directory("disk")?;
        let volume = root.join(VOLUME);
        self.create(&volume)?;
        let clock = Clock::new(|| 0);
        let mut rng = Rng::new(self.plan.seed);
        // An operation takes two ticks of the clock, and a step two or three operations.
        let most = u64::from(self.plan.threads) * u64::from(self.plan.steps) * u64::from(self.rounds) * 5;
        let moment = rng.between(1, most);
        let (history, beside) = self.work(&volume, &at, &clock, moment)?;
        let operations = history.len();
        let mut outcome = Outcome { crashes: 1, operations, beside, ..Outcome::default() };
        let mut told = history.failures.clone();
        let mut wreck = Wreck {
            image: Image::default(),
            history: Cow::Owned(history),
            moments: vec![Moment::END],
            shipped: vec![0],
            volume: Some(VOLUME.to_owned()),
            relic: None,
        };
        if self.store != StoreAt::Inside && rng.chance(1, 2) {
            wreck.lose_machine(self.object);
        }
        told.extend(Crash { life: self, at: &at, nth: self.plan.seed }.judge_in(&root, &wreck)?);
        outcome.note(format!("seed {}, killed at tick {moment}", self.plan.seed), told);
        fs::remove_dir_all(&root).map_err(Trouble::io("remove", &root))?;
        Ok(outcome)
    }

    /// Runs the workload on a mount of `volume`, with a clean unmount between rounds, and kills the daemon: at tick `moment` of
    /// the clock, at the latest when all is done. Also gives how many opens the kernel served by itself.
    fn work(
        &self,
        volume: &Path,
        at: &Path,
        clock: &Clock<'_>,
        moment: u64,
    ) -> Result<(History, u64), Trouble> {
        let target = Mounted::new(at);
        let mut crew = Crew::new(&target, clock, &self.plan);
        let (mut failures, mut beside) = (Vec::new(), 0);
        for round in 1..=self.rounds.max(1) {
            let mut daemon = self.program.mount(volume, at)?;
            let mut readers = Vec::new();
            if self.beside && round > 1 {
                let through;
                (readers, through) = open_beside(&self.program, at)?;
                beside += through;
            }
            let strike = |ticks| {
                if ticks >= moment {
                    clock.kill();
                }
                ticks >= moment
            };
            let work = || self.press(self.busy, clock, at, &mut crew);
            let (worked, hung) = supervise(&mut daemon, || clock.ticks(), strike, work);
            if hung {
                failures.push(format!("no operation was answered for {} s", PATIENCE.as_secs()));
            }
            drop(readers);
            if !worked.unwrap_or(false) || clock.killed() || round == self.rounds {
                daemon.kill();
                break;
            }
            if let Err(trouble) = crew.settle(|| daemon.unmount()) {
                // Not everything need fit into the store.
                if self.room.is_none() {
                    failures.push(trouble.to_string());
                }
                break;
            }
        }
        let mut history = crew.history();
        history.failures.extend(failures);
        Ok((history, beside))
    }

    /// A round of the crew; when `busy`, with `gc` of the mount again and again meanwhile, so that sealing, storing, checkpoints and compaction
    /// are under way at any moment. False when the crew has come to its end.
    pub(super) fn press(
        &self,
        busy: bool,
        clock: &Clock<'_>,
        at: &Path,
        crew: &mut Crew<'_, Mounted>,
    ) -> bool {
        let done = AtomicBool::new(!busy);
        let (goes_on, trouble) = std::thread::scope(|scope| {
            let collector = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    self.program.collect(at)?;
                }
                Ok(())
            });
            let goes_on = crew.work();
            done.store(true, Ordering::SeqCst);
            let collected: Result<(), Trouble> = collector.join().unwrap_or(Ok(()));
            (goes_on, collected.err().filter(|_| !clock.excused() && goes_on && self.room.is_none()))
        });
        if let Some(trouble) = trouble {
            crew.fail(trouble.to_string());
        }
        goes_on
    }

    /// Makes the volume, and keeps a copy of its key.
    pub(super) fn create(&self, volume: &Path) -> Result<(), Trouble> {
        let bucket = volume.with_file_name(BUCKET);
        let mut program = self.program.clone();
        if self.object {
            program.create_options.push("--durability=object".to_owned());
        }
        program.create(volume, (self.store != StoreAt::Inside).then_some(bucket.as_path()))?;
        let key = volume.join("key");
        if key.exists() {
            let copy = self.place.join("key");
            fs::copy(&key, &copy).map_err(Trouble::io("copy the key to", &copy))?;
        }
        Ok(())
    }

    /// The copy of the volume's key, if it has one.
    pub(super) fn key(&self) -> Option<PathBuf> {
        Some(self.place.join("key")).filter(|key| key.exists())
    }

    pub(super) fn new_disk(&self) -> Disk {
        if self.store == StoreAt::Apart { Disk::parted() } else { Disk::default() }
    }

    /// What loses nothing in the next cut.
    pub(super) fn lasting(&self, rng: &mut Rng) -> Option<&'static [u8]> {
        (self.store == StoreAt::Apart && rng.chance(1, 2)).then_some(BUCKET.as_bytes())
    }

    pub(super) fn directory(&self, name: &str) -> Result<PathBuf, Trouble> {
        let path = self.place.join(name);
        fs::create_dir_all(&path).map_err(Trouble::io("create directory", &path))?;
        Ok(path)
    }

    pub(super) fn layer(&self, disk: Arc<Disk>, name: &str) -> Result<Layer, Trouble> {
        let path = self.directory(name)?;
        let mounted = match (self.slow, self.store) {
            (false, _) => Layer::mount(disk, &path),
            (true, StoreAt::Inside) => Layer::mount_with(disk, &path, slow_below("vol/objects")),
            (true, _) => Layer::mount_with(disk, &path, slow_below(BUCKET)),
        };
        mounted.map_err(Trouble::io("mount the emulated disk on", &path))
    }

    /// Lays the first image that broke a promise aside, to be looked at.
    pub(super) fn keep(&self, image: &Image) -> Result<(), Trouble> {
        let path = self.directory("kept")?;
        image.write_to(&path).map_err(Trouble::io("keep an image in", &path))
    }
}

impl Outcome {
    pub(super) fn note(&mut self, crash: String, told: Vec<String>) {
        if !told.is_empty() {
            self.findings.push(Finding { crash, told });
        }
    }
}

/// What leaving one sync out led to.
#[derive(Debug)]
pub struct Removal {
    /// The sync's name.
    pub name: String,
    /// The first broken promise, if one was found.
    pub finding: Option<Finding>,
}

/// Runs each of `lives` with each sync of the program left out in turn, until a promise is broken or `seeds` have been tried.
///
/// # Errors
/// When the test itself cannot go on.
pub fn removal(
    lives: &[Life],
    seeds: u64,
    cuts: u64,
    rules: Rules,
    mut tell: impl FnMut(&Removal),
) -> Result<Vec<Removal>, Trouble> {
    let mut all = Vec::new();
    let Some(first) = lives.first() else { return Ok(all) };
    for name in first.program.sync_points()? {
        let mut removal = Removal { name: name.clone(), finding: None };
        for (nth, (seed, life)) in
            (0..seeds).flat_map(|seed| lives.iter().map(move |life| (seed, life))).enumerate()
        {
            let mut broken = life.clone();
            broken.place = life.directory(&format!("{name}-{nth}"))?;
            broken.plan.seed = life.plan.seed + seed;
            broken.program.environment.push(("FOREBAY_SKIP_SYNC".to_owned(), name.clone()));
            removal.finding = broken.power(cuts, rules)?.findings.into_iter().next();
            fs::remove_dir_all(&broken.place).map_err(Trouble::io("remove", &broken.place))?;
            if removal.finding.is_some() {
                break;
            }
        }
        tell(&removal);
        all.push(removal);
    }
    Ok(all)
}
