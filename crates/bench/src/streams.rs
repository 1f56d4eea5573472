//! Large files: sequential and random, read and write. Each job has one file.

use std::path::PathBuf;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crew::{Clock, Done};
use crate::files::Directory;
use crate::pattern::Pattern;
use crate::plan::{PAGE, share};
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Unit, Workload};

/// Bytes of one sequential read or write.
const BLOCK: u64 = 1 << 20;

const NAME: &str = "data";

/// Runs one step. Every other step needs [`Workload::SequentialWrite`] before it.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    match workload {
        Workload::SequentialWrite => write(stage),
        Workload::RandomWrite => overwrite(stage),
        _ => {
            if workload.cold() {
                stage.chill(workload)?;
            } else {
                let read = |clock: &mut Clock<'_>, job, file: Directory| read(stage, clock, job, &file);
                stage.warm(|| stage.crew(workload).run(|job| open(stage, job), read).map(drop))?;
            }
            let sequential = workload.unit() == Unit::BytesPerSecond;
            stage.measure(
                workload,
                &[],
                |job| open(stage, job),
                |clock, job, file| {
                    if sequential {
                        read(stage, clock, job, &file)
                    } else {
                        read_randomly(stage, clock, job, &file)
                    }
                },
            )
        }
    }
}

/// Bytes of one job's file: whole pages.
fn length(stage: &Stage<'_>, job: usize) -> u64 {
    share(stage.plan.sizes.stream_bytes / PAGE, stage.plan.jobs as u64, job as u64) * PAGE
}

fn open(stage: &Stage<'_>, job: usize) -> Result<Directory, Error> {
    Directory::open(&stage.job(Family::Streams, job))
}

fn durable(stage: &Stage<'_>) -> Vec<PathBuf> {
    (0..stage.plan.jobs).map(|job| stage.job(Family::Streams, job).join(NAME)).collect()
}

fn write(stage: &Stage<'_>) -> Result<Sample, Error> {
    stage.measure(
        Workload::SequentialWrite,
        &durable(stage),
        |job| {
            let directory = Directory::create_all(&stage.job(Family::Streams, job))?;
            Ok((directory, Pattern::new(stage.plan.seed, job, BLOCK, length(stage, job))))
        },
        |clock, job, (directory, mut pattern)| {
            let (file, length) = (directory.create(NAME)?, length(stage, job));
            for offset in (0..length).step_by(BLOCK as usize) {
                let bytes = pattern.at(job as u64, offset, BLOCK.min(length - offset) as usize);
                clock.time(|| file.write_at(bytes, offset).map(|()| Done::bytes(bytes.len() as u64)))?;
            }
            Ok(())
        },
    )
}

fn read(stage: &Stage<'_>, clock: &mut Clock<'_>, job: usize, directory: &Directory) -> Result<(), Error> {
    let (file, length) = (directory.read(NAME)?, length(stage, job));
    let mut buffer = vec![0; BLOCK as usize];
    for offset in (0..length).step_by(BLOCK as usize) {
        let wanted = BLOCK.min(length - offset) as usize;
        let mut got = 0;
        clock.time(|| {
            got = file.read_at(&mut buffer[..wanted], offset)?;
            Ok(Done::bytes(got as u64))
        })?;
        let checked = stage.check(&buffer[..got], job as u64, offset, wanted);
        checked.map_err(|offset| Error::Content { path: file.path(), offset })?;
    }
    Ok(())
}

fn read_randomly(
    stage: &Stage<'_>,
    clock: &mut Clock<'_>,
    job: usize,
    directory: &Directory,
) -> Result<(), Error> {
    let file = directory.read(NAME)?;
    file.advise_random()?;
    let mut offsets = Offsets::new(stage, job);
    let mut buffer = vec![0; PAGE as usize];
    for _ in 0..share(stage.plan.sizes.random_reads, stage.plan.jobs as u64, job as u64) {
        let offset = offsets.next();
        let mut got = 0;
        clock.time(|| {
            got = file.read_at(&mut buffer, offset)?;
            Ok(Done::bytes(got as u64))
        })?;
        let checked = stage.check(&buffer[..got], job as u64, offset, PAGE as usize);
        checked.map_err(|offset| Error::Content { path: file.path(), offset })?;
    }
    Ok(())
}

fn overwrite(stage: &Stage<'_>) -> Result<Sample, Error> {
    stage.measure(
        Workload::RandomWrite,
        &durable(stage),
        |job| {
            let pattern = Pattern::new(!stage.plan.seed, job, PAGE, length(stage, job));
            Ok((open(stage, job)?, Offsets::new(stage, job), pattern))
        },
        |clock, job, (directory, mut offsets, mut pattern)| {
            let file = directory.write(NAME)?;
            for _ in 0..share(stage.plan.sizes.random_writes, stage.plan.jobs as u64, job as u64) {
                let offset = offsets.next();
                let bytes = pattern.at(job as u64, offset, PAGE as usize);
                clock.time(|| file.write_at(bytes, offset).map(|()| Done::bytes(PAGE)))?;
            }
            Ok(())
        },
    )
}

/// Random page offsets in one job's file, the same ones on both sides.
struct Offsets {
    random: SmallRng,
    pages: u64,
}

impl Offsets {
    fn new(stage: &Stage<'_>, job: usize) -> Self {
        let seed = stage.plan.seed.wrapping_add(job as u64 + 1);
        Self { random: SmallRng::seed_from_u64(seed), pages: length(stage, job) / PAGE }
    }

    fn next(&mut self) -> u64 {
        self.random.random_range(0..self.pages) * PAGE
    }
}
