//! Shards of samples as a training loop reads them: loaders, each a process, read all samples in random order, an open and a `pread` each.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::crew::{Clock, Done};
use crate::error::at;
use crate::files::Directory;
use crate::pattern::{self, Pattern};
use crate::plan::PAGE;
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

const BLOCK: u64 = 1 << 20;

/// Runs one step. [`Workload::Epoch`] needs [`Workload::ShardWrite`] before it; its first epoch is not timed, and goes on until the file system is warm.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let home = stage.family(Family::Shards);
    if workload == Workload::ShardWrite {
        return write(stage, &home);
    }
    let epoch = |seed: u64| {
        let home = home.clone();
        move |clock: &mut Clock<'_>, job: usize, ()| {
            clock.time(|| {
                let samples = match stage.plan.loader.as_slice() {
                    [] => Loader::of(stage, &home, job, seed).run()?,
                    program => Loader::of(stage, &home, job, seed).run_by(program)?,
                };
                Ok(Done { operations: samples, bytes: samples * stage.plan.sizes.sample_bytes })
            })
        }
    };
    stage.warm(|| stage.crew(workload).run(|_| Ok(()), epoch(1)).map(drop))?;
    stage.measure(workload, &[], |_| Ok(()), epoch(2))
}

fn name(shard: u64) -> String {
    format!("shard-{shard:05}")
}

fn write(stage: &Stage<'_>, home: &Path) -> Result<Sample, Error> {
    let (sizes, jobs) = (&stage.plan.sizes, stage.plan.jobs as u64);
    let durable: Vec<_> = (0..sizes.shards).map(|shard| home.join(name(shard))).collect();
    let prepare = |job: usize| {
        Ok((Directory::create_all(home)?, Pattern::new(stage.plan.seed, job, BLOCK, sizes.shard_bytes)))
    };
    stage.measure(Workload::ShardWrite, &durable, prepare, |clock, job, (directory, mut pattern)| {
        (job as u64..sizes.shards).step_by(jobs as usize).try_for_each(|shard| {
            let file = directory.create(&name(shard))?;
            (0..sizes.shard_bytes).step_by(BLOCK as usize).try_for_each(|offset| {
                let bytes = pattern.at(shard, offset, BLOCK.min(sizes.shard_bytes - offset) as usize);
                clock.time(|| file.write_at(bytes, offset).map(|()| Done::bytes(bytes.len() as u64)))
            })
        })
    })
}

/// One loader's part of an epoch.
#[derive(Debug)]
struct Loader {
    home: PathBuf,
    shards: u64,
    shard_bytes: u64,
    sample_bytes: u64,
    seed: u64,
    loader: u64,
    loaders: u64,
    checked: bool,
}

impl Loader {
    fn of(stage: &Stage<'_>, home: &Path, job: usize, epoch: u64) -> Self {
        let sizes = &stage.plan.sizes;
        Self {
            home: home.to_path_buf(),
            shards: sizes.shards,
            shard_bytes: sizes.shard_bytes,
            sample_bytes: sizes.sample_bytes,
            seed: stage.plan.seed.wrapping_mul(31).wrapping_add(epoch),
            loader: job as u64,
            loaders: stage.plan.jobs as u64,
            checked: stage.keeps_data(),
        }
    }

    /// Reads its share of all samples, shuffled over all shards; how many that are.
    fn run(&self) -> Result<u64, Error> {
        let directory = Directory::open(&self.home)?;
        let in_shard = self.shard_bytes / self.sample_bytes;
        let mut samples: Vec<u64> = (0..self.shards * in_shard).collect();
        // All loaders have the same order, and take every so-manieth of it.
        samples.shuffle(&mut SmallRng::seed_from_u64(self.seed));
        let mut buffer = vec![0; self.sample_bytes as usize];
        let mut read = 0;
        for sample in samples.into_iter().skip(self.loader as usize).step_by(self.loaders as usize) {
            let (shard, offset) = (sample / in_shard, sample % in_shard * self.sample_bytes);
            let file = directory.read(&name(shard))?;
            let got = file.read_at(&mut buffer, offset)?;
            self.check(&buffer[..got], shard, offset)
                .map_err(|offset| Error::Content { path: file.path(), offset })?;
            read += 1;
        }
        Ok(read)
    }

    /// Checks the pages that are whole in a sample.
    fn check(&self, sample: &[u8], shard: u64, offset: u64) -> Result<(), u64> {
        if sample.len() as u64 != self.sample_bytes {
            return Err(offset + sample.len() as u64);
        }
        let skip = (offset.next_multiple_of(PAGE) - offset).min(sample.len() as u64);
        let whole = (sample.len() as u64 - skip) / PAGE * PAGE;
        let pages = &sample[skip as usize..(skip + whole) as usize];
        if self.checked { pattern::check(pages, shard, offset + skip, pages.len()) } else { Ok(()) }
    }

    /// The same by a process of its own.
    fn run_by(&self, program: &[OsString]) -> Result<u64, Error> {
        let failed = |source: io::Error| at("run a loader on", &self.home)(source);
        let [program, first @ ..] = program else { return self.run() };
        let numbers =
            [self.shards, self.shard_bytes, self.sample_bytes, self.seed, self.loader, self.loaders];
        let mut command = Command::new(program);
        command.args(first).arg(&self.home).args(numbers.map(|number| number.to_string()));
        command.arg(u64::from(self.checked).to_string());
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(failed)?;
        let read = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
        let ended = || io::Error::other(format!("it ended with {}", output.status));
        read.filter(|_| output.status.success()).ok_or_else(|| failed(ended()))
    }

    fn parse(words: &[OsString]) -> Option<Self> {
        let [home, numbers @ ..] = words else { return None };
        let numbers = numbers.iter().map(|word| word.to_str()?.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let [shards, shard_bytes, sample_bytes, seed, loader, loaders, checked] = numbers[..] else {
            return None;
        };
        (sample_bytes > 0 && loaders > 0).then(|| Self {
            home: home.into(),
            shards,
            shard_bytes,
            sample_bytes,
            seed,
            loader,
            loaders,
            checked: checked != 0,
        })
    }
}

/// What a loader's process does with the words that follow [`crate::Plan::loader`]; the number of samples it read, which it must print.
///
/// # Errors
/// [`Error`], also for words that are not those of a loader.
pub fn load(words: &[OsString]) -> Result<u64, Error> {
    match Loader::parse(words) {
        Some(loader) => loader.run(),
        None => Err(at("understand the loader's words for", Path::new(""))(io::Error::from(
            io::ErrorKind::InvalidInput,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_share_all_samples_and_check_them() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut pattern = Pattern::new(1, 0, 50_000, 50_000);
        for shard in 0..3 {
            directory.create(&name(shard)).unwrap().write_at(pattern.at(shard, 0, 50_000), 0).unwrap();
        }
        let words = |loader: &str, checked: &str| {
            let mut words = vec![dir.path().as_os_str().to_owned()];
            words.extend(["3", "50000", "10000", "7", loader, "2", checked].map(OsString::from));
            words
        };
        assert_eq!((load(&words("0", "1")).unwrap(), load(&words("1", "1")).unwrap()), (8, 7));
        directory.write(&name(1)).unwrap().write_at(&[0xff; 4096], 4096).unwrap();
        let outcomes = [load(&words("0", "1")), load(&words("1", "1"))];
        let wrong =
            |outcome: &Result<u64, Error>| matches!(outcome, Err(Error::Content { offset: 4096, .. }));
        assert_eq!(outcomes.iter().filter(|outcome| wrong(outcome)).count(), 1, "{outcomes:?}");
        assert_eq!(load(&words("0", "0")).unwrap(), 8);
        assert!(load(&words("none", "1")).is_err());
    }
}
