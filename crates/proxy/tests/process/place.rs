//! A place in a group, whoever has a log behind it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_group::{Incarnation, Member, MemberId, MemberState, NotActing, ViewEpoch};
use forebay_protocol::group::{GroupRequest, MemberNumbers};
use forebay_proxy::{Meta, Place, Standing, writeback::Standing as _};
use forebay_rpc::Security;

use crate::cluster::{Cluster, terms, until};

/// A log that is on stable storage, or fails, as a test says.
struct Says {
    failed: AtomicBool,
    /// The last view that is on stable storage, or will be at once.
    noted: AtomicU64,
}

impl Standing for Says {
    fn log(&self) -> Result<(u64, u64), String> {
        if self.failed.load(SeqCst) { Err("the disk has failed".to_owned()) } else { Ok((100, 0)) }
    }

    fn goes_by(&self, view: ViewEpoch) -> bool {
        view.0 <= self.noted.load(SeqCst)
    }

    fn numbers(&self) -> MemberNumbers {
        MemberNumbers::default()
    }
}

fn place(cluster: &Cluster) -> (Place, Arc<Says>) {
    let says = Arc::new(Says { failed: AtomicBool::new(false), noted: AtomicU64::new(2) });
    let meta = Meta::start(std::slice::from_ref(&cluster.meta), &Security::Insecure).unwrap();
    let member = Member {
        incarnation: Incarnation::default(),
        address: "127.0.0.1:9".to_owned(),
        node: "node".to_owned(),
        zone: "zone".to_owned(),
        weight: 1,
        state: MemberState::Active,
    };
    let ids = (cluster.group, MemberId([7; 16]));
    let place = Place::start(ids, member, terms(), meta, Arc::clone(&says) as _).unwrap();
    assert!(place.wait(Duration::from_secs(90)));
    (place, says)
}

#[test]
fn one_whose_log_fails_is_counted_out_and_stays_out() {
    let cluster = Cluster::new();
    let (place, says) = place(&cluster);
    assert!(place.may(true).is_ok());
    says.failed.store(true, SeqCst);
    until("it is counted out", || cluster.members().is_empty().then_some(()));
    assert_eq!(place.may(false), Err(NotActing::Out), "it stopped before that");
    assert_eq!(place.failure(), None, "it goes on to serve what it has");
    assert!(!place.wait(Duration::from_secs(2)) || place.may(false).is_err());
    assert!(cluster.members().is_empty());
}

#[test]
fn a_view_is_said_to_be_gone_by_once_that_is_on_stable_storage() {
    let cluster = Cluster::new();
    let (place, says) = place(&cluster);
    cluster.member("it has said which view it goes by", |member| member.acknowledged == ViewEpoch(2));
    cluster.groups(&GroupRequest::SetMember("g".to_owned(), "node".to_owned(), Some(9), None)).unwrap();
    until("the member hears of it", || place.view().filter(|view| view.epoch == ViewEpoch(3)));
    until("it is counted out, since its log does not say so", || match cluster.members().pop() {
        Some(shown) => {
            assert_eq!(shown.acknowledged, ViewEpoch(2), "its log does not say so yet");
            None
        }
        None => Some(()),
    });
    assert_eq!(place.may(false), Err(NotActing::Out), "it stopped before that");
    says.noted.store(u64::MAX, SeqCst);
    cluster.member("its log says so", |member| member.acknowledged >= ViewEpoch(3));
}
