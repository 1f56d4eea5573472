//! Empty files: create, stat, list, also by programs, rename, unlink. Each job has one directory.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::crew::{Clock, Done};
use crate::files::Directory;
use crate::plan::share;
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload, programs};

/// Runs one step. Every other step needs [`Workload::Create`] before it; unlink, if it runs, is the last.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let files = |job: usize| share(stage.plan.sizes.names, stage.plan.jobs as u64, job as u64);
    let directory = |job: usize| stage.job(Family::Names, job);
    let durable: Vec<_> = (0..stage.plan.jobs).map(directory).collect();
    let open = |job: usize| -> Result<_, Error> {
        let directory = if workload == Workload::Create {
            Directory::create_all(&directory(job))?
        } else {
            Directory::open(&directory(job))?
        };
        Ok((directory, order(stage, workload, job, files(job))))
    };
    let work = |clock: &mut Clock<'_>, job: usize, (directory, numbers): (Directory, Vec<u64>)| match workload
    {
        Workload::ListCold | Workload::ListWarm => {
            list(clock, &directory, files(job), Directory::list_with_attributes)
        }
        Workload::FindCold => list(clock, &directory, files(job), programs::find),
        Workload::LsCold => list(clock, &directory, files(job), programs::ls),
        _ => numbers.into_iter().try_for_each(|number| one(stage, clock, workload, &directory, number)),
    };
    if workload.cold() {
        stage.chill(workload)?;
    } else if matches!(workload, Workload::StatWarm | Workload::ListWarm) {
        stage.crew(workload).run(open, work)?;
    }
    stage.measure(workload, &durable, open, work)
}

/// The order in which a job goes through its files: by number to make them, at random to work on them.
fn order(stage: &Stage<'_>, workload: Workload, job: usize, files: u64) -> Vec<u64> {
    let mut numbers: Vec<_> = (0..files).collect();
    if workload != Workload::Create {
        let seed = stage.plan.seed ^ (workload as u64) << 32 ^ job as u64;
        numbers.shuffle(&mut SmallRng::seed_from_u64(seed));
    }
    numbers
}

fn one(
    stage: &Stage<'_>,
    clock: &mut Clock<'_>,
    workload: Workload,
    directory: &Directory,
    number: u64,
) -> Result<(), Error> {
    let (first, renamed) = (format!("file-{number:07}"), format!("renamed-{number:07}"));
    clock.time(|| {
        match workload {
            Workload::Create => directory.create(&first).map(drop),
            Workload::Rename => directory.rename(&first, &renamed),
            Workload::Unlink if stage.plan.selected(Workload::Rename) => directory.unlink(&renamed),
            Workload::Unlink => directory.unlink(&first),
            _ => directory.stat(&first).map(drop),
        }
        .map(|()| Done::ONE)
    })
}

fn list(
    clock: &mut Clock<'_>,
    directory: &Directory,
    expected: u64,
    how: fn(&Directory) -> Result<u64, Error>,
) -> Result<(), Error> {
    let mut found = 0;
    clock.time(|| {
        found = how(directory)?;
        Ok(Done { operations: found, bytes: 0 })
    })?;
    if found == expected {
        return Ok(());
    }
    Err(Error::Listing { path: directory.path().to_path_buf(), expected, found })
}
