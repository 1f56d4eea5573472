//! What policies want in the caches of a group: told to members page by page; and what they say of it.

use std::time::Duration;

use forebay_engine::{Batch, Engine};
use forebay_format::key::Item;
use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_protocol::{
    Answer, Bounds, Disks, Failure, OpenSegments, Operation, Placing, PolicyChange, PolicyEdit, PolicyKept,
    PolicyReport, PolicyRule, PolicySums, WantedPlace, Wish, confined_in, is_confined, unconfined,
};
use forebay_types::{FileKind, Ino, PolicyId, SyncClass};

use super::{
    super::{
        contents::{commit, extent, file, numbers, object},
        world::{AT, Client, Server, World, make, make_directory, new_file},
    },
    A, B, C, GROUP, Member, committed, group_of, open_of, opened, store, stored,
};

const OTHER: GroupId = GroupId([8; 16]);

fn edit(server: &Server, ino: Ino, edit: PolicyEdit) -> Answer {
    server.owner.change_policy(PolicyChange::Set(ino, edit)).unwrap()
}

fn pin(server: &Server, ino: Ino, pin: bool) -> Answer {
    edit(server, ino, PolicyEdit { pin: Some(pin), ..PolicyEdit::default() })
}

fn made_in(client: &Client<'_>, directory: Ino, name: &str, kind: FileKind) -> Ino {
    let new = forebay_meta::NewInode { kind, ..new_file() };
    client.inode(Operation::Make(directory, name.as_bytes().to_vec(), new)).ino
}

/// All pages.
fn wanted(server: &Server, group: GroupId) -> Vec<WantedPlace> {
    let (mut all, mut from) = (Vec::new(), (Ino(0), 0));
    loop {
        let page = server.owner.wanted(group, from).unwrap();
        all.extend(page.places);
        match page.next {
            Some(next) => {
                assert!(next > from, "{next:?} after {from:?}");
                from = next;
            }
            None => return all,
        }
    }
}

/// Puts an object and has a file have 100 bytes of it.
fn put(client: &Client<'_>, ino: Ino) {
    let given = numbers(client, 1);
    let object = object(&given, 0, 1000);
    let part = vec![(0, extent(object.segments[0].id, 0, 100))];
    let answer = client.ask(commit(vec![object], vec![file(ino, part)])).answer();
    assert_eq!(answer, Answer::Committed(Vec::new()));
}

#[test]
fn what_is_pinned_and_stored_is_told_to_members_of_the_group() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let (dir, plain) = (client.inode(make_directory("d")).ino, client.inode(make("plain")).ino);
        put(&client, plain);
        assert_eq!(wanted(&server, GROUP), [], "nothing was said");
        let before = server.owner.policy_version();
        assert_eq!(pin(&server, dir, true), Answer::Done);
        let version = server.owner.policy_version();
        assert_ne!(version, before);
        let sub = made_in(&client, dir, "sub", FileKind::Directory);
        let ino = made_in(&client, sub, "a", FileKind::Regular);
        // What the store does not have is with members already.
        let set = open_of(Ino::ROOT, 1, Placing::Set(vec![A, B]));
        let segment = opened(&client, set)[0].segment;
        assert_eq!(committed(&client, ino, segment, 0, 100), Answer::Committed(Vec::new()));
        assert_eq!(wanted(&server, GROUP), []);
        let proxy = server.begin(2);
        let object = numbers(&proxy, 1);
        let whole = vec![stored(segment, 1, &[7; 400])];
        assert_eq!(proxy.ask(store(&object, 0, whole)).answer(), Answer::Stored(vec![]));
        let told = wanted(&server, GROUP);
        assert_eq!(told.len(), 1);
        let WantedPlace { policy, wish, segment: of, place, from, len } = told[0];
        assert_eq!((policy, wish, of, from, len), (PolicyId(1), Wish::Stay, segment, 0, 100));
        assert_eq!((place.object, place.offset, place.len), (object.first_object, 64, 400));
        assert_eq!(server.owner.policy_version(), version, "files are no policies");
        // Also to a later owner's, until it is taken back.
        assert_eq!(client.ask(Operation::Release(Vec::new())).answer(), Answer::Done);
        let later = world.owner();
        later.owner.reclaim(client.session, &[]).unwrap();
        later.owner.reclaim(proxy.session, &[]).unwrap();
        assert_eq!(wanted(&later, GROUP), told);
        assert_ne!(later.owner.policy_version(), version);
        assert_eq!(pin(&later, dir, false), Answer::Done);
        assert_eq!(wanted(&later, GROUP), []);
        later.stop().unwrap();
    }
}

#[test]
fn the_wish_is_that_of_all_that_was_said_above() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    pin(&server, dir, true);
    let sub = made_in(&client, dir, "sub", FileKind::Directory);
    let near = PolicyEdit { place: Some(Some(GROUP)), ..PolicyEdit::default() };
    edit(&server, sub, near);
    let ino = made_in(&client, sub, "a", FileKind::Regular);
    put(&client, ino);
    let wish = |group| wanted(&server, group).first().map(|place| place.wish);
    assert_eq!(wish(GROUP), Some(Wish::Stay), "what was said nearer says nothing of pins");
    pin(&server, dir, false);
    assert_eq!((wish(GROUP), wish(OTHER)), (Some(Wish::Near), None));
    edit(&server, dir, PolicyEdit { confine: Some(Some(OTHER)), ..PolicyEdit::default() });
    assert_eq!((wish(GROUP), wish(OTHER)), (Some(Wish::Nowhere), None));
    edit(&server, dir, PolicyEdit { confine: Some(Some(GROUP)), ..PolicyEdit::default() });
    assert_eq!((wish(GROUP), wish(OTHER)), (Some(Wish::Near), Some(Wish::Nowhere)));
    edit(&server, sub, PolicyEdit { exclude: Some(Some(GROUP)), ..PolicyEdit::default() });
    assert_eq!((wish(GROUP), wish(OTHER)), (Some(Wish::Nowhere), Some(Wish::Nowhere)));
    server.stop().unwrap();
}

#[test]
fn pages_have_everything_once() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    pin(&server, dir, true);
    let mut expected = 0;
    // More inodes than a page looks at, those in between without a policy; and one file with more places than a page has.
    for number in 0..1200 {
        made_in(&client, Ino::ROOT, &format!("plain {number}"), FileKind::Regular);
        if number % 8 == 0 {
            put(&client, made_in(&client, dir, &format!("{number}"), FileKind::Regular));
            expected += 1;
        }
    }
    let large = made_in(&client, dir, "large", FileKind::Regular);
    for part in 0..12_u64 {
        let given = numbers(&client, 1);
        let object = object(&given, 0, 200_000);
        let id = object.segments[0].id;
        // Not side by side: each is a place of its own.
        let parts = (0..200).map(|at| (((part * 200) + at) << 20, extent(id, at * 1000, 100))).collect();
        let answer = client.ask(commit(vec![object], vec![file(large, parts)])).answer();
        assert_eq!(answer, Answer::Committed(Vec::new()));
        expected += 200;
    }
    let all = wanted(&server, GROUP);
    assert_eq!(all.len(), expected);
    let mut places: Vec<_> = all.iter().map(|place| (place.segment, place.from)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), expected);
    server.stop().unwrap();
}

/// The sizes of all pages.
fn pages(server: &Server, group: GroupId) -> Vec<usize> {
    let (mut sizes, mut from) = (Vec::new(), (Ino(0), 0));
    loop {
        let page = server.owner.wanted(group, from).unwrap();
        sizes.push(page.places.len());
        match page.next {
            Some(next) => from = next,
            None => return sizes,
        }
    }
}

#[test]
fn a_page_has_a_part_of_a_large_file_however_its_bytes_lie() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    pin(&server, dir, true);
    // Bytes at both ends of the largest file that there may be: what lies between is a hole, and costs nothing.
    let sparse = made_in(&client, dir, "sparse", FileKind::Regular);
    let size = forebay_types::limits::file_size_max(4 << 20);
    let given = numbers(&client, 1);
    let ends = object(&given, 0, 1000);
    let id = ends.segments[0].id;
    let parts = vec![(0, extent(id, 0, 100)), (size - 100, extent(id, 500, 100))];
    let answer = client.ask(commit(vec![ends], vec![file(sparse, parts)])).answer();
    assert_eq!(answer, Answer::Committed(Vec::new()));
    assert_eq!(pages(&server, GROUP), [2]);
    // Small pieces side by side, far more than a page looks at, and as many of which each is a place.
    let (near, far) =
        (made_in(&client, dir, "near", FileKind::Regular), made_in(&client, dir, "far", FileKind::Regular));
    for (ino, apart) in [(near, 108), (far, 1000)] {
        for part in 0..5_u64 {
            let given = numbers(&client, 1);
            let object = object(&given, 0, 4_000_000);
            let id = object.segments[0].id;
            let piece = |at: u64| ((part * 4000 + at) * 4096, extent(id, at * apart, 100));
            let answer =
                client.ask(commit(vec![object], vec![file(ino, (0..4000).map(piece).collect())])).answer();
            assert_eq!(answer, Answer::Committed(Vec::new()));
        }
    }
    let sizes = pages(&server, GROUP);
    // What lies in one segment is a place of each page that has a part of it.
    assert!((0..sizes.len()).contains(&(sizes.iter().sum::<usize>() - (2 + 5 + 20_000))), "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1024 + 512), "{sizes:?}");
    assert!(
        sizes[0] < 2 + 5,
        "a page looks at so many pieces, also where few places come of them: {sizes:?}"
    );
    server.stop().unwrap();
}

#[test]
fn what_cannot_be_read_keeps_members_from_nothing_else() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    pin(&server, dir, true);
    let [torn, gone, good] = ["torn", "gone", "good"].map(|name| {
        let ino = made_in(&client, dir, name, FileKind::Regular);
        let given = numbers(&client, 1);
        let object = object(&given, 0, 1000);
        let id = object.segments[0].id;
        let parts = vec![(0, extent(id, 0, 100)), (1 << 30, extent(id, 500, 100))];
        let answer = client.ask(commit(vec![object], vec![file(ino, parts)])).answer();
        assert_eq!(answer, Answer::Committed(Vec::new()));
        ino
    });
    assert_eq!(wanted(&server, GROUP).len(), 6);
    server.stop().unwrap();
    for item in [Item::Extent(torn, 256, 0), Item::Inode(gone)] {
        let prefix = item.prefix(AT);
        let found = world.engine.scan(&prefix, None, 1).unwrap().rows;
        assert!(found[0].0.starts_with(&prefix), "{item:?}");
        let rows = [(found[0].0.to_vec(), Some(vec![0xff]))];
        world.engine.commit(&Batch::of(&rows)).unwrap();
    }
    let later = world.owner();
    let policy = later.owner.policy_of(dir).unwrap().policy;
    let all_good = |kept: PolicyKept| (kept.whole, kept.sums.wanted, kept.sums.failed);
    assert_eq!(later.owner.kept(Some(policy), GROUP).map(all_good), Some((true, 0, 0)), "nobody has asked");
    let all = wanted(&later, GROUP);
    let of_good = later.owner.wanted(GROUP, (good, 0)).unwrap().places;
    assert!(of_good.len() == 2 && all.ends_with(&of_good), "{all:?}");
    // And nobody takes what members say for all that there is.
    for of in [Some(policy), None] {
        let kept = later.owner.kept(of, GROUP).unwrap();
        assert!(kept.sums.why.contains("cannot be read"), "{kept:?}");
        assert!(kept.sums.failed >= 100 && kept.sums.failed == kept.sums.wanted, "{kept:?}");
        assert!(!kept.whole);
    }
    later.stop().unwrap();
}

#[test]
fn what_members_have_is_summed_for_a_policy_and_what_came_after_it() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (dir, other) = (client.inode(make_directory("d")).ino, client.inode(make_directory("o")).ino);
    assert_eq!(server.owner.kept(None, GROUP), None);
    pin(&server, dir, true);
    let sub = made_in(&client, dir, "sub", FileKind::Directory);
    let durable = Some(Some(forebay_types::SyncClass::Object));
    edit(&server, sub, PolicyEdit { durability: durable, ..PolicyEdit::default() });
    edit(&server, other, PolicyEdit { durability: durable, ..PolicyEdit::default() });
    let [of_dir, of_sub, of_other] = [dir, sub, other].map(|ino| server.owner.policy_of(ino).unwrap().policy);
    assert!(
        server.owner.policy_of(sub).unwrap().keep.pin && !server.owner.policy_of(other).unwrap().keep.pin
    );
    let none = server.owner.kept(Some(of_dir), GROUP).unwrap();
    assert_eq!((none.members, none.heard), (0, 0), "no group is known");
    server.owner.group_is(GROUP, &group_of(&[A, B, C], 1));
    let sums = |wanted: u64, no_room: u64, why: &str| PolicySums {
        wanted,
        kept: wanted - no_room,
        no_room,
        why: why.to_owned(),
        ..PolicySums::default()
    };
    let say = |member: MemberId, whole: bool, all: &[(PolicyId, PolicySums)]| {
        server
            .owner
            .member_found((member, Incarnation::default()), PolicyReport { whole, sums: all.to_vec() });
    };
    say(A, true, &[(of_dir, sums(100, 0, "")), (of_sub, sums(50, 20, "")), (PolicyId(99), sums(9, 9, ""))]);
    say(B, false, &[(of_sub, sums(7, 0, &"x".repeat(1000)))]);
    say(MemberId([77; 16]), true, &[(of_dir, sums(1000, 0, ""))]);
    let kept = server.owner.kept(Some(of_dir), GROUP).unwrap();
    assert_eq!((kept.members, kept.heard, kept.whole), (3, 2, false));
    assert_eq!((kept.sums.wanted, kept.sums.kept, kept.sums.no_room), (157, 137, 20));
    assert_eq!(kept.sums.why.len(), 300);
    assert_eq!(server.owner.kept(Some(of_sub), GROUP).unwrap().sums.wanted, 57);
    assert_eq!(server.owner.kept(None, GROUP).unwrap().sums.wanted, 157);
    assert_eq!(server.owner.kept(Some(of_other), GROUP), None, "nothing is said of caches");
    // Another process than the one that acts now has nothing to say.
    let report = PolicyReport { whole: true, sums: vec![(of_dir, sums(1 << 30, 0, ""))] };
    server.owner.member_found((C, Incarnation([4; 16])), report);
    assert_eq!(server.owner.kept(Some(of_dir), GROUP).unwrap().heard, 2);
    // A later word replaces the one before, and an old one counts no longer.
    say(B, true, &[]);
    assert!(server.owner.kept(Some(of_dir), GROUP).unwrap().whole);
    world.pass(&server, &[&client], Duration::from_secs(119));
    say(C, true, &[]);
    world.pass(&server, &[&client], Duration::from_secs(2));
    let kept = server.owner.kept(Some(of_dir), GROUP).unwrap();
    assert_eq!((kept.heard, kept.sums.wanted), (1, 0));
    server.stop().unwrap();
}

#[test]
fn what_members_may_not_have_is_committed_from_the_store_alone() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (ino, free) = (client.inode(make("a")).ino, client.inode(make("b")).ino);
    let confine = |to| PolicyEdit { confine: Some(Some(to)), ..PolicyEdit::default() };
    edit(&server, ino, confine(GROUP));
    let policy = server.owner.policy_of(ino).unwrap().policy;
    let below = Answer::Failed(Failure::BelowClass);
    let on_members = |ino, from| {
        let set = open_of(Ino::ROOT, 1, Placing::Set(vec![A, B]));
        committed(&client, ino, opened(&client, set)[0].segment, from, 100)
    };
    assert_eq!(
        server.owner.disks_of(policy, None),
        Disks::None,
        "through which group it is read is not known yet"
    );
    assert_eq!(on_members(ino, 0), below);
    server.owner.set_groups(vec![GROUP]);
    assert_eq!(server.owner.disks_of(policy, None), Disks::Members);
    assert_eq!(on_members(ino, 0), Answer::Committed(Vec::new()));
    let told = |class, disks| Answer::Rules(vec![PolicyRule { policy, class, disks }]);
    let asked = || client.ask(Operation::Classes(vec![policy])).answer();
    assert_eq!(asked(), told(None, Disks::Members));
    for groups in [vec![OTHER], Vec::new()] {
        server.owner.set_groups(groups);
        assert_eq!(asked(), told(Some(SyncClass::Object), Disks::None));
        assert_eq!(on_members(ino, 100), below);
        assert_eq!(on_members(free, 0), Answer::Committed(Vec::new()));
    }
    put(&client, ino);
    // Excluded from another group is as if nothing were said; from the one that it is read through, it may not be there.
    edit(
        &server,
        ino,
        PolicyEdit { confine: Some(None), exclude: Some(Some(OTHER)), ..PolicyEdit::default() },
    );
    server.owner.set_groups(vec![GROUP]);
    assert_eq!(asked(), Answer::Classes(Vec::new()));
    assert_eq!(on_members(ino, 100), Answer::Committed(Vec::new()));
    edit(&server, ino, PolicyEdit { exclude: Some(Some(GROUP)), ..PolicyEdit::default() });
    assert_eq!(on_members(ino, 200), below);
    server.owner.set_groups(Vec::new());
    assert_eq!(asked(), Answer::Classes(Vec::new()), "there are no members");
    server.stop().unwrap();
}

/// Of a volume with two groups, a commit is held against what the group may have that its segments are in.
#[test]
fn of_several_groups_each_has_only_what_it_may_have() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    server.owner.set_groups(vec![GROUP, OTHER]);
    let (confined, excluded) = (client.inode(make("a")).ino, client.inode(make("b")).ino);
    let (both, free) = (client.inode(make("c")).ino, client.inode(make("d")).ino);
    let to = PolicyEdit { confine: Some(Some(GROUP)), ..PolicyEdit::default() };
    edit(&server, confined, to);
    edit(&server, excluded, PolicyEdit { exclude: Some(Some(GROUP)), ..PolicyEdit::default() });
    edit(&server, both, PolicyEdit { exclude: Some(Some(OTHER)), ..to });
    let below = Answer::Failed(Failure::BelowClass);
    let on_members = |ino, group, from| {
        let set = OpenSegments { group, ..open_of(Ino::ROOT, 1, Placing::Set(vec![A, B])) };
        committed(&client, ino, opened(&client, set)[0].segment, from, 100)
    };
    let taken = || Answer::Committed(Vec::new());
    for (round, own) in [(0, taken()), (1, taken()), (2, below.clone())] {
        let from = round * 100;
        assert_eq!(on_members(confined, GROUP, from), own, "{round}");
        assert_eq!(on_members(confined, OTHER, from), below);
        assert_eq!(on_members(excluded, GROUP, from), below);
        assert_eq!(on_members(both, OTHER, from), below);
        assert_eq!(on_members(free, OTHER, from), taken());
        let third = GroupId([7; 16]);
        assert_eq!(on_members(free, third, from + 50), taken(), "nothing is said of its disks");
        assert_eq!(on_members(excluded, third, from), below, "it is not the volume's");
        // As the same is said of one group alone; then that one is taken away.
        server.owner.set_groups(if round == 0 { vec![GROUP] } else { vec![OTHER] });
    }
    server.owner.set_groups(vec![OTHER, GROUP]);
    // A client that hears of one answer for all groups goes to the store where one of them is barred.
    let policies: Vec<PolicyId> =
        [confined, excluded, both].map(|ino| server.owner.policy_of(ino).unwrap().policy).to_vec();
    let told = |policy: &PolicyId| PolicyRule {
        policy: *policy,
        class: Some(SyncClass::Object),
        disks: Disks::None,
    };
    let rules = policies.iter().map(told).collect();
    assert_eq!(client.ask(Operation::Classes(policies.clone())).answer(), Answer::Rules(rules));
    // One that tells them apart hears where each may be.
    let by_group = |policies: &[PolicyId]| match client.ask(Operation::GroupRules(policies.to_vec())).answer()
    {
        Answer::GroupRules(rules) => {
            assert_eq!(rules.iter().map(|rule| rule.policy).collect::<Vec<_>>(), policies);
            assert!(rules.iter().all(|rule| rule.class.is_none()), "of that nothing is said");
            rules.into_iter().map(|rule| rule.bounds).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let within = |groups: &[GroupId]| Some(Bounds { here: false, groups: groups.to_vec() });
    assert_eq!(by_group(&policies), [within(&[GROUP]), within(&[OTHER]), within(&[GROUP])]);
    let disks = |at: usize, group| server.owner.disks_of(policies[at], group);
    assert_eq!(
        (disks(0, None), disks(0, Some(GROUP)), disks(0, Some(OTHER))),
        (Disks::Members, Disks::Members, Disks::None)
    );
    let third = GroupId([7; 16]);
    server.owner.set_groups(vec![third, OTHER]);
    assert_eq!((disks(0, None), disks(1, Some(third))), (Disks::None, Disks::Any));
    assert_eq!(
        by_group(&policies),
        [within(&[]), Some(Bounds { here: true, groups: vec![third, OTHER] }), within(&[])]
    );
    server.owner.set_groups(Vec::new());
    assert_eq!(
        by_group(&policies),
        [within(&[]), Some(Bounds { here: true, groups: Vec::new() }), within(&[])]
    );
    edit(&server, free, PolicyEdit { pin: Some(true), ..PolicyEdit::default() });
    let pinned = server.owner.policy_of(free).unwrap().policy;
    let unknown = PolicyId(900);
    assert_eq!(by_group(&[pinned]), [None], "nothing is said of disks");
    let Answer::GroupRules(rules) = client.ask(Operation::GroupRules(vec![unknown])).answer() else {
        panic!()
    };
    assert_eq!(rules[0].bounds, Some(Bounds::default()), "nobody knows what it says");
    assert_eq!(rules[0].class, Some(SyncClass::Object));
    server.stop().unwrap();
}

#[test]
fn members_are_told_of_which_segments_bytes_may_not_be_on_all_disks() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    let open = |directory| open_of(directory, 1, Placing::Set(vec![A, B]));
    let plain = opened(&client, open(dir))[0].segment;
    let confined = opened(&client, open(confined_in(dir)))[0].segment;
    assert_ne!(plain.0 >> 8, confined.0 >> 8, "they lie in runs of their own");
    let mut member = Member::new(A);
    let told = [plain, confined].map(|segment| {
        member.append(segment, 1, b"abc").unwrap();
        member.seal(segment, b"abc");
        member.offers(&client)[&segment].directory
    });
    assert_eq!(told, [dir, confined_in(dir)]);
    assert!(!is_confined(told[0]) && is_confined(told[1]) && unconfined(told[1]) == dir);
    server.stop().unwrap();
}
