//! A volume with several groups: the nearest is read and written, another one when that is gone, the store when all are; and each has only what it may have.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use forebay_client::{ContentsOptions, StoreCache, WarmInto};
use forebay_group::GroupId;
use forebay_meta::PieceSource;
use forebay_protocol::{Bounds, Disks};
use forebay_reading::NotWarm;
use forebay_types::{Compression, Ino, PolicyId, SegmentId, SyncClass};
use parking_lot::Mutex;

use crate::{
    owner::{HasCopies, V},
    remote::{Group, Servers, options},
    world::{Client, World, bytes, until},
};

const A: GroupId = GroupId([1; 16]);
const B: GroupId = GroupId([2; 16]);

/// Two groups of three members each, `b` nearer than `a` to everybody who has no member of `a` on his machine.
struct Sites {
    world: World,
    a: Arc<Group>,
    b: Arc<Group>,
    servers: Arc<Servers>,
}

impl Sites {
    fn new() -> Sites {
        let world = World::with(Compression::None);
        let a = Group::named(&world, ("a", A), 1..=3, Some(2));
        let b = Group::named(&world, ("b", B), 11..=13, Some(2));
        // Farther than a member of the other seems to be on a busy machine; three times that is less than the second for which the first choice waits.
        a.is_away(100);
        let servers = Arc::new(Servers(Mutex::new(vec![Arc::clone(&a), Arc::clone(&b)])));
        *world.owner.fleet.lock() = Some(Arc::clone(&servers) as Arc<dyn HasCopies>);
        Sites { world, a, b, servers }
    }

    fn options(&self) -> ContentsOptions {
        options(&self.world, Arc::clone(&self.servers), self.b.node("elsewhere"))
    }

    fn client(&self) -> Client {
        let client = self.world.client_with(self.options());
        goes_by(&client, "b");
        client
    }

    /// One on the machine of a member of `a`.
    fn client_at_a(&self) -> Client {
        let here = options(&self.world, Arc::clone(&self.servers), self.a.node("node1"));
        let client = self.world.client_with(here);
        goes_by(&client, "a");
        client
    }

    fn segments(&self, ino: Ino) -> BTreeSet<SegmentId> {
        let pieces = self.world.owner.ns.map(V, ino, 0, 1 << 30).unwrap();
        let of = |source: &PieceSource| match source {
            PieceSource::Extent(extent) => Some(extent.segment),
            PieceSource::Hole | PieceSource::Inline(_) => None,
        };
        pieces.iter().filter_map(|piece| of(&piece.source)).collect()
    }

    /// Over which groups a file's segments are that the store has not.
    fn over(&self, ino: Ino) -> BTreeSet<GroupId> {
        let lanes = self.world.owner.lanes.lock();
        self.segments(ino).iter().filter_map(|segment| Some(lanes.get(segment)?.group)).collect()
    }
}

fn write(client: &Client, ino: Ino, seed: u64) -> Vec<u8> {
    let data = bytes(seed, 300_000);
    client.write(ino, 0, &data);
    client.settle(ino);
    data
}

fn chosen(client: &Client) -> Option<String> {
    let all = client.contents.group().unwrap().all();
    all.into_iter().find(|group| group.chosen).map(|group| group.name)
}

/// Waits until a client has measured both groups and goes by this one.
fn goes_by(client: &Client, name: &str) {
    let measured = || client.contents.group().unwrap().all().iter().all(|group| group.round_trip.is_some());
    until("all are measured", measured);
    until(name, || chosen(client).as_deref() == Some(name));
}

#[test]
fn the_nearest_is_read_and_written_then_the_other_then_the_store() {
    let sites = Sites::new();
    let client = sites.client();
    let inos: Vec<Ino> = (0..4).map(|_| sites.world.make()).collect();
    let first = write(&client, inos[0], 1);
    assert_eq!(sites.over(inos[0]), BTreeSet::from([B]));
    assert_eq!(sites.a.all_appends(), 0, "the far one has nothing to do");
    // The open segments of it are ended while the other one is written.
    sites.b.kill_all();
    let second = write(&client, inos[1], 2);
    until("the other one is gone by", || chosen(&client).as_deref() == Some("a"));
    let third = write(&client, inos[2], 3);
    assert_eq!(sites.over(inos[2]), BTreeSet::from([A]));
    let lanes = || sites.world.owner.lanes.lock().clone();
    until("what is open there ends", || {
        lanes().values().filter(|row| row.group == B).all(|row| row.sealed.is_some() && row.settled)
    });
    assert!(client.read_all(inos[2]) == third && client.read_all(inos[1]) == second);
    sites.a.kill_all();
    until("none answers", || chosen(&client).is_none());
    let fourth = write(&client, inos[3], 4);
    assert!(sites.over(inos[3]).is_empty(), "the store has it");
    client.forget(inos[3]);
    assert!(client.read_all(inos[3]) == fourth);
    drop(first);
}

/// A set is of the group that its writer went by: who goes by another one reads it from there.
#[test]
fn what_is_written_at_one_site_is_read_at_the_other() {
    let sites = Sites::new();
    let (near_b, near_a) = (sites.client(), sites.client_at_a());
    let (one, two) = (sites.world.make(), sites.world.make());
    let (first, second) = (write(&near_b, one, 1), write(&near_a, two, 2));
    assert_eq!((sites.over(one), sites.over(two)), (BTreeSet::from([B]), BTreeSet::from([A])));
    assert!(near_a.read_all(one) == first && near_b.read_all(two) == second);
    assert!(sites.world.objects().is_empty(), "members alone have it");
}

fn bounded(sites: &Sites, policy: u64, groups: &[GroupId]) -> Ino {
    let ino = sites.world.make();
    sites.world.owner.set_policy(ino, PolicyId(policy), SyncClass::Replica(2));
    let bounds = Bounds { here: false, groups: groups.to_vec() };
    sites.world.owner.bounds.lock().insert(PolicyId(policy), bounds);
    ino
}

#[test]
fn each_group_has_only_what_it_may_have() {
    let sites = Sites::new();
    let client = sites.client();
    let (only_a, only_b) = (bounded(&sites, 1, &[A]), bounded(&sites, 2, &[B]));
    let (nowhere, both) = (bounded(&sites, 3, &[GroupId([9; 16])]), bounded(&sites, 4, &[A, B]));
    let also_b = bounded(&sites, 5, &[B]);
    let plain = sites.world.make();
    let all = [only_a, only_b, nowhere, both, also_b, plain];
    all.iter().for_each(|ino| client.write(*ino, 0, &bytes(ino.0, 300_000)));
    client.contents.settle_all().unwrap();
    let over: Vec<_> = all.iter().map(|ino| sites.over(*ino)).collect();
    let set = |of: &[GroupId]| of.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(over, [set(&[A]), set(&[B]), set(&[]), set(&[B]), set(&[B]), set(&[B])]);
    // Two that go by different policies lie in no segment together, and in no object.
    for (at, ino) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert!(sites.segments(*ino).is_disjoint(&sites.segments(*other)), "{ino} {other}");
        }
    }
    let confined: Vec<bool> = {
        let lanes = sites.world.owner.lanes.lock();
        let of = |ino: &Ino| sites.segments(*ino).iter().all(|segment| lanes[segment].confined);
        [only_a, only_b, both, plain].iter().map(of).collect()
    };
    assert_eq!(confined, [true, true, true, false]);
    all.iter().for_each(|ino| client.forget(*ino));
    assert!(all.iter().all(|ino| client.read_all(*ino) == bytes(ino.0, 300_000)));
    let rule = |ino: Ino| client.contents.warm_rule(*sites.segments(ino).first().unwrap());
    assert_eq!([only_a, nowhere, plain].map(rule), [2, 1, 0], "each is brought near by a request of its own");
    assert_ne!(rule(only_b), rule(only_a));
    let may = |ino: Ino| client.contents.may_be_on_disk(&client.inode(ino));
    assert!(may(plain) && ![only_a, only_b, nowhere, both].into_iter().any(may));
    // Where the one group that may have it does not answer, the store has it, and is waited for.
    sites.a.kill_all();
    until("it does not answer", || client.contents.group().unwrap().all()[0].round_trip.is_none());
    write(&client, only_a, 77);
    assert!(sites.over(only_a).is_empty());
    assert_eq!(sites.over(only_b), BTreeSet::from([B]));
}

/// Of a group that comes to be known later nothing was said.
#[test]
fn a_group_that_is_added_has_nothing_of_which_it_was_not_said() {
    let sites = Sites::new();
    *sites.servers.0.lock() = vec![Arc::clone(&sites.a)];
    let dir = tempfile::tempdir().unwrap();
    let cache = StoreCache::Directory(dir.path().to_owned(), 64 << 20);
    let client = sites.world.client_with(ContentsOptions { cache, ..sites.options() });
    until("the only one is gone by", || chosen(&client).as_deref() == Some("a"));
    let ino = sites.world.make();
    sites.world.owner.set_policy(ino, PolicyId(1), SyncClass::Replica(2));
    sites.world.owner.disks.lock().insert(PolicyId(1), Disks::Any);
    let may = || client.contents.may_be_on_disk(&client.inode(ino));
    assert!(may(), "it is barred from no group that there is");
    assert_eq!(sites.world.owner.counted("classes"), 1);
    sites.world.owner.bounds.lock().insert(PolicyId(1), Bounds { here: true, groups: vec![A] });
    sites.servers.0.lock().push(Arc::clone(&sites.b));
    // A member knows of a later view, so it is asked for at once.
    sites.a.says(1, |says| says.view.store(9, SeqCst));
    sites.a.says(2, |says| says.view.store(9, SeqCst));
    write(&client, sites.world.make(), 9);
    goes_by(&client, "b");
    // What was told a moment ago says nothing of the new one: it is asked anew at once, and of each group.
    let before = sites.b.all_appends();
    assert!(!may());
    assert_eq!(sites.world.owner.counted("rules"), 1);
    write(&client, ino, 1);
    assert_eq!((sites.over(ino), sites.b.all_appends()), (BTreeSet::from([A]), before));
    // Where nobody says it, it has nothing either; what counts is asked for again after a while.
    sites.world.owner.bounds.lock().insert(PolicyId(1), Bounds { here: true, groups: vec![A, B] });
    until("it may be in both", may);
    assert!(sites.world.owner.counted("rules") > 1);
    write(&client, ino, 2);
    assert_eq!(sites.over(ino), BTreeSet::from([B]));
}

/// Members that do not know how near they are answer, too; what they are asked that they do not know is said in a line.
#[test]
fn members_of_an_older_release_are_read_and_written() {
    let sites = Sites::new();
    sites.b.is_older();
    let client = sites.client();
    let ino = sites.world.make();
    let data = write(&client, ino, 1);
    assert_eq!(sites.over(ino), BTreeSet::from([B]));
    let other = sites.client_at_a();
    assert!(other.read_all(ino) == data);
    // What the store has they are asked to have cached.
    let stored = bounded(&sites, 1, &[]);
    write(&client, stored, 2);
    sites.world.owner.bounds.lock().insert(PolicyId(1), Bounds { here: true, groups: vec![A, B] });
    let fresh = sites.client();
    let inode = sites.world.owner.ns.inode(V, stored).unwrap();
    let places = fresh.contents.stored(&inode, &(0..300_000), &|| true).unwrap();
    let warmed = fresh.contents.warm(&places[0], WarmInto { here: false, group: true });
    let Err(NotWarm::Failed(why)) = warmed else { panic!("{warmed:?}") };
    assert!(why.contains("group 'b'") && why.contains("is of a release that does not know this"), "{why}");
}

/// Of servers of an older release a mount hears of the first one.
#[test]
fn servers_of_an_older_release_tell_of_the_first() {
    let sites = Sites::new();
    sites.a.older.store(true, SeqCst);
    let options = sites.options();
    let members = options.members.clone().unwrap();
    let client = sites.world.client_with(options);
    assert_eq!((chosen(&client).as_deref(), &*members.groups()), (Some("a"), &[A][..]));
    let ino = sites.world.make();
    write(&client, ino, 1);
    assert_eq!(sites.over(ino), BTreeSet::from([A]));
    // The next one that is asked is of this one.
    sites.a.older.store(false, SeqCst);
    goes_by(&client, "b");
    assert_eq!(*members.groups(), [A, B]);
}
