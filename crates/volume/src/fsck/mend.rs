//! Putting right what was found. The plan is made in memory. It reaches the metadata as one checkpoint; where the store is elsewhere, as one record
//! of the journal, because then a copy of the metadata in the bucket follows the journal.
//!
//! Order that must hold: the journal and what it names are synced before the engine gets a checkpoint that contains them; the journal is cut, and
//! files and objects are removed, only after the change of the rows. So a stop anywhere leaves the volume as it was or as it is to be, and
//! files that the next repair finds again.

use std::{
    fs::{self, DirBuilder, File},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use forebay_data::Journal;
use forebay_env::durable::{Point, replace_file, sync_dir, sync_file};
use forebay_format::{
    footer::{Footer, SegmentEntry},
    key::Key,
    row::{AppliedRow, Row, SegmentRow},
};
use forebay_meta::{Batch, EmbeddedEngine, Engine, Outcome};
use forebay_object::Backend;
use forebay_reading::object_key;
use forebay_types::SegmentId;

use super::{
    bytes,
    found::FileFix,
    ground::{Ground, list},
    image::Overlay,
    offline::{EPOCH_FILE, Offline},
};
use crate::{
    OpenOptions, Volume,
    error::{VolumeError, io_error},
};

/// What a segment is said to have in use besides what it has, until the record that repairs it comes: so nothing takes it for dead.
const UNTOUCHABLE: u64 = 1 << 40;

/// Makes the image of `offline`, whose overlay has the journal's rows and the `rows` of the plan, the volume's metadata, and carries out
/// `files`.
pub(super) fn carry_out(mut offline: Offline, rows: &Overlay, files: &[FileFix]) -> Result<(), VolumeError> {
    for fix in files {
        before(&offline, fix)?;
    }
    let deletes = files.iter().any(|fix| matches!(fix, FileFix::Delete(_)));
    if offline.ground.config.store.is_some() && (deletes || !rows.is_empty()) {
        return by_record(offline, rows, files);
    }
    if !rows.is_empty() {
        sync_all(&offline.ground)?;
        checkpoint(&offline)?;
    }
    if let Some(replay) = offline.cut.take() {
        Journal::cut(replay, &offline.ground.paths.journal())?;
    }
    files.iter().try_for_each(|fix| after(&offline.ground, fix))
}

/// Opens the volume, so that it is this machine's, and puts the rows in a record. First the engine gets those that opening needs.
fn by_record(offline: Offline, rows: &Overlay, files: &[FileFix]) -> Result<(), VolumeError> {
    let root = offline.ground.paths.root.clone();
    let mut first = Vec::new();
    let mut record = Vec::new();
    for (key, value) in rows {
        match Key::decode(key) {
            Err(_) => first.push((key.clone(), value.clone())),
            Ok(Key::Segment(_)) => {
                let row = value.as_deref().and_then(|value| SegmentRow::decode(value).ok());
                let row = row.map(|row| SegmentRow { live: row.live.saturating_add(UNTOUCHABLE), ..row });
                first.push((key.clone(), row.map(|row| row.encode())));
                record.push((key.clone(), value.clone()));
            }
            Ok(Key::Subvolume(_) | Key::Counters) => {
                first.push((key.clone(), value.clone()));
                record.push((key.clone(), value.clone()));
            }
            Ok(_) => record.push((key.clone(), value.clone())),
        }
    }
    if !first.is_empty() {
        commit(&offline, first)?;
    }
    drop(offline);
    let volume = Volume::open(&root, &OpenOptions { background: false, ..OpenOptions::default() })?;
    if !record.is_empty() {
        volume.ns.repair(record)?;
        volume.checkpoint_now()?;
    }
    for fix in files {
        match fix {
            FileFix::Delete(object) => volume.store.delete(&object_key(*object))?,
            FileFix::Remove(path) => remove(path)?,
            _ => {}
        }
    }
    volume.close()
}

/// What has to be there for the volume to be opened, or takes nothing away.
fn before(offline: &Offline, fix: &FileFix) -> Result<(), VolumeError> {
    let root = &offline.ground.paths.root;
    match fix {
        FileFix::Epoch(epoch) => {
            let text = format!("{epoch}\n");
            replace_file(root, EPOCH_FILE, text.as_bytes(), Point::VOLUME_DATA, Point::VOLUME_NAME)
                .map_err(io_error("write", &root.join(EPOCH_FILE)))
        }
        FileFix::Directory(dir) => {
            DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(io_error("make", dir))?;
            sync_dir(root, Point::VOLUME_NAME).map_err(io_error("sync", root))
        }
        FileFix::Touch(path) => {
            let file = File::options().create(true).append(true).open(path);
            sync_file(&file.map_err(io_error("make", path))?, Point::VOLUME_DATA)
                .map_err(io_error("sync", path))?;
            sync_dir(root, Point::VOLUME_NAME).map_err(io_error("sync", root))
        }
        FileFix::Footer(segment, len) => write_footer(offline, *segment, *len),
        FileFix::Remove(_) | FileFix::Delete(_) => Ok(()),
    }
}

fn after(ground: &Ground<'_>, fix: &FileFix) -> Result<(), VolumeError> {
    match fix {
        FileFix::Remove(path) => remove(path),
        FileFix::Delete(object) => match &ground.store {
            Ok(store) => Ok(store.delete(&object_key(*object))?),
            Err(error) => Err(VolumeError::Option(error.clone())),
        },
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

fn write_footer(offline: &Offline, segment: SegmentId, len: u64) -> Result<(), VolumeError> {
    let path = offline.ground.staged_path(segment);
    let runs = bytes::runs_of(&offline.image, segment)?;
    let entry = SegmentEntry { id: segment, offset: 0, len, runs };
    let footer = Footer { volume: offline.ground.config.id, segments: vec![entry] };
    let mut encoded = Vec::new();
    footer.encode_to(&mut encoded);
    let mut file = File::options().write(true).open(&path).map_err(io_error("open", &path))?;
    file.set_len(len).map_err(io_error("truncate", &path))?;
    file.seek(SeekFrom::Start(len)).map_err(io_error("seek in", &path))?;
    file.write_all(&encoded).map_err(io_error("write", &path))?;
    sync_file(&file, Point::STREAM_DATA).map_err(io_error("sync", &path))
}

/// What was replayed may have come from the page cache alone.
fn sync_all(ground: &Ground<'_>) -> Result<(), VolumeError> {
    let (journal, staging) = (ground.paths.journal(), ground.paths.staging());
    let places = [
        (&journal, "log", Point::JOURNAL_DATA, Point::JOURNAL_NAME),
        (&staging, "seg", Point::STREAM_DATA, Point::STREAM_NAME),
    ];
    for (dir, extension, data, names) in places {
        for (_, path) in list(dir, extension)? {
            let file = File::open(&path).map_err(io_error("open", &path))?;
            sync_file(&file, data).map_err(io_error("sync", &path))?;
        }
        sync_dir(dir, names).map_err(io_error("sync", dir))?;
    }
    Ok(())
}

fn checkpoint(offline: &Offline) -> Result<(), VolumeError> {
    let key = Key::Applied.encode();
    let epoch = offline.applied.epoch.max(offline.ground.epoch);
    let applied = AppliedRow { sequence: offline.last, epoch };
    let mut rows: Vec<_> = offline.image.overlay.clone().into_iter().collect();
    rows.retain(|(found, _)| *found != key);
    rows.push((key, Some(applied.encode())));
    commit(offline, rows)
}

fn commit(offline: &Offline, rows: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<(), VolumeError> {
    let paths = &offline.ground.paths;
    let engine = EmbeddedEngine::open(&paths.meta())?;
    let expect = vec![(Key::Applied.encode(), Some(offline.applied.encode()))];
    match engine.commit(&Batch { expect, ..Batch::of(&rows) })? {
        Outcome::Committed => Ok(()),
        Outcome::Fenced | Outcome::Unknown => {
            let detail = "the metadata was changed meanwhile".to_owned();
            Err(VolumeError::Damaged { path: paths.meta(), detail })
        }
    }
}
