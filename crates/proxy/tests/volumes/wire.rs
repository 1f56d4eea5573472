//! A member's way to the owner, which tests cut.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use forebay_client::{Listener, Transport, Trouble};
use forebay_cluster::SessionId;
use forebay_owner::{Reply, VolumeOwner};
use forebay_protocol::{
    Hello, Operation, Push, Reclaim, Reclaimed, Refusal, Request, Response, Return, Rights, VolumeInfo,
    Welcome,
};
use forebay_types::VolumeId;
use parking_lot::Mutex;

use crate::bed::info;

/// The owner, and whom it tells.
#[derive(Default)]
pub struct Office {
    pub owner: Mutex<Option<Arc<VolumeOwner>>>,
    pub links: Mutex<Vec<(SessionId, Weak<dyn Listener>)>>,
    /// The volume that has the name.
    pub volume: Mutex<Option<VolumeId>>,
}

impl Office {
    pub fn push(&self, session: SessionId, push: Push) {
        let found = self.links.lock().iter().find(|(id, _)| *id == session).map(|(_, link)| link.clone());
        if let Some(link) = found.and_then(|link| link.upgrade()) {
            link.pushed(push);
        }
    }
}

/// What a member's messages meet. Shared by all of its connections.
#[derive(Default)]
pub struct Way {
    pub cut: AtomicBool,
    /// So many answers to `Store` get lost from now on.
    pub loses: AtomicU32,
    /// From the next `Store` on everything is cut, before it arrives.
    pub cut_at_store: AtomicBool,
    pub stores: AtomicU32,
    pub sessions: Mutex<Vec<SessionId>>,
}

pub struct Wire {
    office: Arc<Office>,
    way: Arc<Way>,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    greeted: AtomicBool,
}

impl Wire {
    pub fn new(office: &Arc<Office>, way: &Arc<Way>) -> Wire {
        let (office, way) = (Arc::clone(office), Arc::clone(way));
        Wire { office, way, listener: Mutex::new(None), greeted: AtomicBool::new(false) }
    }

    fn owner(&self) -> Result<Arc<VolumeOwner>, Trouble> {
        let lost = || Trouble::Lost("nobody is there".to_owned());
        if self.way.cut.load(SeqCst) {
            self.greeted.store(false, SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            return Err(lost());
        }
        self.office.owner.lock().clone().ok_or_else(lost)
    }

    fn greeted(&self) -> Result<Arc<VolumeOwner>, Trouble> {
        if self.greeted.load(SeqCst) { self.owner() } else { Err(Trouble::Lost("no greeting".to_owned())) }
    }
}

fn told<T>(result: Result<T, Refusal>) -> Result<T, Trouble> {
    result.map_err(Trouble::Refused)
}

fn reply(call: impl FnOnce(Reply), patience: Duration) -> Result<Result<Response, Refusal>, Trouble> {
    let (to, from) = mpsc::channel();
    call(Box::new(move |response| drop(to.send(response))));
    let until = Instant::now() + patience;
    let left = until.saturating_duration_since(Instant::now());
    from.recv_timeout(left).map_err(|error| Trouble::Lost(error.to_string()))
}

impl Transport for Wire {
    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock() = Some(listener);
    }

    fn hello(&self, hello: &Hello, patience: Duration) -> Result<Welcome, Trouble> {
        let owner = self.owner()?;
        let token = hello.token.as_deref().unwrap_or_default();
        assert!(forebay_protocol::group::Vouch::as_member(token).is_some(), "a member says who it is");
        {
            let mut links = self.office.links.lock();
            links.retain(|(session, _)| *session != hello.session);
            links.push((hello.session, self.listener.lock().clone().unwrap()));
        }
        let Some(epoch) = owner.epoch() else { return told(Err(Refusal::NotOwner { address: None })) };
        if hello.resumes {
            match owner.renew(hello.session) {
                Ok(()) | Err(Refusal::MustReclaim { .. }) => {}
                Err(refusal) => return Err(Trouble::Refused(refusal)),
            }
        } else {
            let begin = |to| owner.begin_session(hello.session, &hello.client, Rights::ALL, to);
            told(reply(begin, patience)?)?;
            self.way.sessions.lock().push(hello.session);
        }
        self.greeted.store(true, SeqCst);
        let volume = VolumeInfo { id: self.office.volume.lock().unwrap(), ..info() };
        let begun = !hello.resumes;
        Ok(Welcome { epoch, term_ms: 10_000, begun, volume, rights: Rights::ALL })
    }

    fn ask(
        &self,
        request: &Request,
        _: bool,
        patience: Duration,
        _: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble> {
        let owner = self.greeted()?;
        let stores = matches!(request.operation, Operation::Store(_));
        if stores && self.way.cut_at_store.load(SeqCst) {
            self.way.cut.store(true, SeqCst);
            return Err(Trouble::Lost("cut".to_owned()));
        }
        let response = reply(|to| owner.submit(request.clone(), to), patience)?;
        if stores {
            self.way.stores.fetch_add(1, SeqCst);
            let lose = |left: u32| left.checked_sub(1);
            if self.way.loses.fetch_update(SeqCst, SeqCst, lose).is_ok() {
                return Err(Trouble::Lost("the answer was lost".to_owned()));
            }
        }
        told(response)
    }

    fn renew(&self, session: SessionId, _: Duration) -> Result<(), Trouble> {
        told(self.greeted()?.renew(session))
    }

    fn reclaim(&self, reclaim: &Reclaim, _: Duration) -> Result<Reclaimed, Trouble> {
        let (epoch, grants) = told(self.greeted()?.reclaim(reclaim.session, &reclaim.leases))?;
        Ok(Reclaimed { epoch, grants })
    }

    fn give_back(&self, _: &[Return], _: Duration) -> Result<(), Trouble> {
        panic!("a member has no leases")
    }

    fn end(&self, session: SessionId, _: Duration) -> Result<(), Trouble> {
        self.greeted()?.end_session(session);
        Ok(())
    }

    fn elsewhere(&self, _: Option<&str>) {}

    fn close(&self) {
        self.greeted.store(false, SeqCst);
    }
}
