//! The order of a whole benchmark: families, rounds, steps, sides.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use crate::report::{FORM, thousandths};
use crate::stage::{Sample, Stage};
use crate::{
    Cache, Comparison, Error, Family, Machine, Measurement, Place, Plan, Progress, Report, Rival, Settings,
    Side, SideReport, Workload, churn, large, many, names, process, shards, small, streams, tree,
};

/// Samples of each workload on each side, in the order of rounds, with the cache state of the last.
type Samples = HashMap<(Workload, Side), (Cache, Vec<Sample>)>;

/// Measures what `plan` says and returns the report.
///
/// Everything the benchmark makes is in one directory, `forebay-bench-PID-N`, in each place; it is removed before this
/// returns, also with an error. Dropping the kernel's caches, where the plan allows it and the machine lets it,
/// slows everything else on the machine for a while.
///
/// # Errors
///
/// [`Error`] names the directory, file or setting. A workload that cannot be had in the cache state it asks for is no
/// error: it is left out, with a note in the report.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, Error> {
    plan.check()?;
    let (started, begin) = (SystemTime::now(), Instant::now());
    let (target, reference) = places(plan)?;
    let never = AtomicBool::new(false);
    let stop = plan.stop.as_deref().unwrap_or(&never);
    let target = Stage::set(plan, Side::Target, target, stop)?;
    let reference = reference.map(|place| Stage::set(plan, Side::Reference, place, stop)).transpose()?;
    let stages: Vec<_> = [Some(&target), reference.as_ref()].into_iter().flatten().collect();
    let mut samples = Samples::new();
    let mut notes = HashMap::new();
    let measured = measure(plan, &stages, progress, &mut samples, &mut notes);
    progress.finish();
    measured?;
    let results = compare(plan, samples, notes);
    let finish = |stage: Stage<'_>| -> Result<_, Error> {
        let side = SideReport { place: stage.place.clone(), peak_memory_bytes: stage.peak_memory()? };
        stage.strike().map(|()| side)
    };
    let (target, reference) = (finish(target)?, reference.map(finish).transpose()?);
    Ok(Report {
        form: FORM,
        version: plan.version.clone(),
        commit: plan.commit.clone(),
        command: plan.command.clone(),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        took_s: thousandths(begin.elapsed().as_secs_f64()),
        machine: Machine::here(),
        settings: Settings {
            jobs: plan.jobs,
            rounds: plan.rounds,
            quick: plan.quick,
            seed: plan.seed,
            sizes: plan.sizes.clone(),
        },
        target,
        reference,
        results,
    })
}

/// The directories to measure, checked: they exist, differ and have room.
fn places(plan: &Plan) -> Result<(Place, Option<Place>), Error> {
    let find = |path: &PathBuf| {
        Place::of(path).map_err(|source| Error::Directory { path: path.to_path_buf(), source })
    };
    let target = find(&plan.target)?;
    let reference = plan.reference.as_ref().map(find).transpose()?;
    if reference.as_ref().is_some_and(|reference| reference.path == target.path) {
        return Err(Error::SameDirectory { path: target.path });
    }
    let places: Vec<_> = [Some(&target), reference.as_ref()].into_iter().flatten().collect();
    let families = Family::ALL.into_iter().filter(|family| !steps(plan, *family).is_empty());
    let held = families.map(|family| plan.sizes.held(family)).max().unwrap_or(0);
    let device = |place: &Place| rustix::fs::stat(&place.path).map(|stat| stat.st_dev).ok();
    for place in &places {
        let beside = places.iter().filter(|other| device(other) == device(place)).count();
        let stat = rustix::fs::statvfs(&place.path)
            .map_err(|source| Error::Directory { path: place.path.clone(), source: source.into() })?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        enough_room(&place.path, held.saturating_mul(beside as u64), stat.f_blocks, free)?;
    }
    Ok((target, reference))
}

/// Refuses a plan that needs more than `free` bytes. A file system that says it has no blocks at all does not count them.
fn enough_room(path: &Path, needed: u64, blocks: u64, free: u64) -> Result<(), Error> {
    if blocks == 0 || needed <= free {
        return Ok(());
    }
    Err(Error::Space { path: path.to_path_buf(), needed, free })
}

/// The steps of a family that a plan needs: those asked for, and the one that makes the files.
fn steps(plan: &Plan, family: Family) -> Vec<Workload> {
    let of_family = |workload: &Workload| workload.family() == family;
    let wanted: Vec<_> = plan.workloads.iter().filter(|workload| of_family(workload)).collect();
    let needed =
        |workload: &Workload| plan.selected(*workload) || wanted.iter().any(|wanted| wanted.needs(*workload));
    let mut steps: Vec<_> = Workload::ALL.into_iter().filter(of_family).filter(needed).collect();
    steps.sort_by_key(|workload| workload.turn());
    steps
}

fn measure(
    plan: &Plan,
    stages: &[&Stage<'_>],
    progress: &Progress,
    samples: &mut Samples,
    notes: &mut HashMap<Workload, Vec<String>>,
) -> Result<(), Error> {
    let all = Family::ALL.map(|family| (family, steps(plan, family)));
    // What was pending before the benchmark is not in its first figure.
    stages.iter().try_for_each(|stage| stage.settle())?;
    let each_round: usize = all.iter().map(|(_, steps)| steps.len() * stages.len()).sum();
    progress.begin((each_round * plan.rounds) as u64);
    for (family, steps) in all.iter().filter(|(_, steps)| !steps.is_empty()) {
        for round in 0..plan.rounds {
            let again = |workload: &&Workload| round == 0 || !family.lasts() || !workload.founds_family();
            for &workload in steps.iter().filter(again) {
                let mut order: Vec<_> = stages.to_vec();
                if round % 2 == 1 {
                    order.reverse();
                }
                let rival = plan.rival.as_ref().filter(|rival| rival.workload == workload);
                if let Some(rival) = rival.filter(|_| round % 2 == 1) {
                    compete(plan, rival, samples)?;
                }
                for stage in order {
                    progress.step(workload, stage.side, round, plan.rounds);
                    match stage.cache(workload) {
                        Ok(cache) => {
                            let sample = perform(stage, workload)?;
                            let entry = samples.entry((workload, stage.side)).or_insert((cache, Vec::new()));
                            entry.1.push(sample);
                        }
                        Err(why) if round == 0 => notes.entry(workload).or_default().push(why),
                        Err(_) => {}
                    }
                    progress.done();
                    if plan.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                        return Err(Error::Stopped { workload });
                    }
                }
                if let Some(rival) = rival.filter(|_| round % 2 == 0) {
                    compete(plan, rival, samples)?;
                }
            }
            if !family.lasts() || round + 1 == plan.rounds {
                stages.iter().try_for_each(|stage| stage.clear(*family))?;
            }
        }
    }
    Ok(())
}

/// Lets the plan's rival do its work once, as the reference's sample.
fn compete(plan: &Plan, rival: &Rival, samples: &mut Samples) -> Result<(), Error> {
    let client = process::own_time().unwrap_or_default();
    let failed = |source| Error::Callback { what: "compare with", path: plan.target.clone(), source };
    let (bytes, elapsed) = (rival.perform)().map_err(failed)?;
    let client = process::own_time().unwrap_or_default().saturating_sub(client);
    // It empties no cache because it has none; the ratio is to what was as cold.
    let cache = match samples.get(&(rival.workload, Side::Target)) {
        Some((cache, _)) => *cache,
        None => Cache::Warm,
    };
    let entry = samples.entry((rival.workload, Side::Reference)).or_insert((cache, Vec::new()));
    entry.0 = cache;
    entry.1.push(Sample::of_rival(bytes, elapsed, client));
    Ok(())
}

fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    match workload.family() {
        Family::Streams => streams::perform(stage, workload),
        Family::Names => names::perform(stage, workload),
        Family::Small => small::perform(stage, workload),
        Family::Tree => tree::perform(stage, workload),
        Family::Many => many::perform(stage),
        Family::Churn => churn::perform(stage, workload),
        Family::Large => large::perform(stage, workload),
        Family::Shards => shards::perform(stage, workload),
    }
}

fn compare(plan: &Plan, mut samples: Samples, mut notes: HashMap<Workload, Vec<String>>) -> Vec<Comparison> {
    let selected = Workload::ALL.into_iter().filter(|workload| plan.selected(*workload));
    selected
        .map(|workload| {
            let mut side = |side| {
                let (cache, samples) = samples.remove(&(workload, side))?;
                Measurement::new(workload.unit(), cache, &samples)
            };
            let (target, reference) = (side(Side::Target), side(Side::Reference));
            Comparison::new(workload, target, reference, notes.remove(&workload).unwrap_or_default())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_refused_with_both_figures() {
        let path = Path::new("/mnt/volume");
        assert!(enough_room(path, 100, 7, 100).is_ok());
        assert!(enough_room(path, 100, 0, 0).is_ok(), "a file system that does not count blocks");
        let message = enough_room(path, 101, 7, 100).unwrap_err().to_string();
        assert!(
            message.contains("/mnt/volume has 100 bytes free") && message.contains("up to 101"),
            "{message}"
        );
    }

    #[test]
    fn the_founding_step_runs_though_not_asked_for() {
        let mut plan = Plan::new("/", true);
        plan.workloads = vec![Workload::StatWarm, Workload::TreeRemove];
        assert_eq!(steps(&plan, Family::Names), [Workload::Create, Workload::StatWarm]);
        assert_eq!(steps(&plan, Family::Tree), [Workload::TreeWrite, Workload::TreeRemove]);
        assert!(steps(&plan, Family::Streams).is_empty());
        plan.workloads = vec![Workload::RewrittenReadCold];
        let rewritten = [Workload::SequentialWrite, Workload::RandomWrite, Workload::RewrittenReadCold];
        assert_eq!(steps(&plan, Family::Streams), rewritten);
    }
}
