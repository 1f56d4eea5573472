//! One very large directory of empty files: made, listed, renamed.

use crate::crew::Done;
use crate::files::Directory;
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

/// How often the directory is renamed in a round; an even number, so that it ends under its first name.
const RENAMES: usize = 200;

const NAMES: [&str; 2] = ["directory", "renamed"];

/// Runs one step, by one job. Every other step needs [`Workload::LargeCreate`] before it.
pub(crate) fn perform(stage: &Stage<'_>, workload: Workload) -> Result<Sample, Error> {
    let entries = stage.plan.sizes.large_entries;
    let home = stage.family(Family::Large);
    let path = home.join(NAMES[0]);
    let durable = [home.clone(), path.clone()];
    if workload.cold() {
        stage.chill(workload)?;
    }
    let prepare = |_| match workload {
        Workload::LargeCreate => Directory::create_all(&path),
        Workload::LargeRename => Directory::open(&home),
        _ => Directory::open(&path),
    };
    stage.measure(workload, &durable, prepare, |clock, _, directory| match workload {
        Workload::LargeCreate => (0..entries).try_for_each(|number| {
            let name = format!("file-{number:08}");
            clock.time(|| directory.create(&name).map(|_| Done::ONE))
        }),
        Workload::LargeRename => (0..RENAMES).try_for_each(|turn| {
            let (from, to) = (NAMES[turn % 2], NAMES[(turn + 1) % 2]);
            clock.time(|| directory.rename(from, to).map(|()| Done::ONE))
        }),
        _ => {
            let mut found = 0;
            clock.time(|| {
                found = directory.list()?;
                Ok(Done { operations: found, bytes: 0 })
            })?;
            if found == entries {
                return Ok(());
            }
            Err(Error::Listing { path: directory.path().to_path_buf(), expected: entries, found })
        }
    })
}
