//! Checking a volume, and putting right what can be.
//!
//! Guarantees: [`check`] and [`Volume::fsck`] change nothing of the volume; a volume that only crashed has no findings but leaked files
//! and objects. [`repair`] never removes user data that can be read, changes nothing on a clean volume, can be interrupted
//! anywhere, and done twice is the same as done once.
//!
//! Relies on one moment being looked at: an unmounted volume is locked and its metadata copied, of a mounted one a snapshot of the engine
//! is taken right after a checkpoint; only files and objects move under it, and what seems to be missing is asked for again.

mod bytes;
mod files;
mod found;
mod ground;
mod image;
mod mend;
mod names;
mod offline;
mod report;
mod segments;
mod survey;
mod tables;
mod tree;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use report::{Counts, Finding, Report, Severity};
pub use survey::{Survey, Totals, survey};

use self::{
    found::Found, ground::Ground, image::Image, offline::Offline, segments::Segments, tables::Tables,
    tree::Tree,
};
use crate::{Volume, VolumeError};

/// Walks that a plan of repair may take; each puts right what the one before uncovered.
const WALKS_MAX: usize = 64;

/// How a volume is checked.
#[derive(Clone, Debug, Default)]
pub struct FsckOptions {
    /// Read all data and verify its checksums.
    pub data: bool,
    /// Repair makes holes of what is lost, instead of leaving reads to fail with EIO.
    pub drop_lost: bool,
    /// Repair gives up what the journal has behind records that were durable and cannot be read any more. Without it nothing of such a volume is
    /// repaired. Not for a store elsewhere, from which the volume is recovered instead.
    pub cut_journal: bool,
    /// Where the copy of the metadata is made that is looked at (as large as the metadata); `None`: the system's place for such files.
    pub scratch: Option<PathBuf>,
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// So many rows of the metadata were read.
    Rows(u64),
    /// So many inodes, in all subvolumes and snapshots so far.
    Inodes(u64),
    /// Objects whose lists were read.
    Objects {
        /// So many.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// Stored bytes of data that were verified.
    Data {
        /// So many.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

/// Looks at a volume that is not mounted. Needs room for a copy of its metadata.
///
/// # Errors
/// [`VolumeError::InUse`] while it is mounted: then the process that has it is to be asked. [`VolumeError::NotAVolume`],
/// [`VolumeError::Newer`]; [`VolumeError::Io`] where the disk cannot be read.
pub fn check(
    root: &Path,
    options: &FsckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, VolumeError> {
    let mut found = Found::default();
    let options = FsckOptions { drop_lost: false, cut_journal: false, ..options.clone() };
    let Some(offline) = Offline::open(root, &options, &mut found)? else {
        return Ok(unfinished(found));
    };
    let tables = examine(&offline.image, &offline.ground, &options, &mut found, progress)?;
    finish(&offline.image, &offline.ground, &tables, found)
}

/// Looks at a volume that is not mounted, and puts right what can be. The report has what was found before.
///
/// # Errors
/// As [`check`]; nothing was changed then, or a part of what follows the metadata's one change, which the next repair completes.
pub fn repair(
    root: &Path,
    options: &FsckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, VolumeError> {
    let mut found = Found::default();
    let Some(mut offline) = Offline::open(root, options, &mut found)? else {
        return Ok(unfinished(found));
    };
    let opening = std::mem::take(&mut found.files);
    let tables = examine(&offline.image, &offline.ground, options, &mut found, progress)?;
    let cuts = offline.cut.is_some();
    let may = offline.repairable && (found.has_fixes() || !opening.is_empty() || cuts);
    let (mut rows, mut files) = (found.rows.clone(), found.files.clone());
    let mut report = finish(&offline.image, &offline.ground, &tables, found)?;
    if !may {
        return Ok(report);
    }
    let mut plan = rows.clone();
    let metadata_only = FsckOptions { data: false, ..options.clone() };
    for walk in 0.. {
        if rows.is_empty() {
            break;
        }
        if walk == WALKS_MAX {
            let detail = "what is wrong with it contradicts itself; nothing was repaired".to_owned();
            return Err(VolumeError::Damaged { path: root.to_owned(), detail });
        }
        offline.image.overlay.append(&mut rows);
        let mut again = Found::default();
        examine(&offline.image, &offline.ground, &metadata_only, &mut again, progress)?;
        plan.extend(again.rows.clone());
        (rows, files) = (again.rows, again.files);
    }
    files.extend(opening);
    report.repaired = (plan.len() + files.len() + usize::from(cuts)) as u64;
    mend::carry_out(offline, &plan, &files)?;
    Ok(report)
}

impl Volume {
    /// Looks at this volume while it is in use. Takes a checkpoint first; after that nobody waits for the check.
    ///
    /// # Errors
    /// [`VolumeError`] of the checkpoint, or of a disk that cannot be read.
    pub fn fsck(
        &self,
        options: &FsckOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report, VolumeError> {
        self.checkpoint_now()?;
        let image = Image::new(Arc::new(self.engine.frozen()?));
        let ground = Ground {
            paths: self.paths.clone(),
            config: self.config.clone(),
            store: Ok(self.store.clone()),
            epoch: self.epoch,
            live: Some(self),
        };
        let mut found = Found::default();
        let options = FsckOptions { drop_lost: false, ..options.clone() };
        let tables = examine(&image, &ground, &options, &mut found, progress)?;
        finish(&image, &ground, &tables, found)
    }
}

fn examine(
    image: &Image,
    ground: &Ground<'_>,
    options: &FsckOptions,
    found: &mut Found,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tables, VolumeError> {
    let mut tables = Tables::load(image, found, progress)?;
    for view in tables.views() {
        Tree::check(image, &view, ground.config.block_size, &mut tables, found)?;
        progress(Progress::Inodes(found.counts.inodes));
    }
    let footers = options.data || ground.config.store.is_none();
    let lost = Segments::check(ground, &tables, footers, found, progress)?;
    let corrupt = match options.data {
        true => bytes::verify(ground, image, &tables, &lost, found, progress)?,
        false => bytes::Corrupt::new(),
    };
    if options.drop_lost {
        bytes::drop_lost(image, &lost, &corrupt, found)?;
    }
    Ok(tables)
}

fn finish(image: &Image, ground: &Ground<'_>, tables: &Tables, found: Found) -> Result<Report, VolumeError> {
    let findings = names::tell(image, &tables.views(), found.drafts)?;
    let volume = ground.config.id.to_string();
    Ok(Report { volume, findings, counts: found.counts, complete: true, repaired: 0 })
}

fn unfinished(found: Found) -> Report {
    let findings = found.drafts.into_iter().map(|draft| draft.finding).collect();
    Report { volume: String::new(), findings, counts: found.counts, complete: false, repaired: 0 }
}
