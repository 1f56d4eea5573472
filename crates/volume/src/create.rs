//! Making a volume.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use forebay_env::{
    Clock, SystemClock,
    durable::{Point, sync_dir, sync_file},
};
use forebay_meta::{EmbeddedEngine, Namespace};
use forebay_object::{Backend, Expected, ObjectStore, Patience, StoreOptions, StoreUrl, probe};
use forebay_types::{
    Compression, Durability, Encryption, VolumeId,
    limits::{BLOCK_SIZE_DEFAULT, BLOCK_SIZE_MAX, BLOCK_SIZE_MIN},
};

use crate::{
    config::{FORMAT, VolumeConfig, VolumePaths},
    error::{VolumeError, io_error},
    open::keys,
    remote,
};

/// What a new volume is to be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Where the data rests; `None`: inside the volume's own directory.
    pub store: Option<StoreUrl>,
    /// The endpoint of the store's service, where it is not the provider's own.
    pub endpoint: Option<String>,
    /// The region of the store.
    pub region: Option<String>,
    /// Bytes of a block: a power of two from 256 KiB to 8 MiB.
    pub block_size: u32,
    /// How frames are compressed.
    pub compression: Compression,
    /// Whether frames are encrypted. The key is made in the volume's directory; without it the data is lost.
    pub encryption: Encryption,
    /// Where `fsync` puts data.
    pub durability: Durability,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            store: None,
            endpoint: None,
            region: None,
            block_size: BLOCK_SIZE_DEFAULT,
            compression: Compression::Lz4,
            encryption: Encryption::None,
            durability: Durability::Local,
            uid: 0,
            gid: 0,
        }
    }
}

/// Makes a volume in the directory `root`, which must be missing or empty. The store is probed first; nothing is left behind where that
/// fails.
///
/// # Errors
/// [`VolumeError::Occupied`], [`VolumeError::Option`], [`VolumeError::Object`], [`VolumeError::Io`].
pub fn create(root: &Path, options: &CreateOptions) -> Result<VolumeConfig, VolumeError> {
    check(options)?;
    let made = vacant(root)?;
    let result = fill(root, options);
    if result.is_err() {
        clear(root, made);
    }
    result
}

fn check(options: &CreateOptions) -> Result<(), VolumeError> {
    let size = options.block_size;
    if !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size) || !size.is_power_of_two() {
        let message = format!(
            "a block of {size} bytes is not possible: choose a power of two from 256 KiB to 8 MiB (--block-size)"
        );
        return Err(VolumeError::Option(message));
    }
    if let Some(StoreUrl::File(dir)) = &options.store
        && let Some(volume) = dir.ancestors().find(|above| above.join(crate::config::FILE).exists())
    {
        let what = format!("lies inside the volume '{}'; choose a directory of its own", volume.display());
        return Err(VolumeError::Occupied { path: dir.clone(), what });
    }
    Ok(())
}

/// Makes sure that `root` is an empty directory, and says whether it was made here.
pub(crate) fn vacant(root: &Path) -> Result<bool, VolumeError> {
    let occupied = |what: &str| VolumeError::Occupied { path: root.to_owned(), what: what.to_owned() };
    match fs::symlink_metadata(root) {
        Ok(found) if !found.is_dir() => return Err(occupied("exists and is not a directory")),
        Ok(_) => {
            let mut entries = fs::read_dir(root).map_err(io_error("read", root))?;
            if root.join(crate::config::FILE).exists() {
                return Err(occupied("is a volume already"));
            }
            if entries.next().is_some() {
                return Err(occupied(match root.join("lock").exists() && root.join("meta").is_dir() {
                    true => "has what a creation or recovery that was interrupted left; remove it",
                    false => "is not empty",
                }));
            }
            return Ok(false);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("look at", root)(error)),
    }
    DirBuilder::new().mode(0o700).create(root).map_err(io_error("make", root))?;
    Ok(true)
}

pub(crate) fn clear(root: &Path, made: bool) {
    let entries = fs::read_dir(root).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    for entry in entries {
        let removed = if entry.path().is_dir() {
            fs::remove_dir_all(entry.path())
        } else {
            fs::remove_file(entry.path())
        };
        if let Err(error) = removed {
            tracing::warn!("cannot remove '{}' again: {error}", entry.path().display());
        }
    }
    if made && let Err(error) = fs::remove_dir(root) {
        tracing::warn!("cannot remove '{}' again: {error}", root.display());
    }
}

fn fill(root: &Path, options: &CreateOptions) -> Result<VolumeConfig, VolumeError> {
    let paths = VolumePaths::new(root);
    let id = VolumeId(forebay_env::random().map_err(io_error("draw random bits for", root))?);
    let config = VolumeConfig {
        format: FORMAT,
        id,
        block_size: options.block_size,
        compression: options.compression,
        encryption: options.encryption,
        durability: options.durability,
        store: options.store.as_ref().map(ToString::to_string),
        endpoint: options.endpoint.clone(),
        region: options.region.clone(),
    };
    for dir in [paths.meta(), paths.journal(), paths.staging()] {
        DirBuilder::new().mode(0o700).create(&dir).map_err(io_error("make", &dir))?;
    }
    let store = ObjectStore::open(&config.store_url(&paths)?, &store_options(Some(&config), true))?;
    probe(&store.patient(Patience::Quick))?;
    if options.encryption == Encryption::Aes256Gcm {
        write_key(&paths)?;
    }
    make_lock_file(&paths)?;
    let engine = EmbeddedEngine::open(&paths.meta())?;
    let clock: &dyn Clock = &SystemClock;
    Namespace::format(&engine, clock, options.uid, options.gid, 0o755)?;
    if config.store.is_some() {
        claim(&store, &config, &paths, &engine)?;
    }
    drop(engine);
    sync_tree(&paths.meta())?;
    config.write(root)?;
    sync_name(root)?;
    Ok(config)
}

/// Makes the name of a volume's directory durable; what is above it was there before.
pub(crate) fn sync_name(root: &Path) -> Result<(), VolumeError> {
    let path = std::path::absolute(root).map_err(io_error("find", root))?;
    let Some(parent) = path.parent() else { return Ok(()) };
    sync_dir(parent, Point::VOLUME_NAME).map_err(io_error("sync", parent))
}

/// Makes the bucket this volume's, and puts into it what the volume can be brought back from.
fn claim(
    store: &ObjectStore,
    config: &VolumeConfig,
    paths: &VolumePaths,
    engine: &EmbeddedEngine,
) -> Result<(), VolumeError> {
    remote::claim(store, config.id, &paths.root)?;
    let put = || -> Result<(), VolumeError> {
        let text = config.to_text().map_err(|error| VolumeError::Option(error.to_string()))?;
        store.put_if(remote::CONFIG, text.into(), &Expected::Absent)?;
        let (sealer, _) = keys(config, paths)?;
        remote::put_first_base(store, config.id, engine, sealer.as_ref())
    };
    put().inspect_err(|_| {
        // The claim is our own, so what is below it is ours to remove; the claim goes last.
        let listed = remote::list(store, "meta").unwrap_or_default();
        let keys = listed.iter().map(|meta| meta.key.as_str()).chain([remote::OWNER]);
        for key in keys {
            if let Err(error) = store.delete(key) {
                tracing::warn!("cannot remove {key} again: {error}");
            }
        }
    })
}

/// How the store of a volume is opened.
pub(crate) fn store_options(config: Option<&VolumeConfig>, create: bool) -> StoreOptions {
    StoreOptions {
        endpoint: config.and_then(|config| config.endpoint.clone()),
        region: config.and_then(|config| config.region.clone()),
        create_directory: create,
        ..StoreOptions::default()
    }
}

/// Makes names durable all the way down: an engine that was just made need not have synced its own.
pub(crate) fn sync_tree(dir: &Path) -> Result<(), VolumeError> {
    for entry in fs::read_dir(dir).map_err(io_error("read", dir))? {
        let path = entry.map_err(io_error("read", dir))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        }
    }
    sync_dir(dir, Point::VOLUME_NAME).map_err(io_error("sync", dir))
}

fn write_key(paths: &VolumePaths) -> Result<(), VolumeError> {
    let path = paths.key();
    let bits: [u8; 32] = forebay_env::random().map_err(io_error("draw random bits for", &path))?;
    let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    let sum = crc32c::crc32c(text.as_bytes());
    write_private(&path, format!("{text}\ncrc32c {sum:08x}\n").as_bytes())
}

/// Writes a new file that only its owner can read, durably but for its name.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), VolumeError> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open.map_err(io_error("make", path))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    sync_file(&file, Point::VOLUME_DATA).map_err(io_error("sync", path))
}

/// The lock file has to be there before the volume is, so that opening one never writes a name.
pub(crate) fn make_lock_file(paths: &VolumePaths) -> Result<(), VolumeError> {
    let path = paths.lock();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    sync_file(&file.map_err(io_error("make", &path))?, Point::VOLUME_DATA).map_err(io_error("sync", &path))
}
