//! The bytes of files: every run that an extent refers to is read and its checksums are verified. And what becomes of extents
//! whose bytes are lost, where this was asked for.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    footer::RunEntry,
    key::{Item, Key},
    row::{Extent, InodeRow, Layout, Row, TOMBSTONE},
    run,
};
use forebay_types::{Ino, SegmentId, SubvolumeId};

use super::{
    Progress,
    found::{About, Found},
    ground::Ground,
    image::Image,
    report::{Finding, Severity},
    tables::{Tables, extent_of},
};
use crate::error::VolumeError;

/// A run, by its place.
type Run = (SegmentId, u64);

/// Runs whose bytes are not what was written.
pub(super) type Corrupt = BTreeSet<Run>;

#[derive(Debug)]
struct Wanted {
    extent: Extent,
    files: BTreeSet<(SubvolumeId, Ino)>,
}

/// Reads and verifies all runs, but for those of `lost` segments, which were told of already.
pub(super) fn verify(
    ground: &Ground<'_>,
    image: &Image,
    tables: &Tables,
    lost: &BTreeMap<SegmentId, u64>,
    found: &mut Found,
    progress: &mut dyn FnMut(Progress),
) -> Result<Corrupt, VolumeError> {
    let mut wanted: BTreeMap<Run, Wanted> = BTreeMap::new();
    each_extent(image, &mut |_, subvolume, item, extent| {
        let (Item::Inode(ino) | Item::Extent(ino, ..)) = item else { return };
        let readable = lost.get(&extent.segment).is_none_or(|end| ends(extent) <= *end);
        if readable && tables.segments.contains_key(&extent.segment) {
            let run = wanted.entry((extent.segment, extent.run_offset));
            let run = run.or_insert_with(|| Wanted { extent: *extent, files: BTreeSet::new() });
            if run.files.len() < Finding::FILES_MAX {
                run.files.insert((subvolume, *ino));
            }
        }
    })?;
    let total = wanted.values().map(|wanted| u64::from(wanted.extent.stored_len)).sum();
    let mut corrupt = Corrupt::new();
    for (place, Wanted { extent, files }) in wanted {
        let Some(row) = tables.segments.get(&place.0) else { continue };
        let read = ground.read(place.0, row, place.1, extent.stored_len);
        let verified = read.and_then(|bytes| {
            run::verify(&bytes, extent.form, extent.run_len, extent.check).map_err(|error| error.to_string())
        });
        if let Err(detail) = verified
            && still_wanted(ground, &place)
        {
            let message =
                format!("{} bytes of data in the run at {} cannot be had: {detail}", extent.run_len, place.1);
            let about = About::segment(place.0).in_object(row.object).with_files(files.into_iter().collect());
            found.add(Severity::Loss, "data-corrupt", about, message, None);
            corrupt.insert(place);
        }
        found.counts.data_bytes += u64::from(extent.stored_len);
        progress(Progress::Data { done: found.counts.data_bytes, total });
    }
    Ok(corrupt)
}

/// In an open volume a segment that is gone meanwhile was not needed any more.
fn still_wanted(ground: &Ground<'_>, place: &Run) -> bool {
    ground.live.is_none_or(|volume| volume.ns.segment(place.0).is_some())
}

fn ends(extent: &Extent) -> u64 {
    extent.run_offset.saturating_add(u64::from(extent.stored_len))
}

/// Is given the key of the row, the subvolume, what the row is about, and the extent.
type Visit<'a> = dyn FnMut(&[u8], SubvolumeId, &Item, &Extent) + 'a;

fn each_extent(image: &Image, visit: &mut Visit<'_>) -> Result<(), VolumeError> {
    let mut rows = image.rows(&[]);
    while let Some((key, value)) = rows.next_row()? {
        let Ok(Key::Versioned(subvolume, item, _)) = Key::decode(&key) else { continue };
        if value == TOMBSTONE || !matches!(item, Item::Inode(_) | Item::Extent(..)) {
            continue;
        }
        if let Ok(Some((_, _, extent))) = extent_of(&item, &value) {
            visit(&key, subvolume, &item, &extent);
        }
    }
    Ok(())
}

/// Makes holes of extents whose bytes are lost, in every generation.
pub(super) fn drop_lost(
    image: &Image,
    lost: &BTreeMap<SegmentId, u64>,
    corrupt: &Corrupt,
    found: &mut Found,
) -> Result<(), VolumeError> {
    let mut doomed = Vec::new();
    each_extent(image, &mut |key, _, item, extent| {
        let gone = lost.get(&extent.segment).is_some_and(|end| ends(extent) > *end);
        if gone || corrupt.contains(&(extent.segment, extent.run_offset)) {
            doomed.push((key.to_vec(), matches!(item, Item::Inode(_))));
        }
    })?;
    for (key, in_inode) in doomed {
        if !in_inode {
            found.rows.insert(key, Some(TOMBSTONE.to_vec()));
            continue;
        }
        let planned = found.rows.get(&key).cloned().flatten();
        let value = if planned.is_some() { planned } else { image.get(&key)? };
        if let Some(Ok(mut row)) = value.map(|value| InodeRow::decode(&value)) {
            (row.layout, row.allocated) = (Layout::Empty, 0);
            found.rows.insert(key, Some(row.encode()));
        }
    }
    Ok(())
}

/// All extents that refer to a segment, with what a footer says of them.
pub(super) fn runs_of(image: &Image, segment: SegmentId) -> Result<Vec<RunEntry>, VolumeError> {
    let mut runs = Vec::new();
    let mut rows = image.rows(&[]);
    while let Some((key, value)) = rows.next_row()? {
        let Ok(Key::Versioned(subvolume, item, generation)) = Key::decode(&key) else { continue };
        let (Item::Inode(ino) | Item::Extent(ino, ..)) = item else { continue };
        if value == TOMBSTONE {
            continue;
        }
        let Ok(Some((block, offset, extent))) = extent_of(&item, &value) else { continue };
        if extent.segment != segment {
            continue;
        }
        runs.push(RunEntry {
            subvolume,
            generation,
            ino,
            block,
            offset: offset.saturating_sub(extent.skip),
            run_len: extent.run_len,
            run_offset: extent.run_offset,
            stored_len: extent.stored_len,
            form: extent.form,
            check: extent.check,
        });
    }
    runs.sort_unstable_by_key(|run| (run.run_offset, run.subvolume, run.ino, run.block));
    runs.dedup_by_key(|run| (run.run_offset, run.subvolume, run.ino, run.block));
    Ok(runs)
}
