//! A source tree: unpacked as an archiver does, removed as `rm -r` does. Each job has a tree of its own.
//!
//! Directories stand eight to a parent. File sizes are those of source files: half under 3 KiB, one in ten over 32 KiB,
//! none over 96 KiB; the seed decides, so both sides get the same tree.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::FileType;

use crate::crew::{Clock, Done};
use crate::files::Directory;
use crate::pattern::Pattern;
use crate::plan::share;
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

/// Longest file, bytes.
const LONGEST: u64 = 96 << 10;

/// The time stamped on every file: a day in 2024, as an archive would carry.
const STAMPED_SECONDS: i64 = 1_720_000_000;

/// Runs one step. [`Workload::TreeRemove`] needs [`Workload::TreeWrite`] before it.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let home = |job: usize| stage.job(Family::Tree, job);
    let durable: Vec<_> = (0..stage.plan.jobs).map(home).collect();
    if workload == Workload::TreeRemove {
        let prepare = |job: usize| Directory::open(&home(job));
        return stage.measure(workload, &durable, prepare, |clock, _, directory| remove(clock, &directory));
    }
    let prepare = |job: usize| {
        let directory = Directory::create_all(&home(job))?;
        Ok((directory, Pattern::new(stage.plan.seed, job, LONGEST, 4 << 20)))
    };
    stage.measure(workload, &durable, prepare, |clock, job, (directory, pattern)| {
        unpack(stage, clock, job, &directory, pattern)
    })
}

fn unpack(
    stage: &Stage<'_>,
    clock: &mut Clock<'_>,
    job: usize,
    home: &Directory,
    mut pattern: Pattern,
) -> Result<(), Error> {
    let jobs = stage.plan.jobs as u64;
    let directories = share(stage.plan.sizes.tree_directories, jobs, job as u64);
    let files = share(stage.plan.sizes.tree_files, jobs, job as u64);
    let mut random = SmallRng::seed_from_u64(stage.plan.seed.wrapping_mul(31).wrapping_add(job as u64));
    let mut paths: Vec<String> = Vec::new();
    let mut unpack_file = |clock: &mut Clock<'_>, name: String, number: u64| {
        let length = file_length(&mut random);
        let bytes = pattern.at(number, number * LONGEST, length);
        clock.time(|| {
            let file = home.create(&name)?;
            file.write_at(bytes, 0)?;
            file.set_attributes(STAMPED_SECONDS)?;
            Ok(Done::bytes(length as u64))
        })
    };
    let mut number = 0;
    for index in 0..directories {
        let name = format!("directory-{index:05}");
        let path = match index.checked_sub(1).and_then(|before| paths.get((before / 8) as usize)) {
            Some(parent) => format!("{parent}/{name}"),
            None => name,
        };
        clock.time(|| home.make_directory(&path).map(|()| Done::ONE))?;
        for _ in 0..share(files, directories, index) {
            unpack_file(clock, format!("{path}/source-{number:06}.rs"), number)?;
            number += 1;
        }
        paths.push(path);
    }
    // A job without a directory of its own puts its files beside.
    (number..files).try_for_each(|number| unpack_file(clock, format!("source-{number:06}.rs"), number))
}

/// A length whose logarithm is a sum of three uniform ones: few tiny files, few long ones.
fn file_length(random: &mut SmallRng) -> usize {
    let doublings: f64 = (0..3).map(|_| random.random_range(0.0..5.6)).sum();
    (doublings.exp2() * 8.0).clamp(1.0, LONGEST as f64) as usize
}

fn remove(clock: &mut Clock<'_>, directory: &Directory) -> Result<(), Error> {
    for (name, kind) in directory.entries()? {
        if kind == FileType::Directory {
            remove(clock, &directory.enter(&name)?)?;
            clock.time(|| directory.remove_directory(&name).map(|()| Done::ONE))?;
        } else {
            clock.time(|| directory.unlink(&name).map(|()| Done::ONE))?;
        }
    }
    Ok(())
}
