//! The description of a volume: `forebay.volume` in its directory.
//!
//! One line of JSON, then a line with the CRC32C of the first, so that a truncated or edited file is told from a whole one.

use std::path::{Path, PathBuf};

use forebay_env::durable::{self, Point};
use forebay_object::StoreUrl;
use forebay_types::{Compression, Durability, Encryption, VolumeId};
use serde::{Deserialize, Serialize};

use crate::error::{VolumeError, io_error};

/// The format that this release writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
pub(crate) const FILE: &str = "forebay.volume";

/// What was chosen when a volume was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeConfig {
    /// The layout of everything in the volume.
    pub format: u32,
    /// Its identity.
    pub id: VolumeId,
    /// Bytes of a block.
    pub block_size: u32,
    /// How frames are compressed.
    pub compression: Compression,
    /// Whether frames are encrypted.
    pub encryption: Encryption,
    /// Where `fsync` puts data.
    pub durability: Durability,
    /// Where the data rests; `None`: in `objects/` of the volume's own directory.
    pub store: Option<String>,
    /// The endpoint of the store's service, where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The region of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// The files of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumePaths {
    /// The volume's directory.
    pub root: PathBuf,
}

impl VolumePaths {
    /// The paths below this directory.
    #[must_use]
    pub fn new(root: &Path) -> VolumePaths {
        VolumePaths { root: root.to_owned() }
    }

    /// The metadata engine.
    #[must_use]
    pub fn meta(&self) -> PathBuf {
        self.root.join("meta")
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Segments that are not in the store yet.
    #[must_use]
    pub fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// Checkpoints that are not in the bucket yet, where the store is elsewhere.
    #[must_use]
    pub fn outbox(&self) -> PathBuf {
        self.root.join("outbox")
    }

    /// The store, where it is the volume's own.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    /// The cache of a store elsewhere, where no other place was chosen.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The key of an encrypted volume.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.root.join("key")
    }

    /// The file that a process locks while it has the volume open.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
}

impl VolumeConfig {
    /// Reads a volume's description.
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`], [`VolumeError::Damaged`], [`VolumeError::Newer`].
    pub fn read(root: &Path) -> Result<VolumeConfig, VolumeError> {
        let path = root.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(VolumeError::NotAVolume { path: root.to_owned(), file: FILE });
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(VolumeError::Damaged { path, detail: "it is not text".into() });
            }
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        Self::parse(&text, root).map_err(|problem| match problem {
            Problem::Newer(found) => VolumeError::Newer { path: root.to_owned(), found, supported: FORMAT },
            Problem::Damaged(detail) => VolumeError::Damaged { path, detail },
        })
    }

    fn parse(text: &str, _root: &Path) -> Result<VolumeConfig, Problem> {
        let damaged = |detail: &str| Problem::Damaged(detail.to_owned());
        let (json, sum) = text.split_once('\n').ok_or_else(|| damaged("it is truncated"))?;
        let expected = sum.trim_end().strip_prefix("crc32c ").ok_or_else(|| damaged("it is truncated"))?;
        if expected != format!("{:08x}", crc32c::crc32c(json.as_bytes())) {
            return Err(damaged("its checksum does not fit"));
        }
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| Problem::Damaged(error.to_string()))?;
        let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let format = u32::try_from(format).unwrap_or(u32::MAX);
        if format > FORMAT {
            return Err(Problem::Newer(format));
        }
        serde_json::from_value(value).map_err(|error| Problem::Damaged(error.to_string()))
    }

    /// Writes the description, durably and whole.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn write(&self, root: &Path) -> Result<(), VolumeError> {
        let path = root.join(FILE);
        let text = self.to_text().map_err(|error| io_error("write", &path)(error.into()))?;
        durable::replace_file(root, FILE, text.as_bytes(), Point::VOLUME_DATA, Point::VOLUME_NAME)
            .map_err(io_error("write", &path))
    }

    /// The description as it is stored.
    ///
    /// # Errors
    /// None that can happen with the fields that there are.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let json = serde_json::to_string(self)?;
        Ok(format!("{json}\ncrc32c {:08x}\n", crc32c::crc32c(json.as_bytes())))
    }

    /// The description that this text is; `place` is named in errors.
    ///
    /// # Errors
    /// [`VolumeError::Damaged`], [`VolumeError::Newer`].
    pub fn from_text(text: &str, place: &Path) -> Result<VolumeConfig, VolumeError> {
        Self::parse(text, place).map_err(|problem| match problem {
            Problem::Newer(found) => VolumeError::Newer { path: place.to_owned(), found, supported: FORMAT },
            Problem::Damaged(detail) => VolumeError::Damaged { path: place.to_owned(), detail },
        })
    }

    /// The address of the store.
    ///
    /// # Errors
    /// [`VolumeError::Option`] where it is none.
    pub fn store_url(&self, paths: &VolumePaths) -> Result<StoreUrl, VolumeError> {
        let url = match &self.store {
            Some(url) => url.parse(),
            None => {
                let objects =
                    std::path::absolute(paths.objects()).map_err(io_error("find", &paths.objects()))?;
                StoreUrl::directory(&objects)
            }
        };
        url.map_err(|error| VolumeError::Option(error.to_string()))
    }
}

enum Problem {
    Newer(u32),
    Damaged(String),
}
