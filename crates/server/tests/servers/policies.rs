//! What policies say of the group through which a volume is read, from the moment on that anybody is told of the group.

use forebay_group::ViewEpoch;
use forebay_protocol::{
    Answer, Disks, Kind, Operation, PolicyInfo, PolicyRequest, PolicySaid, PolicyWhat, Refusal,
    group::{GroupRequest, GroupView, ViewOf},
};
use forebay_types::Ino;

use crate::{
    bed::{Asks, Bed, Not, until},
    groups::{ask as ask_groups, create},
};

fn policy(asks: &Asks, what: PolicyWhat) -> Result<PolicyInfo, Not> {
    asks.call(Kind::Policies, &PolicyRequest { volume: "v".to_owned(), ino: Ino::ROOT, what })
}

/// Asks whoever owns the volume.
fn exclude(asks: &[Asks]) -> PolicyInfo {
    let said = || PolicySaid { exclude: Some("g".to_owned()), ..PolicySaid::default() };
    until("a policy", || asks.iter().find_map(|asks| policy(asks, PolicyWhat::Set(said())).ok()))
}

fn assign(asks: &Asks, group: Option<&str>) {
    ask_groups(asks, &GroupRequest::Assign("v".to_owned(), group.map(str::to_owned))).unwrap();
}

#[test]
fn a_policy_goes_by_the_group_that_the_volume_was_given_a_moment_ago() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    create(&asks, "g");
    let session = asks.join("v", 1);
    let said = exclude(std::slice::from_ref(&asks));
    assert_eq!(said.disks, Disks::Any);
    let rule = || match session.answer(Operation::Classes(vec![said.policy])) {
        Answer::Rules(rules) => rules[0].disks,
        Answer::Classes(_) => Disks::Any,
        other => panic!("{other:?}"),
    };
    for _ in 0..10 {
        assign(&asks, Some("g"));
        assert_eq!(rule(), Disks::None);
        assert_eq!(policy(&asks, PolicyWhat::Show).unwrap().disks, Disks::None);
        assign(&asks, None);
        assert_eq!(rule(), Disks::Any);
    }
}

#[test]
fn who_is_told_of_the_group_by_the_owners_server_finds_that_policies_go_by_it() {
    let bed = Bed::postgres();
    let (first, second) = (bed.server(), bed.server());
    let asks = [Asks::of(&first), Asks::of(&second)];
    asks[0].create(&bed, "v");
    create(&asks[0], "g");
    let said = exclude(&asks);
    let told = |asks: &Asks| {
        let of = ViewOf { volume: "v".to_owned(), token: None, known: ViewEpoch(0) };
        asks.call::<Option<GroupView>>(Kind::ViewOf, &of).unwrap()
    };
    let (mut rounds, mut number) = (0, 0);
    while rounds < 5 {
        number += 1;
        let owns = until("an owner", || asks.iter().position(|asks| asks.hello("v", number, None).is_ok()));
        let (owner, other) = (&asks[owns], &asks[1 - owns]);
        let session = owner.join("v", number);
        assign(other, Some("g"));
        until("the group is told", || told(owner));
        match session.ask(Operation::Classes(vec![said.policy]), None).map(|response| response.answer) {
            Ok(Answer::Rules(rules)) => {
                assert_eq!(rules[0].disks, Disks::None);
                rounds += 1;
            }
            Ok(other) => panic!("{other:?}"),
            // The other server has taken the volume meanwhile: it is its share.
            Err(Not::Elsewhere(_) | Not::Refused(Refusal::MustReclaim { .. })) => {}
            Err(not) => panic!("{not:?}"),
        }
        assign(other, None);
        until("it is read through none", || told(owner).is_none().then_some(()));
    }
}
