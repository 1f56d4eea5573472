//! Reads through members, by what they ask of each other and of the store.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use bytes::Bytes;
use forebay_client::{GroupStore, Reader, RpcTransport, VolumeGroup, Within};
use forebay_format::row::ObjectRef;
use forebay_group::{Membership, PieceKey, placement};
use forebay_object::{Backend, ObjectStore, StoreOptions};
use forebay_protocol::{
    Kind,
    group::{Distrust, Fetch, Walk},
};
use forebay_proxy::Proxy;
use forebay_rpc::Security;
use forebay_types::{Epoch, ObjectId, SegmentId};

use crate::{
    cluster::{Cluster, terms, until},
    writers::bytes,
};

const MIB: usize = 1 << 20;

/// The volume's store.
fn store(cluster: &Cluster) -> ObjectStore {
    let url = format!("file://{}", cluster.directory("store").display());
    ObjectStore::open(&url.parse().unwrap(), &StoreOptions::default()).unwrap()
}

/// An object of the volume, of which nobody has anything.
fn object(cluster: &Cluster, number: u64, len: usize) -> (ObjectRef, Bytes) {
    let (object, data) = (ObjectRef { epoch: Epoch(1), id: ObjectId(number) }, bytes(number, len));
    store(cluster).put_new(&object.key(), data.clone()).unwrap();
    (object, data)
}

/// The store as a client reads it that has just learned of the group.
fn through(cluster: &Cluster) -> (Arc<VolumeGroup>, ObjectStore) {
    let reader = Reader {
        volume: "v".to_owned(),
        id: cluster.volume,
        token: Some(cluster.token(true)),
        client: "a test".to_owned(),
        here: Vec::new(),
        security: Security::Insecure,
    };
    let transport = RpcTransport::start(vec![cluster.meta.clone()], Security::Insecure).unwrap();
    let group = VolumeGroup::start(Arc::new(transport), reader).unwrap();
    until("it knows the group", || group.name());
    let reads = GroupStore::over(Arc::clone(&group), &store(cluster), Within::Any);
    (group, reads)
}

/// The sum of what members count under a name, with labels behind those of the group.
fn count(proxies: &[&Proxy], name: &str) -> u64 {
    let of = |proxy: &&Proxy| {
        let text = proxy.metrics()();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("forebay_proxy_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<u64>().unwrap()
    };
    proxies.iter().map(of).sum()
}

fn fetches(proxies: &[&Proxy]) -> u64 {
    count(proxies, "fetches_total{group=\"g\"}")
}

/// Reads that members have answered.
fn answers(proxies: &[&Proxy]) -> u64 {
    let from = |from: &str| count(proxies, &format!("misses_total{{group=\"g\",from=\"{from}\"}}"));
    count(proxies, "hits_total{group=\"g\"}") + from("member") + from("store")
}

/// All members but the one that is asked first for what is in objects with small numbers, which is all of one piece.
fn all_but_first<'a>(proxies: &[&'a Proxy]) -> Vec<&'a Proxy> {
    let all = proxies.len();
    let view = until("a view of all", || proxies[0].place().view().filter(|view| view.members.len() == all));
    let first = placement::first(PieceKey::of(SegmentId(1), 0), &view.active());
    let mut others = proxies.to_vec();
    others.retain(|proxy| Some(proxy.place().look(Membership::id)) != first);
    assert_eq!(others.len(), all - 1);
    others
}

#[test]
fn however_many_clients_ask_the_store_is_asked_once() {
    let cluster = Cluster::new();
    let proxies = ["a", "b", "c"].map(|name| cluster.proxy(name));
    let all: Vec<&Proxy> = proxies.iter().collect();
    let clients: Vec<_> = (0..8).map(|_| through(&cluster)).collect();
    let [(before, _), (alone, _), (together, data)] = [1, 2, 3].map(|number| object(&cluster, number, MIB));
    let others = all_but_first(&all);
    // Each is connected then, let in, and has seen how long an answer takes: it asks nobody else because the first is late.
    for (group, reads) in &clients {
        until("an answer of the first", || {
            let elsewhere = || (answers(&others), group.read_from().store);
            let then = elsewhere();
            reads.get_range(&before.key(), 0..100_000).unwrap();
            (elsewhere() == then).then_some(())
        });
    }
    let from_store = || clients.iter().map(|(group, _)| group.read_from().store).sum::<u64>();
    let (fetched, stored) = (fetches(&all), from_store());
    clients[0].1.get_range(&alone.key(), 0..100_000).unwrap();
    let of_one = fetches(&all) - fetched;
    assert!(of_one > 0);
    let barrier = Barrier::new(clients.len());
    thread::scope(|scope| {
        for (_, reads) in &clients {
            scope.spawn(|| {
                barrier.wait();
                let read = reads.get_range(&together.key(), 0..100_000).unwrap();
                assert!(read == data[..100_000]);
            });
        }
    });
    let of_all = fetches(&all) - fetched - of_one;
    assert_eq!((of_all, from_store() - stored), (of_one, 0), "as many requests as one reader makes");
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A member that joins has nothing: it asks who had it, and not the store. Nobody who reads meanwhile sees more than time, nor when one leaves.
#[test]
fn who_joins_asks_who_had_it_before() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.proxy("a"), cluster.proxy("b"));
    let objects: Vec<_> = (1..=24).map(|number| object(&cluster, number, MIB)).collect();
    let read_all = |reads: &ObjectStore| {
        for (object, data) in &objects {
            assert!(reads.get_range(&object.key(), 0..MIB as u64).unwrap() == data[..]);
        }
    };
    let (group, reads) = through(&cluster);
    until("all of it from members", || {
        let stored = group.read_from().store;
        read_all(&reads);
        (group.read_from().store == stored).then_some(())
    });
    let before = fetches(&[&a, &b]);
    // A view is looked back to that has stood.
    thread::sleep(2 * terms().settled_after);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Also where this fails.
        let _stops = Stops(&stop);
        let reader = scope.spawn(|| {
            while !stop.load(SeqCst) {
                read_all(&reads);
                rounds.fetch_add(1, SeqCst);
            }
        });
        let goes_on = |what| {
            let since = rounds.load(SeqCst);
            until(what, || (rounds.load(SeqCst) > since + 1 || reader.is_finished()).then_some(()));
        };
        goes_on("reads before");
        let c = cluster.proxy("c");
        let from_members = || count(&[&c], "misses_total{group=\"g\",from=\"member\"}");
        until("a piece that another member had", || {
            // Who has just learned of the view asks by it.
            read_all(&through(&cluster).1);
            (from_members() > 0).then_some(())
        });
        goes_on("reads after it has joined");
        // It has what it was asked for from members; a peek that is late is not waited for.
        let all = fetches(&[&a, &b, &c]);
        assert!(all < before * 2, "{all} requests to the store, {before} of them before it joined");
        assert!(count(&[&a, &b], "peeks_total{group=\"g\"}") > 0);
        b.stop();
        goes_on("reads after one has left");
    });
}

#[test]
fn what_is_read_much_is_on_more_than_one_member() {
    let cluster = Cluster::new();
    let proxies = ["a", "b", "c"].map(|name| cluster.proxy(name));
    let (object, data) = object(&cluster, 1, MIB);
    let (_group, reads) = through(&cluster);
    let hits = |proxy: &Proxy| count(&[proxy], "hits_total{group=\"g\"}");
    let hot = || proxies.iter().filter(|proxy| hits(proxy) >= 50).count();
    reads.get_range(&object.key(), 0..4096).unwrap();
    assert_eq!(count(&proxies.iter().collect::<Vec<_>>(), "wide_pieces{group=\"g\"}"), 0);
    until("the piece on several members", || {
        for _ in 0..500 {
            assert!(reads.get_range(&object.key(), 8192..12_288).unwrap() == data[8192..12_288]);
        }
        (hot() >= 2).then_some(())
    });
    assert!(count(&proxies.iter().collect::<Vec<_>>(), "wide_pieces{group=\"g\"}") > 0);
}

#[test]
fn bytes_that_a_client_found_wrong_are_fetched_anew() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let (object, data) = object(&cluster, 1, MIB);
    let caller = cluster.caller(&proxy.addresses()[0], &cluster.token(true));
    let (segment, walk) = (SegmentId(1), Walk::Random);
    let fetch = Fetch { object, offset: 4096, len: 4096, segment, at: 0, walk, waits: true };
    let asks = || {
        let reply = caller.ask(Kind::Fetch, &fetch, Bytes::new(), 10_000).unwrap();
        assert!(reply.bulk == data[4096..8192]);
        fetches(&[&proxy])
    };
    let once = asks();
    assert_eq!(asks(), once, "it has it");
    caller.ask(Kind::Distrust, &Distrust { object, offset: 4096, len: 10 }, Bytes::new(), 10_000).unwrap();
    assert!(asks() > once, "what it had is not believed any more");
    assert_eq!(count(&[&proxy], "distrusted_total{group=\"g\"}"), 1);
}
