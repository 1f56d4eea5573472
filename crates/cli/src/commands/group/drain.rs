//! `forebay group drain`: the group's row says that the member drains; the command asks, and watches if it is to wait.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_group::{MemberId, MemberState};
use forebay_protocol::group::{GroupInfo, GroupMember, GroupRequest};

use super::{ask_one, tell};
use crate::{
    args::{GroupDrainArgs, GroupMemberArgs},
    commands::servers::UNHEARD,
    control::Progress,
    error::CliError,
    output,
    progress::DrainBar,
    size::human,
};

/// How often the group is looked at; members say how they stand once a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Nothing gets on for so long: that is said. What an idle writer has open is sealed within 30 s.
const STALLED: Duration = Duration::from_secs(45);

pub(super) fn run(args: &GroupDrainArgs) -> Result<(), CliError> {
    let member = &args.member;
    let asked = GroupRequest::Drain(member.name.clone(), member.node.clone());
    let mut group = ask_one(&member.servers, &asked)?;
    if args.wait {
        group = wait(member, group)?;
    }
    tell(&group, member.json);
    if !member.json {
        let when = if args.wait { "it is drained:" } else { "once it is drained," };
        output::line(&format_args!(
            "{when} `forebay group remove {} {}` lets it go",
            member.name, member.node
        ));
    }
    Ok(())
}

/// Looks at the group until the member is drained, and returns it as it is then.
fn wait(args: &GroupMemberArgs, first: GroupInfo) -> Result<GroupInfo, CliError> {
    let mut watch = Watch::of(&first, &args.node).map_err(CliError::Told)?;
    let mut bar = DrainBar::new("draining");
    let began = Instant::now();
    let (mut group, mut heard) = (first, Instant::now());
    loop {
        match watch.look(&group, began.elapsed()).map_err(CliError::Told)? {
            Seen::Drained => return Ok(group),
            Seen::Dirty(dirty_bytes) => bar.at(Progress { dirty_bytes }),
            Seen::Stalled(why) => output::note(&why),
        }
        thread::sleep(LOOK_EVERY);
        match ask_one(&args.servers, &GroupRequest::Show(args.name.clone())) {
            Ok(now) => (group, heard) = (now, Instant::now()),
            Err(error) if heard.elapsed() >= UNHEARD => return Err(error),
            Err(_) => {}
        }
    }
}

/// What a look at the group tells of a member that drains.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// It has taken up that it drains, and has nothing any more that the store may not have.
    Drained,
    /// So many bytes are left.
    Dirty(u64),
    /// Nothing has got on for long: a line that says what to do. It comes once, and again once something has got on.
    Stalled(String),
}

/// A member that drains. Knows no clock: times are since the first look.
struct Watch {
    id: MemberId,
    node: String,
    dirty_bytes: u64,
    /// What changes as long as it gets on: segments, bytes, the view that it goes by.
    stands: Option<(u64, u64, u64)>,
    since: Duration,
    is_said: bool,
}

impl Watch {
    /// Watches the member that is named so. The error says what to do.
    fn of(group: &GroupInfo, named: &str) -> Result<Watch, String> {
        let drains = |one: &&GroupMember| {
            let GroupMember { id, member, .. } = one;
            member.is_meant(*id, named) && member.state == MemberState::Draining
        };
        let fitting: Vec<&GroupMember> = group.members.iter().filter(drains).collect();
        let [one] = fitting.as_slice() else {
            return Err(format!(
                "'{named}' drains, and it cannot be told which of {} members that is: give its id, as `forebay group show {}` lists it",
                group.members.len(),
                group.name
            ));
        };
        Ok(Watch {
            id: one.id,
            node: one.member.node.clone(),
            dirty_bytes: one.numbers.dirty_bytes,
            stands: None,
            since: Duration::ZERO,
            is_said: false,
        })
    }

    /// How it stands `now`. An error says that this will not end, and what to do.
    fn look(&mut self, group: &GroupInfo, now: Duration) -> Result<Seen, String> {
        let Watch { id, node, dirty_bytes, stands: stood, since, is_said } = self;
        let name = &group.name;
        let Some(one) = group.members.iter().find(|one| one.id == *id) else {
            return Err(format!(
                "member {id} ({node}) is gone from the group '{name}' before it was drained; it had {} that the store may not have. Start its proxy again \
                 with the same directory and drain it again: it goes on with what is there. If its disk is gone for good: `forebay group remove {name} {id} --lost`",
                human(*dirty_bytes)
            ));
        };
        if one.member.state != MemberState::Draining {
            return Err(format!(
                "member {id} ({node}) of the group '{name}' drains no longer: drain it again"
            ));
        }
        if one.drained {
            return Ok(Seen::Drained);
        }
        *dirty_bytes = one.numbers.dirty_bytes;
        let stands = Some((one.dirty, one.numbers.dirty_bytes, one.acknowledged.0));
        if *stood != stands {
            (*stood, *since, *is_said) = (stands, now, false);
        }
        if now.saturating_sub(*since) < STALLED || *is_said {
            return Ok(Seen::Dirty(*dirty_bytes));
        }
        *is_said = true;
        Ok(Seen::Stalled(format!(
            "nothing has got on for {} s: {} segments, {} are left at {node}. Its log and those of the other members say whether they reach the store and the \
             metadata servers; `forebay group show {name}` tells of segments that are missing. It goes on by itself once they do",
            STALLED.as_secs(),
            one.dirty,
            human(*dirty_bytes)
        )))
    }
}

#[cfg(test)]
mod tests {
    use forebay_group::{GroupId, Incarnation, Member, ViewEpoch};
    use forebay_protocol::group::MemberNumbers;

    use super::*;

    /// A group of two, of which the second drains and has so much.
    fn group(dirty: u64, dirty_bytes: u64, drained: bool) -> GroupInfo {
        let member = |id: u8, node: &str, state, (dirty, dirty_bytes, drained)| GroupMember {
            id: MemberId([id; 16]),
            member: Member {
                incarnation: Incarnation::default(),
                address: format!("{node}:7301"),
                node: node.to_owned(),
                zone: node.to_owned(),
                weight: 1,
                state,
            },
            drained,
            acknowledged: ViewEpoch(7),
            dirty,
            numbers: MemberNumbers { dirty_bytes, ..MemberNumbers::default() },
        };
        GroupInfo {
            name: "fast".to_owned(),
            id: GroupId([1; 16]),
            epoch: ViewEpoch(7),
            copies: 2,
            members: vec![
                member(0xaa, "node1", MemberState::Active, (9, 9000, false)),
                member(0xab, "node2", MemberState::Draining, (dirty, dirty_bytes, drained)),
            ],
            lost: Vec::new(),
            given_up: Vec::new(),
            volumes: Vec::new(),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_ends_when_the_servers_say_drained_and_not_with_the_last_byte() {
        let mut watch = Watch::of(&group(2, 4096, false), "abab").unwrap();
        assert_eq!(watch.look(&group(2, 4096, false), SECOND), Ok(Seen::Dirty(4096)));
        assert_eq!(watch.look(&group(0, 0, false), 2 * SECOND), Ok(Seen::Dirty(0)));
        assert_eq!(watch.look(&group(0, 0, true), 3 * SECOND), Ok(Seen::Drained));
    }

    #[test]
    fn what_does_not_get_on_is_said_once_and_again_after_it_did() {
        let mut watch = Watch::of(&group(2, 4096, false), "node2").unwrap();
        let mut says = |bytes, at: Duration| match watch.look(&group(2, bytes, false), at) {
            Ok(Seen::Stalled(line)) => Some(line),
            Ok(Seen::Dirty(left)) if left == bytes => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(says(4096, SECOND), None);
        assert_eq!(says(4096, STALLED), None, "it is a second short");
        let line = says(4096, SECOND + STALLED).unwrap();
        assert!(line.contains("4.00 KiB") && line.contains("node2") && line.contains("store"), "{line}");
        assert_eq!(says(4096, 3 * STALLED), None);
        assert_eq!(says(100, 3 * STALLED), None);
        assert!(says(100, 4 * STALLED).is_some());
    }

    #[test]
    fn a_member_that_is_gone_or_takes_part_again_ends_it_with_what_to_do() {
        let mut watch = Watch::of(&group(2, 4096, false), "node2:7301").unwrap();
        let mut gone = group(2, 4096, false);
        gone.members.pop();
        let line = watch.look(&gone, SECOND).unwrap_err();
        assert!(
            line.contains("4.00 KiB") && line.contains("--lost") && line.contains(&"ab".repeat(16)),
            "{line}"
        );
        let mut back = group(2, 4096, false);
        back.members[1].member.state = MemberState::Active;
        assert!(watch.look(&back, SECOND).unwrap_err().contains("no longer"));
    }

    #[test]
    fn nobody_is_watched_who_does_not_drain_or_is_one_of_several() {
        assert!(Watch::of(&group(0, 0, false), "node1").is_err(), "it is active");
        let mut two = group(0, 0, false);
        two.members[0].member.node = "node2".to_owned();
        assert!(Watch::of(&two, "node2").is_ok(), "of the two one drains");
        two.members[0].member.state = MemberState::Draining;
        assert!(Watch::of(&two, "node2").is_err());
    }
}
