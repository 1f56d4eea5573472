//! What all of a shared volume's operations stand on: inodes as they are now, the right to write, and what a recall sets off.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use forebay_cluster::{Lease, Recalled, Stamp};
use forebay_meta::{Inode, MetaError};
use forebay_protocol::{Answer, Operation, Rights, VolumeInfo};
use forebay_types::Ino;
use forebay_vfs::{KernelCaches, Told, VfsError};
use parking_lot::Mutex;

use crate::{
    asks::Asks,
    data::Contents,
    error::ClientError,
    link::Patience,
    names::{Tenure, inode_of, is_sealed},
};

use super::{
    desk::{Desk, Told as Answered},
    errors::failed,
    jobs::{Job, Jobs},
    locks::SharedLocks,
    opens::Opens,
    root::Root,
    seals::Seals,
};

/// How long a recall tries to have stored what was kept back. Others wait for it: after that it is lost, which the next fsync says.
const SETTLE_PATIENCE: Duration = Duration::from_secs(20);
const SETTLE_AGAIN: Duration = Duration::from_millis(200);
/// Appends of different files that share a lock are few.
pub(crate) const APPENDS: usize = 64;

/// A shared volume, without its face to the vfs.
pub(crate) struct Core {
    pub(crate) desk: Arc<Desk>,
    pub(crate) bytes: Arc<Contents>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) opens: Opens,
    pub(crate) seals: Seals,
    pub(crate) locks: SharedLocks,
    pub(crate) kernel: OnceLock<Arc<dyn KernelCaches>>,
    pub(crate) info: VolumeInfo,
    pub(crate) rights: Rights,
    /// What the mount calls its root.
    pub(crate) root: Root,
    pub(crate) read_only: bool,
    pub(crate) appends: [Mutex<()>; APPENDS],
}

/// An inode that may be read from.
pub(crate) struct Readable {
    pub(crate) inode: Arc<Inode>,
    /// It is known under a lease, or its contents are final.
    pub(crate) leased: bool,
}

impl Core {
    // ---- inodes --------------------------------------------------------------------------------------------------

    /// An inode as it is, with what is kept back of it.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        Ok(self.readable(ino)?.inode)
    }

    /// The same, to be read from.
    pub(crate) fn readable(&self, ino: Ino) -> Result<Readable, VfsError> {
        let mut wish = Lease::Read;
        loop {
            let commits = self.desk.names.commits();
            if let Some(inode) = self.desk.names.inode(ino) {
                let inode = self.put_over(inode);
                if self.desk.names.commits() == commits {
                    return Ok(Readable { inode, leased: true });
                }
                continue;
            }
            if self.opens.needs_lease(ino) {
                // A removal of ours does not say that it is open: it comes first, or after the lease.
                self.desk.names.wait_while_busy(ino, &self.desk.link.patience())?;
            }
            let told = self.desk.told(Operation::Inode(ino), Some(wish))?;
            let Answer::Inode(answer) = told.answer else { return Err(unexpected(&told.answer, ino)) };
            let leased = told.leased || is_sealed(&answer.row);
            if !leased && self.opens.needs_lease(ino) {
                // Others want it. It is asked again, as its last name may have gone meanwhile.
                if !self.hold(ino)? {
                    wish = Lease::Write;
                }
                continue;
            }
            let inode = self.put_over(Arc::new(inode_of(&answer)));
            if self.desk.names.commits() == commits {
                return Ok(Readable { inode, leased });
            }
        }
    }

    /// Tells the owner that an inode is open here, where there is no lease by which it would ask. False: its release does not know how to be told, and only the right to
    /// write is sure to be given.
    fn hold(&self, ino: Ino) -> Result<bool, VfsError> {
        self.opens.wait_released(ino, &self.desk.link.patience())?;
        let (number, patience) = (self.desk.link.number(), self.desk.link.patience());
        match self.desk.ask_for(Operation::Hold(vec![ino]), None, None, Some(number), &patience) {
            Ok(told) => match told.answer {
                Answer::Committed(gone) if gone.is_empty() => {}
                Answer::Committed(_) => return Err(VfsError::Stale(ino)),
                other => return Err(unexpected(&other, ino)),
            },
            // The next one begins with nothing open.
            Err(ClientError::SessionEnded) => return Ok(true),
            Err(ClientError::Unexpected(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if !self.opens.tell(ino) {
            // It was closed meanwhile.
            self.jobs.put(Job::Release(ino, self.desk.link.number()));
        }
        if self.desk.link.number() != number {
            self.opens.not_told(ino);
        }
        Ok(true)
    }

    /// An inode that an answer was about, as it is.
    pub(crate) fn told_inode(&self, told: &Answered, commits: u64) -> Result<Arc<Inode>, VfsError> {
        let Some(answer) = told.answer.inode() else { return Err(unexpected(&told.answer, Ino(0))) };
        let stale = !told.leased && !is_sealed(&answer.row) && self.opens.needs_lease(answer.ino);
        if stale || self.desk.names.commits() != commits {
            return self.inode(answer.ino);
        }
        let inode = self.put_over(Arc::new(inode_of(answer)));
        if self.desk.names.commits() == commits { Ok(inode) } else { self.inode(answer.ino) }
    }

    /// Puts what is kept back over an inode.
    pub(crate) fn put_over(&self, mut inode: Arc<Inode>) -> Arc<Inode> {
        if inode.row.kind == forebay_types::FileKind::Regular {
            self.bytes.overlay(Arc::make_mut(&mut inode));
            self.opens.see(&inode);
        }
        inode
    }

    // ---- the right to write --------------------------------------------------------------------------------------

    /// Takes the right to write and keeps it: an inode under it, and in which session.
    pub(crate) fn writable(&self, ino: Ino) -> Result<(Tenure, Arc<Inode>, u64), VfsError> {
        loop {
            let number = self.desk.link.number();
            let tenure = match self.desk.names.tenure(ino) {
                Some(tenure) => tenure,
                None => {
                    let patience = self.desk.link.patience();
                    let asked = Operation::Inode(ino);
                    let told = self.desk.ask_for(asked, Some(Lease::Write), Some(ino), None, &patience)?;
                    match told.answer.inode() {
                        None => return Err(unexpected(&told.answer, ino)),
                        Some(inode) if is_sealed(&inode.row) => return Err(MetaError::Sealed(ino).into()),
                        Some(_) => {}
                    }
                    // Without it, an owner has just taken over, or the recall came first.
                    let Some(tenure) = told.tenure else { continue };
                    tenure
                }
            };
            match self.under(ino, number) {
                Ok(inode) if is_sealed(&inode.row) => return Err(MetaError::Sealed(ino).into()),
                Ok(inode) => return Ok((tenure, inode, number)),
                // The session that had the right is over.
                Err(ClientError::SessionEnded) => {}
                Err(ClientError::Failed(failure)) => return Err(failed(failure, ino)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The inode under a tenure of this session. The owner answers without waiting for anybody: it is asked about nothing but what this session alone may see.
    pub(crate) fn under(&self, ino: Ino, number: u64) -> Result<Arc<Inode>, ClientError> {
        let patience = self.desk.link.patience();
        loop {
            let commits = self.desk.names.commits();
            let inode = match self.desk.names.inode_under(ino) {
                Some(inode) => inode,
                None => {
                    let asked = Operation::Inode(ino);
                    let told = self.desk.ask_for(asked, Some(Lease::Write), None, Some(number), &patience)?;
                    match told.answer {
                        Answer::Inode(answer) => Arc::new(inode_of(&answer)),
                        Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
                        other => return Err(ClientError::Unexpected(format!("{other:?}"))),
                    }
                }
            };
            let inode = self.put_over(inode);
            if self.desk.names.commits() == commits {
                return if self.desk.link.number() == number {
                    Ok(inode)
                } else {
                    Err(ClientError::SessionEnded)
                };
            }
        }
    }

    /// Sends what is kept back of these files, before the owner is asked to do something with them. Fails where something of them was lost and nobody was told yet:
    /// what is not whole takes no other file's place.
    pub(crate) fn settle(&self, inos: &[Ino]) -> Result<(), VfsError> {
        self.settle_within(inos, &self.desk.link.patience())
    }

    /// As [`Core::settle`], as long as `patience` lasts.
    pub(crate) fn settle_within(&self, inos: &[Ino], patience: &Patience<'_>) -> Result<(), VfsError> {
        let kept: Vec<Ino> = inos.iter().copied().filter(|ino| self.bytes.has_kept(*ino)).collect();
        if !kept.is_empty() {
            self.bytes.settle_within(&kept, patience)?;
        }
        let lost = inos.iter().find_map(|ino| self.bytes.failure(*ino));
        lost.map_or(Ok(()), |lost| Err(VfsError::Failed(Box::new(lost))))
    }

    /// Sends all that is kept back, however long that takes.
    pub(crate) fn settle_all(&self) -> Result<(), ClientError> {
        self.bytes.settle_all().and(self.desk.ahead.settle_all_within(&Patience::FOREVER))
    }

    pub(crate) fn append_lock(&self, ino: Ino) -> &Mutex<()> {
        &self.appends[ino.0 as usize % APPENDS]
    }

    // ---- jobs ----------------------------------------------------------------------------------------------------

    pub(crate) fn work(self: &Arc<Self>, job: Job) {
        match job {
            Job::Recall { ino, keep, stamp } => self.recalled(ino, keep, stamp),
            Job::GiveUp(leases) => self.given_up(&leases),
            Job::Recalls(leases) => self.recalled_together(&leases),
            Job::Owed(ino) => self.pay(ino),
            Job::Seal => self.seal_closed(),
            Job::Release(ino, session) => self.opens.release(ino, || self.tell_released(ino, session)),
            Job::Unlock(ino, what, session) => self.locks.unlock_later(&self.desk, ino, &what, session),
            Job::LockFree(ino) => self.locks.free(&self.desk, ino),
            Job::Interrupted(unique) => self.locks.interrupted(&self.desk, unique),
            Job::Greeted => self.greeted(),
            Job::Room => self.renew_room(),
            Job::Lost(inos) => self.leases_lost(&inos),
        }
    }

    /// Tells the owner that an inode is open here no longer. What nobody has any more nobody reads.
    fn tell_released(&self, ino: Ino, session: u64) {
        match self.desk.ask_in(session, Operation::Release(vec![ino]), None).map(|told| told.answer) {
            Ok(Answer::Committed(gone)) if gone.contains(&ino) && !self.opens.is_open(ino) => {
                self.bytes.discard(ino);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, %ino, "the owner was not told that a file is closed"),
        }
    }

    /// Gives a lease back. The order is that of `docs/design/shared-client.md`.
    fn recalled(self: &Arc<Self>, ino: Ino, keep: Option<Lease>, stamp: Stamp) {
        let is_directory = self.desk.names.is_directory(ino);
        if self.desk.names.recall(ino, keep, stamp) == Recalled::NotHeld {
            // The owner may have no such lease any more, and then hears nothing by this.
            self.desk.link.give_back(&[(ino, stamp, None, self.opens.tell_perhaps(ino))]);
            return;
        }
        let mut told = Vec::new();
        if let Some(kernel) = self.kernel.get().filter(|_| keep.is_none()) {
            told.push(kernel.drop_inode(ino, is_directory == Some(true)));
            if is_directory != Some(false) {
                told.push(kernel.drop_entries(ino));
            }
        }
        self.desk.names.wait_for_tenures(ino);
        // Each: the one that was told last may be done first.
        told.into_iter().for_each(|told| self.wait_for_kernel(&[ino], told, None));
        self.desk.ahead.recalled(ino);
        self.settle_recalled(ino);
        if keep.is_none() {
            self.bytes.forget(ino);
        }
        if let Some((stamp, kept)) = self.desk.names.returned(ino) {
            self.desk.link.give_back(&[(ino, stamp, kept, self.opens.tell(ino))]);
        }
        if self.bytes.has_kept(ino) {
            self.jobs.put(Job::Owed(ino));
        }
    }

    /// Waits until the kernel has dropped what it had of inodes. It may have to wait for a page or a directory that a request has locked, and that request, at
    /// the owner, for whoever recalls the lease: then the kernel is not waited for, nor longer than `most`. `inos` are in their order.
    pub(super) fn wait_for_kernel(&self, inos: &[Ino], told: Told, most: Option<Duration>) {
        let Some(kernel) = self.kernel.get().map(Arc::clone) else { return };
        let done = Arc::new(AtomicBool::new(false));
        let (names, tell) = (Arc::clone(&self.desk.names), Arc::clone(&done));
        let waiter = std::thread::Builder::new().name("forebay-kernel".to_owned());
        let spawned = waiter.spawn(move || {
            kernel.wait(told);
            tell.store(true, Ordering::SeqCst);
            names.stir();
        });
        match spawned {
            Ok(_) => self.desk.names.wait_unless_asked(inos, &done, most),
            Err(error) => tracing::error!(%error, "no thread to wait for the kernel"),
        }
    }

    /// Has what was kept back under a lease stored and told.
    fn settle_recalled(&self, ino: Ino) {
        if !self.desk.names.was_to_write(ino) {
            return;
        }
        let until = Instant::now() + SETTLE_PATIENCE;
        let number = self.desk.link.number();
        while self.bytes.has_kept(ino) && self.desk.link.number() == number {
            match self.bytes.settle(&[ino]) {
                Ok(()) => return,
                Err(error) if Instant::now() >= until => {
                    tracing::error!(%error, %ino, "what was written cannot be stored, and others wait for it: it is lost");
                    self.bytes.lose(ino, error);
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, %ino, "what was written cannot be stored now");
                    std::thread::sleep(SETTLE_AGAIN);
                }
            }
        }
    }

    /// Gets the right to write for bytes that were taken without it, and has them told.
    fn pay(&self, ino: Ino) {
        if !self.bytes.has_kept(ino) {
            return;
        }
        let paid = self.writable(ino).and_then(|(_tenure, ..)| Ok(self.bytes.settle(&[ino])?));
        if let Err(error) = paid {
            tracing::warn!(%error, %ino, "pages that the kernel wrote back are not stored");
        }
    }

    /// After a greeting: what is open is leased or told again, and who waits for a lock asks again.
    fn greeted(&self) {
        for ino in self.opens.all() {
            if self.opens.needs_lease(ino)
                && !self.desk.names.has(ino, Lease::Read)
                && let Err(error) = self.inode(ino)
            {
                tracing::info!(%error, %ino, "an open file is gone");
            }
        }
        self.locks.ask_again(&self.desk);
    }

    /// Has room set aside for what is kept back: before, there was no limit, or another owner.
    fn renew_room(&self) {
        if let Err(error) = self.bytes.renew_room() {
            tracing::debug!(%error, "no room is set aside for what is kept back");
        }
    }

    /// Forgets what was known by leases that are gone, and has the kernel drop it. Does not wait.
    pub(crate) fn leases_lost(&self, inos: &[Ino]) {
        for ino in inos {
            self.bytes.forget(*ino);
            if let Some(kernel) = self.kernel.get() {
                kernel.drop_inode(*ino, false);
                kernel.drop_entries(*ino);
            }
        }
    }

    /// The session is over: what was kept back is lost, what is locked is not, and what is open is to be told again.
    pub(crate) fn session_over(&self, inos: Vec<Ino>) {
        self.bytes.session_ended(&|ino| self.desk.names.is_sealed(ino));
        self.seals.session_over();
        self.opens.forgotten();
        inos.iter().for_each(|ino| self.bytes.forget(*ino));
        self.jobs.put(Job::Lost(inos));
    }
}

/// An answer that is none to what was asked.
pub(crate) fn unexpected(answer: &Answer, ino: Ino) -> VfsError {
    match answer {
        Answer::Failed(failure) => failed(*failure, ino),
        other => ClientError::Unexpected(format!("{other:?}")).into(),
    }
}
