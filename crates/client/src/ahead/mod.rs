//! Working ahead of the owner in directories that nobody else works in (`docs/design/delegation.md`).
//!
//! Guarantees: what is answered here is what the owner will do, in the order of the answers; nobody else sees any of it without all that came before, or sees
//! something that was changed here as it was; what [`Ahead::settle_within`] returned for is durable. Relies on: [`Leases`] says no as soon as a lease may be had by
//! another session, and [`Ahead::recalled`] returns before such a lease is returned; nothing of this is called by [`Leases`] or [`Asks`].
//!
//! [`Ahead`] stands in front of the link: an operation is either answered by [`Ahead::begin`], or goes on to the owner, with
//! the lease that [`Ahead::wish`] says, under the [`Passing`] that it returns.

mod along;
mod ask;
mod learn;
mod numbers;
mod passing;
mod queue;
mod ship;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod waiters;

use std::{io, sync::Arc, thread::JoinHandle};

use forebay_cluster::{Grant, Lease};
use forebay_env::Clock;
use forebay_protocol::{Operation, Response};
use forebay_types::{FileKind, Ino};
use parking_lot::{Condvar, Mutex};

use crate::{asks::Asks, error::ClientError, link::Patience};

pub use passing::Passing;

use state::State;
use table::Most;

/// The session's leases, as whoever keeps them knows them. None of these waits.
pub trait Leases: Send + Sync {
    /// The lease to write on an inode, if something may be answered by it now in the session with this number: what is known here is of that one.
    fn to_write(&self, session: u64, ino: Ino) -> Option<Grant>;

    /// An inode was made here: from now on the session has the lease to write on it, though the owner does not know it yet
    /// ([`forebay_cluster::HeldLeases::made`]).
    fn made(&self, session: u64, ino: Ino) -> Option<Grant>;

    /// What was told of these inodes has not taken place: nothing of it is to be told from memory any more.
    fn wrong(&self, inos: &[Ino]);
}

/// How much is kept back.
#[derive(Clone, Copy, Debug)]
pub struct AheadOptions {
    /// The volume's block size, in bytes.
    pub block_size: u32,
    /// Operations that wait to be told to the owner at most. A further one waits.
    pub operations: usize,
    /// Bytes of them at most, about.
    pub bytes: usize,
    /// Inodes and names that are known at most, about; those that wait to be told are beside that. Each takes about 150 bytes.
    pub known: usize,
    /// Names beside these of which a hash is known at most, in all directories: each takes 10 to 21 bytes. A directory with more is not delegated.
    pub hashed: usize,
    /// Whether anything is delegated at all. Not for a session that may change nothing, or for which the owner changes what it asks for (root is nobody).
    pub delegates: bool,
}

impl AheadOptions {
    /// 10,000 operations, 8 MiB, 200,000 inodes and names, hashes of 3,500,000 more.
    #[must_use]
    pub fn new(block_size: u32) -> AheadOptions {
        let (operations, bytes) = (10_000, 8 << 20);
        AheadOptions { block_size, operations, bytes, known: 200_000, hashed: 3_500_000, delegates: true }
    }

    fn most(&self) -> Most {
        Most { known: self.known, hashed: self.hashed }
    }
}

/// Answers operations in delegated directories, and tells the owner afterwards.
pub struct Ahead {
    shared: Arc<Shared>,
    shipper: Mutex<Option<JoinHandle<()>>>,
}

/// What becomes of an operation.
pub enum Begun {
    /// It was carried out here, in the session with this number.
    Here(Response, u64),
    /// The owner is to be asked.
    There(Passing),
}

struct Shared {
    under: Arc<dyn Asks>,
    leases: Arc<dyn Leases>,
    clock: Arc<dyn Clock>,
    options: AheadOptions,
    state: Mutex<State>,
    /// Something was shipped, lost, passed or closed.
    changed: Condvar,
    /// Something is to be shipped, or all is over.
    work: Condvar,
}

impl Ahead {
    /// Stands in front of `under`, which must not give up while its session lives: what was sent once has an unknown outcome, and what comes after it
    /// depends on that. `leases` knows of the leases that come with an answer of `under` when that returns it, and no recall of one of them that came earlier is forgotten.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(
        under: Arc<dyn Asks>,
        leases: Arc<dyn Leases>,
        clock: Arc<dyn Clock>,
        options: AheadOptions,
    ) -> io::Result<Ahead> {
        let state = Mutex::new(State::new(under.session(), options.block_size));
        let (changed, work) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { under, leases, clock, options, state, changed, work });
        let shipping = Arc::clone(&shared);
        let shipper = std::thread::Builder::new().name("forebay-ahead".to_owned());
        let shipper = shipper.spawn(move || shipping.ship())?;
        Ok(Ahead { shared, shipper: Mutex::new(Some(shipper)) })
    }

    /// The lease to ask for along with an operation, where the caller would like to have `wish`: a directory that is made is nobody else's.
    #[must_use]
    pub fn wish(&self, operation: &Operation, wish: Option<Lease>) -> Option<Lease> {
        match operation {
            Operation::Make(_, _, new)
                if new.kind == FileKind::Directory && self.shared.options.delegates =>
            {
                Some(Lease::Write)
            }
            _ => wish,
        }
    }

    /// Begins an operation: it is carried out here, or what it depends on is at the owner when this returns; a change of names depends on all that was done
    /// here before. `bound`: in this session only.
    ///
    /// # Errors
    /// [`ClientError::SessionEnded`] where the session is another; [`ClientError::Closed`]; those of patience, and of asking for numbers. Of a change of names: why something
    /// that it depends on has not taken place, where that turned out while it waited.
    pub fn begin(
        &self,
        operation: &Operation,
        bound: Option<u64>,
        patience: &Patience<'_>,
    ) -> Result<Begun, ClientError> {
        self.shared.begin(operation, bound, patience)
    }

    /// Has everything told that concerns these inodes or came before it: it is durable then. For fsync.
    ///
    /// # Errors
    /// Why something that was done to one of them has not taken place; told once for each. Those of patience: it is still on its way.
    pub fn settle_within(&self, inos: &[Ino], patience: &Patience<'_>) -> Result<(), ClientError> {
        self.shared.settle(inos, patience)
    }

    /// Has everything told. For syncfs.
    ///
    /// # Errors
    /// Why something has not taken place since this was last said. Those of patience: it is still on its way.
    pub fn settle_all_within(&self, patience: &Patience<'_>) -> Result<(), ClientError> {
        self.shared.settle_all(patience)
    }

    /// Whether anything that concerns an inode is still to be told to the owner.
    #[must_use]
    pub fn has_to_tell(&self, ino: Ino) -> bool {
        self.shared.state.lock().queue.concerns(ino)
    }

    /// The lease on an inode counts no more: nothing is answered by it, and what was done under it is at the owner when this returns. It may be returned then.
    pub fn recalled(&self, ino: Ino) {
        self.shared.recalled(&[ino]);
    }

    /// The same of several leases: what was done under any of them is at the owner when this returns.
    pub fn all_recalled(&self, inos: &[Ino]) {
        self.shared.recalled(inos);
    }

    /// Has everything told, and stops.
    ///
    /// # Errors
    /// Those of [`Ahead::settle_all_within`].
    pub fn close(&self) -> Result<(), ClientError> {
        let settled = self.settle_all_within(&Patience::FOREVER);
        self.stop();
        settled
    }

    /// Stops as it is: what waits is lost. Whoever is asked has to answer by then, or to give up.
    pub fn stop(&self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
        if let Some(shipper) = self.shipper.lock().take() {
            // One that panicked has said so.
            let _ = shipper.join();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Asks for Ahead {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        let wish = self.wish(&operation, wish);
        match self.begin(&operation, None, &Patience::FOREVER)? {
            Begun::Here(response, _) => Ok(response),
            Begun::There(passing) => {
                let response = self.shared.under.ask(operation.clone(), wish)?;
                passing.done(&operation, &response);
                Ok(response)
            }
        }
    }

    fn session(&self) -> u64 {
        self.shared.under.session()
    }

    fn ask_in(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError> {
        let wish = self.wish(&operation, wish);
        match self.begin(&operation, Some(session), &Patience::FOREVER)? {
            Begun::Here(response, _) => Ok(response),
            Begun::There(passing) => {
                let response = self.shared.under.ask_in(session, operation.clone(), wish)?;
                passing.done(&operation, &response);
                Ok(response)
            }
        }
    }
}
