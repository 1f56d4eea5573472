//! Opening a volume: from what is on disk after any kind of stop to a running one.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use forebay_cache::ReadAhead;
use forebay_data::{DataError, Journal, RecoveredStream, ReplayError, RunReader, Streams};
use forebay_env::{
    Clock, FileLock, SystemClock,
    durable::{self, Point},
};
use forebay_format::{
    Keyring, MasterKey, RunSealer,
    row::{SegmentKind, SegmentRow, SegmentState},
};
use forebay_meta::{EmbeddedEngine, Engine, MetaError, Namespace};
use forebay_object::{Backend, ObjectStore, StoreUrl};
use forebay_reading::ObjectReader;
use forebay_types::{Encryption, Epoch, Ino, SegmentId, Sequence, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    Volume, VolumeConfig, VolumePaths,
    assembled::{ASSEMBLED_MIN, Assembled},
    create::store_options,
    data_lock::DataLocks,
    error::{VolumeError, io_error},
    journal_log::JournalLog,
    listing::Listing,
    remote::{self, Fence, Opening, Outbox, Remote, Restored, StoredAt, Successor},
    source::Source,
    upkeep::Upkeep,
};

const EPOCH_FILE: &str = "epoch";
/// Bytes of decoded frames that are kept in memory where nothing else was asked for.
const MEMORY_CACHE_DEFAULT: u64 = 128 << 20;

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// Where the cache of a store elsewhere is; `None`: in the volume's directory, and a store that is a directory is read by its files, without a
    /// cache on disk.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the cache may take on disk; 0: there is none.
    pub cache_size: u64,
    /// Bytes on disk that assembled files may take, so that the kernel can read them by itself; 0: there are none. They lie beside
    /// the cache.
    pub assembled_size: u64,
    /// Bytes of the smallest file that is assembled.
    pub assembled_min: u64,
    /// Whether files of an encrypted volume may be assembled too, which puts their plain text on the cache's disk.
    pub assemble_decrypted: bool,
    /// Bytes of decoded frames to keep in memory.
    pub memory_cache: u64,
    /// Whether background work runs by itself. Off in tests that run it step by step.
    pub background: bool,
    /// Inodes that are in use, by whoever took over from the process that had the volume before: those without a name are kept until
    /// [`Volume::purge`].
    pub in_use: Vec<Ino>,
    /// The store itself, where it is not to be opened by the address that the volume has: for tests.
    pub store: Option<ObjectStore>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            cache_dir: None,
            cache_size: 10 << 30,
            assembled_size: 0,
            assembled_min: ASSEMBLED_MIN,
            assemble_decrypted: false,
            memory_cache: MEMORY_CACHE_DEFAULT,
            background: true,
            in_use: Vec::new(),
            store: None,
        }
    }
}

/// What a recovery hands to the first opening of the volume that it brought back.
pub(crate) struct Takeover {
    pub(crate) fence: Fence,
    pub(crate) restored: Restored,
    /// What the volume is: its description is written last.
    pub(crate) config: VolumeConfig,
}

impl Volume {
    /// Opens a volume. What a stop of any kind left is put in order first; that takes as long as reading the journal, whatever the volume
    /// holds.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Fenced`] where another machine has taken the volume over.
    pub fn open(root: &Path, options: &OpenOptions) -> Result<Arc<Volume>, VolumeError> {
        Self::open_as(root, options, None)
    }

    pub(crate) fn open_as(
        root: &Path,
        options: &OpenOptions,
        takeover: Option<Takeover>,
    ) -> Result<Arc<Volume>, VolumeError> {
        let config = match &takeover {
            Some(takeover) => takeover.config.clone(),
            None => VolumeConfig::read(root)?,
        };
        let paths = VolumePaths::new(root);
        let lock = lock(&paths)?;
        for dir in [paths.meta(), paths.journal(), paths.staging()] {
            if !dir.is_dir() {
                return Err(VolumeError::Damaged { path: dir, detail: "the directory is missing".into() });
            }
        }
        let (sealer, keys) = keys(&config, &paths)?;
        let store = match &options.store {
            Some(store) => store.clone(),
            None => ObjectStore::open(&config.store_url(&paths)?, &store_options(Some(&config), false))?,
        };
        let sealer = sealer.map(Arc::new);
        let engine = Arc::new(EmbeddedEngine::open(&paths.meta())?);
        let last_epoch = last_epoch(&paths, &config, &engine)?;
        let (fence, restored) = match takeover {
            Some(Takeover { fence, restored, .. }) => (Some(Arc::new(fence)), restored),
            None => (own(&config, root, &store, last_epoch)?.map(Arc::new), Restored::default()),
        };
        let epoch = match &fence {
            Some(fence) => fence.epoch(),
            None => next_epoch(root, last_epoch)?,
        };
        let log = Arc::new(JournalLog::new(fence.clone(), Arc::clone(&engine)));
        let started = Started::run(&config, &paths, (epoch, log), Arc::clone(&engine), &restored)?;
        let Started { ns, journal, streams } = started;
        let remote = match fence {
            Some(fence) => {
                let outbox = Outbox::open(&paths.outbox())?;
                let (store, sealer, last) = (store.clone(), sealer.clone(), ns.last());
                let (volume, class) = (config.id, config.durability);
                Some(Remote::open(Opening { store, volume, class, sealer, fence, outbox, last })?)
            }
            None => None,
        };
        let objects = Arc::new(objects(&config, &paths, options, &store)?);
        let assembled = Assembled::open(&config, &paths, options)?;
        let parts = (Arc::clone(&ns), Arc::clone(&journal), Arc::clone(&streams));
        let ahead = ReadAhead::new(objects.read_ahead_limit());
        let source = Arc::new(Source::new(parts.0, parts.1, parts.2, objects));
        let segments: Arc<dyn forebay_data::SegmentSource> = Arc::clone(&source) as _;
        let reader = RunReader::new(segments, Arc::new(keys), options.memory_cache);
        let volume = Arc::new(Volume {
            paths,
            config,
            read_only: options.read_only,
            subvolume: SubvolumeId::FIRST,
            epoch,
            ns,
            engine,
            journal,
            streams,
            store,
            source,
            reader,
            ahead,
            sealer,
            remote,
            assembled,
            data_locks: DataLocks::default(),
            listing: Listing::default(),
            upkeep: Upkeep::default(),
            _lock: lock,
        });
        volume.adopt_stored(&restored.stored)?;
        volume.tidy_up_after_stop(&options.in_use)?;
        if options.background {
            volume.start_upkeep()?;
        }
        Ok(volume)
    }

    /// Notes what a recovery has found of segments of which the records do not say yet that they are stored.
    fn adopt_stored(&self, found: &FxHashMap<SegmentId, StoredAt>) -> Result<(), VolumeError> {
        for (id, at) in found {
            let Some(row) = self.ns.segment(*id).filter(|row| row.object.is_none()) else { continue };
            self.ns.segment_sealed(*id, row.kind, at.len, at.raw)?;
            self.ns.segments_stored(at.object, &[(*id, at.offset)])?;
        }
        Ok(())
    }

    /// Removes what a stop left that nothing refers to.
    fn tidy_up_after_stop(&self, in_use: &[Ino]) -> Result<(), VolumeError> {
        remove_unsent_objects(&self.paths.staging())?;
        let known: FxHashMap<_, _> = self.ns.segments().into_iter().collect();
        for segment in self.streams.segments() {
            match known.get(&segment) {
                // One that is in the store stays here until a checkpoint says so: were it gone, and this opening stopped before that, the next
                // replay would miss it and end there.
                Some(row) => self.seal_after_stop(segment, row)?,
                None => self.streams.remove(segment)?,
            }
        }
        let here: Vec<SegmentId> = self.streams.segments();
        let files: Vec<SegmentId> = self.journal.files().iter().map(|file| file.segment).collect();
        let mut gone = Vec::new();
        for (id, row) in &known {
            let local = match row.kind {
                SegmentKind::Journal => files.contains(id),
                SegmentKind::Stream | SegmentKind::Packed => row.object.is_some() || here.contains(id),
            };
            match (local, row.live) {
                (true, _) => {}
                (false, 0) => gone.push(*id),
                (false, live) => tracing::error!("segment {id} with {live} bytes in use is missing"),
            }
        }
        if !gone.is_empty() {
            self.ns.forget_dead(&gone)?;
        }
        let in_use: FxHashSet<_> = in_use.iter().collect();
        for (_, ino) in self.ns.orphans()?.iter().filter(|(_, ino)| !in_use.contains(ino)) {
            self.upkeep.purge(*ino);
        }
        Ok(())
    }

    /// Ends a stream that a stop interrupted: it takes no more runs. It may have its footer already, with the record of that lost.
    fn seal_after_stop(&self, segment: SegmentId, row: &SegmentRow) -> Result<(), VolumeError> {
        if row.state != SegmentState::Open {
            return Ok(());
        }
        match self.streams.seal(segment) {
            Ok(sealed) => Ok(self.ns.segment_sealed(segment, row.kind, sealed.len, sealed.raw)?),
            Err(error @ DataError::NoSpace { .. }) => {
                tracing::warn!("segment {segment} is sealed later: {error}");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What reads the store: by its files, or through a cache on disk where it is elsewhere.
fn objects(
    config: &VolumeConfig,
    paths: &VolumePaths,
    options: &OpenOptions,
    store: &ObjectStore,
) -> Result<ObjectReader, VolumeError> {
    let directory = options.store.is_none() && matches!(store.url(), StoreUrl::File(_));
    let in_files = directory && (config.store.is_none() || options.cache_dir.is_none());
    Ok(match (&config.store, options.cache_size) {
        _ if in_files => ObjectReader::by_files(store),
        (None, _) | (_, 0) => ObjectReader::uncached(store),
        (Some(_), size) => {
            let dir = options.cache_dir.clone().unwrap_or_else(|| paths.cache());
            ObjectReader::cached(store, config.id, &dir, size)
                .map_err(|error| VolumeError::Option(error.to_string()))?
        }
    })
}

/// Removes objects that were being put together when the process stopped; their segments are still there.
fn remove_unsent_objects(staging: &Path) -> Result<(), VolumeError> {
    for entry in fs::read_dir(staging).map_err(io_error("read", staging))? {
        let path = entry.map_err(io_error("read", staging))?.path();
        if path.extension().is_some_and(|extension| extension == "object") {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

struct Started {
    ns: Arc<Namespace>,
    journal: Arc<Journal>,
    streams: Arc<Streams>,
}

impl Started {
    /// Replays the journal into the namespace, and starts the journal and the streams anew.
    fn run(
        config: &VolumeConfig,
        paths: &VolumePaths,
        (epoch, log): (Epoch, Arc<JournalLog>),
        engine: Arc<EmbeddedEngine>,
        restored: &Restored,
    ) -> Result<Started, VolumeError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let numbers = Arc::new(AtomicU64::new(1));
        let applied = Namespace::applied(engine.as_ref() as &dyn Engine)?;
        let parts = (Arc::clone(&log) as _, Arc::clone(&numbers));
        let ns = Namespace::open(engine, parts.0, clock, config.block_size, epoch, parts.1)?;
        let recovered = Streams::recover(&paths.staging())?;
        let replay = replay(&ns, paths, config, applied.sequence, &recovered, restored)?;
        let files = replay.files.iter().map(|file| file.segment.0);
        let staged = recovered.iter().map(|stream| stream.segment.0);
        let rows = ns.known_segments().into_iter().map(|id| id.0);
        if let Some(highest) = files.chain(staged).chain(rows).chain([restored.highest]).max() {
            ns.numbers_taken(highest, restored.highest_object);
        }
        let next = |numbers: &Arc<AtomicU64>| -> Box<dyn Fn() -> SegmentId + Send + Sync> {
            let numbers = Arc::clone(numbers);
            Box::new(move || SegmentId(numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst)))
        };
        let journal = Arc::new(Journal::start(replay, &paths.journal(), config.id, epoch, next(&numbers))?);
        let streams = Arc::new(Streams::open(recovered, &paths.staging(), config.id, next(&numbers)));
        if log.journal.set(Arc::clone(&journal)).is_err() {
            return Err(VolumeError::Option("the journal was opened twice".to_owned()));
        }
        Ok(Started { ns: Arc::new(ns), journal, streams })
    }
}

fn replay(
    ns: &Namespace,
    paths: &VolumePaths,
    config: &VolumeConfig,
    applied: Sequence,
    recovered: &[RecoveredStream],
    restored: &Restored,
) -> Result<forebay_data::Replay, VolumeError> {
    let by_segment: FxHashMap<_, _> = recovered.iter().map(|stream| (stream.segment, stream)).collect();
    let mut failure = None;
    let mut stream_ok = |run: &forebay_format::record::StreamRun| match by_segment.get(&run.segment) {
        None => restored.stored.contains_key(&run.segment),
        Some(stream) => stream.has(run).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            false
        }),
    };
    let mut visit =
        |record: forebay_data::Replayed<'_>| ns.replay(record.sequence, record.fresh, record.changes);
    let dir = paths.journal();
    let replay = match restored.chunks {
        0 => Journal::replay(&dir, config.id, applied, &mut stream_ok, &mut visit),
        _ => Journal::replay_copy(&dir, config.id, applied, &mut stream_ok, &mut visit),
    };
    if let Some(error) = failure {
        return Err(error.into());
    }
    match replay {
        Ok(replay) => {
            if let Some(reason) = &replay.cut {
                tracing::info!("the journal ends at record {}: {reason}", replay.last);
            }
            for damage in &replay.damages {
                let live = ns.segment(damage.segment).map_or(0, |row| row.live);
                tracing::error!(
                    "the journal is damaged: {damage}; {live} bytes of the file are in use, `forebay fsck` tells \
                     which of them cannot be read and in which files"
                );
            }
            Ok(replay)
        }
        Err(ReplayError::Data(error)) => Err(error.into()),
        Err(ReplayError::Visit { source, .. }) => Err(VolumeError::Meta(source)),
    }
}

fn lock(paths: &VolumePaths) -> Result<FileLock, VolumeError> {
    let path = paths.lock();
    let file = match File::options().read(true).write(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let detail = "it is missing, and keeps two openings apart; `forebay fsck --repair` makes it anew";
            return Err(VolumeError::Damaged { path, detail: detail.to_owned() });
        }
        opened => opened.map_err(io_error("open", &path))?,
    };
    let lock = FileLock::take(file).map_err(io_error("lock", &path))?;
    lock.ok_or_else(|| VolumeError::InUse { path: paths.root.clone(), by: String::new() })
}

/// Becomes the owner of a volume whose store is elsewhere.
fn own(
    config: &VolumeConfig,
    root: &Path,
    store: &ObjectStore,
    last_epoch: Epoch,
) -> Result<Option<Fence>, VolumeError> {
    if config.store.is_none() {
        return Ok(None);
    }
    let begin = |epoch| write_epoch(root, epoch);
    remote::take(store, config.id, root, Successor::OfItself, last_epoch, &begin).map(Some)
}

/// The last term that was begun here. What the journal and the metadata show counts where the file says less, or nothing: a term that
/// came again would have its records taken for those of a fenced writer.
fn last_epoch(
    paths: &VolumePaths,
    config: &VolumeConfig,
    engine: &EmbeddedEngine,
) -> Result<Epoch, VolumeError> {
    let path = paths.root.join(EPOCH_FILE);
    let written = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().parse().map_err(|_| "is not a number"),
        Err(error) if error.kind() == ErrorKind::NotFound => Err("is missing"),
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    let applied = Namespace::applied(engine).map_err(|error| match error {
        MetaError::NotFound => {
            let detail = "it does not say how much of the journal it contains".to_owned();
            VolumeError::Damaged { path: paths.meta(), detail }
        }
        error => error.into(),
    })?;
    let shown = Journal::last_epoch(&paths.journal(), config.id)?.max(applied.epoch);
    let wrong = match written {
        Ok(number) if number >= shown.0 => return Ok(Epoch(number)),
        Ok(number) => format!("says {number}"),
        Err(wrong) => wrong.to_owned(),
    };
    if shown > Epoch(0) {
        tracing::error!("'{}' {wrong}; epoch {shown} was there, so the next one follows it", path.display());
    }
    Ok(shown)
}

/// Begins a new term, durably, before anything is written in it.
fn next_epoch(root: &Path, last: Epoch) -> Result<Epoch, VolumeError> {
    let epoch = last.next();
    write_epoch(root, epoch)?;
    Ok(epoch)
}

pub(crate) fn write_epoch(root: &Path, epoch: Epoch) -> Result<(), VolumeError> {
    let (path, text) = (root.join(EPOCH_FILE), format!("{}\n", epoch.0));
    let replaced =
        durable::replace_file(root, EPOCH_FILE, text.as_bytes(), Point::VOLUME_DATA, Point::VOLUME_NAME);
    match replaced {
        Err(error) if error.kind() == ErrorKind::StorageFull => overwrite(&path, text.as_bytes()),
        replaced => replaced,
    }
    .map_err(io_error("write", &path))
}

/// On a full disk the number is written over the one before, which takes no space. It lies in one sector; should it be torn all the same,
/// [`last_epoch`] finds it elsewhere.
fn overwrite(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(text, 0)?;
    durable::sync_file(&file, Point::VOLUME_DATA)
}

pub(crate) fn keys(
    config: &VolumeConfig,
    paths: &VolumePaths,
) -> Result<(Option<RunSealer>, Keyring), VolumeError> {
    if config.encryption == Encryption::None {
        return Ok((None, Keyring::default()));
    }
    let path = paths.key();
    let text = fs::read_to_string(&path).map_err(io_error("read the key in", &path))?;
    let damaged = |detail: &str| VolumeError::Damaged { path: path.clone(), detail: detail.to_owned() };
    let (digits, sum) = text.split_once('\n').ok_or_else(|| damaged("it is truncated"))?;
    if sum.trim_end() != format!("crc32c {:08x}", crc32c::crc32c(digits.as_bytes())) || digits.len() != 64 {
        return Err(damaged("its checksum does not fit"));
    }
    let mut bits = [0; 32];
    for (index, byte) in bits.iter_mut().enumerate() {
        *byte = digits
            .get(2 * index..2 * index + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(|| damaged("it is not hexadecimal"))?;
    }
    let master = MasterKey::new(1, bits);
    let salt = forebay_env::random().map_err(io_error("draw random bits for", &path))?;
    let sealer = RunSealer::new(&master, salt)?;
    Ok((Some(sealer), Keyring::new(vec![master])))
}
