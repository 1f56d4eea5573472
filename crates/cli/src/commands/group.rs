//! `forebay group`

mod drain;
mod keeping;
pub(super) mod leaving;
mod losses;

use std::process::ExitCode;

use forebay_group::MemberState;
use forebay_protocol::{
    Kind, Message, VolumeKept,
    group::{GroupInfo, GroupMember, GroupRequest, GroupVolume, SetsOf, WriteClass},
};
use serde_json::{Value, json};

use super::servers::{Servers, insecure};
use crate::{
    args::{
        GroupArgs, GroupCommand, GroupCreateArgs, GroupListArgs, GroupMemberArgs, GroupSetArgs,
        GroupShowArgs, ServersArgs,
    },
    error::CliError,
    logging, output,
    size::human,
    table::table,
};

pub(crate) fn run(args: &GroupArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    match &args.command {
        GroupCommand::Create(args) => create(args),
        GroupCommand::List(args) => list(args),
        GroupCommand::Show(args) => {
            let request = GroupRequest::Show(args.name.clone());
            let group = ask_one(&args.servers, &request)?;
            let of = SetsOf { group: Some(args.name.clone()), list: false, files: false };
            let said = losses::ask(&args.servers, &of)?;
            let kept = keeping::ask(&args.servers, &group)?;
            show(&group, (&said, &kept), args.json);
            Ok(())
        }
        GroupCommand::Set(args) => set(args),
        GroupCommand::Drain(args) => drain::run(args),
        GroupCommand::Remove(args) if args.lost => losses::remove(args),
        GroupCommand::Remove(args) => remove(&args.member),
        GroupCommand::Lost(args) => losses::list(args),
        GroupCommand::Delete(args) => delete(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Groups, as the servers tell them.
pub(crate) fn ask(servers: &ServersArgs, request: &GroupRequest) -> Result<Vec<GroupInfo>, CliError> {
    Servers::of(servers)?.ask(Kind::Groups, request.encode())
}

/// Asks for something that is answered by one group.
fn ask_one(servers: &ServersArgs, request: &GroupRequest) -> Result<GroupInfo, CliError> {
    let none = || CliError::Told("the server's answer names no group".to_owned());
    ask(servers, request)?.pop().ok_or_else(none)
}

fn create(args: &GroupCreateArgs) -> Result<(), CliError> {
    let made = ask_one(&args.servers, &GroupRequest::Create(args.name.clone(), args.copies))?;
    if args.json {
        tell(&made, true);
        return Ok(());
    }
    let meta = args.servers.meta.first().map_or_else(String::new, ToString::to_string);
    output::line(&format_args!("created the group '{}'", made.name));
    output::line(&format_args!(
        "run its proxies: forebay proxy --meta {meta} --group {} --cache-dir DIR --cache-size SIZE --listen ADDR{}",
        made.name,
        insecure(&args.servers)
    ));
    output::line(&format_args!(
        "read a volume through it: forebay volume set VOLUME --group {} --meta {meta}",
        made.name
    ));
    Ok(())
}

fn list(args: &GroupListArgs) -> Result<(), CliError> {
    let all = ask(&args.servers, &GroupRequest::List)?;
    if args.json {
        let all: Vec<Value> = all.iter().map(as_json).collect();
        output::line(&format_args!("{:#}", Value::Array(all)));
    } else if all.is_empty() {
        output::line(&"there are no groups: `forebay group create` makes one");
    } else {
        let rows: Vec<_> = all
            .iter()
            .map(|group| {
                let sum = |of: fn(&GroupMember) -> u64| human(group.members.iter().map(of).sum());
                [
                    group.name.clone(),
                    members_in_words(group),
                    group.copies.to_string(),
                    sum(|member| member.numbers.used),
                    sum(|member| member.numbers.capacity),
                    names_of(group).join(", "),
                ]
            })
            .collect();
        output::out(&table(["NAME", "MEMBERS", "COPIES", "CACHED", "CACHE", "VOLUMES"], &rows));
    }
    Ok(())
}

/// Volumes that are read through it.
fn names_of(group: &GroupInfo) -> Vec<&str> {
    group.volumes.iter().map(|volume| volume.name.as_str()).collect()
}

/// How many there are, and what that means if it is too few.
fn members_in_words(group: &GroupInfo) -> String {
    let active = group.members.iter().filter(|member| member.member.state == MemberState::Active).count();
    match (group.members.len(), active) {
        (0, _) => "none: volumes are read from the store".to_owned(),
        (all, active) if active < usize::from(group.copies) => {
            format!("{all}, under {} active", group.copies)
        }
        (all, _) => all.to_string(),
    }
}

fn set(args: &GroupSetArgs) -> Result<(), CliError> {
    let request = match (&args.node, args.copies) {
        (None, Some(copies)) => GroupRequest::SetCopies(args.name.clone(), copies),
        (Some(node), None) if args.weight.is_some() || args.zone.is_some() => {
            GroupRequest::SetMember(args.name.clone(), node.clone(), args.weight, args.zone.clone())
        }
        _ => {
            let message = "nothing is to be changed: give --copies, or a member with --weight or --zone";
            return Err(CliError::Usage(message.to_owned()));
        }
    };
    ask_one(&args.servers, &request).map(|group| tell(&group, args.json))
}

fn remove(args: &GroupMemberArgs) -> Result<(), CliError> {
    let group = ask_one(&args.servers, &GroupRequest::Remove(args.name.clone(), args.node.clone()))?;
    if args.json {
        tell(&group, true);
    } else {
        output::line(&format_args!("'{}' has left the group '{}' for good", args.node, group.name));
    }
    Ok(())
}

fn delete(args: &GroupShowArgs) -> Result<(), CliError> {
    let gone = ask_one(&args.servers, &GroupRequest::Delete(args.name.clone()))?;
    if args.json {
        tell(&gone, true);
    } else {
        output::line(&format_args!("deleted the group '{}'", gone.name));
    }
    Ok(())
}

/// A group, and how what was written over it stands.
fn show(group: &GroupInfo, (said, kept): (&losses::Said, &[VolumeKept]), json: bool) {
    if json {
        let mut whole = as_json(group);
        whole["segments"] = said.json(group);
        whole["policies"] = keeping::json(kept);
        return output::line(&format_args!("{whole:#}"));
    }
    tell(group, false);
    output::out(&said.text(group));
    output::out(&keeping::text(kept));
}

fn tell(group: &GroupInfo, json: bool) {
    if json {
        return output::line(&format_args!("{:#}", as_json(group)));
    }
    let volume = |volume: &GroupVolume| match volume.class {
        WriteClass::Object => volume.name.clone(),
        class => format!("{} ({class})", volume.name),
    };
    let volumes: Vec<String> = group.volumes.iter().map(volume).collect();
    let volumes = if volumes.is_empty() { "none".to_owned() } else { volumes.join(", ") };
    let rows = [
        ("group", group.name.clone()),
        ("id", group.id.to_string()),
        ("view", group.epoch.0.to_string()),
        ("copies", group.copies.to_string()),
        ("volumes", volumes),
        ("members", members_in_words(group)),
    ];
    output::out(&rows.map(|(label, value)| format!("{label:<13} {value}\n")).concat());
    if !group.members.is_empty() {
        let rows: Vec<_> = group.members.iter().map(row).collect();
        let titles =
            ["NODE", "ADDRESS", "ZONE", "WEIGHT", "STATE", "CACHED", "CACHE", "DIRTY", "READS/S", "ID"];
        output::out(&table(titles, &rows));
    }
}

fn state(member: &GroupMember) -> &'static str {
    match (member.member.state, member.drained) {
        (MemberState::Active, _) => "active",
        (MemberState::Draining, false) => "draining",
        (MemberState::Draining, true) => "drained",
    }
}

fn row(member: &GroupMember) -> [String; 10] {
    [
        member.member.node.clone(),
        member.member.address.clone(),
        member.member.zone.clone(),
        member.member.weight.to_string(),
        state(member).to_owned(),
        human(member.numbers.used),
        human(member.numbers.capacity),
        human(member.numbers.dirty_bytes),
        member.numbers.load.to_string(),
        member.id.to_string(),
    ]
}

fn as_json(group: &GroupInfo) -> Value {
    let member = |member: &GroupMember| {
        json!({
            "id": member.id.to_string(),
            "node": member.member.node,
            "address": member.member.address,
            "zone": member.member.zone,
            "weight": member.member.weight,
            "state": state(member),
            "acknowledged_view": member.acknowledged.0,
            "dirty_segments": member.dirty,
            "dirty_bytes": member.numbers.dirty_bytes,
            "used_bytes": member.numbers.used,
            "capacity_bytes": member.numbers.capacity,
            "reads_per_second": member.numbers.load,
        })
    };
    json!({
        "name": group.name,
        "id": group.id.to_string(),
        "view": group.epoch.0,
        "copies": group.copies,
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
        "lost": group.lost.iter().map(|lost| lost.id.to_string()).collect::<Vec<_>>(),
        "given_up": group.given_up.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "volumes": names_of(group),
        "durability": group.volumes.iter().map(|one| (one.name.clone(), json!(one.class.to_string()))).collect::<serde_json::Map<_, _>>(),
    })
}
