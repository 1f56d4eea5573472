//! Lives of two machines: while one works on a volume, another brings the same volume back from its store and works on, and the first one, which
//! does not know, goes on too until it is refused. The power of both is cut at any point of that.
//!
//! What the first machine was told to be synced must be there whoever has the volume afterwards; so it must be told nothing of the kind once the
//! second one has the volume. An old directory must not be mounted again.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::bucket::BUCKET;
use super::campaign::{Life, Outcome};
use super::crash::{Crash, VOLUME, Wreck};
use super::cut::{Cutter, Rules, points_to_cut};
use super::daemon::{PATIENCE, Trouble, supervise};
use super::history::{Clock, History, Moment};
use super::layer::Layer;
use super::rng::Rng;
use super::target::Mounted;
use super::workload::Crew;

/// The directory of the second machine.
const SECOND: &str = "new1";

impl Life {
    /// Lives once on two machines and cuts the power of both at `cuts` points. For stores apart and the class `object` only.
    ///
    /// # Errors
    /// As [`Life::power`].
    pub fn pair(&self, cuts: u64, rules: Rules) -> Result<Outcome, Trouble> {
        let at = self.directory("mnt")?;
        let layer = self.layer(Arc::new(self.new_disk()), "disk")?;
        self.create(&layer.path().join(VOLUME))?;
        let first = layer.disk().points();
        let mut rng = Rng::new(self.plan.seed);
        let (history, begun) = self.both(&layer, &at, &mut rng)?;
        let log = layer.disk().log();
        layer.unmount().map_err(Trouble::io("unmount", &self.place))?;
        let mut outcome =
            Outcome { operations: history.len(), points: log.len() as u64, ..Outcome::default() };
        outcome.note(format!("seed {}", self.plan.seed), history.failures.clone());
        let mut cutter = Cutter::new(&log, rules);
        for (nth, point) in (1..).zip(points_to_cut(&log, first, cuts, &mut rng)) {
            let image = cutter.image_where(point, self.lasting(&mut rng), &mut rng);
            let complete = image.has_name(&format!("{SECOND}/forebay.volume"));
            let lost = rng.chance(1, 3);
            let (volume, relic, fate) = match (lost, point <= begun, complete) {
                (false, true, _) => (Some(VOLUME.to_owned()), None, "before the second machine"),
                (false, false, true) => (Some(SECOND.to_owned()), Some(VOLUME), "the second machine goes on"),
                (false, false, false) => (None, Some(VOLUME), "a third machine goes on"),
                (true, ..) => (None, None, "both machines lost"),
            };
            let image = if lost { image.part(BUCKET, true) } else { image };
            let moments = vec![Moment::cut(point); 2];
            let wreck = Wreck {
                image,
                history: Cow::Borrowed(&history),
                moments,
                shipped: vec![0; 2],
                volume,
                relic,
            };
            let told = Crash { life: self, at: &at, nth }.judge(&wreck)?;
            outcome.crashes += 1;
            if !told.is_empty() && outcome.findings.is_empty() {
                self.keep(&wreck.image)?;
            }
            let name = format!(
                "two machines, seed {}, {:?} names, cut {nth} at point {point} of {}, {fate}",
                self.plan.seed,
                rules.names,
                log.len()
            );
            outcome.note(name, told);
        }
        Ok(outcome)
    }

    /// Both machines at work; gives what they did, and the point at which the second one began.
    fn both(&self, layer: &Layer, at: &Path, rng: &mut Rng) -> Result<(History, u64), Trouble> {
        let disk = layer.disk();
        let clock = Clock::new(|| disk.points());
        let most = u64::from(self.plan.threads) * u64::from(self.plan.steps) * 3;
        let (moment, done) = (rng.between(1, most), AtomicBool::new(false));
        let mut daemon = self.program.mount(&layer.path().join(VOLUME), at)?;
        let target = Mounted::new(at);
        let mut crew = Crew::new(&target, &clock, &self.plan);
        let (mut history, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let deadline = Instant::now() + PATIENCE;
                while clock.ticks() < moment && !done.load(Ordering::SeqCst) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(200));
                }
                clock.excuse();
                let begun = disk.points();
                self.second(layer).map(|history| (history, begun))
            });
            let (_, hung) = supervise(&mut daemon, || clock.ticks(), |_| false, || crew.work());
            done.store(true, Ordering::SeqCst);
            let second = second.join();
            daemon.kill();
            let mut history = crew.history();
            if hung {
                history.failures.push(format!("no operation was answered for {} s", PATIENCE.as_secs()));
            }
            (history, second)
        });
        match second {
            Ok(Ok((other, begun))) => {
                history.extend(other);
                Ok((history, begun))
            }
            Ok(Err(trouble)) => {
                history.failures.push(trouble.into_finding()?);
                history.extend(History::default());
                Ok((history, u64::MAX))
            }
            Err(_) => {
                history.failures.push("the second machine's thread panicked".to_owned());
                history.extend(History::default());
                Ok((history, u64::MAX))
            }
        }
    }

    /// What the second machine does.
    fn second(&self, layer: &Layer) -> Result<History, Trouble> {
        let at = self.directory("mnt-second")?;
        let volume = layer.path().join(SECOND);
        self.program.recover(&volume, &layer.path().join(BUCKET), self.key().as_deref())?;
        let mut daemon = self.program.mount(&volume, &at)?;
        let disk = layer.disk();
        let clock = Clock::new(|| disk.points());
        let target = Mounted::new(&at);
        let mut crew = Crew::after(&target, &clock, &self.plan, self.plan.threads + 1);
        let (_, hung) = supervise(&mut daemon, || clock.ticks(), |_| false, || crew.work());
        daemon.kill();
        let mut history = crew.history();
        if hung {
            history.failures.push(format!("no operation was answered for {} s", PATIENCE.as_secs()));
        }
        Ok(history)
    }
}
