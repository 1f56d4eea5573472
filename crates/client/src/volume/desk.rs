//! Where requests leave and recalls arrive.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_cluster::{Grant, Lease, Moment, Stamp, Terms};
use forebay_protocol::{Answer, Operation, Recall, Response, Welcome};
use forebay_types::{Epoch, Ino};
use rustc_hash::FxHashSet;

use crate::{
    ahead::{Ahead, Begun},
    asks::Asks,
    error::ClientError,
    link::{Answered, Events, Link, Patience},
    names::{Names, Tenure},
};

use super::{core::Core, jobs::Job};

/// Names, leases and the link: whom everything here asks.
pub(crate) struct Desk {
    pub(crate) names: Arc<Names>,
    pub(crate) link: Arc<Link>,
    /// Stands in front of it: what nobody else can see is done here, and told afterwards.
    pub(crate) ahead: Ahead,
    /// Kept alive here: the link knows it only weakly.
    pub(crate) reception: Arc<Reception>,
}

/// What a request has brought.
pub(crate) struct Told {
    pub(crate) answer: Answer,
    pub(crate) grants: Vec<Grant>,
    /// In which session it was answered.
    pub(crate) session: u64,
    /// The answer's inode came with a lease that is still held.
    pub(crate) leased: bool,
    pub(crate) tenure: Option<Tenure>,
}

impl Desk {
    /// Asks the owner, and takes the answer in. `hold`: keeps the lease to write on this inode if it comes.
    pub(crate) fn ask_for(
        &self,
        operation: Operation,
        wish: Option<Lease>,
        hold: Option<Ino>,
        bound: Option<u64>,
        patience: &Patience<'_>,
    ) -> Result<Told, ClientError> {
        let wish = self.ahead.wish(&operation, wish);
        let under = self.names.begin(&operation, wish);
        let (response, session, (leased, tenure)) = match self.ahead.begin(&operation, bound, patience)? {
            Begun::Here(response, number) => {
                let taken = self.names.finish(under, &operation, &response, number, hold);
                (response, number, taken)
            }
            Begun::There(passing) => {
                let Answered { response, operation, number, keep } =
                    self.link.ask(operation, wish, bound, (under, passing), patience)?;
                let taken = self.names.finish(keep.0, &operation, &response, number, hold);
                keep.1.done(&operation, &response);
                (response, number, taken)
            }
        };
        let Response { answer, grants } = response;
        Ok(Told { answer, grants, session, leased, tenure })
    }

    /// The same, as long as the mount's options say.
    pub(crate) fn told(&self, operation: Operation, wish: Option<Lease>) -> Result<Told, ClientError> {
        self.told_while(None, operation, wish)
    }

    /// The same, in the session in which a lock is held, if one is.
    pub(crate) fn told_while(
        &self,
        held: Option<u64>,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Told, ClientError> {
        self.ask_for(operation, wish, None, held, &self.link.patience())
    }
}

impl Asks for Desk {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        let Told { answer, grants, .. } = self.told(operation, wish)?;
        Ok(Response { answer, grants })
    }

    fn ask_while(&self, held: Option<u64>, operation: Operation) -> Result<Response, ClientError> {
        let Told { answer, grants, .. } = self.told_while(held, operation, None)?;
        Ok(Response { answer, grants })
    }

    fn patience(&self) -> Patience<'static> {
        self.link.patience()
    }

    fn session(&self) -> u64 {
        self.link.number()
    }

    fn ask_in(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError> {
        // What is kept back is not given up because the owner is away for long: its session decides.
        self.ask_within(session, operation, wish, &Patience::FOREVER)
    }

    fn ask_within(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
        patience: &Patience<'_>,
    ) -> Result<Response, ClientError> {
        let Told { answer, grants, .. } = self.ask_for(operation, wish, None, Some(session), patience)?;
        Ok(Response { answer, grants })
    }
}

/// Hears what the link has to tell.
pub(crate) struct Reception {
    pub(super) names: Arc<Names>,
    core: OnceLock<Weak<Core>>,
    /// Whether the volume has a limit, as was told last.
    limited: AtomicBool,
}

impl Reception {
    pub(crate) fn new(names: Arc<Names>) -> Arc<Reception> {
        Arc::new(Reception { names, core: OnceLock::new(), limited: AtomicBool::new(false) })
    }

    /// From now on it tells the volume.
    pub(crate) fn open(&self, core: Weak<Core>) {
        // Only once for a volume.
        let _ = self.core.set(core);
        if let Some(core) = self.core() {
            core.bytes.limited(self.limited.load(SeqCst));
        }
    }

    pub(super) fn core(&self) -> Option<Arc<Core>> {
        self.core.get()?.upgrade()
    }
}

impl Events for Reception {
    fn begun(&self, number: u64, welcome: &Welcome, sent: Moment) {
        let session = Duration::from_millis(welcome.term_ms);
        let margin = Terms::default().margin.max(session / 10).min(session / 2);
        self.names.begun(number, Terms { session, margin, ..Terms::default() }, welcome.epoch, sent);
    }

    fn over(&self) {
        let lost = self.names.over();
        if let Some(core) = self.core() {
            core.session_over(lost);
        }
    }

    fn heard(&self, number: u64, sent: Moment) {
        self.names.heard(number, sent);
    }

    fn epoch(&self) -> Epoch {
        self.names.epoch()
    }

    fn to_reclaim(&self, epoch: Epoch) -> Vec<(Ino, Lease)> {
        let mut leases = self.names.to_reclaim(epoch);
        // What is open is leased or told; but that a lease which was returned was of an open inode, a former owner may not have heard.
        let open = self.core().map(|core| core.opens.all()).unwrap_or_default();
        let leased: FxHashSet<Ino> = leases.iter().map(|(ino, _)| *ino).collect();
        leases.extend(open.into_iter().filter(|ino| !leased.contains(ino)).map(|ino| (ino, Lease::Read)));
        leases
    }

    fn reclaimed(&self, epoch: Epoch, grants: &[Grant]) {
        let lost = self.names.reclaimed(epoch, grants);
        // Before anything is asked of the new owner: a lease that it gives has nothing to say of what was known by a former one.
        if let Some(core) = self.core() {
            core.leases_lost(&lost);
        }
    }

    fn recalled(&self, ino: Ino, keep: Option<Lease>, stamp: Stamp) {
        if let Some(core) = self.core() {
            core.jobs.put(Job::Recall { ino, keep, stamp });
        }
    }

    fn all_recalled(&self, leases: Vec<Recall>) {
        let Some(core) = self.core() else { return };
        // What the kernel has to drop something for it may have to be waited for: each by itself.
        let (together, alone): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|lease| lease.keep == Some(Lease::Read));
        for Recall { ino, keep, stamp } in alone {
            core.jobs.put(Job::Recall { ino, keep, stamp });
        }
        if !together.is_empty() {
            core.jobs.put(Job::Recalls(together));
        }
    }

    fn lock_free(&self, ino: Ino) {
        if let Some(core) = self.core() {
            core.jobs.put(Job::LockFree(ino));
        }
    }

    fn greeted(&self) {
        if let Some(core) = self.core() {
            // What it was told meanwhile has not come here.
            core.bytes.something_lost();
            core.jobs.put(Job::Greeted);
        }
    }

    fn lost(&self) {
        if let Some(core) = self.core() {
            core.bytes.something_lost();
        }
    }

    fn limited(&self, limited: bool) {
        self.limited.store(limited, SeqCst);
        if let Some(core) = self.core() {
            core.bytes.limited(limited);
            if limited {
                core.jobs.put(Job::Room);
            }
        }
    }
}
