//! Who owns a volume whose store is elsewhere: the object `owner`, replaced by conditional put only.
//!
//! Guarantees: of two machines at most one is the owner at any moment, as the store sees it; a directory that is not the last owner's can never become
//! the owner again. Order that must hold: the local file `owner` names the new token, durably, before the bucket does, so that a machine knows itself
//! after any crash; a check that allows an answer begins after what it is about was put.

use std::{
    fmt,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_env::{
    Clock, SystemClock,
    durable::{self, Point},
};
use forebay_object::{Backend, ETag, ErrorKind, Expected, ObjectStore, Patience};
use forebay_types::{Epoch, VolumeId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::names;
use crate::error::{VolumeError, io_error};

/// The local file with the tokens by which this directory knows itself.
const FILE: &str = "owner";
/// How long before a put of a new name the last check may have begun.
const RECENT: Duration = Duration::from_secs(1);
const ATTEMPTS: u32 = 5;

/// The content of the object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) volume: VolumeId,
    pub(crate) epoch: Epoch,
    /// The machine, for people.
    pub(crate) host: String,
    /// When it became the owner: seconds since 1970.
    pub(crate) since: i64,
    /// Random: names this opening of the volume.
    token: String,
    /// CRC32C of the others.
    check: u32,
}

impl Owner {
    fn new(volume: VolumeId, epoch: Epoch, token: &str) -> Owner {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let since = SystemClock.now().secs;
        let token = token.to_owned();
        let mut owner = Owner { volume, epoch, host: host.trim().to_owned(), since, token, check: 0 };
        owner.check = owner.sum();
        owner
    }

    fn sum(&self) -> u32 {
        let Owner { volume, epoch, host, since, token, .. } = self;
        crc32c::crc32c(format!("{volume} {epoch} {host} {since} {token}").as_bytes())
    }

    fn encode(&self) -> Result<Bytes, VolumeError> {
        let text = serde_json::to_vec(self).map_err(|error| VolumeError::Option(error.to_string()))?;
        Ok(text.into())
    }

    /// The owner, and the version of the object.
    pub(crate) fn read(store: &ObjectStore) -> Result<(Owner, ETag), VolumeError> {
        let (bytes, etag) = store.get(names::OWNER)?;
        let damaged = |detail: String| {
            let path = format!("{}/{}", store.url(), names::OWNER).into();
            VolumeError::Damaged { path, detail }
        };
        let owner: Owner = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if owner.check != owner.sum() {
            return Err(damaged("its checksum does not fit".to_owned()));
        }
        Ok((owner, etag))
    }
}

/// What the local file has.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Known {
    /// The token that was seen in the bucket.
    confirmed: String,
    /// The tokens that may be in the bucket since: an answer may be lost, or a request arrive late.
    attempts: Vec<String>,
}

impl Known {
    fn is_ours(&self, token: &str) -> bool {
        self.confirmed == token || self.attempts.iter().any(|attempt| attempt == token)
    }

    fn read(root: &Path) -> Result<Known, VolumeError> {
        let path = root.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| VolumeError::Damaged { path, detail: error.to_string() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Known::default()),
            Err(error) => Err(io_error("read", &path)(error)),
        }
    }

    fn write(&self, root: &Path) -> Result<(), VolumeError> {
        let path = root.join(FILE);
        let text = serde_json::to_vec(self).map_err(|error| VolumeError::Option(error.to_string()))?;
        durable::replace_file(root, FILE, &text, Point::VOLUME_DATA, Point::VOLUME_NAME)
            .map_err(io_error("write", &path))
    }
}

fn new_token(root: &Path) -> Result<String, VolumeError> {
    let bits: [u8; 16] = forebay_env::random().map_err(io_error("draw random bits for", root))?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the directory `root` the first owner of a volume.
///
/// # Errors
/// [`VolumeError::Occupied`] where the store has one.
pub(crate) fn claim(store: &ObjectStore, volume: VolumeId, root: &Path) -> Result<(), VolumeError> {
    let store = store.patient(Patience::Quick);
    let token = new_token(root)?;
    Known { confirmed: String::new(), attempts: vec![token.clone()] }.write(root)?;
    let bytes = Owner::new(volume, Epoch(0), &token).encode()?;
    let put = store.put_if(names::OWNER, bytes, &Expected::Absent);
    match put {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let (owner, _) = Owner::read(&store)?;
            if owner.token == token {
                return Ok(());
            }
            let what = format!(
                "holds volume {} already (last opened on '{}'): choose another prefix, or recover that volume from it",
                owner.volume, owner.host
            );
            Err(VolumeError::Occupied { path: store.url().to_string().into(), what })
        }
        Err(error) => Err(error.into()),
    }
}

/// The epoch of another directory that owns the volume now; `None` while the one at `root` does. Changes nothing.
///
/// # Errors
/// [`VolumeError::Object`] where the store does not say.
pub(crate) fn taken_over(store: &ObjectStore, root: &Path) -> Result<Option<Epoch>, VolumeError> {
    let (owner, _) = Owner::read(&store.patient(Patience::Quick))?;
    Ok((!Known::read(root)?.is_ours(&owner.token)).then_some(owner.epoch))
}

/// Whose successor an opening must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Successor {
    /// Of this directory only.
    OfItself,
    /// Of whoever it is: the volume is taken over.
    OfAnybody,
}

/// Makes the directory `root` the owner, with an epoch above the bucket's and above `local`, the last one here. `begin` notes the new one, durably,
/// before the bucket has it.
///
/// # Errors
/// [`VolumeError::Fenced`] where another directory is the owner, or became it meanwhile; [`VolumeError::Object`].
pub(crate) fn take(
    store: &ObjectStore,
    volume: VolumeId,
    root: &Path,
    successor: Successor,
    local: Epoch,
    begin: &dyn Fn(Epoch) -> Result<(), VolumeError>,
) -> Result<Fence, VolumeError> {
    let quick = store.patient(Patience::Quick);
    let (found, mut etag) = Owner::read(&quick)?;
    if found.volume != volume {
        let path = format!("{}/{}", store.url(), names::OWNER).into();
        return Err(VolumeError::Damaged { path, detail: format!("it is of volume {}", found.volume) });
    }
    let mut known = Known::read(root)?;
    if successor == Successor::OfItself && !known.is_ours(&found.token) {
        return Err(VolumeError::Fenced { theirs: found.epoch.0, ours: local.0 });
    }
    let epoch = local.max(found.epoch).next();
    begin(epoch)?;
    let token = new_token(root)?;
    if known.confirmed != found.token {
        known = Known { confirmed: found.token, attempts: Vec::new() };
    }
    known.attempts.push(token.clone());
    known.write(root)?;
    let owner = Owner::new(volume, epoch, &token);
    for attempt in 1.. {
        let put = quick.put_if(names::OWNER, owner.encode()?, &Expected::Etag(etag.clone()));
        let Err(error) = put else { break };
        if !(error.is_transient() || error.is_answer()) || attempt == ATTEMPTS {
            return Err(error.into());
        }
        let (now, version) = Owner::read(&quick)?;
        if now.token == token {
            break;
        }
        if !known.is_ours(&now.token) {
            return Err(VolumeError::Fenced { theirs: now.epoch.0, ours: epoch.0 });
        }
        etag = version;
    }
    let former = (successor == Successor::OfItself).then_some(found.epoch);
    Ok(Fence {
        store: store.clone(),
        epoch,
        former,
        token,
        checked: Mutex::new(None),
        theirs: AtomicU64::new(0),
    })
}

/// Says whether this opening is still the owner. Once it is not, it never is again.
pub(crate) struct Fence {
    store: ObjectStore,
    epoch: Epoch,
    /// The epoch before, if it was this directory's too.
    former: Option<Epoch>,
    token: String,
    /// When the last good check began.
    checked: Mutex<Option<Instant>>,
    /// The epoch of the other owner; 0: none.
    theirs: AtomicU64,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence(epoch {}, taken over by {:?})", self.epoch, self.taken_over_by())
    }
}

impl Fence {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch before this one, if it was this directory's too.
    pub(crate) fn former(&self) -> Option<Epoch> {
        self.former
    }

    /// The epoch of the owner that took over, as far as known.
    pub(crate) fn taken_over_by(&self) -> Option<Epoch> {
        match self.theirs.load(Ordering::Acquire) {
            0 => None,
            theirs => Some(Epoch(theirs)),
        }
    }

    /// Whether no other owner is known. Asks nobody.
    ///
    /// # Errors
    /// [`VolumeError::Fenced`].
    pub(crate) fn intact(&self) -> Result<(), VolumeError> {
        match self.taken_over_by() {
            None => Ok(()),
            Some(theirs) => Err(VolumeError::Fenced { theirs: theirs.0, ours: self.epoch.0 }),
        }
    }

    /// Asks the store: before a delete, and after the put that lets an fsync be answered.
    ///
    /// # Errors
    /// [`VolumeError::Fenced`]; [`VolumeError::Object`] where the store does not say.
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        self.intact()?;
        let begun = Instant::now();
        let (owner, _) = Owner::read(&self.store)?;
        if owner.token != self.token {
            self.theirs.fetch_max(owner.epoch.0.max(1), Ordering::AcqRel);
            tracing::error!(
                "epoch {} on '{}' has taken the volume over from epoch {}",
                owner.epoch,
                owner.host,
                self.epoch
            );
            return self.intact();
        }
        *self.checked.lock() = Some(begun);
        Ok(())
    }

    /// Before a put of a name that was never used: asks the store unless it was asked a moment ago.
    ///
    /// # Errors
    /// As [`Fence::check`].
    pub(crate) fn check_recent(&self) -> Result<(), VolumeError> {
        self.intact()?;
        let recent = self.checked.lock().is_some_and(|begun| begun.elapsed() < RECENT);
        if recent { Ok(()) } else { self.check() }
    }
}
