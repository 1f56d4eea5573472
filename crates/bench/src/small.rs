//! Files of 4 KiB: written, read cold, read warm, synced. Each job has directories of 500 files.

use crate::crew::{Clock, Done};
use crate::files::Directory;
use crate::pattern::Pattern;
use crate::plan::{PAGE, share};
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

/// Files in one directory.
const FANOUT: u64 = 500;

/// Runs one step. The reads need [`Workload::SmallWrite`] before them.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let files = |job: usize| share(stage.plan.sizes.small_files, stage.plan.jobs as u64, job as u64);
    let home = |job: usize| stage.job(Family::Small, job);
    if workload == Workload::SmallWrite {
        let durable: Vec<_> = (0..stage.plan.jobs).map(home).collect();
        let prepare = |job: usize| {
            let directory = Directory::create_all(&home(job))?;
            (0..files(job).div_ceil(FANOUT))
                .try_for_each(|part| directory.make_directory(&format!("part-{part:05}")))?;
            Ok((directory, Pattern::new(stage.plan.seed, job, PAGE, 2 << 20)))
        };
        return stage.measure(workload, &durable, prepare, |clock, job, (directory, mut pattern)| {
            (0..files(job)).try_for_each(|number| {
                let bytes = pattern.at(number, number * PAGE, PAGE as usize);
                let name = name(number);
                clock.time(|| {
                    directory.create(&name)?.write_at(bytes, 0)?;
                    Ok(Done::bytes(PAGE))
                })
            })
        });
    }
    if workload == Workload::SmallSync {
        return sync(stage);
    }
    let prepare = |job: usize| Directory::open(&home(job));
    let work =
        |clock: &mut Clock<'_>, job: usize, directory: Directory| read(stage, clock, &directory, files(job));
    if workload.cold() {
        stage.chill(workload)?;
    } else {
        stage.crew(workload).run(prepare, work)?;
    }
    stage.measure(workload, &[], prepare, work)
}

/// As many files again, in directories of their own.
fn sync(stage: &Stage<'_>) -> Result<Sample, Error> {
    let home = |job: usize| stage.job(Family::Small, job).join("synced");
    let prepare = |job: usize| {
        Ok((Directory::create_all(&home(job))?, Pattern::new(!stage.plan.seed, job, PAGE, 2 << 20)))
    };
    stage.measure(Workload::SmallSync, &[], prepare, |clock, job, (directory, mut pattern)| {
        (0..share(stage.plan.sizes.synced_files, stage.plan.jobs as u64, job as u64)).try_for_each(|number| {
            let bytes = pattern.at(number, number * PAGE, PAGE as usize);
            clock.time(|| {
                let file = directory.create(&format!("file-{number:07}"))?;
                file.write_at(bytes, 0)?;
                file.sync()?;
                Ok(Done::bytes(PAGE))
            })
        })
    })
}

fn name(number: u64) -> String {
    format!("part-{:05}/file-{number:07}", number / FANOUT)
}

fn read(stage: &Stage<'_>, clock: &mut Clock<'_>, directory: &Directory, files: u64) -> Result<(), Error> {
    let mut buffer = vec![0; PAGE as usize];
    for number in 0..files {
        let (name, mut got) = (name(number), 0);
        clock.time(|| {
            got = directory.read(&name)?.read_at(&mut buffer, 0)?;
            Ok(Done::bytes(got as u64))
        })?;
        let checked = stage.check(&buffer[..got], number, number * PAGE, PAGE as usize);
        checked.map_err(|_| Error::Content { path: directory.path().join(&name), offset: 0 })?;
    }
    Ok(())
}
