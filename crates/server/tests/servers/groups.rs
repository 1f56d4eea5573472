//! Groups of proxies: who is in them, by way of servers over each engine.

use std::time::{Duration, Instant};

use forebay_cluster::ServerId;
use forebay_engine::{DirectoryHost, EngineHost, EngineUrl};
use forebay_group::{
    GroupId, GroupTerms, Incarnation, Member, MemberId, MemberRow, MemberState, View, ViewEpoch,
};
use forebay_protocol::{
    Kind, Message, Refusal, Rights,
    group::{
        GroupInfo, GroupRequest, GroupView, GroupVolume, Join, Joined, Leave, LostMember, MemberNumbers,
        RenewMember, Renewed, ViewOf, ViewsOf, Vouch, VouchIn, Vouched, WriteClass,
    },
};
use forebay_server::{
    MetaServer, ServerOptions,
    registry::{Change, MemberRow as ServerRow, Registry, RegistryError, View as Volumes, VolumeRow},
};
use forebay_types::VolumeId;

use crate::{
    bed::{Asks, Bed, Not, Still, until, whole},
    rights::strict_by,
};

const OUT_AFTER: Duration = Duration::from_millis(2500);

/// A server for which no time passes: nobody is counted out because the machine is slow.
fn serve(bed: &Bed) -> MetaServer {
    serve_by(bed, &Still::default())
}

/// One for which as much time passes as the clock is put forward by.
fn serve_by(bed: &Bed, clock: &Still) -> MetaServer {
    let group_terms =
        GroupTerms { act_for: Duration::from_secs(2), count_out_after: OUT_AFTER, ..GroupTerms::default() };
    let options = ServerOptions { group_terms, ticks: clock.ticking(), ..bed.options() };
    MetaServer::start(&options, &|| false).unwrap().unwrap()
}

/// A proxy, as far as servers see one.
struct Proxy {
    group: GroupId,
    id: MemberId,
    incarnation: Incarnation,
    beat: u64,
    view: View,
}

pub fn join_of(group: GroupId, id: u8, incarnation: u8, log_end: u64) -> Join {
    Join {
        group,
        id: MemberId([id; 16]),
        member: Member {
            incarnation: Incarnation([incarnation; 16]),
            address: format!("127.0.0.1:{}", 7300 + u16::from(id)),
            node: format!("node{id}"),
            zone: format!("zone{id}"),
            weight: 4,
            state: MemberState::Active,
        },
        log_end,
        dirty: 0,
        numbers: MemberNumbers::default(),
    }
}

fn try_join(asks: &Asks, join: &Join) -> Joined {
    asks.call(Kind::Join, join).unwrap()
}

impl Proxy {
    fn join(asks: &Asks, group: GroupId, id: u8, incarnation: u8) -> Proxy {
        let join = join_of(group, id, incarnation, 100);
        match try_join(asks, &join) {
            Joined::In(view) => {
                Proxy { group, id: join.id, incarnation: join.member.incarnation, beat: 1, view }
            }
            other => panic!("{other:?}"),
        }
    }

    fn renewal(&mut self, dirty: u64) -> RenewMember {
        self.beat += 1;
        RenewMember {
            group: self.group,
            id: self.id,
            row: MemberRow {
                incarnation: self.incarnation,
                beat: self.beat,
                acknowledged: self.view.epoch,
                log_end: 100,
                dirty,
            },
            numbers: MemberNumbers { dirty_bytes: dirty << 20, used: 5, capacity: 10, load: 3 },
        }
    }

    /// Whether it stays.
    fn renew(&mut self, asks: &Asks, dirty: u64) -> bool {
        let renewal = self.renewal(dirty);
        match asks.call(Kind::RenewMember, &renewal).unwrap() {
            Renewed::Stays(_, view) => {
                self.view = view.unwrap_or_else(|| self.view.clone());
                true
            }
            Renewed::Out => false,
        }
    }
}

pub fn ask(asks: &Asks, request: &GroupRequest) -> Result<Vec<GroupInfo>, Not> {
    asks.call(Kind::Groups, request)
}

pub fn create(asks: &Asks, name: &str) -> GroupId {
    ask(asks, &GroupRequest::Create(name.to_owned(), 2)).unwrap()[0].id
}

fn show(asks: &Asks, name: &str) -> GroupInfo {
    ask(asks, &GroupRequest::Show(name.to_owned())).unwrap().pop().unwrap()
}

/// A member that is not in the view any more, as it is told of.
fn gone(proxy: &Proxy) -> LostMember {
    LostMember { id: proxy.id, node: format!("node{}", proxy.id.0[0]) }
}

fn say_leave(asks: &Asks, leave: &Leave) {
    assert!(asks.raw(Kind::Leave as u16, leave.encode()).unwrap().is_empty());
}

fn refused<T: std::fmt::Debug>(result: Result<T, Not>) -> String {
    match result {
        Err(Not::Refused(Refusal::Invalid(why))) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_join_drain_and_leave_over_each_engine() {
    for bed in [Bed::directory(), Bed::slate(), Bed::postgres()] {
        let server = serve(&bed);
        let asks = Asks::of(&server);
        let group = create(&asks, "g");
        let (mut one, mut two) = (Proxy::join(&asks, group, 1, 1), Proxy::join(&asks, group, 2, 1));
        assert_eq!((one.view.epoch, two.view.epoch), (ViewEpoch(2), ViewEpoch(3)));
        assert_eq!(two.view.members.len(), 2);
        // The answer to a join was lost: the same again.
        assert!(matches!(try_join(&asks, &join_of(group, 1, 1, 100)), Joined::In(_)));
        assert!(one.renew(&asks, 0) && two.renew(&asks, 3));
        assert_eq!(one.view.epoch, ViewEpoch(3), "it is told of the later view");
        let info = show(&asks, "g");
        assert_eq!((info.copies, info.members.len()), (2, 2));
        let member = &info.members[1];
        assert_eq!((member.dirty, member.numbers.dirty_bytes, member.drained), (3, 3 << 20, false));

        let drain = GroupRequest::Drain("g".to_owned(), "node2".to_owned());
        let remove = GroupRequest::Remove("g".to_owned(), "node2".to_owned());
        ask(&asks, &drain).unwrap();
        assert_eq!(ask(&asks, &drain).unwrap()[0].epoch, ViewEpoch(4), "it drains already");
        assert!(refused(ask(&asks, &remove)).contains("has 3 segments"));
        while two.view.epoch < ViewEpoch(4) {
            assert!(two.renew(&asks, 0) && one.renew(&asks, 0));
        }
        assert_eq!(two.view.members[&two.id].state, MemberState::Draining);
        assert!(refused(ask(&asks, &remove)).contains("has not said that it drains"));
        assert!(two.renew(&asks, 0) && one.renew(&asks, 0), "it says so now");
        assert!(show(&asks, "g").members[1].drained);
        assert_eq!(ask(&asks, &remove).unwrap()[0].members.len(), 1);
        assert!(!two.renew(&asks, 0));
        let again = try_join(&asks, &join_of(group, 2, 9, 100));
        assert!(matches!(&again, Joined::Never(why) if why.contains("was removed")), "{again:?}");

        let leave = Leave { group, id: one.id, incarnation: Incarnation([7; 16]) };
        say_leave(&asks, &leave);
        assert_eq!(show(&asks, "g").members.len(), 1, "that was another process");
        say_leave(&asks, &Leave { incarnation: one.incarnation, ..leave });
        let info = show(&asks, "g");
        assert!(info.members.is_empty() && info.lost == [gone(&one)]);
        let older = try_join(&asks, &join_of(group, 1, 2, 99));
        assert!(matches!(&older, Joined::Never(why) if why.contains("older copy")), "{older:?}");
        assert!(matches!(try_join(&asks, &join_of(group, 1, 2, 100)), Joined::In(_)));
        server.stop();
    }
}

#[test]
fn who_does_not_renew_is_counted_out_and_joins_again() {
    let (bed, clock) = (Bed::directory(), Still::default());
    let server = serve_by(&bed, &clock);
    let asks = Asks::of(&server);
    let group = create(&asks, "g");
    let (mut one, mut two) = (Proxy::join(&asks, group, 1, 1), Proxy::join(&asks, group, 2, 1));
    assert!(two.renew(&asks, 0));
    let taken = try_join(&asks, &join_of(group, 2, 2, 500));
    assert!(matches!(&taken, Joined::Acts(at) if at == "127.0.0.1:7302"), "{taken:?}");
    let info = until("the silent one is out", || {
        assert!(one.renew(&asks, 0), "it renews");
        clock.put_forward(Duration::from_secs(1));
        Some(show(&asks, "g")).filter(|info| info.members.len() == 1)
    });
    assert_eq!((info.members[0].id, info.lost), (one.id, vec![gone(&two)]));
    assert!(!two.renew(&asks, 0), "too late");
    let mut next = Proxy::join(&asks, group, 2, 2);
    assert!(next.renew(&asks, 0) && !two.renew(&asks, 0));
}

#[test]
fn who_is_lost_for_good_is_given_up_once_it_is_out_and_never_comes_back() {
    for bed in [Bed::directory(), Bed::slate(), Bed::postgres()] {
        let server = serve(&bed);
        let asks = Asks::of(&server);
        let group = create(&asks, "g");
        let (one, two) = (Proxy::join(&asks, group, 1, 1), Proxy::join(&asks, group, 2, 1));
        let give_up = |who: &str| ask(&asks, &GroupRequest::GiveUp("g".to_owned(), who.to_owned()));
        assert!(refused(give_up("node2")).contains("is in the group"), "it is there");
        assert!(refused(give_up("node9")).contains("has lost no member 'node9'"));
        say_leave(&asks, &Leave { group, id: two.id, incarnation: two.incarnation });
        assert_eq!(show(&asks, "g").lost, [gone(&two)]);
        let before = show(&asks, "g").epoch;
        let info = give_up("node2").unwrap().pop().unwrap();
        assert_eq!((info.given_up, info.lost), (vec![two.id], vec![]));
        assert!(info.epoch > before, "owners take what they are told for the later view");
        let id = two.id.to_string();
        for again in ["node2", &id[..6], &id] {
            let said = give_up(again);
            assert!(said.is_ok() != (again == "node2"), "the answer was lost: {said:?}");
        }
        assert_eq!(show(&asks, "g").epoch, info.epoch, "it is said once");
        let back = try_join(&asks, &join_of(group, 2, 9, 900));
        assert!(matches!(&back, Joined::Never(why) if why.contains("was given up as lost")), "{back:?}");
        let vouch = Vouch {
            volume: VolumeId([9; 16]),
            token: Some(Vouch::member(group, two.id, two.incarnation)),
            certificate: Some("proxy".to_owned()),
        };
        let said = asks.call::<Vouched>(Kind::Vouch, &vouch);
        assert!(matches!(said, Err(Not::Refused(Refusal::Denied(_)))), "nothing of it counts: {said:?}");
        // One that was forgotten is named by its whole id.
        give_up(&MemberId([7; 16]).to_string()).unwrap();
        assert!(refused(give_up(&one.id.to_string())).contains("is in the group"));
        server.stop();
    }
}

/// Either it is back, or it never will be: not both, whichever servers are asked.
#[test]
fn who_comes_back_while_it_is_given_up_is_one_of_the_two() {
    let bed = Bed::postgres();
    let (first, second) = (serve(&bed), serve(&bed));
    let asks = [Asks::of(&first), Asks::of(&second)];
    let group = create(&asks[0], "g");
    for id in 1..=8 {
        let one = Proxy::join(&asks[0], group, id, 1);
        say_leave(&asks[0], &Leave { group, id: one.id, incarnation: one.incarnation });
        let (given_up, joined) = std::thread::scope(|scope| {
            let asks = &asks;
            let request = GroupRequest::GiveUp("g".to_owned(), one.id.to_string());
            let giving = scope.spawn(move || ask(&asks[1], &request).is_ok());
            let joining = scope.spawn(move || try_join(&asks[0], &join_of(group, id, 2, 100)));
            (giving.join().unwrap(), matches!(joining.join().unwrap(), Joined::In(_)))
        });
        let info = show(&asks[0], "g");
        let is_in = info.members.iter().any(|member| member.id == one.id);
        assert_eq!((given_up, joined), (info.given_up.contains(&one.id), is_in), "member {id}");
        assert!(given_up != joined, "member {id}: {given_up}");
    }
}

/// A server that starts anew has watched nobody: it counts nobody out at once.
#[test]
fn members_outlive_their_server() {
    let (bed, clock) = (Bed::directory(), Still::default());
    let server = serve_by(&bed, &clock);
    let asks = Asks::of(&server);
    let group = create(&asks, "g");
    let mut one = Proxy::join(&asks, group, 1, 1);
    assert!(one.renew(&asks, 0));
    drop((asks, server));
    clock.put_forward(OUT_AFTER);
    let server = serve_by(&bed, &clock);
    let asks = Asks::of(&server);
    assert!(one.renew(&asks, 0));
    assert_eq!(show(&asks, "g").members.len(), 1);
}

#[test]
fn two_servers_make_one_line_of_views() {
    let (bed, clock) = (Bed::postgres(), Still::default());
    let (first, second) = (serve_by(&bed, &clock), serve_by(&bed, &clock));
    let asks = [Asks::of(&first), Asks::of(&second)];
    let group = create(&asks[0], "g");
    let mut proxies: Vec<Proxy> = std::thread::scope(|scope| {
        let asks = &asks;
        let join = move |id: u8| scope.spawn(move || Proxy::join(&asks[usize::from(id % 2)], group, id, 1));
        let joining: Vec<_> = (1..=8).map(join).collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut epochs: Vec<u64> = proxies.iter().map(|proxy| proxy.view.epoch.0).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (2..=9).collect::<Vec<u64>>(), "each join is a view of its own");
    // One dies; both servers see that, and count it out once.
    let dead = proxies.pop().unwrap();
    let mut turn = 0;
    until("it is counted out", || {
        turn += 1;
        std::thread::scope(|scope| {
            for proxy in &mut proxies {
                let asks = &asks[turn % 2];
                scope.spawn(move || assert!(proxy.renew(asks, 0)));
            }
        });
        clock.put_forward(Duration::from_secs(1));
        (show(&asks[turn % 2], "g").members.len() == 7).then_some(())
    });
    let seen: Vec<_> = asks.iter().map(|asks| show(asks, "g")).collect();
    assert_eq!((seen[0].epoch, seen[1].epoch), (ViewEpoch(10), ViewEpoch(10)));
    assert_eq!(seen[0].lost, [gone(&dead)]);
}

#[test]
fn renewals_of_a_second_are_one_batch() {
    let bed = Bed::directory();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    let group = create(&asks, "g");
    let mut proxies: Vec<Proxy> = (1..=40).map(|id| Proxy::join(&asks, group, id, 1)).collect();
    let count = |name: &str| {
        let text = (server.metrics())();
        let line = text.lines().find(|line| line.starts_with(&format!("forebay_meta_{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((count("renewals_total"), count("renewal_batches_total")), (0, 0));
    let began = Instant::now();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for proxy in &mut proxies {
                let asks = &asks;
                scope.spawn(move || assert!(proxy.renew(asks, 0)));
            }
        });
    }
    let batches = count("renewal_batches_total");
    assert_eq!(count("renewals_total"), 80);
    assert!(batches <= began.elapsed().as_secs() + 1, "{batches} in {:?}", began.elapsed());
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let bed = Bed::directory();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    let group = create(&asks, "g");
    let _one = Proxy::join(&asks, group, 1, 1);
    let _other = Proxy::join(&asks, group, 2, 1);
    let (g, member) = (|| "g".to_owned(), |name: &str| name.to_owned());
    let set = |who: &str, weight, zone| GroupRequest::SetMember(g(), member(who), weight, zone);
    for (request, part) in [
        (GroupRequest::Create(g(), 2), "there is a group 'g' already"),
        (GroupRequest::Create("G!".to_owned(), 2), "cannot be the name of a group"),
        (GroupRequest::Create("h".to_owned(), 0), "0 copies"),
        (GroupRequest::SetCopies(g(), 9), "from 1 to 8"),
        (GroupRequest::Show("h".to_owned()), "there is no group 'h': `forebay group create h`"),
        (GroupRequest::Drain(g(), member("node9")), "no member 'node9'"),
        (GroupRequest::Drain("h".to_owned(), member("node1")), "no group 'h'"),
        (set("node1", Some(0), None), "0 is no weight"),
        (set("node1", Some((1 << 20) + 1), None), "is no weight"),
        (set("node1", None, Some(String::new())), "is no zone"),
        (set("node1", None, Some("a\nb".to_owned())), "is no zone"),
        (GroupRequest::Delete(g()), "has members"),
        (GroupRequest::Remove(g(), member("node1")), "has not said that it drains"),
    ] {
        let why = refused(ask(&asks, &request));
        assert!(why.contains(part), "{request:?}: {why}");
    }
    let missing = Join { group: GroupId([9; 16]), ..join_of(group, 3, 1, 0) };
    assert!(refused(asks.call::<Joined>(Kind::Join, &missing)).contains("no group with the id"));
    let mut wrong = join_of(group, 3, 1, 0);
    wrong.member.zone = "z".repeat(65);
    assert!(refused(asks.call::<Joined>(Kind::Join, &wrong)).contains("is no zone"));

    ask(&asks, &set("127.0.0.1:7302", Some(1 << 20), Some("rack".to_owned()))).unwrap();
    ask(&asks, &GroupRequest::SetCopies(g(), 3)).unwrap();
    let info = show(&asks, "g");
    let shape = (info.members[1].member.weight, info.members[1].member.zone.as_str());
    assert_eq!((shape, info.copies, info.epoch), ((1 << 20, "rack"), 3, ViewEpoch(5)));
    ask(&asks, &GroupRequest::Drain(g(), MemberId([2; 16]).to_string()[..6].to_owned())).unwrap();
    assert_eq!(show(&asks, "g").members[1].member.state, MemberState::Draining);
}

#[test]
fn a_volume_is_read_through_a_group_by_who_may_read_it() {
    let bed = Bed::directory();
    let server = strict_by(&bed, Still::default().ticking());
    let asks = Asks::of(&server);
    let made = asks.create(&bed, "v");
    let secret = asks.token(&whole("v")).1;
    let part = asks.token(&forebay_protocol::TokenInfo { root: "/a".to_owned(), ..whole("v") }).1;
    let view_of = |token: Option<&str>, known: u64| {
        let token = token.map(str::to_owned);
        asks.call::<Option<GroupView>>(
            Kind::ViewOf,
            &ViewOf { volume: "v".to_owned(), token, known: ViewEpoch(known) },
        )
    };
    let admit = |token: Option<&str>| {
        let token = token.map(str::to_owned);
        asks.call::<Vouched>(Kind::Vouch, &Vouch { volume: made.id, token, certificate: None })
    };
    assert_eq!(view_of(Some(&secret), 0).unwrap(), None);
    assert_eq!(admit(Some(&secret)).unwrap().group, None);
    let assign =
        |group: Option<&str>| ask(&asks, &GroupRequest::Assign("v".to_owned(), group.map(str::to_owned)));
    assert!(refused(assign(Some("g"))).contains("no group 'g'"));
    let group = create(&asks, "g");
    let _one = Proxy::join(&asks, group, 1, 1);
    let through = |class| vec![GroupVolume { name: "v".to_owned(), class }];
    let class = |class| ask(&asks, &GroupRequest::SetClass("v".to_owned(), class));
    assert!(refused(class(WriteClass::Replica(None))).contains("has no group"));
    assert_eq!(assign(Some("g")).unwrap()[0].volumes, through(WriteClass::Object));
    assert_eq!(ask(&asks, &GroupRequest::OfVolume("v".to_owned())).unwrap()[0].name, "g");
    assert!(refused(ask(&asks, &GroupRequest::Delete("g".to_owned()))).contains("has members"));

    let found = view_of(Some(&secret), 0).unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.id), ("g", group));
    assert_eq!(found.view.as_ref().unwrap().members.len(), 1);
    assert_eq!(view_of(Some(&secret), 2).unwrap().unwrap().view, None, "it is known");
    let views_of = |known: &[(GroupId, ViewEpoch)]| {
        let (volume, token) = ("v".to_owned(), Some(secret.clone()));
        asks.call::<Vec<GroupView>>(Kind::ViewsOf, &ViewsOf { volume, token, known: known.to_vec() }).unwrap()
    };
    assert_eq!(views_of(&[]), std::slice::from_ref(&found));
    let of_another = views_of(&[(GroupId([1; 16]), ViewEpoch(9))]);
    assert_eq!(of_another, std::slice::from_ref(&found), "another one's is no view of it");
    assert_eq!(views_of(&[(found.id, ViewEpoch(2))])[0].view, None, "it is known");
    assert_eq!(found.writes, None);
    for (wanted, writes) in
        [(WriteClass::Local, 1), (WriteClass::Replica(None), 2), (WriteClass::Replica(Some(3)), 3)]
    {
        assert_eq!(class(wanted).unwrap()[0].volumes, through(wanted));
        assert_eq!(
            view_of(Some(&secret), 2).unwrap().unwrap().writes,
            Some(writes),
            "also where the view is known"
        );
    }
    for copies in [0, 9] {
        assert!(refused(class(WriteClass::Replica(Some(copies)))).contains("from 2 to 8"));
    }
    assert!(refused(assign(None)).contains("--durability object"), "its members have what the store has not");
    class(WriteClass::Replica(None)).unwrap();
    ask(&asks, &GroupRequest::SetCopies("g".to_owned(), 1)).unwrap();
    assert_eq!(view_of(Some(&secret), 2).unwrap().unwrap().writes, None, "never a single copy");
    assert!(refused(class(WriteClass::Replica(None))).contains("never enough"));
    // One that was asked for is another thing, however many copies the group keeps of others.
    class(WriteClass::Local).unwrap();
    assert_eq!(view_of(Some(&secret), 2).unwrap().unwrap().writes, Some(1));
    ask(&asks, &GroupRequest::SetCopies("g".to_owned(), 2)).unwrap();
    assert_eq!(view_of(Some(&secret), 2).unwrap().unwrap().writes, Some(1));
    class(WriteClass::Object).unwrap();
    for token in [None, Some("fbt-wrong"), Some("")] {
        assert!(matches!(view_of(token, 0), Err(Not::Refused(Refusal::Denied(_)))));
        assert!(matches!(admit(token), Err(Not::Refused(Refusal::Denied(_)))));
    }
    assert_eq!(view_of(Some(&part), 0).unwrap(), None, "who sees a part reads from the store");
    let admitted = admit(Some(&secret)).unwrap();
    assert_eq!((admitted.group, admitted.whole), (Some(group), true));
    assert_eq!(admitted.volume.store, bed.store("v"));
    assert!(!admit(Some(&part)).unwrap().whole, "it shows a part of the volume");
    assert!(assign(None).unwrap().is_empty());
    assert_eq!(view_of(Some(&secret), 0).unwrap(), None);
}

#[test]
fn members_are_vouched_for_by_who_they_are() {
    let bed = Bed::directory();
    let server = strict_by(&bed, Still::default().ticking());
    let asks = Asks::of(&server);
    let made = asks.create(&bed, "v");
    let group = create(&asks, "g");
    let mut one = Proxy::join(&asks, group, 1, 1);
    let name =
        |id: u8, incarnation: u8| Vouch::member(group, MemberId([id; 16]), Incarnation([incarnation; 16]));
    let vouch = |token: String, certificate: Option<&str>| {
        let certificate = certificate.map(str::to_owned);
        asks.call::<Vouched>(Kind::Vouch, &Vouch { volume: made.id, token: Some(token), certificate })
    };
    let denied = |token: String, certificate: Option<&str>| match vouch(token, certificate) {
        Err(Not::Refused(Refusal::Denied(why))) => why,
        other => panic!("{other:?}"),
    };
    let vouched = vouch(name(1, 1), Some("proxy")).unwrap();
    assert_eq!((vouched.rights, vouched.whole, vouched.volume.id), (Rights::ALL, true, made.id));
    assert!(denied(name(1, 1), None).contains("who shows no certificate may not administer"));
    assert!(denied(name(1, 2), Some("proxy")).contains("knows no member"), "another process");
    assert!(denied(name(2, 1), Some("proxy")).contains("knows no member"), "nobody");
    let foreign = Vouch::member(GroupId([9; 16]), one.id, one.incarnation);
    assert!(denied(foreign, Some("proxy")).contains("knows no member"));
    let none =
        Vouch { volume: VolumeId([9; 16]), token: Some(name(1, 1)), certificate: Some("x".to_owned()) };
    assert!(matches!(asks.call::<Vouched>(Kind::Vouch, &none), Err(Not::Refused(Refusal::NoVolume(_)))));
    // It begins sessions by its name, on a connection that may administer.
    until("an owner", || asks.hello("v", 1, Some(&name(1, 1))).ok());
    assert!(matches!(asks.hello("v", 2, Some(&name(1, 2))), Err(Not::Refused(Refusal::Denied(_)))));
    // It has left, or was counted out: what it has may still be spoken of, until another process acts.
    say_leave(&asks, &Leave { group, id: one.id, incarnation: one.incarnation });
    vouch(name(1, 1), Some("proxy")).unwrap();
    one = Proxy::join(&asks, group, 1, 2);
    assert_eq!(one.incarnation, Incarnation([2; 16]));
    vouch(name(1, 2), Some("proxy")).unwrap();
    assert!(denied(name(1, 1), Some("proxy")).contains("knows no member"));
    let id = one.id.to_string();
    ask(&asks, &GroupRequest::Drain("g".to_owned(), id.clone())).unwrap();
    until("it has heard of it", || {
        one.renew(&asks, 0);
        ask(&asks, &GroupRequest::Remove("g".to_owned(), id.clone())).ok()
    });
    assert!(denied(name(1, 2), Some("proxy")).contains("knows no member"), "it never comes back");
}

#[test]
fn a_group_that_is_used_does_not_go() {
    let bed = Bed::directory();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    create(&asks, "g");
    ask(&asks, &GroupRequest::Assign("v".to_owned(), Some("g".to_owned()))).unwrap();
    let delete = GroupRequest::Delete("g".to_owned());
    assert!(refused(ask(&asks, &delete)).contains("the volume 'v' is read through"));
    ask(&asks, &GroupRequest::Assign("v".to_owned(), None)).unwrap();
    assert_eq!(ask(&asks, &delete).unwrap()[0].name, "g");
    assert!(ask(&asks, &GroupRequest::List).unwrap().is_empty());
    let group = create(&asks, "g");
    assert_ne!(ask(&asks, &GroupRequest::List).unwrap()[0].id, GroupId([0; 16]));
    assert_eq!(show(&asks, "g").id, group);
}

/// Groups are added to a volume and taken from it; not under what its members alone have.
#[test]
fn a_volume_is_given_several_groups() {
    let bed = Bed::directory();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    for name in ["a", "b", "c"] {
        create(&asks, name);
    }
    let all = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ask(&asks, &GroupRequest::AssignAll("v".to_owned(), names))
    };
    let names = |told: Result<Vec<GroupInfo>, Not>| {
        told.unwrap().into_iter().map(|group| group.name).collect::<Vec<_>>()
    };
    assert!(refused(all(&["a", "d"])).contains("no group 'd'"));
    assert!(refused(all(&["a", "b", "a"])).contains("'a' is named twice"));
    assert!(refused(all(&["a", ""])).contains("no group ''"));
    assert!(refused(all(&["x"; 9])).contains("8 at most"));
    assert_eq!(names(all(&["b", "a"])), ["b", "a"]);
    assert_eq!(names(ask(&asks, &GroupRequest::OfVolume("v".to_owned()))), ["b", "a"]);
    assert_eq!(names(all(&["a", "b"])), ["a", "b"], "what goes to the store alone may have any order");
    let through = |group: &str| show(&asks, group).volumes.len();
    assert_eq!((through("a"), through("b"), through("c")), (1, 1, 0));
    for group in ["a", "b"] {
        assert!(refused(ask(&asks, &GroupRequest::Delete(group.to_owned()))).contains("is read through"));
    }
    // From here on members may have what the store has not.
    let class = |class| ask(&asks, &GroupRequest::SetClass("v".to_owned(), class));
    ask(&asks, &GroupRequest::SetCopies("c".to_owned(), 1)).unwrap();
    assert_eq!(names(class(WriteClass::Replica(None))), ["a", "b"]);
    for other in [&["a"][..], &["b", "a"], &["a", "c"], &[]] {
        let why = refused(all(other));
        assert!(why.contains("is written over 'a' and 'b'") && why.contains("--durability object"), "{why}");
    }
    let one =
        |group: Option<&str>| ask(&asks, &GroupRequest::Assign("v".to_owned(), group.map(str::to_owned)));
    assert!(refused(one(Some("a"))).contains("is written over"), "who knows one group takes none away");
    assert!(refused(all(&["a", "b", "c"])).contains("'c' keeps one copy"));
    ask(&asks, &GroupRequest::SetCopies("c".to_owned(), 2)).unwrap();
    assert_eq!(names(all(&["a", "b", "c"])), ["a", "b", "c"]);
    assert_eq!(names(class(WriteClass::Object)), ["a", "b", "c"]);
    assert_eq!(names(one(Some("c"))), ["c"]);
    assert!(all(&[]).unwrap().is_empty());
    server.stop();
}

/// A server that knows one group alone would not go on once a volume has two.
#[test]
fn while_a_server_of_an_older_release_lives_no_volume_has_several_groups() {
    let bed = Bed::postgres();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    for name in ["a", "b"] {
        create(&asks, name);
    }
    let both = || ask(&asks, &GroupRequest::AssignAll("v".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
    let url: EngineUrl = bed.engine.parse().unwrap();
    let registry = Registry::open(url.open().unwrap().registry().unwrap(), "older".to_owned()).unwrap();
    let id = ServerId([7; 16]);
    let older = |beat| ServerRow { address: "127.0.0.1:9".to_owned(), beat, release: "0.1.0".to_owned() };
    registry.put_member(id, Some(&older(1))).unwrap();
    let why = refused(both());
    assert!(why.contains("127.0.0.1:9 is of an older release") && why.contains("upgrade"), "{why}");
    // One group is what it knows.
    ask(&asks, &GroupRequest::Assign("v".to_owned(), Some("a".to_owned()))).unwrap();
    registry.put_member(id, Some(&ServerRow { release: ServerRow::RELEASE.to_owned(), ..older(2) })).unwrap();
    assert_eq!(both().unwrap().len(), 2);
    registry.put_member(id, None).unwrap();
    server.stop();
}

/// All are told in the volume's order; who asks for one hears of the first.
#[test]
fn all_groups_of_a_volume_are_told_to_who_asks_for_all() {
    let bed = Bed::directory();
    let server = serve(&bed);
    let asks = Asks::of(&server);
    let made = asks.create(&bed, "v").id;
    let (near, far) = (create(&asks, "near"), create(&asks, "far"));
    ask(&asks, &GroupRequest::Assign("v".to_owned(), Some("near".to_owned()))).unwrap();
    server.stop();
    let registry = DirectoryHost::open(&bed.dir.path().join("engine")).unwrap().registry().unwrap();
    let registry = Registry::open(registry, "here".to_owned()).unwrap();
    let several = |view: &Volumes| {
        let row =
            VolumeRow { further: vec!["far".to_owned(), "gone".to_owned()], ..view.volumes["v"].clone() };
        Ok::<_, RegistryError>((vec![Change::Volume("v".to_owned(), Some(row))], ()))
    };
    registry.change(several).unwrap();
    drop(registry);
    let server = serve(&bed);
    let asks = Asks::of(&server);
    let volume = || "v".to_owned();
    let known = vec![(far, ViewEpoch(1))];
    let all: Vec<GroupView> =
        asks.call(Kind::ViewsOf, &ViewsOf { volume: volume(), token: None, known }).unwrap();
    let told: Vec<_> = all.iter().map(|view| (view.id, view.view.is_some())).collect();
    assert_eq!(told, [(near, true), (far, false)], "of one that nobody knows nothing is told");
    let first: Option<GroupView> =
        asks.call(Kind::ViewOf, &ViewOf { volume: volume(), token: None, known: ViewEpoch(0) }).unwrap();
    assert_eq!(first.unwrap().id, near);
    let admit = |group: GroupId| {
        let vouch = Vouch { volume: made, token: None, certificate: None };
        let told = asks.call::<Vouched>(Kind::Vouch, &vouch).unwrap();
        assert_eq!(told.group, Some(near), "a member of an older release is told of the first");
        asks.call::<Vouched>(Kind::VouchIn, &VouchIn { group, vouch }).unwrap().group
    };
    assert_eq!([near, far, GroupId([7; 16])].map(admit), [near, far, near].map(Some));
    let shown = ask(&asks, &GroupRequest::OfVolume(volume()));
    assert!(refused(shown).contains("no group 'gone'"));
    assert!(refused(ask(&asks, &GroupRequest::Delete("far".to_owned()))).contains("--group near,gone"));
}
