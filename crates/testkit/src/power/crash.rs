//! One crash of a life: what it left is brought up again, read, judged, worked on, and sometimes cut again and again.
//!
//! Where the store is not in the volume's own directory, the crash may also take that directory, and the volume comes back from the store
//! alone. A volume that was brought up again gets a crew of its own before the next cut, so a crash is also judged by what later crashes leave.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bucket::{BUCKET, shipped};
use super::campaign::{Life, StoreAt};
use super::cut::{Cutter, Rules, points_to_cut};
use super::daemon::{Daemon, PATIENCE, Trouble, supervise};
use super::disk::Disk;
use super::history::{Clock, History, Moment, Promise};
use super::image::Image;
use super::observe::Observed;
use super::oracle::judge;
use super::rng::Rng;
use super::target::Mounted;
use super::workload::{Crew, Plan};

/// The volume's directory in the root of the emulated disk.
pub(super) const VOLUME: &str = "vol";

/// What a crash left, and what is known of it.
pub(super) struct Wreck<'a> {
    pub image: Image,
    pub history: Cow<'a, History>,
    /// The moment of each group of threads.
    pub moments: Vec<Moment>,
    /// The point in each group's log up to which the bucket has all that was answered.
    pub shipped: Vec<u64>,
    /// The volume's directory; none when its machine is lost.
    pub volume: Option<String>,
    /// An older state of the directory of a lost machine is in the image: it must not be taken for the volume.
    pub relic: Option<&'static str>,
}

impl Wreck<'_> {
    /// Takes the volume's directory away. What a class that syncs to the local disk alone has promised is then what the bucket has.
    pub fn lose_machine(&mut self, object: bool) {
        if let Some(volume) = self.volume.take() {
            self.image = self.image.part(&volume, false);
        }
        if !object {
            for (moment, shipped) in self.moments.iter_mut().zip(&self.shipped) {
                moment.promise = Promise::Before(*shipped);
            }
        }
    }
}

/// How a crash is judged.
pub(super) struct Crash<'a> {
    pub life: &'a Life,
    pub at: &'a Path,
    /// The number of the crash in its life.
    pub nth: u64,
}

impl Crash<'_> {
    /// Lays out what was left in a plain directory, brings it up, judges it, works on, unmounts and checks.
    pub fn judge(&self, wreck: &Wreck<'_>) -> Result<Vec<String>, Trouble> {
        let root = self.life.directory("disk")?;
        wreck.image.write_to(&root).map_err(Trouble::io("lay out an image in", &root))?;
        let told = self.judge_in(&root, wreck);
        fs::remove_dir_all(&root).map_err(Trouble::io("remove", &root))?;
        told
    }

    /// An older state of the directory either is refused, or is none, and what was promised is there.
    fn judge_relic(&self, root: &Path, wreck: &Wreck<'_>) -> Vec<String> {
        let Some(relic) = wreck.relic.filter(|_| self.nth.is_multiple_of(2)) else { return Vec::new() };
        let Ok(mut daemon) = self.life.program.mount(&root.join(relic), self.at) else { return Vec::new() };
        let told = self.judge_mount(&mut daemon, wreck, false);
        daemon.kill();
        told.into_iter()
            .map(|told| format!("'{relic}', an older state of the directory, mounted: {told}"))
            .collect()
    }

    /// As [`Crash::judge`], of what lies in the directory `root` already.
    pub fn judge_in(&self, root: &Path, wreck: &Wreck<'_>) -> Result<Vec<String>, Trouble> {
        let mut told = self.judge_relic(root, wreck);
        let (mut daemon, volume) = match self.raise(root, wreck) {
            Ok(raised) => raised,
            Err(trouble) => return trouble.into_finding().map(|told| vec![told]),
        };
        told.extend(self.judge_mount(&mut daemon, wreck, true));
        if let Err(trouble) = self.leave(daemon, &volume) {
            told.push(trouble.into_finding()?);
        }
        if let Some(relic) = wreck.relic
            && self.life.program.mount(&root.join(relic), self.at).is_ok()
        {
            told.push(format!("'{relic}', an older state of a machine that was given up, can be mounted"));
        }
        Ok(told)
    }

    /// Brings the wreck up on another emulated disk, lets a crew work there, cuts the power at any moment of that, and so `depth` times; judges
    /// what is seen each time.
    pub fn judge_again(
        &self,
        wreck: Wreck<'_>,
        depth: u64,
        rules: Rules,
        rng: &mut Rng,
    ) -> Result<Vec<String>, Trouble> {
        let (mut wreck, mut told) = (wreck, Vec::new());
        for turn in 1..=depth {
            let (found, next) = self.raise_and_cut(wreck, rules, rng)?;
            let place = if turn == 1 { String::new() } else { format!("after {turn} cuts: ") };
            told.extend(found.into_iter().map(|told| format!("{place}{told}")));
            match next {
                Some(next) if told.is_empty() => wreck = next,
                _ => return Ok(told),
            }
        }
        let last = self.judge(&wreck)?;
        told.extend(last.into_iter().map(|told| format!("after {} cuts: {told}", depth + 1)));
        Ok(told)
    }

    fn raise_and_cut(
        &self,
        wreck: Wreck<'_>,
        rules: Rules,
        rng: &mut Rng,
    ) -> Result<(Vec<String>, Option<Wreck<'static>>), Trouble> {
        let disk = Arc::new(self.life.new_disk());
        wreck.image.load_into(&disk).map_err(|errno| Trouble::Io {
            what: "load an image for",
            path: self.at.to_owned(),
            error: errno.into(),
        })?;
        let first = disk.points();
        let layer = self.life.layer(Arc::clone(&disk), "disk")?;
        let raised = self.raise(layer.path(), &wreck);
        let (mut daemon, volume) = match raised {
            Ok(raised) => raised,
            Err(trouble) => {
                layer.unmount().map_err(Trouble::io("unmount", self.at))?;
                return Ok((vec![trouble.into_finding()?], None));
            }
        };
        let raised = usize::try_from(disk.points()).unwrap_or(usize::MAX);
        let mut told = self.judge_mount(&mut daemon, &wreck, false);
        let added = self.work_a_little(&mut daemon, &disk, wreck.history.threads.len(), rng);
        daemon.kill();
        let log = disk.log();
        layer.unmount().map_err(Trouble::io("unmount", self.at))?;
        told.extend(added.failures.iter().cloned());
        // Half of these cuts fall into bringing it up, which is short.
        let until = if rng.chance(1, 2) { raised.min(log.len()) } else { log.len() };
        let point = points_to_cut(&log[..until], first, 1, rng).first().copied().unwrap_or(first);
        let lasting = self.life.lasting(rng);
        let image = Cutter::new(&log, rules).image_where(point, lasting, rng);
        let name = volume.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A directory that is being recovered is a volume once its description is there.
        let complete = name == VOLUME || image.has_name(&format!("{name}/forebay.volume"));
        let mut next = Wreck {
            history: Cow::Owned(wreck.history.into_owned()),
            moments: wreck.moments,
            shipped: wreck.shipped,
            volume: complete.then_some(name),
            relic: None,
            image,
        };
        next.history.to_mut().extend(added);
        next.moments.push(Moment::cut(point));
        next.shipped.push(shipped(&log, point));
        if self.life.store != StoreAt::Inside && rng.chance(1, 3) {
            next.lose_machine(self.life.object);
        }
        Ok((told, Some(next)))
    }

    /// A short round of a crew of its own.
    fn work_a_little(&self, daemon: &mut Daemon, disk: &Arc<Disk>, first: usize, rng: &mut Rng) -> History {
        let clock = Clock::new(|| disk.points());
        let target = Mounted::new(self.at);
        let plan = Plan { seed: rng.next_u64(), threads: 2, steps: 6, ..self.life.plan };
        let mut crew = Crew::after(&target, &clock, &plan, u16::try_from(first).unwrap_or(u16::MAX));
        let busy = self.life.busy && rng.chance(1, 2);
        let (_, hung) = supervise(
            daemon,
            || clock.ticks(),
            |_| false,
            || self.life.press(busy, &clock, self.at, &mut crew),
        );
        let mut history = crew.history();
        if hung {
            history.failures.push(format!("no operation was answered for {} s", PATIENCE.as_secs()));
        }
        history
    }

    /// Mounts the volume that lies in `root`, or what its store brings back.
    fn raise(&self, root: &Path, wreck: &Wreck<'_>) -> Result<(Daemon, PathBuf), Trouble> {
        let program = &self.life.program;
        let volume = match &wreck.volume {
            Some(name) => root.join(name),
            None => {
                let used = |number: &u64| wreck.image.has_name(&format!("new{number}"));
                let number = (1..).find(|number| !used(number)).unwrap_or(0);
                let new = root.join(format!("new{number}"));
                program.recover(&new, &root.join(BUCKET), self.life.key().as_deref())?;
                new
            }
        };
        Ok((program.mount(&volume, self.at)?, volume))
    }

    /// Reads and judges what is mounted, and works on there if asked to.
    pub fn judge_mount(&self, daemon: &mut Daemon, wreck: &Wreck<'_>, and_work: bool) -> Vec<String> {
        let look = || {
            let seen = Observed::read(self.at);
            let worked = if and_work { work_on(self.at) } else { Ok(()) };
            (seen, worked)
        };
        let (looked, hung) = supervise(daemon, || 0, |_| false, look);
        let Ok((seen, worked)) = looked else { return vec!["reading the tree panicked".to_owned()] };
        let mut told = judge(&wreck.history, &wreck.moments, &seen);
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
