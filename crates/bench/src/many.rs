//! Very many files of 8 KiB in many directories. Job `j` of `n` fills directories `j`, `j + n`, and so on.

use crate::crew::Done;
use crate::files::Directory;
use crate::pattern::Pattern;
use crate::plan::{PAGE, share};
use crate::stage::{Sample, Stage};
use crate::{Error, Family, Workload};

/// Bytes of one file.
const LENGTH: u64 = 2 * PAGE;

/// Writes them. Making the directories is in the time, though only files count.
pub(crate) fn perform(stage: &Stage<'_>) -> Result<Sample, Error> {
    let sizes = &stage.plan.sizes;
    let home = stage.family(Family::Many);
    let prepare =
        |job: usize| Ok((Directory::create_all(&home)?, Pattern::new(stage.plan.seed, job, LENGTH, 8 << 20)));
    let durable = [home.clone()];
    stage.measure(Workload::Many, &durable, prepare, |clock, job, (home, mut pattern)| {
        for index in (job as u64..sizes.many_directories).step_by(sizes.many_jobs) {
            let name = format!("directory-{index:06}");
            home.make_directory(&name)?;
            let directory = home.enter(&name)?;
            for number in 0..share(sizes.many_files, sizes.many_directories, index) {
                let bytes = pattern.at(number, number * LENGTH, LENGTH as usize);
                let name = format!("file-{number:07}");
                clock.time(|| {
                    directory.create(&name)?.write_at(bytes, 0)?;
                    Ok(Done::bytes(LENGTH))
                })?;
            }
        }
        Ok(())
    })
}
