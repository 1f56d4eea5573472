//! Several servers over one PostgreSQL.

use std::collections::BTreeMap;

use forebay_protocol::{Answer, OwnedStatus, Refusal, VolumeRequest};
use forebay_server::{
    MetaServer, ServerError, ServerOptions,
    registry::{Change, Registry, RegistryError, VolumeRow, VolumeState},
};
use forebay_types::Epoch;

use crate::bed::{Asks, Bed, Not, make, until};

/// Who owns a volume, as a server sees it.
fn owner(asks: &Asks, volume: &str) -> Option<OwnedStatus> {
    asks.status().volumes.into_iter().find(|of| of.name == volume && !of.owner.is_empty())
}

/// The servers in the order: the one that owns the volume, the other one.
fn by_owner(one: MetaServer, two: MetaServer, volume: &str) -> (MetaServer, MetaServer) {
    let asks = Asks::of(&one);
    let at = until("an owner", || owner(&asks, volume)).owner;
    if at == one.advertised() { (one, two) } else { (two, one) }
}

#[test]
fn who_stands_by_sends_clients_to_the_owner() {
    let bed = Bed::postgres();
    let (one, two) = (bed.server(), bed.server());
    Asks::of(&one).create(&bed, "v");
    let (owner, other) = by_owner(one, two, "v");
    let (at_owner, at_other) = (Asks::of(&owner), Asks::of(&other));
    at_owner.join("v", 1).make("a");
    let elsewhere = until("a redirect", || match at_other.hello("v", 2, None) {
        Err(Not::Elsewhere(Some(at))) => Some(at),
        Err(_) => None,
        Ok(_) => panic!("two owners"),
    });
    assert_eq!(elsewhere, owner.advertised());
    assert!(Asks::at(&elsewhere).join("v", 2).sees("a"));
    assert_eq!(at_other.status().members.iter().filter(|member| member.alive).count(), 2);
}

#[test]
fn another_server_takes_over_when_the_owner_dies_and_nothing_is_lost_or_done_twice() {
    let bed = Bed::postgres();
    let (one, two) = (bed.server(), bed.server());
    Asks::of(&one).create(&bed, "v");
    let (owner, other) = by_owner(one, two, "v");
    let asks = Asks::of(&owner);
    let session = asks.join("v", 1);
    session.make("a");
    let request = session.request(make("b"), None);
    let answer = session.send(&request).unwrap().answer;
    let epoch = asks.status().volumes[0].epoch;
    drop(owner);

    let asks = Asks::of(&other);
    until("the other one to take over", || asks.resume("v", 1).ok());
    let again = session.on(&asks);
    let reclaim = |epoch| -> Result<forebay_protocol::Reclaimed, Not> {
        let reclaim = forebay_protocol::Reclaim { session: session.id, epoch, leases: Vec::new() };
        asks.call(forebay_protocol::Kind::Reclaim, &reclaim)
    };
    let now = match reclaim(Epoch(epoch)) {
        Err(Not::Refused(Refusal::MustReclaim { epoch })) => epoch,
        other => panic!("what was said to the dead one counts: {other:?}"),
    };
    assert!(now.0 > epoch, "{now:?}");
    assert_eq!(reclaim(now).unwrap().epoch, now);
    assert_eq!(again.send(&request).unwrap().answer, answer, "the answer is repeated");
    assert!(again.sees("a") && again.sees("b"));
    assert!(matches!(again.make("c"), Answer::Inode(_)));
    until("the dead one to be missed", || {
        (asks.status().members.iter().filter(|member| member.alive).count() == 1).then_some(())
    });
}

#[test]
fn a_server_that_stops_in_order_hands_its_volumes_over() {
    let bed = Bed::postgres();
    let (one, two) = (bed.server(), bed.server());
    Asks::of(&one).create(&bed, "v");
    let (owner, other) = by_owner(one, two, "v");
    Asks::of(&owner).join("v", 1).make("a");
    owner.stop();
    let asks = Asks::of(&other);
    let owned = until("the other one to own it", || {
        self::owner(&asks, "v").filter(|of| of.owner == other.advertised())
    });
    assert_eq!(owned.epoch, 2);
    assert_eq!(asks.status().members.len(), 1, "it has said goodbye");
    assert!(asks.join("v", 2).sees("a"));
}

#[test]
fn volumes_spread_over_the_servers_and_over_one_more() {
    // Each goes to either server: that the second is to have fewer than two of so many does not happen once in a million times.
    const VOLUMES: usize = 26;
    let bed = Bed::postgres();
    let one = bed.server();
    let asks = Asks::of(&one);
    let names: Vec<String> = (0..VOLUMES).map(|number| format!("v{number}")).collect();
    for name in &names {
        asks.create(&bed, name);
    }
    let spread = |asks: &Asks| {
        let mut counts = BTreeMap::<String, usize>::new();
        for volume in asks.status().volumes {
            *counts.entry(volume.owner).or_default() += 1;
        }
        counts
    };
    let owns_all = || (spread(&asks).get(one.advertised()) == Some(&VOLUMES)).then_some(());
    until("the first to own all", owns_all);
    for name in &names {
        asks.join(name, 1).make("before");
    }
    let two = bed.server();
    let counts = until("the second to own some", || {
        let counts = spread(&asks);
        (counts.get(two.advertised()).is_some_and(|count| *count >= 2) && !counts.contains_key(""))
            .then_some(counts)
    });
    assert_eq!(counts.values().sum::<usize>(), VOLUMES);
    let moved = until("a volume of the second", || {
        Asks::of(&two).status().volumes.into_iter().find(|volume| volume.sessions.is_some())
    });
    assert!(Asks::of(&two).join(&moved.name, 2).sees("before"));
    two.stop();
    until("the first to own all again", owns_all);
}

#[test]
fn two_servers_do_not_go_by_one_address() {
    let bed = Bed::postgres();
    let one = bed.server();
    let options = ServerOptions { advertise: Some(one.advertised().parse().unwrap()), ..bed.options() };
    let error = MetaServer::start(&options, &|| false).map(drop).unwrap_err();
    assert!(matches!(error, ServerError::Twin { .. }), "{error}");
    assert!(error.to_string().contains("--advertise"), "{error}");
    assert!(one.failure().is_none());
    // What a dead one left is in nobody's way.
    drop(one);
    let again = MetaServer::start(&options, &|| false).unwrap().unwrap();
    assert_eq!(Asks::of_bound(&again).status().members.iter().filter(|member| member.alive).count(), 1);
}

#[test]
fn what_one_server_is_told_another_knows() {
    let bed = Bed::postgres();
    let (one, two) = (bed.server(), bed.server());
    let (asks, other) = (Asks::of(&one), Asks::of(&two));
    asks.create(&bed, "v");
    assert_eq!(other.volumes(&VolumeRequest::List).unwrap().len(), 1);
    let there = other.volumes(&VolumeRequest::Create(bed.wanted("v"))).unwrap_err();
    assert!(matches!(there, Not::Refused(Refusal::Invalid(why)) if why.contains("already")));
    let delete = VolumeRequest::Delete("v".to_owned(), false);
    until("the owner to delete it", || match asks.volumes(&delete) {
        Ok(_) => Some(()),
        Err(Not::Elsewhere(Some(at))) => Asks::at(&at).volumes(&delete).ok().map(drop),
        Err(_) => None,
    });
    for asks in [&asks, &other] {
        until("it to be gone everywhere", || asks.status().volumes.is_empty().then_some(()));
        let gone = asks.hello("v", 1, None).unwrap_err();
        assert!(matches!(gone, Not::Refused(Refusal::NoVolume(_))), "{gone:?}");
    }
}

#[test]
fn what_a_crash_left_half_made_is_not_used_and_can_be_deleted() {
    let bed = Bed::postgres();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.join("v", 1).make("a");
    // As if its maker had died before it was ready.
    let url: forebay_engine::EngineUrl = bed.engine.parse().unwrap();
    let registry = Registry::open(url.open().unwrap().registry().unwrap(), "here".to_owned()).unwrap();
    let half = |view: &forebay_server::registry::View| {
        let row = VolumeRow { state: VolumeState::Making, ..view.volumes["v"].clone() };
        Ok::<_, RegistryError>((vec![Change::Volume("v".to_owned(), Some(row))], ()))
    };
    registry.change(half).unwrap();
    until("the server to leave it", || asks.status().volumes.is_empty().then_some(()));
    let refused = asks.hello("v", 2, None).unwrap_err();
    assert!(matches!(&refused, Not::Refused(Refusal::Unavailable(why)) if why.contains("making")));
    let refused = asks.volumes(&VolumeRequest::Create(bed.wanted("v"))).unwrap_err();
    assert!(matches!(&refused, Not::Refused(Refusal::Invalid(why)) if why.contains("volume delete v")));
    asks.volumes(&VolumeRequest::Delete("v".to_owned(), true)).unwrap();
    asks.create(&bed, "v");
    assert!(!asks.join("v", 3).sees("a"));
}
