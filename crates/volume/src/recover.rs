//! Bringing a volume back from its bucket alone, after the machine that had it is lost.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_format::row::{ObjectRef, SegmentKind, SegmentState};
use forebay_meta::EmbeddedEngine;
use forebay_object::{Backend, ErrorKind, ObjectStore, StoreUrl};
use forebay_reading::{DATA, object_key, parse_key};
use forebay_types::{Encryption, Epoch, Sequence, VolumeId};
use rustc_hash::FxHashSet;

use crate::{
    OpenOptions, Volume, VolumeConfig, VolumePaths,
    create::{clear, make_lock_file, store_options, sync_name, sync_tree, vacant},
    error::{VolumeError, io_error},
    open::{Takeover, keys, write_epoch},
    remote::{self, CONFIG, OWNER, Owner, Remote, Successor},
};

/// How a volume is brought back.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// The endpoint of the store's service; `None`: the one that the volume was made with.
    pub endpoint: Option<String>,
    /// The region of the store; `None`: the one that the volume was made with.
    pub region: Option<String>,
    /// A copy of the file `key` of the lost directory: needed for an encrypted volume.
    pub key: Option<PathBuf>,
    /// The store itself, where it is not to be opened by its address: for tests.
    pub store: Option<ObjectStore>,
}

/// How recovery goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoverProgress {
    /// Bytes read from the bucket so far.
    pub bytes: u64,
}

/// What recovery brought back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoverReport {
    /// The volume.
    pub id: VolumeId,
    /// The machine that had it.
    pub former_host: String,
    /// The epoch of the new owner, above the former one's.
    pub epoch: Epoch,
    /// The last record that was found: everything up to it is there, nothing after it.
    pub last: Sequence,
    /// Of these, the records that came as rows; those after it came as journal.
    pub checkpoint: Sequence,
    /// Pieces of the journal that were read.
    pub chunks: u64,
    /// Bytes read from the bucket.
    pub bytes: u64,
    /// Segments and objects that files refer to and that are not in the bucket, in words. Empty unless the bucket is damaged.
    pub missing: Vec<String>,
}

/// Makes the directory `root`, which must be missing or empty, the volume that is in the bucket at `url`, and this machine its owner: the one that had it
/// is fenced from the moment on in which its successor is written. Everything that an fsync of class `object` answered for is there; of class `local`,
/// everything up to some seconds before the end ([`crate::SHIP_INTERVAL`]).
///
/// # Errors
/// [`VolumeError`]; nothing is left in `root` then. The former owner may be fenced all the same.
pub fn recover(
    root: &Path,
    url: &StoreUrl,
    options: &RecoverOptions,
    progress: &mut dyn FnMut(RecoverProgress),
) -> Result<RecoverReport, VolumeError> {
    let made = vacant(root)?;
    let result = fill(root, url, options, progress);
    if result.is_err() {
        clear(root, made);
    }
    result
}

fn fill(
    root: &Path,
    url: &StoreUrl,
    options: &RecoverOptions,
    progress: &mut dyn FnMut(RecoverProgress),
) -> Result<RecoverReport, VolumeError> {
    let paths = VolumePaths::new(root);
    let (store, config) = look(url, options)?;
    take_key(&config, &paths, options)?;
    let (_, keyring) = keys(&config, &paths)?;
    remote::try_keys(&store, config.id, &keyring)?;
    for dir in [paths.meta(), paths.journal(), paths.staging()] {
        DirBuilder::new().mode(0o700).create(&dir).map_err(io_error("make", &dir))?;
    }
    make_lock_file(&paths)?;
    let former = Owner::read(&store)?.0.host;
    let begin = |epoch| write_epoch(root, epoch);
    let fence = remote::take(&store, config.id, root, Successor::OfAnybody, Epoch(0), &begin)?;
    let engine = EmbeddedEngine::open(&paths.meta())?;
    let mut told = |bytes| progress(RecoverProgress { bytes });
    let from = (&store, config.id, fence.epoch());
    let mut restored = remote::restore(from, &keyring, &paths, &engine, &mut told)?;
    drop(engine);
    let objects = objects(&store)?;
    // A chunk may name one of which the record is lost; and one that nothing names keeps its number, too.
    restored.highest_object = objects.iter().map(|object| object.id.0).max().unwrap_or_default();
    sync_tree(&paths.meta())?;
    let (epoch, checkpoint) = (fence.epoch(), restored.applied);
    let (chunks, bytes) = (restored.chunks, restored.bytes);
    let takeover = Takeover { fence, restored, config: config.clone() };
    let open = OpenOptions {
        background: false,
        cache_size: 0,
        store: Some(store.clone()),
        ..OpenOptions::default()
    };
    let volume = Volume::open_as(root, &open, Some(takeover))?;
    let last = volume.remote.as_ref().map(Remote::replayed).unwrap_or_default();
    let missing = missing(&volume, &objects);
    volume.ns.record_numbers()?;
    volume.checkpoint_now()?;
    // Last: what was restored is known to this process only until the checkpoint is stored. Before that, this directory is no volume.
    config.write(root)?;
    sync_name(root)?;
    Ok(RecoverReport { id: config.id, former_host: former, epoch, last, checkpoint, chunks, bytes, missing })
}

/// Opens the store and reads what the volume is.
fn look(url: &StoreUrl, options: &RecoverOptions) -> Result<(ObjectStore, VolumeConfig), VolumeError> {
    let place = Path::new(CONFIG);
    let open = |endpoint: &Option<String>, region: &Option<String>| match &options.store {
        Some(store) => Ok(store.clone()),
        None => {
            let (endpoint, region) = (endpoint.clone(), region.clone());
            let base = store_options(None, false);
            ObjectStore::open(url, &forebay_object::StoreOptions { endpoint, region, ..base })
        }
    };
    let store = open(&options.endpoint, &options.region)?;
    let (text, _) = store.get(CONFIG).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            VolumeError::Option(format!("there is no volume in {url}: it has no {CONFIG} (nor {OWNER})"))
        }
        _ => error.into(),
    })?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| VolumeError::Damaged { path: place.to_owned(), detail: "it is not text".to_owned() })?;
    let mut config = VolumeConfig::from_text(text, place)?;
    config.store = Some(url.to_string());
    config.endpoint = options.endpoint.clone().or(config.endpoint);
    config.region = options.region.clone().or(config.region);
    Ok((open(&config.endpoint, &config.region)?, config))
}

fn take_key(config: &VolumeConfig, paths: &VolumePaths, options: &RecoverOptions) -> Result<(), VolumeError> {
    if config.encryption == Encryption::None {
        return Ok(());
    }
    let Some(key) = &options.key else {
        let message = format!(
            "volume {} is encrypted: give a copy of the file 'key' of its lost directory (--key); without it nothing can be read",
            config.id
        );
        return Err(VolumeError::Option(message));
    };
    let text = fs::read(key).map_err(io_error("read the key in", key))?;
    let path = paths.key();
    crate::create::write_private(&path, &text)
}

/// The objects of data that the bucket has.
fn objects(store: &ObjectStore) -> Result<FxHashSet<ObjectRef>, VolumeError> {
    Ok(remote::list(store, DATA)?.into_iter().filter_map(|meta| parse_key(&meta.key)).collect())
}

/// What files refer to and is neither among `objects`, which the bucket has, nor here.
fn missing(volume: &Arc<Volume>, objects: &FxHashSet<ObjectRef>) -> Vec<String> {
    let journal: FxHashSet<_> = volume.journal.files().iter().map(|file| file.segment).collect();
    let staged: FxHashSet<_> = volume.streams.segments().into_iter().collect();
    let mut missing = Vec::new();
    for (id, row) in volume.ns.segments() {
        let there = match (row.kind, row.state, row.object) {
            (SegmentKind::Journal, ..) => journal.contains(&id),
            (_, SegmentState::Stored, Some(object)) => objects.contains(&object),
            _ => staged.contains(&id),
        };
        if !there && row.live > 0 {
            let object = row.object.map(object_key).unwrap_or_default();
            missing.push(format!("segment {id} {object} ({} bytes in use)", row.live));
        }
    }
    missing.sort_unstable();
    missing
}
