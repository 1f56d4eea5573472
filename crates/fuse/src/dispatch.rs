//! One decoded request to one call of the file system to one reply, for whatever transport.
//!
//! Guarantees: a request that expects an answer is either answered in the [`Reply`], or its [`LockReply`] exists. A
//! panic in the file system becomes EIO. Nothing here reads or writes a device.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::errno::Errno;
use crate::fs::Filesystem;
use crate::lock_reply::{LockReply, Pending, ReplyPort};
use crate::protocol::{
    DecodeError, Dialect, Header, Opcode, Operation, Parts, decode, put_attr_out, put_entry, put_lock,
    put_open, put_statfs, put_statx, put_u32, put_u64, supplementary_group,
};
use crate::reply::{DirBuffer, DirPlusBuffer, Reply};
use crate::request::Request;
use crate::session::Observer;
use crate::signalled::Signalled;
use crate::types::*;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The reply is ready to be sent; bytes of data moved, for the observer.
    Answer { error: Option<Errno>, bytes: u64 },
    /// There is nothing to send.
    Silent,
    /// The file system has the [`LockReply`].
    Deferred,
}

/// What serves the requests of one mount.
pub(crate) struct Dispatcher<F: ?Sized> {
    pub fs: Arc<F>,
    pub dialect: Dialect,
    pub pending: Arc<Pending>,
    pub observer: Option<Arc<dyn Observer>>,
    pub signalled: Signalled,
}

type Served = Result<Done, Errno>;

/// What a method left to do.
enum Done {
    /// The answer is in the reply, with so many bytes of data moved.
    Reply(u64),
    Silent,
    Deferred,
}

const DONE: Served = Ok(Done::Reply(0));

impl<F: Filesystem + ?Sized> Dispatcher<F> {
    /// Serves one request whose header is decoded and whose other parts `split` finds. `reply` has been started.
    pub(crate) fn serve<'a>(
        &self,
        header: &Header,
        split: impl FnOnce(Opcode) -> Result<Parts<'a>, DecodeError>,
        port: &Arc<dyn ReplyPort>,
        reply: &mut Reply,
    ) -> Outcome {
        let decoded =
            Opcode::from_raw(header.opcode).ok_or(DecodeError::UnknownOpcode(header.opcode)).and_then(|op| {
                let parts = split(op)?;
                let operation = decode(op, header.nodeid, parts.fixed, parts.payload, self.dialect)?;
                Ok((op, operation, parts.extensions))
            });
        let (op, operation, extensions) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return undecodable(header, error, reply),
        };
        let request = Request {
            unique: header.unique,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            supplementary_group: supplementary_group(extensions),
        };
        let call = Call { server: self, op, req: &request, ino: header.nodeid, port };
        self.pending.came(header.unique, op);
        let served = catch_unwind(AssertUnwindSafe(|| {
            self.fs.called(&request);
            call.names(operation, reply)
        }));
        self.pending.served(header.unique, op);
        let outcome = match served {
            Ok(Ok(Done::Reply(bytes))) => Outcome::Answer { error: None, bytes },
            Ok(Ok(Done::Silent)) => Outcome::Silent,
            Ok(Ok(Done::Deferred)) => Outcome::Deferred,
            Ok(Err(error)) => Outcome::Answer { error: Some(error), bytes: 0 },
            Err(panic) => after_panic(op, header, panic.as_ref()),
        };
        if op == Opcode::Setlkw && outcome == Outcome::Deferred && !port.tells_early_signals() {
            self.look_for_a_signal(&request);
        }
        if let Outcome::Answer { error, .. } = outcome {
            reply.finish(header.unique, error);
        }
        outcome
    }

    /// Has a caller that waits for a lock hear of a signal that came before its request, of which the kernel does not tell.
    fn look_for_a_signal(&self, request: &Request) {
        let unique = request.unique;
        let (fs, pending) = (Arc::clone(&self.fs), Arc::clone(&self.pending));
        if !pending.owes(unique) {
            return;
        }
        let is_owed = {
            let pending = Arc::clone(&pending);
            move || pending.owes(unique)
        };
        let told = move || {
            let told = catch_unwind(AssertUnwindSafe(|| interrupt(&*fs, &pending, unique)));
            if let Err(panic) = told {
                tracing::error!(
                    unique,
                    "the file system panicked when it heard of a signal: {}",
                    said(panic.as_ref())
                );
            }
        };
        self.signalled.watch(request, is_owed, told);
    }
}

/// The caller of request `unique` got a signal.
fn interrupt<F: Filesystem + ?Sized>(fs: &F, pending: &Pending, unique: u64) {
    pending.interrupt(unique);
    fs.interrupt(unique);
}

impl<F: ?Sized> Dispatcher<F> {
    /// The time, if anybody wants to know how long requests take.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.observer.as_ref().map(|_| Instant::now())
    }

    /// Tells the observer of an answered request that was taken at `began`.
    pub(crate) fn observe(&self, began: Option<Instant>, opcode: u32, error: Option<Errno>, bytes: u64) {
        if let (Some(began), Some(observer), Some(op)) = (began, &self.observer, Opcode::from_raw(opcode)) {
            let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            observer.request(op, nanos, error, bytes);
        }
    }
}

fn undecodable(header: &Header, error: DecodeError, reply: &mut Reply) -> Outcome {
    let errno = match error {
        DecodeError::UnknownOpcode(_) => Errno::ENOSYS,
        DecodeError::Short { .. } | DecodeError::Malformed(_) => Errno::EIO,
    };
    tracing::warn!(opcode = header.opcode, unique = header.unique, answer = %errno, "request not understood: {error}");
    if header.unique == 0 || Opcode::from_raw(header.opcode).is_some_and(expects_no_answer) {
        return Outcome::Silent;
    }
    reply.finish(header.unique, Some(errno));
    Outcome::Answer { error: Some(errno), bytes: 0 }
}

fn expects_no_answer(op: Opcode) -> bool {
    matches!(op, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply)
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let string = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(string).unwrap_or("no message")
}

fn after_panic(op: Opcode, header: &Header, panic: &(dyn Any + Send)) -> Outcome {
    tracing::error!(
        op = op.name(),
        ino = header.nodeid,
        unique = header.unique,
        "the file system panicked; the caller gets EIO: {}",
        said(panic)
    );
    match op {
        // Whoever has the LockReply answers; unwinding has dropped it if it was still in the method.
        Opcode::Setlk | Opcode::Setlkw => Outcome::Deferred,
        _ if expects_no_answer(op) => Outcome::Silent,
        _ => Outcome::Answer { error: Some(Errno::EIO), bytes: 0 },
    }
}

/// One request on its way through the file system.
struct Call<'a, F: ?Sized> {
    server: &'a Dispatcher<F>,
    op: Opcode,
    req: &'a Request,
    ino: u64,
    port: &'a Arc<dyn ReplyPort>,
}

fn entry(reply: &mut Reply, entry: &Entry) -> Served {
    put_entry(&mut reply.head, entry);
    DONE
}

fn attr(reply: &mut Reply, attr: &Attr) -> Served {
    put_attr_out(&mut reply.head, attr);
    DONE
}

fn opened(reply: &mut Reply, opened: &Opened) -> Served {
    put_open(&mut reply.head, opened);
    DONE
}

fn created(reply: &mut Reply, (entry, opened): &(Entry, Opened)) -> Served {
    put_entry(&mut reply.head, entry);
    put_open(&mut reply.head, opened);
    DONE
}

fn value(reply: &mut Reply, value: u64) -> Served {
    put_u64(&mut reply.head, value);
    DONE
}

fn narrow(reply: &mut Reply, value: u32) -> Served {
    put_u32(&mut reply.head, value);
    put_u32(&mut reply.head, 0);
    DONE
}

/// An attribute's value or the list of names: the size alone if none is asked, `ERANGE` if it does not fit.
fn sized(reply: &mut Reply, bytes: Bytes, size: u32) -> Served {
    if size == 0 {
        return narrow(reply, u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG)?);
    }
    if bytes.len() > size as usize {
        return Err(Errno::ERANGE);
    }
    reply.data.reset(bytes.len());
    reply.data.push(bytes);
    DONE
}

impl<F: Filesystem + ?Sized> Call<'_, F> {
    /// Operations on names and attributes; the others go on to [`Call::files`].
    fn names(&self, operation: Operation<'_>, reply: &mut Reply) -> Served {
        let (fs, req, ino) = (&*self.server.fs, self.req, self.ino);
        match operation {
            Operation::Lookup { name } => entry(reply, &fs.lookup(req, ino, name)?),
            Operation::Getattr { fh } => attr(reply, &fs.getattr(req, ino, fh)?),
            Operation::Setattr(set) => attr(reply, &fs.setattr(req, ino, &set)?),
            Operation::Readlink => {
                let target = fs.readlink(req, ino)?;
                reply.data.reset(target.len());
                reply.data.push(target);
                DONE
            }
            Operation::Symlink { name, target } => entry(reply, &fs.symlink(req, ino, name, target)?),
            Operation::Mknod { name, args } => entry(reply, &fs.mknod(req, ino, name, &args)?),
            Operation::Mkdir { name, mode, umask } => entry(reply, &fs.mkdir(req, ino, name, mode, umask)?),
            Operation::Unlink { name } => fs.unlink(req, ino, name).and(DONE),
            Operation::Rmdir { name } => fs.rmdir(req, ino, name).and(DONE),
            Operation::Rename { name, new_parent, new_name, flags } => {
                fs.rename(req, ino, name, new_parent, new_name, flags).and(DONE)
            }
            Operation::Link { ino: target, new_name } => entry(reply, &fs.link(req, target, ino, new_name)?),
            Operation::Create { name, args } => created(reply, &fs.create(req, ino, name, &args)?),
            Operation::Tmpfile(args) => created(reply, &fs.tmpfile(req, ino, &args)?),
            Operation::Setxattr { name, value, args } => fs.setxattr(req, ino, name, value, &args).and(DONE),
            Operation::Getxattr { name, size } => sized(reply, fs.getxattr(req, ino, name)?, size),
            Operation::Listxattr { size } => sized(reply, fs.listxattr(req, ino)?, size),
            Operation::Removexattr { name } => fs.removexattr(req, ino, name).and(DONE),
            Operation::Access { mask } => fs.access(req, ino, mask).and(DONE),
            Operation::Statx(args) => {
                put_statx(&mut reply.head, &fs.statx(req, ino, &args)?);
                DONE
            }
            Operation::Statfs => {
                put_statfs(&mut reply.head, &fs.statfs(req, ino)?);
                DONE
            }
            Operation::Forget { nlookup } => {
                fs.forget(ino, nlookup);
                Ok(Done::Silent)
            }
            Operation::BatchForget { forgets } => {
                fs.forget_batch(forgets);
                Ok(Done::Silent)
            }
            other => self.files(other, reply),
        }
    }

    /// Operations on open files; the others go on to [`Call::rest`].
    fn files(&self, operation: Operation<'_>, reply: &mut Reply) -> Served {
        let (fs, req, ino) = (&*self.server.fs, self.req, self.ino);
        match operation {
            Operation::Open(args) => opened(reply, &fs.open(req, ino, &args)?),
            Operation::Opendir(args) => opened(reply, &fs.opendir(req, ino, &args)?),
            Operation::Read(args) => {
                reply.data.reset(args.size as usize);
                fs.read(req, ino, &args, &mut reply.data)?;
                Ok(Done::Reply(reply.data.len() as u64))
            }
            Operation::Write { args, data } => {
                let written = fs.write(req, ino, &args, data)?;
                narrow(reply, written)?;
                Ok(Done::Reply(u64::from(written)))
            }
            Operation::Readdir { fh, offset, size } => {
                let mut out = DirBuffer::new(&mut reply.head, size as usize);
                fs.readdir(req, ino, fh, offset, &mut out)?;
                Ok(Done::Reply(reply.body_len() as u64))
            }
            Operation::Readdirplus { fh, offset, size } => {
                let mut out = DirPlusBuffer::new(&mut reply.head, size as usize);
                fs.readdirplus(req, ino, fh, offset, &mut out)?;
                Ok(Done::Reply(reply.body_len() as u64))
            }
            Operation::Release(args) => fs.release(req, ino, &args).and(DONE),
            Operation::Releasedir(args) => fs.releasedir(req, ino, &args).and(DONE),
            Operation::Fsync { fh, datasync } => fs.fsync(req, ino, fh, datasync).and(DONE),
            Operation::Fsyncdir { fh, datasync } => fs.fsyncdir(req, ino, fh, datasync).and(DONE),
            Operation::Flush { fh, lock_owner } => fs.flush(req, ino, fh, lock_owner).and(DONE),
            Operation::Fallocate(args) => fs.fallocate(req, ino, &args).and(DONE),
            Operation::Lseek { fh, offset, whence } => value(reply, fs.lseek(req, ino, fh, offset, whence)?),
            Operation::CopyFileRange { args, wide } => {
                let copied = fs.copy_file_range(req, &args)?;
                match wide {
                    true => value(reply, copied)?,
                    false => narrow(reply, u32::try_from(copied).map_err(|_| Errno::EIO)?)?,
                };
                Ok(Done::Reply(copied))
            }
            other => self.rest(other, reply),
        }
    }

    /// Locks and what is rare.
    fn rest(&self, operation: Operation<'_>, reply: &mut Reply) -> Served {
        let (fs, req, ino) = (&*self.server.fs, self.req, self.ino);
        match operation {
            Operation::Getlk(lock) => {
                put_lock(&mut reply.head, &fs.getlk(req, ino, &lock)?);
                DONE
            }
            Operation::Setlk(lock) => {
                fs.setlk(req, ino, &lock, self.lock_reply());
                Ok(Done::Deferred)
            }
            Operation::Setlkw(lock) => {
                fs.setlkw(req, ino, &lock, self.lock_reply());
                Ok(Done::Deferred)
            }
            Operation::Interrupt { unique } => {
                interrupt(fs, &self.server.pending, unique);
                Ok(Done::Silent)
            }
            Operation::Bmap { block, blocksize } => value(reply, fs.bmap(req, ino, blocksize, block)?),
            Operation::Ioctl { args, data } => {
                let mut answer = fs.ioctl(req, ino, &args, data)?;
                answer.data.truncate(args.out_size as usize);
                put_u32(&mut reply.head, answer.result as u32);
                reply.head.extend_from_slice(&[0; 12]);
                reply.data.reset(answer.data.len());
                reply.data.push(answer.data);
                DONE
            }
            Operation::Poll(args) => narrow(reply, fs.poll(req, ino, &args)?),
            Operation::Syncfs => fs.syncfs(req, ino).and(DONE),
            // The end of the mount is told by the session, once, when all has returned.
            Operation::Destroy => DONE,
            // A second INIT: the mount has begun long ago.
            Operation::Init(_) => Err(Errno::EIO),
            _ if self.op == Opcode::NotifyReply => Ok(Done::Silent),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn lock_reply(&self) -> LockReply {
        let server = self.server;
        LockReply::new(self.req.unique, self.op, &server.pending, self.port, server.observer.as_ref())
    }
}
