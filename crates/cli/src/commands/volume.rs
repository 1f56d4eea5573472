//! `forebay volume`

use std::process::ExitCode;

use forebay_protocol::{
    Kind, Message, VolumeInfo, VolumeRequest, VolumeSet,
    group::{GroupRequest, WriteClass},
};
use forebay_types::{Timespec, VolumeId};
use serde_json::{Value, json};

use super::{
    group,
    servers::{Servers, insecure},
};
use crate::{
    args::{
        ServersArgs, VolumeArgs, VolumeCommand, VolumeCreateArgs, VolumeDeleteArgs, VolumeListArgs,
        VolumeSetArgs, VolumeShowArgs,
    },
    duration::stamp,
    error::CliError,
    logging, output,
    progress::Waiting,
    size::human,
    table::table,
};

pub(crate) fn run(args: &VolumeArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    match &args.command {
        VolumeCommand::Create(args) => create(args),
        VolumeCommand::List(args) => list(args),
        VolumeCommand::Show(args) => show(args),
        VolumeCommand::Set(args) => set(args),
        VolumeCommand::Migrate(args) => super::migrate::run(args),
        VolumeCommand::Delete(args) => delete(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn ask(servers: &ServersArgs, request: &VolumeRequest) -> Result<Vec<VolumeInfo>, CliError> {
    Servers::of(servers)?.ask(Kind::Volumes, request.encode())
}

/// Asks for something that is answered by one volume.
fn ask_one(servers: &ServersArgs, request: &VolumeRequest) -> Result<VolumeInfo, CliError> {
    let none = || CliError::Told("the server's answer names no volume".to_owned());
    ask(servers, request)?.pop().ok_or_else(none)
}

fn create(args: &VolumeCreateArgs) -> Result<(), CliError> {
    let wanted = VolumeInfo {
        name: args.name.clone(),
        id: VolumeId([0; 16]),
        store: args.store.to_string(),
        endpoint: args.endpoint.clone(),
        region: args.region.clone(),
        block_size: u32::try_from(args.block_size.0).unwrap_or(u32::MAX),
        compression: args.compression,
        created: Timespec::default(),
        limit: args.limit.map(|limit| limit.0),
        generation: 0,
    };
    if args.durability != WriteClass::Object && args.group.is_none() {
        let message =
            format!("--durability {} takes a group whose members keep copies: give --group", args.durability);
        return Err(CliError::Usage(message));
    }
    let groups = args.group.as_ref().map(|names| names.0.as_slice()).unwrap_or_default();
    for group in groups {
        // Before anything is made: it may be one that there is not.
        group::ask(&args.servers, &GroupRequest::Show(group.clone()))?;
    }
    let waiting = Waiting::begin("trying out the store".to_owned());
    let made = ask_one(&args.servers, &VolumeRequest::Create(wanted));
    drop(waiting);
    let made = made?;
    if !groups.is_empty() {
        group::ask(&args.servers, &assign(&made.name, groups))?;
    }
    if args.durability != WriteClass::Object {
        group::ask(&args.servers, &GroupRequest::SetClass(made.name.clone(), args.durability))?;
    }
    if args.json {
        let mut shown = as_json(&made);
        shown["group"] = json!(groups.first());
        shown["groups"] = json!(groups);
        shown["durability"] = json!(args.durability.to_string());
        output::line(&format_args!("{shown:#}"));
        return Ok(());
    }
    output::line(&format_args!("created the shared volume '{}'", made.name));
    output::line(&format_args!("  data rests in {}", made.store));
    output::line(&format_args!(
        "  blocks of {}, compression {}, {}",
        human(u64::from(made.block_size)),
        made.compression,
        match made.limit {
            Some(limit) => format!("at most {}", human(limit)),
            None => "no limit".to_owned(),
        }
    ));
    output::line(&match args.durability {
        WriteClass::Object => "  fsync returns when the store has the data and the servers know of it",
        WriteClass::Local => {
            "  fsync returns when the proxy of the machine has the data on its disk, or else the store, and the servers know of it"
        }
        WriteClass::Replica(_) => {
            "  fsync returns when members of the group have the data on their disks and the servers know of it"
        }
    });
    let meta = args.servers.meta.first().map_or_else(String::new, ToString::to_string);
    output::line(&format_args!("let machines use it: forebay token create {} --meta {meta}", made.name));
    output::line(&format_args!(
        "mount it: forebay mount forebay://{meta}/{} MOUNTPOINT{}",
        made.name,
        insecure(&args.servers)
    ));
    Ok(())
}

fn list(args: &VolumeListArgs) -> Result<(), CliError> {
    let all = ask(&args.servers, &VolumeRequest::List)?;
    if args.json {
        let all: Vec<Value> = all.iter().map(as_json).collect();
        output::line(&format_args!("{:#}", Value::Array(all)));
    } else if all.is_empty() {
        output::line(&"there are no volumes: `forebay volume create` makes one");
    } else {
        let rows: Vec<_> = all
            .iter()
            .map(|volume| {
                [
                    volume.name.clone(),
                    volume.store.clone(),
                    human(u64::from(volume.block_size)),
                    volume.compression.to_string(),
                    volume.limit.map_or_else(|| "none".to_owned(), human),
                    stamp(volume.created.secs),
                ]
            })
            .collect();
        let titles = ["NAME", "STORE", "BLOCK", "COMPRESSION", "LIMIT", "CREATED (UTC)"];
        output::out(&table(titles, &rows));
    }
    Ok(())
}

fn show(args: &VolumeShowArgs) -> Result<(), CliError> {
    let volume = ask_one(&args.servers, &VolumeRequest::Show(args.name.clone()))?;
    tell_with_group(&args.servers, &volume, args.json)
}

/// Has a volume read through these groups. One alone is named as servers of each release know it.
fn assign(volume: &str, groups: &[String]) -> GroupRequest {
    match groups {
        [] | [_] => GroupRequest::Assign(volume.to_owned(), groups.first().cloned()),
        _ => GroupRequest::AssignAll(volume.to_owned(), groups.to_vec()),
    }
}

/// The names of the groups through which a volume is read, and how durable what is written to it is.
fn groups_of(servers: &ServersArgs, volume: &str) -> Result<(Vec<String>, WriteClass), CliError> {
    let groups = group::ask(servers, &GroupRequest::OfVolume(volume.to_owned()))?;
    let of = |found: &forebay_protocol::group::GroupVolume| found.name == volume;
    let first = groups.first().and_then(|group| group.volumes.iter().find(|found| of(found)));
    let class = first.map(|found| found.class).unwrap_or_default();
    Ok((groups.into_iter().map(|group| group.name).collect(), class))
}

fn tell_with_group(servers: &ServersArgs, volume: &VolumeInfo, json: bool) -> Result<(), CliError> {
    let (groups, class) = groups_of(servers, &volume.name)?;
    tell(volume, (&groups, class), json);
    Ok(())
}

fn set(args: &VolumeSetArgs) -> Result<(), CliError> {
    let set = VolumeSet {
        compression: args.compression,
        limit: args.limit.clone().map(|limit| limit.0.map(|size| size.0)),
        endpoint: args.endpoint.clone().map(|endpoint| endpoint.0),
    };
    if set == VolumeSet::default() && args.group.is_none() && args.durability.is_none() {
        return Err(CliError::Usage(
            "nothing is to be changed: give --compression, --limit, --endpoint, --group or --durability"
                .to_owned(),
        ));
    }
    let named =
        args.group.as_ref().map(|group| group.0.as_ref().map(|names| names.0.as_slice()).unwrap_or_default());
    // Before anything is changed: it may be one that there is not.
    for group in named.unwrap_or_default() {
        group::ask(&args.servers, &GroupRequest::Show(group.clone()))?;
    }
    if args.durability == Some(WriteClass::Object) {
        group::ask(&args.servers, &GroupRequest::SetClass(args.name.clone(), WriteClass::Object))?;
    }
    // What goes to the store alone may change its group.
    if let Some(names) = named {
        let (mut gone, class) = groups_of(&args.servers, &args.name)?;
        gone.retain(|before| !names.contains(before));
        if class == WriteClass::Object && !gone.is_empty() {
            let is_object = || Ok(groups_of(&args.servers, &args.name)?.1 == WriteClass::Object);
            group::leaving::wait(&args.servers, &args.name, &gone, is_object)?;
        }
        group::ask(&args.servers, &assign(&args.name, names))?;
    }
    if let Some(class) = args.durability.filter(|class| *class != WriteClass::Object) {
        group::ask(&args.servers, &GroupRequest::SetClass(args.name.clone(), class))?;
    }
    let request = match set == VolumeSet::default() {
        true => VolumeRequest::Show(args.name.clone()),
        false => VolumeRequest::Set(args.name.clone(), set),
    };
    let volume = ask_one(&args.servers, &request)?;
    tell_with_group(&args.servers, &volume, args.json)
}

fn delete(args: &VolumeDeleteArgs) -> Result<(), CliError> {
    if !args.yes {
        return Err(CliError::Usage(format!(
            "the files of '{}' could not be had back: add --yes if that is meant",
            args.name
        )));
    }
    let waiting = Waiting::begin("deleting".to_owned());
    let gone = ask_one(&args.servers, &VolumeRequest::Delete(args.name.clone(), args.objects));
    drop(waiting);
    let gone = gone?;
    output::line(&format_args!("deleted the volume '{}'", gone.name));
    if !args.objects {
        output::line(&format_args!("  its objects are still in {}", gone.store));
    }
    Ok(())
}

fn tell(volume: &VolumeInfo, (groups, class): (&[String], WriteClass), json: bool) {
    if json {
        let mut shown = as_json(volume);
        shown["group"] = json!(groups.first());
        shown["groups"] = json!(groups);
        shown["durability"] = json!(class.to_string());
        return output::line(&format_args!("{shown:#}"));
    }
    let rows = [
        ("volume", Some(volume.name.clone())),
        ("id", Some(volume.id.to_string())),
        ("store", Some(volume.store.clone())),
        ("endpoint", volume.endpoint.clone()),
        ("region", volume.region.clone()),
        (
            "kind",
            Some(format!(
                "{} blocks, compression {}",
                human(u64::from(volume.block_size)),
                volume.compression
            )),
        ),
        ("limit", Some(volume.limit.map_or_else(|| "none".to_owned(), human))),
        ("group", (!groups.is_empty()).then(|| groups.join(", "))),
        ("durability", Some(class.to_string())),
        ("created", Some(format!("{} UTC", stamp(volume.created.secs)))),
    ];
    let line = |(label, value): (&str, Option<String>)| value.map(|value| format!("{label:<13} {value}\n"));
    output::out(&rows.into_iter().filter_map(line).collect::<String>());
}

fn as_json(volume: &VolumeInfo) -> Value {
    json!({
        "name": volume.name,
        "id": volume.id,
        "store": volume.store,
        "endpoint": volume.endpoint,
        "region": volume.region,
        "block_size": volume.block_size,
        "compression": volume.compression,
        "limit": volume.limit,
        "created": volume.created.secs,
        "generation": volume.generation,
    })
}
