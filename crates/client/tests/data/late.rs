//! Reads through members that are late, while the store is away.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_client::{GroupStore, VolumeGroup, Within};
use forebay_format::row::ObjectRef;
use forebay_group::{Candidate, PieceKey, placement};
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore, Operation};
use forebay_types::{Compression, Epoch, ObjectId, SegmentId};
use parking_lot::Mutex;

use crate::{
    fleet::id,
    remote::{Group, Servers, Store, follow},
    world::{World, bytes, until},
};

const LEN: usize = 100_000;
const MEMBERS: u8 = 3;

/// A group whose members give what tests say, before a store that has nothing.
struct Bed {
    world: World,
    group: Arc<Group>,
    client: Arc<VolumeGroup>,
    store: ObjectStore,
}

fn object(number: u64) -> ObjectRef {
    ObjectRef { epoch: Epoch(1), id: ObjectId(number) }
}

/// The members that are asked for what is in an object, in their order.
fn order(object: ObjectRef) -> Vec<u8> {
    let all: Vec<_> = (1..=MEMBERS)
        .map(|number| Candidate { id: id(number), weight: 1, zone: format!("zone{number}") })
        .collect();
    let piece = PieceKey::of(SegmentId(object.id.0), 0);
    placement::rank(piece, &all).into_iter().map(|member| member.id.0[0]).collect()
}

impl Bed {
    fn new() -> Bed {
        let world = World::with(Compression::None);
        let group = Group::of(&world, MEMBERS, None);
        let servers = Arc::new(Servers(Mutex::new(vec![Arc::clone(&group)])));
        let client = follow(&world, servers, group.node("elsewhere"));
        let store = GroupStore::over(Arc::clone(&client), &world.store(), Within::Any);
        world.faulty.set_away(true);
        let bed = Bed { world, group, client, store };
        (1..=MEMBERS).for_each(|number| bed.knows(number));
        bed
    }

    /// The client is connected to a member, and has an answer of it.
    fn knows(&self, member: u8) {
        let number = (1000..).find(|number| order(object(*number))[0] == member).unwrap();
        let data = Bytes::from(bytes(number, LEN));
        self.group.cached(member, |cached| cached.objects.insert(object(number), data));
        until("an answer", || {
            let before = self.client.read_from().group;
            self.read(number).is_ok() && self.client.read_from().group > before
        });
    }

    fn read(&self, number: u64) -> Result<Bytes, ObjectError> {
        self.store.get_range(&object(number).key(), 0..LEN as u64)
    }

    /// The member that has an object, and the one that is asked after it.
    fn has(&self, number: u64) -> (Bytes, u8, u8) {
        let data = Bytes::from(bytes(number, LEN));
        let order = order(object(number));
        self.group.cached(order[0], |cached| cached.objects.insert(object(number), data.clone()));
        (data, order[0], order[1])
    }

    /// Reads objects, with members as `work` makes them (the first, the second, the object), until one of these reads makes only the first one ask the store: on a busy machine
    /// that may be late, and then the second one is asked as well.
    fn alone(&self, work: impl Fn(u8, u8, u64)) {
        let mut number = 0;
        until("a read in which nobody was late", || {
            number += 1;
            let (data, first, second) = self.has(number);
            work(first, second, number);
            let asked = self.fetches(second);
            assert!(self.read(number).unwrap() == data);
            self.group.cached(first, |cached| cached.store = Store::Hangs);
            self.fetches(second) == asked
        });
    }

    fn fetches(&self, member: u8) -> u64 {
        self.group.cached(member, |cached| cached.fetches)
    }
}

/// One that was late is looked at while another one waits for a store that does not answer, or once that has failed.
#[test]
fn who_was_late_gives_what_it_has_and_not_the_store() {
    for store in [Store::Hangs, Store::Fails] {
        let bed = Bed::new();
        let (data, first, second) = bed.has(1);
        bed.group.cached(first, |cached| cached.late = 1);
        bed.group.cached(second, |cached| cached.store = store);
        let (asked, gets) = (bed.fetches(second), bed.world.faulty.count(Operation::GetRange));
        assert!(bed.read(1).unwrap() == data, "{store:?}");
        // Once, and once more to wait for it: each time costs it a place among those that wait for stores.
        assert!((1..=2).contains(&(bed.fetches(second) - asked)), "{store:?}");
        assert_eq!(bed.world.faulty.count(Operation::GetRange), gets, "{store:?}: the store was asked");
        // The same of its length.
        bed.group.cached(first, |cached| cached.late = 1);
        assert_eq!(bed.store.head(&object(1).key()).unwrap().size, LEN as u64);
    }
}

/// What the first one does not have is at the second one, which is not made to ask the store.
#[test]
fn what_another_one_has_is_given_where_the_store_fails() {
    let bed = Bed::new();
    bed.alone(|first, second, number| {
        let moved = bed.group.cached(first, |cached| {
            cached.store = Store::Fails;
            cached.objects.remove(&object(number)).unwrap()
        });
        bed.group.cached(second, |cached| cached.objects.insert(object(number), moved));
    });
}

/// That an object is not there is no reason to look for it.
#[test]
fn what_is_not_there_is_looked_for_by_nobody() {
    let bed = Bed::new();
    let (_, first, second) = bed.has(1);
    bed.group.cached(first, |cached| {
        cached.objects.remove(&object(1));
        cached.store = Store::HasNot;
    });
    bed.world.faulty.set_away(false);
    let peeks = bed.group.cached(second, |cached| cached.peeks);
    assert_eq!(bed.read(1).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bed.group.cached(second, |cached| cached.peeks), peeks);
}

/// Where all were late, and the store does not answer, they are looked at once more.
#[test]
fn members_are_looked_at_once_more_where_the_store_fails() {
    let bed = Bed::new();
    let (data, first, second) = bed.has(1);
    for member in [first, second] {
        bed.group.cached(member, |cached| cached.late = 1);
    }
    let gets = bed.world.faulty.count(Operation::GetRange);
    assert!(bed.read(1).unwrap() == data);
    assert!(bed.world.faulty.count(Operation::GetRange) > gets, "the store was asked in between");
    assert!(bed.read(2).unwrap_err().is_transient(), "what nobody has is not there while the store is away");
}

/// While the first one waits for the store, nobody else is made to ask it, too.
#[test]
fn one_alone_is_made_to_ask_the_store() {
    let bed = Bed::new();
    let gives = Store::Gives(Duration::from_millis(400));
    bed.alone(|first, _, _| bed.group.cached(first, |cached| cached.store = gives));
}
