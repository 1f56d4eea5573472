//! A session that serves nobody at the moment, for this process or another to go on with.
//!
//! Guarantees: whoever runs it next answers what was kept, once, and gets what waits in the kernel. Of all that have it, one at most may
//! run it; the connection lasts as long as one of them has its descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::queue::KeptQueue;
use super::{Line, Mounted, Session, SessionError, SessionOptions};
use crate::device::Device;
use crate::flags::Capabilities;
use crate::fs::Filesystem;
use crate::init::Agreed;
use crate::mount::MountOptions;
use crate::notify::Notifier;
use crate::protocol::{Cursor, put_u32, put_u64};
use crate::ring::{Kept, Slot};

/// How serving ended.
#[derive(Debug)]
pub enum Ended {
    /// The mount has ended.
    Unmounted,
    /// The session was paused; its requests wait.
    Paused(Box<Paused>),
}

/// What a session that is gone on with begins with, besides the mount's own descriptor.
#[derive(Default)]
pub(super) struct Descriptors {
    pub(super) clones: Vec<Arc<Device>>,
    pub(super) left: Vec<Unserved>,
}

/// A request that was read and waits for a lock, to be served again: the number of the descriptor, 0 the mount's own, and all of it.
pub(super) type Unserved = (usize, Vec<u8>);

/// A session between two requests. Dropped while still mounted, it is detached lazily, and who waits gets an error.
pub struct Paused {
    pub(super) session: Session,
    pub(super) agreed: Agreed,
    /// Descriptors besides the mount's own.
    pub(super) clones: Vec<Arc<Device>>,
    pub(super) left: Vec<Unserved>,
    /// What the queues keep, if there are any.
    pub(super) queues: Option<Vec<KeptQueue>>,
}

impl std::fmt::Debug for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Paused")
            .field("session", &self.session)
            .field("agreed", &self.agreed)
            .finish_non_exhaustive()
    }
}

impl Paused {
    /// Goes on serving, as [`Session::run`]; [`Filesystem::started`] is told what was agreed when the mount began.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run<F: Filesystem + ?Sized>(
        self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<Ended, SessionError> {
        let Paused { session, agreed, clones, left, queues } = self;
        session.run_on(fs, options, (agreed, Descriptors { clones, left }, queues))
    }

    /// What the kernel agreed to.
    #[must_use]
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The session, for what may be taken before it runs.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What tells the kernel of changes.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// What another process needs besides [`Paused::descriptors`].
    #[must_use]
    pub fn state(&self) -> Vec<u8> {
        let mut to = Vec::new();
        put_u32(&mut to, self.agreed.minor);
        put_u64(&mut to, self.agreed.capabilities.bits());
        put_u32(&mut to, self.agreed.max_write);
        put_u32(&mut to, self.agreed.max_readahead);
        put_u32(&mut to, self.left.len() as u32);
        for (descriptor, request) in &self.left {
            put_u32(&mut to, *descriptor as u32);
            put_u32(&mut to, request.len() as u32);
            to.extend_from_slice(request);
        }
        let queues = self.queues.as_deref().unwrap_or_default();
        put_u32(&mut to, queues.len() as u32);
        for queue in queues {
            put_u64(&mut to, queue.nudges);
            put_u32(&mut to, queue.slots.len() as u32);
            queue.slots.iter().for_each(|slot| put_slot(&mut to, &slot.kept()));
        }
        to
    }

    /// The connection's descriptors, in the order in which [`Paused::take`] wants them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<OwnedFdOf> {
        [self.session.line.device()].into_iter().chain(self.clones.iter().cloned()).map(OwnedFdOf).collect()
    }

    /// What another process has paused. `mountpoint` is where it is mounted.
    ///
    /// # Errors
    /// The state is none, there is no descriptor, or memory that the kernel knows of is not free in this process.
    pub fn take(
        state: &[u8],
        descriptors: Vec<OwnedFd>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> io::Result<Paused> {
        let mut from = Cursor::new(state);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it is no state of a session");
        let agreed = agreed(&mut from).ok_or_else(wrong)?;
        let left = left(&mut from).filter(|left| left.iter().all(|(number, _)| *number < descriptors.len()));
        let left = left.ok_or_else(wrong)?;
        let count = from.u32().ok_or_else(wrong)?;
        let mut queues = Vec::new();
        for _ in 0..count {
            queues.push(take_queue(&mut from, &wrong)?);
        }
        let mut devices = descriptors.into_iter().map(Device::from_fd);
        let main = devices.next().ok_or_else(wrong)?;
        let session = Session {
            line: Line::new(main),
            mounted: Mounted::at(mountpoint.to_owned()),
            options: options.clone(),
            pause: Arc::default(),
        };
        let over_uring = agreed.capabilities.contains(Capabilities::OVER_IO_URING);
        let queues = (over_uring && count > 0).then_some(queues);
        Ok(Paused { session, agreed, clones: devices.map(Arc::new).collect(), left, queues })
    }

    /// Lets go of the session without unmounting: another process runs it.
    pub fn release(mut self) {
        self.session.mounted.number = None;
    }
}

/// A descriptor of a session, held open.
#[derive(Debug)]
pub struct OwnedFdOf(Arc<Device>);

impl OwnedFdOf {
    /// The descriptor itself.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn put_slot(to: &mut Vec<u8>, slot: &Kept<'_>) {
    put_u64(to, slot.address);
    put_u64(to, slot.len);
    for bytes in [slot.header, slot.payload] {
        put_u32(to, bytes.len() as u32);
        to.extend_from_slice(bytes);
    }
}

fn agreed(from: &mut Cursor<'_>) -> Option<Agreed> {
    let minor = from.u32()?;
    let capabilities = Capabilities::from_bits(from.u64()?);
    Some(Agreed { minor, capabilities, max_write: from.u32()?, max_readahead: from.u32()? })
}

fn left(from: &mut Cursor<'_>) -> Option<Vec<Unserved>> {
    let mut left = Vec::new();
    for _ in 0..from.u32()? {
        let (number, len) = (from.u32()? as usize, from.u32()?);
        left.push((number, from.take(len as usize)?.to_vec()));
    }
    Some(left)
}

fn take_queue(from: &mut Cursor<'_>, wrong: &dyn Fn() -> io::Error) -> io::Result<KeptQueue> {
    let (nudges, count) = from.u64().zip(from.u32()).ok_or_else(wrong)?;
    let mut queue = KeptQueue { slots: Vec::new(), nudges };
    for _ in 0..count {
        let kept = take_slot(from).ok_or_else(wrong)?;
        queue.slots.push(Slot::adopt(&kept)?);
    }
    Ok(queue)
}

fn take_slot<'a>(from: &mut Cursor<'a>) -> Option<Kept<'a>> {
    let (address, len) = (from.u64()?, from.u64()?);
    let mut bytes = || {
        let len = from.u32()?;
        from.take(len as usize)
    };
    Some(Kept { address, len, header: bytes()?, payload: bytes()? })
}
