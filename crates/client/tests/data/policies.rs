//! What files' policies say: a settled byte is where its file's class says, at least, however classes change, members fail and what is known here is old.

use std::{collections::BTreeSet, sync::Arc};

use forebay_client::{ContentsOptions, Members, StoreCache, WarmInto};
use forebay_meta::{PieceSource, SetAttr};
use forebay_protocol::Disks;
use forebay_reading::NotWarm;
use forebay_types::{Compression, Ino, PolicyId, SegmentId, SyncClass};

use crate::{
    fleet::{Fault, Fleet},
    owner::{HasCopies, V},
    world::{Client, Random, World, bytes},
};

const HERE: WarmInto = WarmInto { here: true, group: false };

fn over(world: &World, fleet: &Arc<Fleet>) -> Client {
    *world.owner.fleet.lock() = Some(Arc::clone(fleet) as Arc<dyn HasCopies>);
    let members = Some(Arc::clone(fleet) as Arc<dyn Members>);
    world.client_with(ContentsOptions { members, ..world.options() })
}

/// Segments that a file has bytes in.
fn segments(world: &World, ino: Ino) -> BTreeSet<SegmentId> {
    let pieces = world.owner.ns.map(V, ino, 0, 1 << 30).unwrap();
    let of = |source: &PieceSource| match source {
        PieceSource::Extent(extent) => Some(extent.segment),
        PieceSource::Hole | PieceSource::Inline(_) => None,
    };
    pieces.iter().filter_map(|piece| of(&piece.source)).collect()
}

/// On how few members a file's bytes are that the store has not; `None` where the store has all.
fn fewest(world: &World, ino: Ino) -> Option<usize> {
    segments(world, ino).into_iter().filter_map(|segment| world.owner.copies_alone(segment)).min()
}

fn meets(world: &World, ino: Ino, class: SyncClass) -> bool {
    fewest(world, ino).is_none_or(|copies| class.is_met_by(copies))
}

#[test]
fn files_of_one_directory_are_where_each_of_them_is_to_be() {
    let world = World::new();
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let inos: Vec<Ino> = (0..4).map(|_| world.make()).collect();
    for (policy, class) in [(1, SyncClass::Replica(3)), (2, SyncClass::Object), (3, SyncClass::Replica(2))] {
        world.owner.set_policy(inos[policy as usize], PolicyId(policy), class);
    }
    let data: Vec<_> = (0..).zip(&inos).map(|(seed, _)| bytes(seed, 9000)).collect();
    inos.iter().zip(&data).for_each(|(ino, data)| client.write(*ino, 0, data));
    client.contents.settle_all().unwrap();
    let found: Vec<_> = inos.iter().map(|ino| fewest(&world, *ino)).collect();
    assert_eq!(found, [Some(2), Some(3), None, Some(2)]);
    assert_eq!(world.objects().len(), 1, "what goes by none, or by less than the store, puts nothing");
    assert_eq!(world.owner.counted("classes"), 1, "all that was not known is asked at once");
    // What was told is known by now: those of one class are in one batch, and committed together.
    let commits = world.owner.counted("commit");
    let data: Vec<_> = (0..).zip(&inos).map(|(seed, _)| bytes(10 + seed, 9000)).collect();
    inos.iter().zip(&data).for_each(|(ino, data)| client.write(*ino, 0, data));
    client.contents.settle_all().unwrap();
    let found: Vec<_> = inos.iter().map(|ino| fewest(&world, *ino)).collect();
    assert_eq!(found, [Some(2), Some(3), None, Some(2)]);
    assert_eq!(world.owner.counted("commit"), commits + 3);
    assert_eq!(segments(&world, inos[0]), segments(&world, inos[3]));
    assert_eq!(world.owner.counted("classes"), 1);
    let other = over(&world, &fleet);
    inos.iter().zip(&data).for_each(|(ino, data)| assert!(other.read_all(*ino) == *data));
    assert!(inos.iter().all(|ino| other.contents.may_be_on_disk(&other.inode(*ino))));
}

#[test]
fn files_of_a_volume_of_one_copy_have_more_where_their_policies_say_so() {
    let world = World::new();
    let fleet = Fleet::of(3);
    fleet.set_class(1, &[2]);
    let client = over(&world, &fleet);
    let inos: Vec<Ino> = (0..4).map(|_| world.make()).collect();
    for (policy, class) in [(1, SyncClass::Local), (2, SyncClass::Replica(2)), (3, SyncClass::Object)] {
        world.owner.set_policy(inos[policy as usize], PolicyId(policy), class);
    }
    let write = |seed| {
        inos.iter().for_each(|ino| client.write(*ino, 0, &bytes(seed, 9000)));
        client.contents.settle_all().unwrap();
        inos.iter().map(|ino| fewest(&world, *ino)).collect::<Vec<_>>()
    };
    assert_eq!(write(1), [Some(1), Some(1), Some(2), None]);
    // Without a member here: no other one is asked in its place, and what is to be on two still is.
    fleet.set_class(1, &[]);
    assert_eq!(write(2), [None, None, Some(2), None]);
    // What a policy says is never less than the volume.
    fleet.set_class(2, &[2]);
    assert_eq!(write(3), [Some(2), Some(2), Some(2), None]);
    world.assert_accounted_for();
}

#[test]
fn a_class_that_nobody_has_told_of_is_kept_to() {
    let world = World::new();
    let fleet = Fleet::of(3);
    let client = over(&world, &fleet);
    let ino = world.make();
    world.owner.set_policy(ino, PolicyId(1), SyncClass::Replica(2));
    client.write(ino, 0, &bytes(1, 5000));
    client.settle(ino);
    assert_eq!(fewest(&world, ino), Some(2));
    // The policy says more now, and this client goes by what it was told a moment ago.
    world.owner.set_policy(ino, PolicyId(1), SyncClass::Object);
    let commits = world.owner.counted("commit");
    client.write(ino, 0, &bytes(2, 5000));
    client.settle(ino);
    assert_eq!(fewest(&world, ino), None);
    assert_eq!(world.owner.counted("commit"), commits + 2, "one is refused, and one is taken");
    // By then it has asked again.
    client.write(ino, 0, &bytes(3, 5000));
    client.settle(ino);
    assert_eq!((fewest(&world, ino), world.owner.counted("commit")), (None, commits + 3));
    client.forget(ino);
    assert!(client.read_all(ino) == bytes(3, 5000));
    world.assert_accounted_for();
}

#[test]
fn where_fewer_members_are_left_than_the_class_says_the_store_has_it() {
    let world = World::new();
    let fleet = Fleet::of(3);
    let client = over(&world, &fleet);
    let (three, two) = (world.make(), world.make());
    world.owner.set_policy(three, PolicyId(1), SyncClass::Replica(3));
    fleet.set_fault(1, Some(Fault::Refuses));
    for ino in [three, two] {
        client.write(ino, 0, &bytes(1, 5000));
    }
    client.contents.settle_all().unwrap();
    assert_eq!((fewest(&world, three), fewest(&world, two)), (None, Some(2)));
}

#[test]
fn what_may_not_be_on_all_disks_has_segments_of_its_own_over_members() {
    let world = World::new();
    let fleet = Fleet::of(3);
    let client = over(&world, &fleet);
    let (confined, plain, later) = (world.make(), world.make(), world.make());
    world.owner.set_policy(confined, PolicyId(1), SyncClass::Replica(2));
    world.owner.disks.lock().insert(PolicyId(1), Disks::Members);
    // Side by side, and one after the other into what rests between batches.
    for inos in [&[confined, plain][..], &[later], &[confined]] {
        inos.iter().for_each(|ino| client.write(*ino, 0, &bytes(ino.0, 9000)));
        client.contents.settle_all().unwrap();
    }
    assert!(world.objects().is_empty(), "members have it all");
    let of = |ino| segments(&world, ino);
    assert!(of(confined).is_disjoint(&of(plain)) && of(confined).is_disjoint(&of(later)));
    assert_eq!(of(plain), of(later));
    let known = |segment: &SegmentId| world.owner.lanes.lock()[segment].confined;
    assert!(of(confined).iter().all(known) && !of(plain).iter().any(known));
    assert!(client.read_all(confined) == bytes(confined.0, 9000));
    let rule = |ino| of(ino).iter().map(|segment| client.contents.warm_rule(*segment)).collect::<Vec<_>>();
    assert_ne!(rule(confined), rule(plain), "nor are they brought near by one request");
}

/// Whether a file in a directory has these bytes.
fn is_on_disk(dir: &std::path::Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let whole = std::fs::read(entry.unwrap().path()).unwrap();
        whole.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn what_is_to_be_on_no_disk_is_in_memory_and_the_store_alone() {
    for disks in [Disks::Members, Disks::None] {
        // What is compressed would not be found.
        let (world, dir) = (World::with(Compression::None), tempfile::tempdir().unwrap());
        let cache = StoreCache::Directory(dir.path().to_owned(), 64 << 20);
        let client = world.client_with(ContentsOptions { cache, ..world.options() });
        let (apart, plain) = (world.make(), world.make());
        world.owner.set_policy(apart, PolicyId(1), SyncClass::Replica(2));
        world.owner.disks.lock().insert(PolicyId(1), disks);
        let (secret, other) = (bytes(1, 300_000), bytes(2, 300_000));
        client.write(apart, 0, &secret);
        client.write(plain, 0, &other);
        client.contents.settle_all().unwrap();
        assert_eq!(world.objects().len(), 2, "they share no object");
        let segments = |ino| segments(&world, ino);
        assert!(segments(apart).is_disjoint(&segments(plain)));
        for ino in [apart, plain] {
            client.forget(ino);
        }
        assert!(client.read_all(apart) == secret && client.read_all(plain) == other);
        let may = |ino| client.contents.may_be_on_disk(&client.inode(ino));
        assert!(may(plain) && !may(apart));
        let part = |data: &[u8]| data[100_000..100_064].to_vec();
        assert!(is_on_disk(dir.path(), &part(&other)), "what nothing was said of is cached");
        assert!(!is_on_disk(dir.path(), &part(&secret)));
    }
}

#[test]
fn what_is_on_the_disk_from_before_goes_when_it_is_read_next() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let cache = StoreCache::Directory(dir.path().to_owned(), 64 << 20);
    let client = world.client_with(ContentsOptions { cache, ..world.options() });
    let ino = world.make();
    let secret = bytes(1, 300_000);
    client.write(ino, 0, &secret);
    client.settle(ino);
    let stored = || {
        let inode = world.owner.ns.inode(V, ino).unwrap();
        client.contents.stored(&inode, &(0..300_000), &|| true).unwrap().remove(0)
    };
    assert!(client.contents.warm(&stored(), HERE).unwrap().cached > 0, "it was kept as it was written");
    world.owner.set_policy(ino, PolicyId(1), SyncClass::Replica(2));
    world.owner.disks.lock().insert(PolicyId(1), Disks::None);
    assert!(client.read_all(ino) == secret);
    let refused = client.contents.warm(&stored(), HERE);
    assert!(matches!(refused, Err(NotWarm::Failed(_))), "{refused:?}");
    // The cache knows nothing of it any more: bytes are not wiped, but nobody finds them.
    drop(client);
    let cache = StoreCache::Directory(dir.path().to_owned(), 64 << 20);
    let again = world.client_with(ContentsOptions { cache, ..world.options() });
    world.owner.disks.lock().clear();
    let inode = world.owner.ns.inode(V, ino).unwrap();
    let stored = again.contents.stored(&inode, &(0..300_000), &|| true).unwrap().remove(0);
    let warmed = again.contents.warm(&stored, HERE).unwrap();
    assert_eq!(warmed.cached, 0, "{warmed:?}");
}

#[test]
fn nothing_is_acknowledged_below_its_class() {
    let seeds: u64 = std::env::var("FOREBAY_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let trace = Run::new(seed).all();
        if let Err(wrong) = trace {
            panic!("seed {seed}: {wrong}");
        }
    }
}

const FILES: usize = 4;
const STEPS: usize = 120;
const MEMBERS: u8 = 4;

/// Files whose classes go up and down while they are written, over members that fail and come back.
struct Run {
    world: World,
    fleet: Arc<Fleet>,
    client: Client,
    random: Random,
    inos: Vec<Ino>,
    models: Vec<Vec<u8>>,
    /// What was said of each, and since which of its bytes.
    classes: Vec<Option<SyncClass>>,
    trace: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let (world, fleet) = (World::new(), Fleet::of(MEMBERS));
        let client = over(&world, &fleet);
        let inos = (0..FILES).map(|_| world.make()).collect();
        let (models, classes) = (vec![Vec::new(); FILES], vec![None; FILES]);
        let (random, trace) = (Random(seed), Vec::new());
        Run { world, fleet, client, random, inos, models, classes, trace }
    }

    fn set_class(&mut self, file: usize) {
        let class = match self.random.below(4) {
            3 => SyncClass::Object,
            more => SyncClass::Replica(2 + more as u8),
        };
        self.trace.push(format!("class {file} {class}"));
        let ino = self.inos[file];
        // What was handed over before may be where it was to be then: all of it is written anew.
        self.world.owner.set_policy(ino, PolicyId(1 + file as u64), class);
        self.client.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() });
        if self.random.below(2) == 0 {
            self.client.forget(ino);
        }
        self.models[file].clear();
        self.classes[file] = Some(class);
    }

    fn write(&mut self, file: usize) {
        let said = self.client.write_random(&mut self.random, self.inos[file], &mut self.models[file]);
        self.trace.push(format!("write {file} {said}"));
    }

    /// A member stops answering, or answers again.
    fn harm(&mut self) {
        let member = 1 + self.random.below(u64::from(MEMBERS)) as u8;
        let fault = [None, Some(Fault::Refuses), Some(Fault::Mute)][self.random.below(3) as usize];
        self.trace.push(format!("member {member} {fault:?}"));
        self.fleet.set_fault(member, fault);
    }

    fn sync(&mut self, file: usize) -> Result<(), String> {
        self.trace.push(format!("sync {file}"));
        self.client.settle(self.inos[file]);
        self.check(file)
    }

    fn check(&self, file: usize) -> Result<(), String> {
        let (ino, class) = (self.inos[file], self.classes[file].unwrap_or(SyncClass::Replica(2)));
        match meets(&self.world, ino, class) {
            true => Ok(()),
            false => {
                let trace = self.trace.join("\n");
                Err(format!(
                    "file {file} is on {:?} members, and is of {class}\n{trace}",
                    fewest(&self.world, ino)
                ))
            }
        }
    }

    fn all(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            let file = self.random.below(FILES as u64) as usize;
            match self.random.below(12) {
                0 => self.set_class(file),
                1 => self.harm(),
                2 => {
                    self.trace.push("sync all".to_owned());
                    self.client.contents.settle_all().unwrap();
                    (0..FILES).try_for_each(|file| self.check(file))?;
                }
                3..=5 => self.sync(file)?,
                _ => self.write(file),
            }
        }
        self.client.contents.settle_all().unwrap();
        (1..=MEMBERS).for_each(|member| self.fleet.set_fault(member, None));
        for (file, (ino, model)) in self.inos.iter().zip(&self.models).enumerate() {
            self.check(file)?;
            self.client.forget(*ino);
            assert!(self.client.read_all(*ino) == *model, "file {file} differs in the end");
        }
        self.world.assert_accounted_for();
        Ok(())
    }
}
