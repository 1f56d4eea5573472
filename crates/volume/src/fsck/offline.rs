//! A volume that is not open, as opening it would find it. Nothing on its disk is changed: the metadata engine, which writes when it is
//! opened, is opened on a copy, and the journal is replayed into memory.

use std::{
    fs::{self, DirBuilder, File},
    io::ErrorKind as IoKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_data::{DataError, Journal, Replay, ReplayError, Replayed};
use forebay_env::FileLock;
use forebay_format::{
    key::Key,
    record::{Changes, StreamRun},
    row::{AppliedRow, CountersRow, Row, SegmentRow},
    run,
};
use forebay_meta::{EmbeddedEngine, Engine};
use forebay_object::{ObjectStore, StoreOptions};
use forebay_types::{Encryption, Epoch, SegmentId, Sequence};
use rustc_hash::FxHashMap;

use super::{
    FsckOptions,
    found::{About, FileFix, Found},
    ground::{Ground, Staged, list},
    image::{Image, Overlay},
    report::Severity,
};
use crate::{
    VolumeConfig, VolumePaths,
    error::{VolumeError, io_error},
};

pub(super) const EPOCH_FILE: &str = "epoch";
/// How often it is tried to remove the copy of the engine, whose threads may still end.
const REMOVALS: u32 = 10;

/// A volume that nobody has open, nor can open while this lives.
pub(super) struct Offline {
    pub(super) image: Image,
    pub(super) ground: Ground<'static>,
    /// The position as the engine has it.
    pub(super) applied: AppliedRow,
    /// The last record of the journal.
    pub(super) last: Sequence,
    /// Whether the journal could be read, so that what was found may be put right.
    pub(super) repairable: bool,
    /// What of the journal is to be cut off.
    pub(super) cut: Option<Replay>,
    _scratch: Scratch,
    _lock: Option<FileLock>,
}

/// A directory that is gone when this is.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() != IoKind::NotFound => {}
                _ => return,
            }
        }
        tracing::warn!("cannot remove '{}'", self.0.display());
    }
}

impl Offline {
    /// `None` where so much is wrong that nothing more can be looked at; the findings tell.
    pub(super) fn open(
        root: &Path,
        options: &FsckOptions,
        found: &mut Found,
    ) -> Result<Option<Offline>, VolumeError> {
        let Some(config) = config(root, found)? else { return Ok(None) };
        let paths = VolumePaths::new(root);
        let lock = lock(&paths, found)?;
        if !directories(&paths, found) {
            return Ok(None);
        }
        check_key(&config, &paths, found);
        let store = config
            .store_url(&paths)
            .and_then(|url| ObjectStore::open(&url, &store_options(&config)).map_err(VolumeError::from));
        let store = store.map_err(|error| error.to_string());
        let mut ground = Ground { paths, config, store, epoch: Epoch::default(), live: None };
        ground.epoch = epoch(root, &ground, found)?;
        let scratch = copy_engine(&ground.paths.meta(), options.scratch.as_deref())?;
        let engine: Arc<dyn Engine> = match EmbeddedEngine::open(&scratch.0) {
            Ok(engine) => Arc::new(engine),
            Err(error) => {
                let message = format!("the metadata cannot be opened ({error})");
                found.add(Severity::Loss, "engine-damaged", About::default(), message, None);
                return Ok(None);
            }
        };
        let mut image = Image::new(engine);
        let Some(applied) = applied(&image, found)? else { return Ok(None) };
        let replayed = replay(&mut image, &ground, applied.sequence, options, found)?;
        let repairable = replayed.is_some();
        let last = replayed.as_ref().map_or(applied.sequence, |replay| replay.last);
        let cut = replayed.filter(|replay| replay.dropped.is_some());
        Ok(Some(Offline { image, ground, applied, last, repairable, cut, _scratch: scratch, _lock: lock }))
    }
}

fn config(root: &Path, found: &mut Found) -> Result<Option<VolumeConfig>, VolumeError> {
    let detail = match VolumeConfig::read(root) {
        Ok(config) => return Ok(Some(config)),
        Err(VolumeError::NotAVolume { .. }) if root.join("meta").is_dir() => "is not there".to_owned(),
        Err(VolumeError::Damaged { detail, .. }) => format!("is damaged: {detail}"),
        Err(error) => return Err(error),
    };
    let message =
        format!("'forebay.volume' {detail}; put it back from a copy, nothing can be looked at without it");
    found.add(Severity::Loss, "volume-file", About::default(), message, None);
    Ok(None)
}

fn lock(paths: &VolumePaths, found: &mut Found) -> Result<Option<FileLock>, VolumeError> {
    let path = paths.lock();
    let file = match File::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == IoKind::NotFound => {
            let message = "the file that keeps two openings apart is not there".to_owned();
            found.add(Severity::Damage, "lock-missing", About::default(), message, Some("makes it"));
            found.files.push(FileFix::Touch(path));
            return Ok(None);
        }
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let lock = FileLock::take(file).map_err(io_error("lock", &path))?;
    let in_use = || VolumeError::InUse { path: paths.root.clone(), by: String::new() };
    lock.map(Some).ok_or_else(in_use)
}

/// Whether there is metadata to look at.
fn directories(paths: &VolumePaths, found: &mut Found) -> bool {
    for dir in [paths.journal(), paths.staging()] {
        if !dir.is_dir() {
            let message = format!("the directory '{}' is not there", dir.display());
            found.add(Severity::Damage, "directory-missing", About::default(), message, Some("makes it"));
            found.files.push(FileFix::Directory(dir));
        }
    }
    if !paths.meta().is_dir() {
        let message = format!("the directory '{}' with the metadata is not there", paths.meta().display());
        found.add(Severity::Loss, "engine-damaged", About::default(), message, None);
        return false;
    }
    true
}

fn check_key(config: &VolumeConfig, paths: &VolumePaths, found: &mut Found) {
    if config.encryption == Encryption::None {
        return;
    }
    let wrong = match fs::read_to_string(paths.key()) {
        Err(error) => Some(format!("cannot be read: {error}")),
        Ok(text) => {
            let sum = |digits: &str| format!("crc32c {:08x}", crc32c::crc32c(digits.as_bytes()));
            let right = text
                .split_once('\n')
                .is_some_and(|(digits, found)| digits.len() == 64 && found.trim_end() == sum(digits));
            (!right).then(|| "is damaged".to_owned())
        }
    };
    if let Some(wrong) = wrong {
        let message = format!(
            "the key '{}' {wrong}; put it back from a copy, no data can be read without it",
            paths.key().display()
        );
        found.add(Severity::Loss, "key", About::default(), message, None);
    }
}

/// The epoch of the last opening; 0 where there was none.
fn epoch(root: &Path, ground: &Ground<'_>, found: &mut Found) -> Result<Epoch, VolumeError> {
    let path = root.join(EPOCH_FILE);
    match fs::read(&path) {
        Ok(bytes) => match String::from_utf8_lossy(&bytes).trim().parse() {
            Ok(number) => Ok(Epoch(number)),
            Err(_) => {
                let epoch = ground.journal_epoch()?;
                let message = format!("'{}' is not a number", path.display());
                let what = "writes the highest epoch that was there";
                found.add(Severity::Damage, "epoch-unreadable", About::default(), message, Some(what));
                found.files.push(FileFix::Epoch(epoch.0));
                Ok(epoch)
            }
        },
        Err(error) if error.kind() == IoKind::NotFound => Ok(Epoch::default()),
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

fn store_options(config: &VolumeConfig) -> StoreOptions {
    StoreOptions {
        endpoint: config.endpoint.clone(),
        region: config.region.clone(),
        ..StoreOptions::default()
    }
}

fn copy_engine(meta: &Path, place: Option<&Path>) -> Result<Scratch, VolumeError> {
    let place = place.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let bits: [u8; 8] = forebay_env::random().map_err(io_error("draw random bits for", &place))?;
    let dir = place.join(format!("forebay-fsck-{:016x}", u64::from_le_bytes(bits)));
    DirBuilder::new().mode(0o700).create(&dir).map_err(io_error("make", &dir))?;
    let scratch = Scratch(dir);
    copy_tree(meta, &scratch.0)?;
    Ok(scratch)
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), VolumeError> {
    for entry in fs::read_dir(from).map_err(io_error("list", from))? {
        let path = entry.map_err(io_error("list", from))?.path();
        let Some(name) = path.file_name().filter(|name| *name != EmbeddedEngine::RESERVE) else { continue };
        let target = to.join(name);
        if path.is_dir() {
            DirBuilder::new().mode(0o700).create(&target).map_err(io_error("make", &target))?;
            copy_tree(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(io_error("copy", &path))?;
        }
    }
    Ok(())
}

fn applied(image: &Image, found: &mut Found) -> Result<Option<AppliedRow>, VolumeError> {
    let value = image.get(&Key::Applied.encode())?;
    let wrong = match value.as_deref().map(AppliedRow::decode) {
        Some(Ok(row)) => return Ok(Some(row)),
        Some(Err(error)) => error.to_string(),
        None => "it is not there".to_owned(),
    };
    let message = format!("how much of the journal the metadata contains cannot be told ({wrong})");
    found.add(Severity::Loss, "applied-position", About::default(), message, None);
    Ok(None)
}

/// Puts what the metadata does not contain yet on top of the image. Returns what the replay found; `None` where the journal cannot be read.
fn replay(
    image: &mut Image,
    ground: &Ground<'_>,
    applied: Sequence,
    options: &FsckOptions,
    found: &mut Found,
) -> Result<Option<Replay>, VolumeError> {
    let dir = ground.paths.journal();
    let mut streams: FxHashMap<SegmentId, Staged> = FxHashMap::default();
    for (id, _) in list(&ground.paths.staging(), "seg")? {
        if let Some(staged) = ground.staged(id)? {
            streams.insert(id, staged);
        }
    }
    let mut stream_ok =
        |run: &StreamRun| streams.get(&run.segment).is_some_and(|staged| has(ground, staged, run));
    let mut records = 0;
    let mut on_top = Overlay::new();
    let mut visit = |record: Replayed<'_>| -> Result<(), VolumeError> {
        if record.fresh {
            records += 1;
            apply(image, &mut on_top, record.changes)?;
        }
        Ok(())
    };
    let elsewhere = ground.config.store.is_some();
    let replayed = match options.cut_journal && !elsewhere {
        true => Journal::salvage(&dir, ground.config.id, applied, &mut stream_ok, &mut visit),
        false => Journal::replay(&dir, ground.config.id, applied, &mut stream_ok, &mut visit),
    };
    found.counts.records = records;
    let (code, message) = match replayed {
        Ok(replay) => {
            image.overlay = on_top;
            tell(&replay, found);
            return Ok(Some(replay));
        }
        Err(ReplayError::Data(error @ DataError::JournalGap { .. })) => ("journal-gap", error.to_string()),
        Err(ReplayError::Data(error @ DataError::Format { .. })) => ("journal-damaged", error.to_string()),
        Err(ReplayError::Data(error)) => return Err(error.into()),
        Err(ReplayError::Visit { source, .. }) => return Err(source),
    };
    found.add(Severity::Loss, code, About::default(), message, None);
    Ok(None)
}

/// Tells of what cannot be read in the journal.
fn tell(replay: &Replay, found: &mut Found) {
    for damage in &replay.damages {
        let about = About::segment(damage.segment);
        found.add(Severity::Untidy, "journal-record", about, damage.to_string(), None);
    }
    if let Some(dropped) = &replay.dropped {
        let what = format!(
            "gives up record {} and all after it, of which {} are whole",
            dropped.needed, dropped.records
        );
        found.add(
            Severity::Loss,
            "journal-gap",
            About::default(),
            dropped.reason.clone(),
            Some(what.as_str()),
        );
    }
}

fn has(ground: &Ground<'_>, staged: &Staged, wanted: &StreamRun) -> bool {
    let listed = staged.runs.iter().any(|run| {
        run.run_offset == wanted.run_offset
            && (run.stored_len, run.run_len) == (wanted.stored_len, wanted.run_len)
            && (run.form, run.check) == (wanted.form, wanted.check)
    });
    let mut stored = vec![0; wanted.stored_len as usize];
    let path = ground.staged_path(wanted.segment);
    let read = || {
        let file = File::open(&path)?;
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut stored, wanted.run_offset)?;
        Ok::<_, std::io::Error>(run::verify(&stored, wanted.form, wanted.run_len, wanted.check).is_ok())
    };
    listed && { read }().unwrap_or(false)
}

/// One record, as the namespace takes it in: its rows, then its live bytes, on segments that are known.
fn apply(image: &Image, on_top: &mut Overlay, changes: Changes) -> Result<(), VolumeError> {
    let mut highest = 0;
    for (key, value) in changes.rows {
        if let Ok(Key::Segment(id)) = Key::decode(&key) {
            highest = highest.max(id.0);
        }
        on_top.insert(key, value);
    }
    let get = |on_top: &Overlay, key: &[u8]| match on_top.get(key) {
        Some(value) => Ok(value.clone()),
        None => image.get(key),
    };
    for (segment, bytes) in changes.live {
        let key = Key::Segment(segment).encode();
        let value = get(on_top, &key)?;
        if let Some(Ok(mut row)) = value.map(|value| SegmentRow::decode(&value)) {
            row.live = row.live.saturating_add_signed(bytes);
            on_top.insert(key, Some(row.encode()));
        }
    }
    let key = Key::Counters.encode();
    if let Some(Ok(mut row)) = get(on_top, &key)?.map(|value| CountersRow::decode(&value))
        && row.segment <= highest
    {
        row.segment = highest + 1;
        on_top.insert(key, Some(row.encode()));
    }
    Ok(())
}
