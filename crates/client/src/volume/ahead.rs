//! What stands below and beside the work ahead of the owner.

use std::sync::Arc;

use forebay_cluster::{Grant, Lease};
use forebay_protocol::{Operation, Response};
use forebay_types::Ino;

use super::{desk::Reception, jobs::Job};
use crate::{
    ahead::Leases,
    asks::{Asks, Then},
    error::ClientError,
    link::{Answered, Link, Patience},
    names::Names,
};

/// The link, and who takes in the leases that come with its answers. What was done ahead is not given up because the owner is away for long: its session decides.
pub(crate) struct Beneath {
    pub(crate) link: Arc<Link>,
    pub(crate) names: Arc<Names>,
}

impl Asks for Beneath {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        self.ask_in(self.session(), operation, wish)
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
        self.ask_within(session, operation, wish, &Patience::FOREVER)
    }

    fn patience(&self) -> Patience<'static> {
        self.link.patience()
    }

    fn ask_within(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
        patience: &Patience<'_>,
    ) -> Result<Response, ClientError> {
        // As for any other request: a recall that overtakes the answer is remembered until that has come.
        let under = self.names.begin(&operation, wish);
        let Answered { response, operation, number, keep } =
            self.link.ask(operation, wish, Some(session), under, patience)?;
        self.names.finish(keep, &operation, &response, number, None);
        Ok(response)
    }

    fn ask_to_end(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
        patience: &Patience<'_>,
        then: Then,
    ) -> Result<(), ClientError> {
        let (names, under) = (Arc::clone(&self.names), self.names.begin(&operation, wish));
        self.link.ask_to_end(operation, wish, session, patience, move |asked| {
            then(asked.map(|(response, operation)| {
                names.finish(under, &operation, &response, session, None);
                response
            }));
        })
    }
}

impl Leases for Reception {
    fn to_write(&self, session: u64, ino: Ino) -> Option<Grant> {
        self.names.to_write(session, ino)
    }

    fn made(&self, session: u64, ino: Ino) -> Option<Grant> {
        self.names.made(session, ino)
    }

    fn wrong(&self, inos: &[Ino]) {
        self.names.wrong(inos);
        if let Some(core) = self.core() {
            core.jobs.put(Job::Lost(inos.to_vec()));
        }
    }
}
