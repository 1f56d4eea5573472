//! `forebay policy`: what counts for a directory or file of a mounted shared volume, asked and changed at its owner.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use forebay_protocol::{
    Disks, Kind, Message, PolicyInfo, PolicyKept, PolicyParts, PolicyRequest, PolicySaid, PolicyStep,
    PolicyWhat,
    group::{GroupInfo, GroupRequest},
};
use forebay_rpc::Address;
use forebay_types::{Ino, SyncClass};
use serde_json::{Value, json};

use super::servers::Servers;
use crate::{
    args::{
        PolicyArgs, PolicyCommand, PolicyServersArgs, PolicySetArgs, PolicyShowArgs, PolicyUnsetArgs,
        ServersArgs,
    },
    control::Client,
    error::CliError,
    logging, mounts, output,
    progress::Waiting,
    size::human,
};

pub(crate) fn run(args: &PolicyArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    match &args.command {
        PolicyCommand::Set(args) => set(args),
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Unset(args) => unset(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// A directory or file, as the servers know it.
struct Place {
    path: PathBuf,
    volume: String,
    ino: Ino,
    /// The directory that the mount shows as its root.
    root: Ino,
    servers: Servers,
}

impl Place {
    fn of(path: &Path, args: &PolicyServersArgs) -> Result<Place, CliError> {
        let real = fs::canonicalize(path).map_err(CliError::io("look at", path))?;
        let found = fs::symlink_metadata(&real).map_err(CliError::io("look at", path))?;
        let mounts = mounts::of_device(found.dev()).map_err(CliError::io("read", "/proc/self/mountinfo"))?;
        let Some(mounted) = mounts.first() else {
            return Err(CliError::Told(format!(
                "'{}' is not on a mounted Forebay volume: mount the shared volume, and give a path on it",
                path.display()
            )));
        };
        let status: Value = Client::of_mount(mounted)?.ask("status")?;
        let Some(root) = status["root_inode"].as_u64().map(Ino) else {
            return Err(of_one_machine(path, &status));
        };
        let named = |name: &Value| name.as_str().and_then(|name| name.parse::<Address>().ok());
        let mut meta = args.meta.clone();
        if meta.is_empty() {
            meta = status["servers"].as_array().into_iter().flatten().filter_map(named).collect();
        }
        let servers = Servers::of(&ServersArgs { meta, tls: args.tls.clone() })?;
        let volume = status["volume"].as_str().unwrap_or_default().to_owned();
        let mut place = Place { path: path.to_owned(), volume, ino: Ino(found.ino()), root, servers };
        place.ino = place.across(place.ino);
        Ok(place)
    }

    /// The inode that the mount calls by this number, and the other way round: it calls its root 1.
    fn across(&self, ino: Ino) -> Ino {
        match ino {
            Ino::ROOT => self.root,
            ino if ino == self.root => Ino::ROOT,
            ino => ino,
        }
    }

    fn ask(&self, ino: Ino, what: PolicyWhat) -> Result<PolicyInfo, CliError> {
        let request = PolicyRequest { volume: self.volume.clone(), ino, what };
        self.servers.ask(Kind::Policies, request.encode())
    }

    /// What counts in each of the volume's groups: once where it has one, or none.
    fn in_each_group(&self, info: &PolicyInfo) -> Result<Vec<PolicyInfo>, CliError> {
        let of_volume = GroupRequest::OfVolume(self.volume.clone());
        let groups: Vec<GroupInfo> = self.servers.ask(Kind::Groups, of_volume.encode())?;
        match groups.as_slice() {
            [] | [_] => Ok(vec![info.clone()]),
            all => {
                all.iter().map(|group| self.ask(self.ino, PolicyWhat::ShowIn(group.name.clone()))).collect()
            }
        }
    }

    /// The path of what a policy was said for, where that is here or above.
    fn path_of(&self, ino: Ino) -> Option<PathBuf> {
        let real = fs::canonicalize(&self.path).ok()?;
        let device = fs::symlink_metadata(&real).ok()?.dev();
        let here = |path: &&Path| {
            fs::symlink_metadata(path)
                .is_ok_and(|found| found.dev() == device && self.across(Ino(found.ino())) == ino)
        };
        real.ancestors().find(here).map(Path::to_owned)
    }
}

/// What applies on a volume that no servers keep, in one line.
fn of_one_machine(path: &Path, status: &Value) -> CliError {
    let place = match status["durability"].as_str() {
        Some("object") => "the store",
        _ => "this machine's disk",
    };
    CliError::Told(format!(
        "'{}' is on a volume of this machine alone, where fsync of every file waits for {place}, as said when the volume was made (forebay create --durability): policies are of volumes that servers keep (forebay volume create)",
        path.display()
    ))
}

fn set(args: &PolicySetArgs) -> Result<(), CliError> {
    let place = Place::of(&args.path, &args.servers)?;
    let waiting = Waiting::begin("telling the volume's server".to_owned());
    let said = PolicySaid {
        durability: args.durability,
        pin: args.pin,
        confine: args.confine_to.clone(),
        place: args.place_on.clone(),
        exclude: args.exclude_from.clone(),
    };
    let info = place.ask(place.ino, PolicyWhat::Set(said))?;
    drop(waiting);
    let spread = info.spread;
    let mut step = PolicyStep::default();
    let info = match spread {
        true => info,
        false => {
            let _waiting = Waiting::begin("giving it to what is there".to_owned());
            spread_below(&place, &info, &mut step)?;
            place.ask(place.ino, PolicyWhat::Spread(info.policy))?
        }
    };
    if args.json {
        let mut shown = as_json(&place, &info);
        shown["given"] = json!(step.seen - step.kept);
        shown["kept"] = json!(step.kept);
        output::line(&format_args!("{shown:#}"));
        return Ok(());
    }
    let path = place.path.display();
    if args.durability.is_some() {
        output::line(&format_args!("'{path}': fsync waits for {} from now on", class(&info)));
    }
    let disks = [
        (&args.confine_to, "on no disk but of the members of the group"),
        (&args.place_on, "in the caches, as long as there is room, of the group"),
        (&args.exclude_from, "on no disk of the members of the group"),
    ];
    for (group, where_to) in disks {
        if let Some(group) = group {
            output::line(&format_args!("'{path}': its bytes are {where_to} '{group}'"));
        }
    }
    if args.pin {
        let groups = place
            .in_each_group(&info)?
            .iter()
            .filter(|info| info.disks != Disks::None)
            .map(|info| format!("'{}'", info.group))
            .collect::<Vec<_>>();
        output::line(&format_args!(
            "'{path}': pinned in the caches of the group {}; `forebay policy show` says how far that is so",
            groups.join(" and of the group ")
        ));
    }
    if spread {
        if info.directory {
            output::line(&"  so it is for all that goes by what was said for this directory");
        }
        return Ok(());
    }
    output::line(&format_args!("  {} below it, which were there already, go by it", step.seen - step.kept));
    if step.kept > 0 {
        output::line(&format_args!(
            "  {} go by what was said for themselves or elsewhere, and keep that: see `forebay policy show`",
            step.kept
        ));
    }
    Ok(())
}

/// Gives the policy of a directory to all that is below it.
fn spread_below(place: &Place, info: &PolicyInfo, all: &mut PolicyStep) -> Result<(), CliError> {
    let mut directories = vec![place.ino];
    while let Some(directory) = directories.pop() {
        let mut after = None;
        loop {
            let told = place.ask(directory, PolicyWhat::Give(info.policy, after));
            let PolicyStep { seen, kept, directories: more, next } = match told {
                Ok(told) => told.step,
                Err(error) => {
                    return Err(CliError::Told(format!(
                        "'{}' goes by it, and {} of what is below it: give the command again for the rest ({error})",
                        place.path.display(),
                        all.seen - all.kept
                    )));
                }
            };
            (all.seen, all.kept) = (all.seen + seen, all.kept + kept);
            directories.extend(more);
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn show(args: &PolicyShowArgs) -> Result<(), CliError> {
    let place = Place::of(&args.path, &args.servers)?;
    let info = place.ask(place.ino, PolicyWhat::Show)?;
    tell(&place, &info, args.json)
}

fn unset(args: &PolicyUnsetArgs) -> Result<(), CliError> {
    let parts = PolicyParts {
        durability: args.durability,
        pin: args.pin,
        confine: args.confine_to,
        place: args.place_on,
        exclude: args.exclude_from,
    };
    let parts = if parts == PolicyParts::default() { PolicyParts::ALL } else { parts };
    let args = &args.of;
    let place = Place::of(&args.path, &args.servers)?;
    let info = place.ask(place.ino, PolicyWhat::Show)?;
    if let Some(ino) = info.made_for.filter(|ino| *ino != place.ino) {
        let there =
            place.path_of(ino).map_or_else(|| format!("inode {ino}"), |path| format!("'{}'", path.display()));
        return Err(CliError::Told(format!(
            "nothing was said for '{}' itself: what counts there was said for {there}; unset it there, or set another one here",
            place.path.display()
        )));
    }
    let info = place.ask(place.ino, PolicyWhat::Unset(parts))?;
    tell(&place, &info, args.json)
}

/// What `fsync` waits for: the higher of what the policy and the volume say.
fn class(info: &PolicyInfo) -> String {
    match info.disks {
        Disks::None => SyncClass::Object.to_string(),
        _ => info.said.durability.map_or(info.volume, |said| said.max(info.volume)).to_string(),
    }
}

/// What is said, as it is given to `set`; `None`: nothing.
fn says(said: &PolicySaid) -> Option<String> {
    let durability = said.durability.map(|class| class.to_string());
    let group = |what: &str, group: &Option<String>| group.as_ref().map(|group| format!("{what} {group}"));
    let all: Vec<String> = durability
        .into_iter()
        .chain(said.pin.then(|| "pin".to_owned()))
        .chain(group("confined to", &said.confine))
        .chain(group("placed on", &said.place))
        .chain(group("excluded from", &said.exclude))
        .collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// How far it is so that a group's members keep bytes, line by line; `of` says which bytes.
pub(super) fn kept_lines(label: &str, kept: &PolicyKept, of: &str) -> String {
    let PolicyKept { sums, members, heard, whole } = kept;
    let mut text = match (members, heard) {
        (0, _) => format!("{label:<13} nothing {of}: the group has no active member\n"),
        (_, 0) => format!("{label:<13} not known yet {of}: no member has said what it has\n"),
        _ => {
            let so_far = if *whole { "" } else { ", and not all that there is has been gone through" };
            format!("{label:<13} {} of {} {of}{so_far}\n", human(sums.kept), human(sums.wanted))
        }
    };
    let mut not = |bytes: u64, why: &str| {
        if bytes > 0 {
            text.push_str(&format!("{:<13} {} {why}\n", "", human(bytes)));
        }
    };
    not(sums.no_room, "do not fit: half of each member's cache may be pinned, and others need the rest");
    not(sums.failed, &format!("were not to be had: {}", sums.why));
    if sums.failed == 0 && !sums.why.is_empty() {
        text.push_str(&format!("{:<13} {}\n", "", sums.why));
    }
    if (1..*members).contains(heard) {
        text.push_str(&format!("{:<13} {heard} of {members} members have said what they have\n", ""));
    }
    text
}

/// The same as JSON.
pub(super) fn kept_json(kept: &PolicyKept) -> Value {
    let PolicyKept { sums, members, heard, whole } = kept;
    json!({
        "wanted_bytes": sums.wanted,
        "kept_bytes": sums.kept,
        "no_room_bytes": sums.no_room,
        "failed_bytes": sums.failed,
        "dropped_bytes": sums.dropped,
        "why": sums.why,
        "members": members,
        "members_heard": heard,
        "whole": whole,
    })
}

fn tell(place: &Place, info: &PolicyInfo, json: bool) -> Result<(), CliError> {
    let groups = place.in_each_group(info)?;
    if json {
        let mut shown = as_json(place, info);
        shown["groups"] = groups.iter().filter(|group| !group.group.is_empty()).map(group_json).collect();
        output::line(&format_args!("{shown:#}"));
        return Ok(());
    }
    let by = info.made_for.map(|ino| match place.path_of(ino) {
        _ if ino == place.ino => "said by itself".to_owned(),
        Some(path) => format!("said for '{}'", path.display()),
        None => format!("said for inode {ino}, which is not above it"),
    });
    let policy = match (says(&info.said), by) {
        (None, None) => "nothing: what the volume says counts".to_owned(),
        (None, Some(_)) => "nothing any more: what the volume says counts".to_owned(),
        (Some(says), Some(by)) => format!("{says}, {by}"),
        (Some(says), None) => format!("{says}: its policy cannot be read, so the most is promised"),
    };
    let rows = [
        ("path", Some(place.path.display().to_string())),
        ("durability", Some(class(info))),
        ("policy", Some(policy)),
        ("volume", Some(format!("{}: {}", place.volume, info.volume))),
        ("on disks of", on_disks(&groups)),
    ];
    let line = |(label, value): (&str, Option<String>)| value.map(|value| format!("{label:<13} {value}\n"));
    output::out(&rows.into_iter().filter_map(line).collect::<String>());
    groups.iter().for_each(|group| output::out(&in_caches(group)));
    if !info.spread {
        output::line(&"not all that was there goes by it yet: give `forebay policy set` again");
    }
    Ok(())
}

/// Of several groups those on whose disks it may be, where that is not all of them.
fn on_disks(groups: &[PolicyInfo]) -> Option<String> {
    let (not, may): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.disks == Disks::None);
    let names =
        |of: &[&PolicyInfo]| of.iter().map(|group| group.group.as_str()).collect::<Vec<_>>().join(", ");
    match (may.as_slice(), not.as_slice()) {
        _ if groups.len() < 2 || not.is_empty() => None,
        ([], not) => Some(format!("none of its groups ({})", names(not))),
        (may, not) => Some(format!("{}, not of {}", names(may), names(not))),
    }
}

/// How far it is so in the caches of a group, where something is to be there or not to be there.
fn in_caches(info: &PolicyInfo) -> String {
    let PolicyInfo { group, said, kept, disks, .. } = info;
    let (barred, placed) = (*disks == Disks::None, said.place.as_ref() == Some(group));
    if let Some(kept) = kept.as_ref().filter(|kept| barred && kept.sums.dropped > 0) {
        let dropped = human(kept.sums.dropped);
        return format!(
            "{:<13} {dropped} of it, which were on disks of the group '{group}', the last time that was looked at\n",
            "dropped"
        );
    }
    let label = if said.pin { "pinned" } else { "placed" };
    match kept {
        None if group.is_empty() && (said.pin || said.place.is_some()) => {
            format!("{label:<13} nothing: the volume is read through no group\n")
        }
        Some(kept) if !barred && (said.pin || placed) => {
            kept_lines(label, kept, &format!("in the caches of the group '{group}'"))
        }
        _ => String::new(),
    }
}

fn disks_word(disks: Disks) -> &'static str {
    match disks {
        Disks::Any => "any",
        Disks::Members => "members",
        Disks::None => "none",
    }
}

fn group_json(info: &PolicyInfo) -> Value {
    json!({ "group": info.group, "disks": disks_word(info.disks), "kept": info.kept.as_ref().map(kept_json) })
}

fn as_json(place: &Place, info: &PolicyInfo) -> Value {
    json!({
        "path": place.path,
        "volume": place.volume,
        "inode": place.ino.0,
        "durability": class(info),
        "policy": info.policy.0,
        "policy_durability": info.said.durability.map(|class| class.to_string()),
        "pin": info.said.pin,
        "confined_to": info.said.confine,
        "placed_on": info.said.place,
        "excluded_from": info.said.exclude,
        "disks": disks_word(info.disks),
        "kept": info.kept.as_ref().map(kept_json),
        "group": info.group,
        "volume_durability": info.volume.to_string(),
        "said_for": info.made_for.and_then(|ino| place.path_of(ino)),
        "said_for_inode": info.made_for.map(|ino| ino.0),
        "whole": info.spread,
    })
}
