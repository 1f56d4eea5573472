//! What stands below and beside the work ahead of the owner.

use std::sync::Arc;

use forebay_cluster::{Grant, Lease};
use forebay_protocol::{Operation, Response};
use forebay_types::Ino;

use super::{desk::Reception, jobs::Job};
use crate::{
    ahead::Leases,
    asks::Asks,
    error::ClientError,
    link::{Link, Patience},
};

/// The link without names. What was done ahead is not given up because the owner is away for long: its session decides.
pub(crate) struct Beneath(pub(crate) Arc<Link>);

impl Asks for Beneath {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        self.ask_in(self.session(), operation, wish)
    }

    fn session(&self) -> u64 {
        self.0.number()
    }

    fn ask_in(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError> {
        let forever = Patience::new(None, None);
        self.0.ask(operation, wish, Some(session), (), &forever).map(|answered| answered.response)
    }
}

impl Leases for Reception {
    fn to_write(&self, session: u64, ino: Ino) -> Option<Grant> {
        self.names.to_write(session, ino)
    }

    fn made(&self, session: u64, ino: Ino) -> Option<Grant> {
        self.names.made(session, ino)
    }

    fn granted(&self, session: u64, grants: &[Grant]) {
        self.names.granted(session, grants);
    }

    fn wrong(&self, inos: &[Ino]) {
        self.names.wrong(inos);
        if let Some(core) = self.core() {
            core.jobs.put(Job::Lost(inos.to_vec()));
        }
    }
}
