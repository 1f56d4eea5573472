//! A session with the owner of the volume that opens segments, as a writer has one: what is appended to any others an owner takes for gone.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use forebay_client::{Events, Link, LinkConfig, Patience, RpcTransport, SystemTicks};
use forebay_cluster::{Grant, Lease, Moment, Stamp};
use forebay_group::{GroupId, MemberId};
use forebay_protocol::{Answer, OpenSegments, Operation, Placing, Welcome};
use forebay_rpc::{Address, Security};
use forebay_types::{Epoch, Ino, SegmentId};

/// Hears nothing but the owner's term.
#[derive(Default)]
struct Quiet(AtomicU64);

impl Events for Quiet {
    fn begun(&self, _: u64, welcome: &Welcome, _: Moment) {
        self.0.store(welcome.epoch.0, SeqCst);
    }

    fn over(&self) {}

    fn heard(&self, _: u64, _: Moment) {}

    fn epoch(&self) -> Epoch {
        Epoch(self.0.load(SeqCst))
    }

    fn to_reclaim(&self, _: Epoch) -> Vec<(Ino, Lease)> {
        Vec::new()
    }

    fn reclaimed(&self, epoch: Epoch, _: &[Grant]) {
        self.0.store(epoch.0, SeqCst);
    }

    fn recalled(&self, _: Ino, _: Option<Lease>, _: Stamp) {}

    fn lock_free(&self, _: Ino) {}

    fn greeted(&self) {}
}

pub struct Session {
    link: Link,
    _hears: Arc<Quiet>,
}

impl Session {
    pub fn begin(meta: &Address, token: String) -> Session {
        let transport = Arc::new(RpcTransport::start(vec![meta.clone()], Security::Insecure).unwrap());
        let config = LinkConfig {
            volume: "v".to_owned(),
            token: Some(token),
            client: "a test".to_owned(),
            timeout: None,
        };
        let hears = Arc::new(Quiet::default());
        let events: Arc<dyn Events> = Arc::clone(&hears) as _;
        let link = Link::start(transport, config, Arc::downgrade(&events), Arc::new(SystemTicks)).unwrap();
        Session { link, _hears: hears }
    }

    /// Opens segments of which this member alone gets copies.
    pub fn open(&self, group: GroupId, member: MemberId, count: u32) -> Vec<SegmentId> {
        let placing = Placing::Set(vec![member]);
        let open = OpenSegments { directory: Ino::ROOT, apart: true, count, group, placing };
        let patience = Patience::new(None, None);
        let told = self.link.ask(Operation::OpenSegments(open), None, None, (), &patience).unwrap();
        let Answer::Opened(opened) = told.response.answer else { panic!("{:?}", told.response.answer) };
        assert!(opened.iter().all(|one| one.epoch == Epoch(1)));
        opened.into_iter().map(|one| one.segment).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.close();
    }
}
