//! `forebay status`

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::ExitCode};

use forebay_volume::{
    VolumeConfig, VolumePaths,
    fsck::{Survey, survey},
};
use serde_json::{Value, json};

use super::overview;
use crate::{
    args::{ServersArgs, StatusArgs},
    control::Client,
    duration,
    error::CliError,
    logging,
    mounts::{self, Mounted},
    output, passthrough,
    progress::Waiting,
    size::human,
};

/// More metadata than this is not copied to look into it.
const METADATA_MAX: u64 = 1 << 30;

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    if !args.meta.is_empty() {
        let servers = ServersArgs { meta: args.meta.clone(), tls: args.tls.clone() };
        return overview::show(&servers, args.json);
    }
    let Some(place) = &args.place else { return all(args.json) };
    let status = match mounts::meant(place)? {
        Some(mounted) => Client::of_mount(&mounted)?.ask("status")?,
        None => unmounted(place)?,
    };
    if args.json {
        output::line(&format_args!("{status:#}"));
    } else {
        output::out(&for_people(&status));
    }
    Ok(ExitCode::SUCCESS)
}

fn all(json: bool) -> Result<ExitCode, CliError> {
    let mounted = mounts::all().map_err(CliError::io("read", "/proc/self/mountinfo"))?;
    let ask = |mounted: &Mounted| Client::of_mount(mounted).and_then(|client| client.ask::<Value>("status"));
    let all: Vec<Value> = mounted
        .iter()
        .map(|mounted| {
            ask(mounted).unwrap_or_else(|error| {
                json!({ "path": mounted.volume, "mountpoint": mounted.mountpoint, "error": error.to_string() })
            })
        })
        .collect();
    if json {
        output::line(&format_args!("{:#}", Value::Array(all)));
    } else if all.is_empty() {
        output::line(&"no volume is mounted");
    } else {
        let texts: Vec<String> = all.iter().map(for_people).collect();
        output::out(&texts.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What can be said without opening the volume, so that nothing of it is changed.
fn unmounted(place: &Path) -> Result<Value, CliError> {
    let config = VolumeConfig::read(place)?;
    let root = fs::canonicalize(place).map_err(CliError::io("find", place))?;
    let paths = VolumePaths::new(&root);
    let epoch = fs::read_to_string(root.join("epoch")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let staging = disk_usage(&paths.staging())?;
    let metadata = disk_usage(&paths.meta())?;
    let mut status = json!({
        "id": config.id,
        "path": root,
        "state": "not mounted",
        "store": config.store.clone().unwrap_or_else(|| paths.objects().display().to_string()),
        "endpoint": config.endpoint,
        "region": config.region,
        "format": config.format,
        "block_size": config.block_size,
        "compression": config.compression,
        "encryption": config.encryption,
        "durability": config.durability,
        "epoch": epoch.unwrap_or(0),
        "metadata_bytes": metadata.bytes,
        "journal_disk_bytes": disk_usage(&paths.journal())?.bytes,
        "staging_disk_bytes": staging.bytes,
        "staging_segments": staging.files,
        "version": env!("CARGO_PKG_VERSION"),
    });
    let held = match held(&root, metadata.bytes) {
        Ok(survey) => serde_json::to_value(survey).unwrap_or(Value::Null),
        Err(reason) => json!({ "not_looked_into": reason }),
    };
    if let (Some(status), Value::Object(held)) = (status.as_object_mut(), held) {
        status.extend(held.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Ok(status)
}

/// What it holds, from a copy of its metadata, or why that cannot be said.
fn held(root: &Path, metadata: u64) -> Result<Survey, String> {
    if metadata > METADATA_MAX {
        return Err(format!("its metadata takes {}, too much to be copied for a look", human(metadata)));
    }
    let _waiting = Waiting::begin("looking".to_owned());
    match survey(root, false) {
        Ok(survey) if survey.complete => Ok(survey),
        Ok(_) => Err("its journal cannot be read to its end: run forebay fsck".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a directory takes on disk.
#[derive(Debug, Default)]
struct Usage {
    bytes: u64,
    files: u64,
}

fn disk_usage(dir: &Path) -> Result<Usage, CliError> {
    let mut usage = Usage::default();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(usage),
        entries => entries.map_err(CliError::io("read", dir))?,
    };
    for entry in entries.flatten() {
        // Files come and go where somebody has just mounted the volume.
        let Ok(metadata) = entry.metadata() else { continue };
        let held = match metadata.is_dir() {
            true => disk_usage(&entry.path())?,
            false => Usage { bytes: metadata.blocks() * 512, files: 1 },
        };
        usage.bytes += held.bytes;
        usage.files += held.files;
    }
    Ok(usage)
}

/// What the token of a shared mount leaves out.
fn rights(rights: &Value) -> Option<String> {
    let words: Vec<&str> = rights.as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn in_use(status: &Value) -> Option<String> {
    let why_not = status["not_looked_into"].as_str().map(|reason| format!("not looked into: {reason}"));
    status["live_bytes"].as_u64().map(human).or(why_not)
}

fn kind(status: &Value) -> Option<String> {
    let blocks = status["block_size"].as_u64().map(|size| format!("{} blocks", human(size)));
    let class = |key: &str| status[key].as_str().map(|value| format!("{key} {value}"));
    let words = [blocks, class("compression"), class("encryption"), class("durability")];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// What goes wrong, and what went wrong lately.
fn complaints(status: &Value) -> Vec<(&'static str, Option<String>)> {
    let mut rows = Vec::new();
    for trouble in status["troubles"].as_array().into_iter().flatten() {
        let word = |key: &str| trouble[key].as_str().unwrap_or_default().to_owned();
        rows.push(("trouble", Some(format!("{}: {}", word("task"), word("error")))));
    }
    for error in status["last_errors"].as_array().into_iter().flatten() {
        let (message, ago) = (error["message"].as_str().unwrap_or_default(), time(&error["ago_s"]));
        rows.push(("last error", Some(format!("{message} ({ago} ago)"))));
    }
    rows
}

/// A string or number of the status, as text.
fn text_of(status: &Value, key: &str) -> Option<String> {
    match &status[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What there is, with commas between.
fn join(words: &[Option<String>]) -> Option<String> {
    let words: Vec<String> = words.iter().flatten().cloned().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn label(text: Option<String>, label: &str) -> Option<String> {
    text.map(|text| format!("{text} {label}"))
}

/// What the store does not have yet.
fn dirty(status: &Value) -> Option<String> {
    let bytes = |key: &str| status[key].as_u64().map(human);
    let is_dirty = status["dirty_bytes"] != 0;
    let segments = if status["dirty_segments"] == 1 { "segment" } else { "segments" };
    join(&[
        bytes("dirty_bytes"),
        label(bytes("journal_bytes").filter(|_| is_dirty), "of it in the journal"),
        label(text_of(status, "dirty_segments").filter(|_| is_dirty), segments),
    ])
}

fn for_people(status: &Value) -> String {
    let text = |key: &str| text_of(status, key);
    let bytes = |key: &str| status[key].as_u64().map(human);
    let read_only = status["read_only"].as_bool().unwrap_or(false).then(|| "read-only".to_owned());
    let mounted = text("mountpoint").map(|place| match (text("pid"), text("state")) {
        (Some(pid), Some(state)) if state != "mounted" => format!("{place} (process {pid}, {state})"),
        (Some(pid), _) => format!("{place} (process {pid}, for {})", time(&status["uptime_s"])),
        _ => place,
    });
    let local = join(&[
        label(bytes("journal_disk_bytes"), "of journal"),
        label(bytes("staging_disk_bytes"), "that the store may lack"),
    ]);
    let mut rows = vec![
        ("volume", text("path")),
        ("id", text("id")),
        ("mounted on", join(&[mounted.or_else(|| text("state")), read_only])),
        ("token", rights(&status["rights"])),
        ("store", text("store")),
        ("group", group(status)),
        ("read", places(&status["read_bytes"], "from")),
        ("written", places(&status["written_bytes"], "to")),
        ("kind", kind(status)),
        ("in use", in_use(status)),
        ("dirty", dirty(status)),
        ("on this disk", local),
        (
            "objects",
            join(&[
                text("objects"),
                label(bytes("stored_bytes"), "stored"),
                label(bytes("garbage_bytes"), "garbage"),
            ]),
        ),
        (
            "metadata",
            join(&[
                label(bytes("metadata_bytes"), "on disk"),
                label(bytes("pending_metadata_bytes"), "wait for a checkpoint"),
                label(
                    text("uncleaned_files").filter(|_| status["uncleaned_files"] != 0),
                    "files with deleted data that is still to be removed",
                ),
            ]),
        ),
        ("disk cache", disk_cache(&status["cache"])),
        ("passthrough", passthrough::line(&status["passthrough"])),
        ("open handles", text("open_handles")),
        (
            "requests by",
            join(&[text("transport"), text("transport_advice").filter(|advice| !advice.is_empty())]),
        ),
        ("log", text("log")),
        ("metrics", text("metrics").map(|addr| format!("http://{addr}/metrics"))),
        ("store error", text("store_error")),
        ("error", text("error")),
    ];
    rows.extend(complaints(status));
    let line = |(label, value): (&str, Option<String>)| value.map(|value| format!("{label:<13} {value}\n"));
    rows.into_iter().filter_map(line).collect()
}

/// The group that is gone by, and those beside it.
fn group(status: &Value) -> Option<String> {
    let all = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [_, _, ..] = all else { return status["group"].as_str().map(str::to_owned) };
    let away = |group: &Value| match group["round_trip_us"].as_u64() {
        Some(us) => format!("{} ({:.1} ms away)", group["name"].as_str().unwrap_or("?"), us as f64 / 1000.0),
        // The first one is gone by until all have answered.
        None if group["chosen"] == true => group["name"].as_str().unwrap_or("?").to_owned(),
        None => format!("{} (does not answer)", group["name"].as_str().unwrap_or("?")),
    };
    let (chosen, others): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|group| group["chosen"] == true);
    let others = others.into_iter().map(away).collect::<Vec<_>>().join(", ");
    Some(match chosen.first() {
        Some(chosen) => format!("{}; beside it {others}", away(chosen)),
        None => format!("none of {others}: it is read from the store and written to it"),
    })
}

/// Where what was read came from, or what was written went to.
fn places(counted: &Value, word: &str) -> Option<String> {
    let bytes = |key: &str| counted[key].as_u64().map(human);
    let (node, group, store) = (bytes("node")?, bytes("group")?, bytes("store")?);
    let count = |key: &str| counted[key].as_u64().unwrap_or(0);
    let all = count("node") + count("group") + count("store");
    let share =
        count("node").saturating_mul(100).checked_div(all).map_or_else(String::new, |of| format!(" ({of}%)"));
    Some(format!(
        "{node} {word} this machine's proxy{share}, {group} {word} others, {store} {word} the store"
    ))
}

fn time(seconds: &Value) -> String {
    duration::human(seconds.as_u64().unwrap_or(0))
}

/// How full the cache of a store elsewhere is, and how often it had what was asked for.
fn disk_cache(cache: &Value) -> Option<String> {
    let number = |key: &str| cache[key].as_u64();
    let (used, capacity) = (number("used_bytes")?, number("capacity_bytes")?);
    let (hits, misses) = (number("hits")?, number("misses")?);
    let found = match hits + misses {
        0 => String::new(),
        all => format!(", {:.1}% of {all} chunks found", hits as f64 * 100.0 / all as f64),
    };
    Some(format!("{} of {}{found}", human(used), human(capacity)))
}
