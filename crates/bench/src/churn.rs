//! Files of 64 KiB of which most are removed, so that a file system which packs files has garbage to collect; and how long a `stat` of those
//! that are left takes meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crew::{Clock, Done};
use crate::files::{self, Directory};
use crate::pattern::Pattern;
use crate::plan::{PAGE, share};
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

/// Bytes of a file: small enough to be packed with others.
const LENGTH: u64 = 16 * PAGE;

/// Of so many files that lie next to each other one is left.
const LEFT_ONE_OF: u64 = 4;

/// Looks in a round for each file that was made, at least, so that a 99th percentile says something.
const LOOKS: u64 = 2;

/// Runs one step. The looks need [`Workload::Churn`] before them.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let left = |job: usize| open(stage, job, "left");
    match workload {
        Workload::Churn => {
            let durable: Vec<_> = (0..stage.plan.jobs).map(|job| stage.job(Family::Churn, job)).collect();
            let prepare = |job: usize| create(stage, job, "left");
            stage.measure(workload, &durable, prepare, |clock, job, directory| {
                write(stage, job, &directory, |call| clock.time(call))?;
                remove(stage, job, &directory, |call| clock.time(call))
            })
        }
        Workload::StatCollecting => collecting(stage),
        _ => {
            let pass = |clock: &mut Clock<'_>, job: usize, directory: Directory| {
                look(stage, clock, job, &directory, || false)
            };
            stage.crew(workload).run(left, pass)?;
            stage.measure(workload, &[], left, pass)
        }
    }
}

/// As many files again, in the store by the time most of them are removed; then all that is collected while the jobs look at the first ones.
fn collecting(stage: &Stage<'_>) -> Result<Sample, Error> {
    let untimed = |call: &mut dyn FnMut() -> Result<Done, Error>| call().map(drop);
    let jobs = 0..stage.plan.jobs;
    let again = jobs.map(|job| create(stage, job, "again")).collect::<Result<Vec<_>, _>>()?;
    for (job, directory) in again.iter().enumerate() {
        write(stage, job, directory, untimed)?;
        files::sync(directory.path())?;
    }
    stage.settle()?;
    for (job, directory) in again.iter().enumerate() {
        remove(stage, job, directory, untimed)?;
    }
    let collected = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collect = scope.spawn(|| {
            let outcome = stage.collect();
            collected.store(true, Ordering::Release);
            outcome
        });
        let goes_on = || !collected.load(Ordering::Acquire);
        let prepare = |job: usize| open(stage, job, "left");
        let sample = stage.measure(Workload::StatCollecting, &[], prepare, |clock, job, directory| {
            look(stage, clock, job, &directory, goes_on)
        });
        collect.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sample
    })
}

fn create(stage: &Stage<'_>, job: usize, name: &str) -> Result<Directory, Error> {
    Directory::create_all(&stage.job(Family::Churn, job).join(name))
}

fn open(stage: &Stage<'_>, job: usize, name: &str) -> Result<Directory, Error> {
    Directory::open(&stage.job(Family::Churn, job).join(name))
}

fn files_of(stage: &Stage<'_>, job: usize) -> u64 {
    share(stage.plan.sizes.churn_files, stage.plan.jobs as u64, job as u64)
}

fn write(
    stage: &Stage<'_>,
    job: usize,
    directory: &Directory,
    mut each: impl FnMut(&mut dyn FnMut() -> Result<Done, Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut pattern = Pattern::new(stage.plan.seed, job, LENGTH, 8 << 20);
    (0..files_of(stage, job)).try_for_each(|number| {
        let bytes = pattern.at(number, number * LENGTH, LENGTH as usize);
        each(&mut || {
            directory.create(&name(number))?.write_at(bytes, 0)?;
            Ok(Done::bytes(LENGTH))
        })
    })
}

fn remove(
    stage: &Stage<'_>,
    job: usize,
    directory: &Directory,
    mut each: impl FnMut(&mut dyn FnMut() -> Result<Done, Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    (0..files_of(stage, job))
        .filter(|number| number % LEFT_ONE_OF != 0)
        .try_for_each(|number| each(&mut || directory.unlink(&name(number)).map(|()| Done::ONE)))
}

/// Looks at the files that are left in random order, [`LOOKS`] times as often as files were made, and for as long as `goes_on` if that is longer.
fn look(
    stage: &Stage<'_>,
    clock: &mut Clock<'_>,
    job: usize,
    directory: &Directory,
    goes_on: impl Fn() -> bool,
) -> Result<(), Error> {
    let left = files_of(stage, job).div_ceil(LEFT_ONE_OF);
    let mut random = SmallRng::seed_from_u64(stage.plan.seed ^ job as u64);
    let mut looked = 0;
    while looked < files_of(stage, job) * LOOKS || goes_on() {
        let name = name(random.random_range(0..left.max(1)) * LEFT_ONE_OF);
        clock.time(|| directory.stat(&name).map(|_| Done::ONE))?;
        looked += 1;
    }
    Ok(())
}

fn name(number: u64) -> String {
    format!("file-{number:07}")
}
