//! The files of a volume as the kernel's file system: what [`crate::adapter`] implements the operations on.

use std::{fmt, io, sync::Arc, time::Duration};

use forebay_fuse::{
    Agreed, BackingFiles, Errno, LockReply, Notifier, Request,
    flags::{Capabilities, OpenFlags},
    types::{Attr, Entry, Lock, Open as FuseOpen, Opened as FuseOpened, Release, StatxReply},
};
use forebay_types::Attr as VfsAttr;
use forebay_vfs::{Kill, LockKeeper, LockRequest, Opened, Through, Vfs, VfsError, Wish};
use forebay_volume::{AssembledStatus, SealedFiles, Volume};
use parking_lot::Mutex;

use crate::{
    callers::{open_args, wanted},
    convert::{self, FOREVER, ino},
    lock_waiter::Waiter,
    moments::Moment,
    notices::Notices,
    passthrough::{Passthrough, PassthroughStatus, Route, handover::PassthroughHandover, is_beside},
    recalls::Recalls,
    sealed::SealedThrough,
    trouble::Trouble,
};

/// Of every open file of an unshared volume. Its pages stay: an open without KEEP_CACHE has the kernel drop them, also one that a write has filled and not sent yet,
/// and what a read brings back in its place before that write arrives are the old bytes, for good.
const OPEN_FLAGS: OpenFlags = OpenFlags::PARALLEL_DIRECT_WRITES.with(OpenFlags::KEEP_CACHE, true);

type Result<T> = std::result::Result<T, Errno>;

type StartCall = Box<dyn FnOnce(&Agreed) + Send>;

/// Whom to tell of the beginning.
#[derive(Default)]
struct OnStart(Mutex<Option<StartCall>>);

impl fmt::Debug for OnStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnStart").field(&self.0.lock().is_some()).finish()
    }
}

/// For how long the kernel may keep what it was told. On an unshared volume it stays true, so the default is for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// Names, also missing ones.
    pub entry: Duration,
    /// Attributes.
    pub attr: Duration,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes { entry: FOREVER, attr: FOREVER }
    }
}

/// The files of a volume as the kernel's file system.
#[derive(Debug)]
pub struct VolumeFs {
    pub(crate) vfs: Arc<Vfs>,
    /// The volume, where it is on this machine.
    volume: Option<Arc<Volume>>,
    trouble: Trouble,
    pub(crate) lifetimes: Lifetimes,
    on_start: OnStart,
    pub(crate) notices: Notices,
    /// What is told of a volume that others change too.
    pub(crate) recalls: Option<Recalls>,
    pub(crate) passthrough: Option<Arc<Passthrough>>,
    /// The same of a volume that others change too.
    pub(crate) sealed: Option<Arc<SealedThrough>>,
}

impl VolumeFs {
    /// Serves `vfs`, which is over `volume` where that is on this machine: the kernel may read its files by itself, if it assembles them.
    #[must_use]
    pub fn new(vfs: Arc<Vfs>, volume: Option<Arc<Volume>>) -> VolumeFs {
        let passthrough = volume.as_ref().and_then(|volume| Passthrough::new(&vfs, volume));
        let recalls = vfs.files().is_shared().then(Recalls::default);
        VolumeFs {
            vfs,
            volume,
            trouble: Trouble::default(),
            lifetimes: Lifetimes::default(),
            on_start: OnStart::default(),
            notices: Notices::default(),
            recalls,
            passthrough,
            sealed: None,
        }
    }

    /// Lets the kernel read by itself those of a shared volume's files that are sealed, once they are assembled.
    #[must_use]
    pub fn with_sealed(self, files: Arc<SealedFiles>) -> VolumeFs {
        VolumeFs { sealed: Some(SealedThrough::new(files)), ..self }
    }

    /// With shorter lifetimes of what the kernel keeps: it then asks more often, which is good for measuring and for little else.
    #[must_use]
    pub fn with_lifetimes(self, lifetimes: Lifetimes) -> VolumeFs {
        VolumeFs { lifetimes, ..self }
    }

    /// Has the kernel told by `notifier` of access times that an open changed, within some 20 ms. Without it the kernel answers with the old
    /// ones until it asks again for another reason.
    ///
    /// # Errors
    /// No thread could be started for it.
    pub fn tell_accesses_by(&self, notifier: Notifier) -> io::Result<()> {
        self.notices.serve_by(notifier)
    }

    /// Lets the kernel read by itself what the volume assembles, if it may. Before the session runs.
    pub fn connect(&self, files: BackingFiles, notifier: Notifier) {
        if let Some(sealed) = &self.sealed {
            sealed.connect(files.clone());
        }
        if let Some(passthrough) = &self.passthrough {
            passthrough.connect(files, notifier);
        }
    }

    /// What the kernel was told of files that it reads by itself, taken out, for who goes on with a paused session; `None` where the volume assembles
    /// none.
    #[must_use]
    pub fn hand_over_passthrough(&self) -> Option<PassthroughHandover> {
        self.passthrough.as_ref().map(|passthrough| passthrough.hand_over())
    }

    /// Goes on with what [`VolumeFs::hand_over_passthrough`] gave. After [`VolumeFs::connect`], before the session runs.
    pub fn take_over_passthrough(&self, state: PassthroughHandover) {
        if let Some(passthrough) = &self.passthrough {
            passthrough.take_over(state);
        }
    }

    /// Whether the kernel reads files by itself; `None` where none are assembled.
    #[must_use]
    pub fn passthrough(&self) -> Option<PassthroughStatus> {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.status());
        self.passthrough.as_ref().map(|passthrough| passthrough.status()).or(sealed)
    }

    /// What is assembled for it; `None` where nothing is.
    #[must_use]
    pub fn assembled(&self) -> Option<AssembledStatus> {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.assembled());
        self.volume.as_ref().and_then(|volume| volume.assembled_status()).or(sealed)
    }

    /// What is to be asked of the kernel, so that it reads files by itself.
    pub(crate) fn wishes_passthrough(&self) -> Capabilities {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.wish());
        self.passthrough.as_ref().map(|through| through.wish()).or(sealed).unwrap_or(Capabilities::NONE)
    }

    /// What it serves.
    #[must_use]
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// The volume, where it is on this machine.
    #[must_use]
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        self.volume.as_ref()
    }

    /// Has `call` told, once, that the mount has begun and what was agreed with the kernel. It is called before the first operation: it must not
    /// use the mount. Nobody has to try the mount to learn this, which would have the server wait for itself.
    pub fn when_started(&self, call: impl FnOnce(&Agreed) + Send + 'static) {
        *self.on_start.0.lock() = Some(Box::new(call));
    }

    /// The mount has begun.
    pub(crate) fn begun(&self, agreed: &Agreed) {
        if let Some(through) = &self.passthrough {
            through.started(agreed);
        }
        if let Some(sealed) = &self.sealed {
            sealed.started(agreed);
        }
        if let Some(call) = self.on_start.0.lock().take() {
            call(agreed);
        }
    }

    /// The answer to an operation on an inode. Where that is gone, the kernel asks once more for the name that it had it by.
    pub(crate) fn done<T>(
        &self,
        op: &'static str,
        ino: u64,
        result: std::result::Result<T, VfsError>,
    ) -> Result<T> {
        if let Err(VfsError::Stale(_)) = &result {
            self.vfs.files().was_gone();
        }
        self.looked_up(op, ino, result)
    }

    /// The answer to a look-up, which has no name behind it but the one that it was for, or a handle.
    pub(crate) fn looked_up<T>(
        &self,
        op: &'static str,
        ino: u64,
        result: std::result::Result<T, VfsError>,
    ) -> Result<T> {
        result.map_err(|error| self.trouble.answer(&self.vfs, op, ino, &error))
    }

    /// What was seen of a file through an open file: refused where a lock that was made through it was lost meanwhile.
    pub(crate) fn still_held<T>(
        &self,
        number: u64,
        through: Through,
        seen: std::result::Result<T, VfsError>,
    ) -> std::result::Result<T, VfsError> {
        seen.and_then(|seen| self.vfs.refuse_lost(ino(number), through).map(|()| seen))
    }

    /// Which set-id bits of `number` go, where `wanted` says that some do.
    pub(crate) fn kill(&self, req: &Request, number: u64, wanted: bool) -> Kill {
        if wanted { self.by(req, |caller| self.vfs.kill(ino(number), true, caller)) } else { Kill::Nothing }
    }

    fn held(&self, (since, parent): (Moment, u64), entry: Entry) -> Entry {
        let attr_ttl = self.attr_lifetime(since, ino(entry.node));
        Entry {
            entry_ttl: entry.entry_ttl.min(self.entry_lifetime(since, parent, Some(ino(entry.node)))),
            attr_ttl: entry.attr_ttl.min(attr_ttl),
            ..entry
        }
    }

    /// An entry of directory `parent`, looked at since `at.0`.
    pub(crate) fn entry(&self, at: (Moment, u64), attr: &VfsAttr) -> Entry {
        let through = self.passthrough.as_ref();
        self.held(at, through.map_or_else(|| convert::entry(attr), |through| through.entry(attr)))
    }

    /// What `.` of a number stands for: the same number. One who has a file handle asks for it.
    pub(crate) fn same_entry(&self, at: (Moment, u64), attr: &VfsAttr) -> Entry {
        let through = self.passthrough.as_ref();
        self.held(at, through.map_or_else(|| convert::entry(attr), |through| through.same_entry(at.1, attr)))
    }

    /// Adds an entry to a listing by `add`, unless that has no room (`false`).
    pub(crate) fn list_entry(
        &self,
        at: (Moment, u64),
        attr: &VfsAttr,
        add: impl FnOnce(&Entry) -> bool,
    ) -> bool {
        let entry = self.entry(at, attr);
        let added = add(&entry);
        if let Some(through) = self.passthrough.as_ref().filter(|_| !added) {
            through.untold(entry.node);
        }
        added
    }

    /// As [`VolumeFs::entry`], for a file that is open by its own number.
    pub(crate) fn own_entry(&self, at: (Moment, u64), attr: &VfsAttr) -> Entry {
        let through = self.passthrough.as_ref();
        self.held(at, through.map_or_else(|| convert::entry(attr), |through| through.own_entry(attr)))
    }

    pub(crate) fn attr(&self, since: Moment, attr: &VfsAttr) -> Attr {
        let ttl = self.attr_lifetime(since, attr.ino);
        let attr =
            self.passthrough.as_ref().map_or_else(|| convert::attr(attr), |through| through.attr(attr));
        Attr { ttl: attr.ttl.min(ttl), ..attr }
    }

    pub(crate) fn statx_of(&self, since: Moment, attr: &VfsAttr) -> StatxReply {
        let ttl = self.attr_lifetime(since, attr.ino);
        let reply =
            self.passthrough.as_ref().map_or_else(|| convert::statx(attr), |through| through.statx(attr));
        StatxReply { ttl: reply.ttl.min(ttl), ..reply }
    }

    /// Opens a file by one of its numbers, in the way that belongs to it.
    pub(crate) fn open_file(&self, req: &Request, number: u64, args: &FuseOpen) -> Result<FuseOpened> {
        self.permits(req, "open", number, Wish::Access(ino(number), wanted(args.flags)))?;
        let open = open_args(args.flags, self.kill(req, number, args.kill_suidgid));
        let route = match &self.passthrough {
            Some(through) => through.route(number, open.read_only && !open.truncate),
            None => Route::Cached,
        };
        if route == Route::Elsewhere {
            return Err(Errno::ESTALE);
        }
        let opened = self.done("open", number, self.vfs.open(ino(number), open))?;
        if opened.accessed {
            self.notices.note(number);
        }
        match &self.passthrough {
            Some(through) if route == Route::Beside => through.open(number, opened.fh).ok_or_else(|| {
                self.vfs.release(ino(number), opened.fh, None);
                Errno::ESTALE
            }),
            _ => Ok(self.opened(number, args.flags, &opened)),
        }
    }

    /// The answer to an open by the file's own number. A close is of interest only to locks that are kept here: a write that returned has been
    /// taken.
    pub(crate) fn opened(&self, number: u64, flags: u32, opened: &Opened) -> FuseOpened {
        if let Some(through) = self.passthrough.as_ref().filter(|_| is_for_writing(flags)) {
            through.writer_came(ino(number));
        }
        let no_flush = self.vfs.lock_keeper() == LockKeeper::Kernel;
        let file = self.sealed.as_ref().zip(opened.sealed);
        let passthrough = file.and_then(|(sealed, size)| {
            sealed.open((ino(number), size), opened.fh, || self.vfs.handles_of(ino(number)))
        });
        if passthrough.is_some() {
            let flags = OpenFlags::NONE.with(OpenFlags::NOFLUSH, no_flush);
            return FuseOpened { fh: opened.fh, flags, passthrough };
        }
        let direct = self.writes_directly(flags);
        let flags = OPEN_FLAGS.with(OpenFlags::NOFLUSH, no_flush).with(OpenFlags::DIRECT_IO, direct);
        FuseOpened { fh: opened.fh, flags, passthrough: None }
    }

    pub(crate) fn closed(&self, number: u64, args: &Release) {
        if let Some(through) = &self.passthrough {
            through.released(number, args.fh, is_for_writing(args.flags));
        }
        if let Some(sealed) = &self.sealed {
            sealed.released(ino(number), args.fh);
        }
        let flock_owner = args.flock_release.then_some(args.lock_owner);
        self.vfs.release(ino(number), args.fh, flock_owner);
    }

    pub(crate) fn forgotten(&self, number: u64, nlookup: u64) {
        if self.passthrough.as_ref().is_none_or(|through| through.forgotten(number, nlookup)) {
            self.vfs.forget(ino(number));
        }
    }

    /// Whether a change of the size belongs to the file's other number.
    pub(crate) fn is_elsewhere(&self, number: u64, resizes: bool) -> bool {
        match &self.passthrough {
            Some(through) if resizes && is_beside(number) => {
                through.withhold(number);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn lock(&self, number: u64, lock: &Lock, wait: bool, reply: LockReply) {
        match convert::lock_request(lock) {
            // Somebody's who may have closed the file just now.
            Some(request) if !wait && self.is_locked(number, &request) => {
                let (vfs, ino) = (Arc::clone(&self.vfs), ino(number));
                reply.after_earlier_closes(move |reply| {
                    vfs.locks().set(ino, request, false, Box::new(Waiter(reply)));
                });
            }
            Some(request) => self.vfs.locks().set(ino(number), request, wait, Box::new(Waiter(reply))),
            None => {
                let range = (lock.range.start, lock.range.end);
                let space = convert::lock_space(lock);
                let unlocked = self.vfs.locks().unlock(ino(number), space, lock.owner, range);
                reply.answer(self.done("unlock", number, unlocked));
            }
        }
    }

    fn is_locked(&self, number: u64, request: &LockRequest) -> bool {
        matches!(self.vfs.locks().conflict(ino(number), request), Ok(Some(_)))
    }
}

pub(crate) fn is_for_writing(flags: u32) -> bool {
    flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32
}
