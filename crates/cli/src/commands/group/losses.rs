//! `forebay group lost`, `forebay group remove --lost`: what no member has that is there.
//!
//! Each volume's owner knows of its own segments: all servers are asked.

use std::collections::BTreeMap;

use forebay_group::MemberId;
use forebay_protocol::{
    Kind, Message, Overview,
    group::{GroupInfo, GroupRequest, MissingSegment, SetsOf, Tally, VolumeSets},
};
use serde_json::{Value, json};

use super::{ask_one, tell};
use crate::{
    args::{GroupLostArgs, GroupRemoveArgs, ServersArgs},
    commands::servers::Servers,
    error::CliError,
    output,
    size::human,
    table::table,
};

/// What the owners of all volumes said.
pub(super) struct Said {
    pub(super) sets: Vec<VolumeSets>,
    /// Volumes of which nothing is known, and why.
    pub(super) unheard: BTreeMap<String, String>,
}

/// How a segment stands, and which of a volume's count as that.
type State = (&'static str, fn(&VolumeSets) -> Tally);

const STATES: [State; 5] = [
    ("open", |sets| sets.open),
    ("sealed", |sets| sets.sealed),
    ("under", |sets| sets.under),
    ("missing", |sets| sets.missing),
    ("lost", |sets| sets.lost),
];

impl Said {
    fn sum(&self, of: fn(&VolumeSets) -> Tally) -> Tally {
        let mut sum = Tally::default();
        for Tally { segments, bytes } in self.sets.iter().map(of) {
            sum.segments += segments;
            sum.bytes += bytes;
        }
        sum
    }

    /// Volumes of a group of which nothing is known.
    fn unheard_of<'a>(&'a self, group: &'a GroupInfo) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.unheard.iter().filter(|(name, _)| group.volumes.iter().any(|volume| volume.name == **name))
    }

    /// Lines of `forebay group show`: what the store has not, and what there is to be said of it.
    pub(super) fn text(&self, group: &GroupInfo) -> String {
        let mut text = String::new();
        for (state, of) in STATES {
            let Tally { segments, bytes } = self.sum(of);
            let says = match (state, segments) {
                ("under" | "missing" | "lost", 0) => continue,
                (_, 0) => "nothing".to_owned(),
                (_, count) => format!("{count} segments, {}", human(bytes)),
            };
            let means = match state {
                "under" => ": fewer copies are there than there are to be; they are stored or copied",
                "missing" => ": no copy is there; `forebay group lost` names them",
                "lost" => ": they were given up; `forebay group lost` names them",
                _ => "",
            };
            text.push_str(&format!("{state:<13} {says}{means}\n"));
        }
        for (volume, why) in self.unheard_of(group) {
            text.push_str(&format!("not known     of '{volume}': {why}\n"));
        }
        text
    }

    /// The same as JSON.
    pub(super) fn json(&self, group: &GroupInfo) -> Value {
        let states = STATES.map(|(state, of)| {
            let Tally { segments, bytes } = self.sum(of);
            (state.to_owned(), json!({ "segments": segments, "bytes": bytes }))
        });
        let mut all: serde_json::Map<String, Value> = states.into_iter().collect();
        let unheard: BTreeMap<_, _> = self.unheard_of(group).collect();
        all.insert("not_known".to_owned(), json!(unheard));
        Value::Object(all)
    }
}

/// As many files as an owner names at a time.
const FILES_TOLD: usize = 200;

/// Asks the owners of all volumes.
pub(super) fn ask(args: &ServersArgs, of: &SetsOf) -> Result<Said, CliError> {
    let servers = Servers::of(args)?;
    let overview: Overview = servers.ask(Kind::Overview, Vec::new())?;
    let mut sets: BTreeMap<(String, String), VolumeSets> = BTreeMap::new();
    let mut errors: BTreeMap<&str, String> = BTreeMap::new();
    for member in overview.members.iter().filter(|member| member.alive) {
        match servers.ask_one::<Vec<VolumeSets>>(&member.address, Kind::Sets, &of.encode()) {
            Ok(said) => {
                for one in said {
                    let key = (one.volume.clone(), one.group.clone());
                    // While a volume changes its owner two may say that it is theirs: the later one is right.
                    if sets.get(&key).is_none_or(|known| known.epoch <= one.epoch) {
                        sets.insert(key, one);
                    }
                }
            }
            Err(error) => drop(errors.insert(&member.address, error.to_string())),
        }
    }
    let unheard = overview.volumes.iter().filter_map(|volume| {
        let alive = overview.members.iter().any(|member| member.alive && member.address == volume.owner);
        let why = match errors.get(volume.owner.as_str()) {
            Some(error) => format!("its owner, {}, was not heard: {error}", volume.owner),
            None if alive => return None,
            None => "nobody owns it now".to_owned(),
        };
        Some((volume.name.clone(), why))
    });
    Ok(Said { unheard: unheard.collect(), sets: sets.into_values().collect() })
}

/// `forebay group lost`
pub(super) fn list(args: &GroupLostArgs) -> Result<(), CliError> {
    if let Some(group) = &args.group {
        ask_one(&args.servers, &GroupRequest::Show(group.clone()))?;
    }
    let of = SetsOf { group: args.group.clone(), list: true, files: args.files };
    let said = ask(&args.servers, &of)?;
    if args.json {
        output::line(&format_args!("{:#}", as_json(&said)));
        return Ok(());
    }
    let row = |volume: &VolumeSets, missing: &MissingSegment| {
        let members: Vec<String> = missing.members.iter().map(ToString::to_string).collect();
        [
            volume.volume.clone(),
            volume.group.clone(),
            missing.segment.to_string(),
            human(missing.bytes),
            if missing.lost { "lost" } else { "waits" }.to_owned(),
            missing.directory.to_string(),
            members.join(" "),
        ]
    };
    let rows: Vec<_> =
        said.sets.iter().flat_map(|volume| volume.list.iter().map(|one| row(volume, one))).collect();
    if rows.is_empty() {
        output::line(&"nothing is missing: of all that the store has not, some member is there");
    } else {
        output::out(&table(["VOLUME", "GROUP", "SEGMENT", "BYTES", "STATE", "DIRECTORY", "MEMBERS"], &rows));
    }
    for volume in &said.sets {
        let more = volume.missing.segments + volume.lost.segments - volume.list.len() as u64;
        if more > 0 {
            output::line(&format_args!("{}: {more} more segments", volume.volume));
        }
        volume.files.iter().for_each(|file| output::line(&format_args!("{}: {file}", volume.volume)));
        if volume.files.len() >= FILES_TOLD {
            output::line(&format_args!(
                "{}: there may be more files: ask again once these are seen to",
                volume.volume
            ));
        }
    }
    for (volume, why) in &said.unheard {
        output::line(&format_args!("{volume}: not known: {why}"));
    }
    Ok(())
}

/// `forebay group remove --lost`
pub(super) fn remove(args: &GroupRemoveArgs) -> Result<(), CliError> {
    let GroupRemoveArgs { member, yes, .. } = args;
    let (name, node) = (&member.name, &member.node);
    if !yes {
        let group = ask_one(&member.servers, &GroupRequest::Show(name.clone()))?;
        let said = ask(&member.servers, &SetsOf { group: Some(name.clone()), list: true, files: false })?;
        refuse_loss(&group, node, &said)?;
    }
    let group = ask_one(&member.servers, &GroupRequest::GiveUp(name.clone(), node.clone()))?;
    if member.json {
        tell(&group, true);
    } else {
        output::line(&format_args!(
            "'{node}' has left the group '{name}' for good, with what it alone had: `forebay group lost --group {name}`"
        ));
    }
    Ok(())
}

/// Refuses what would lose something, or may.
fn refuse_loss(group: &GroupInfo, node: &str, said: &Said) -> Result<(), CliError> {
    let of_node = |id: MemberId| group.lost.iter().any(|lost| lost.node == node && lost.id == id);
    let only = |missing: &&MissingSegment| {
        !missing.lost && missing.members.iter().any(|id| id.begins_with(node) || of_node(*id))
    };
    let lost: Vec<&MissingSegment> = said.sets.iter().flat_map(|volume| &volume.list).filter(only).collect();
    let bytes: u64 = lost.iter().map(|missing| missing.bytes).sum();
    let is_cut = |volume: &&VolumeSets| {
        let named = volume.list.iter().filter(|missing| !missing.lost).count() as u64;
        named < volume.missing.segments
    };
    let cut = said.sets.iter().find(is_cut);
    let what = if !lost.is_empty() {
        format!("no other member that is there has {} segments of it ({})", lost.len(), human(bytes))
    } else if let Some((volume, why)) = said.unheard.first_key_value() {
        format!("it cannot be told what is lost of '{volume}': {why}")
    } else if let Some(VolumeSets { volume, .. }) = said.sets.iter().find(|volume| !volume.known) {
        format!("it cannot be told what is lost of '{volume}': its owner has just taken it up, so ask again")
    } else if let Some(VolumeSets { volume, missing, .. }) = cut {
        format!(
            "it cannot be told what is lost of '{volume}': {} segments are missing, more than are named",
            missing.segments
        )
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!(
        "{what}: `forebay group lost --group {} --files` lists it. If a disk with a copy may come back, wait for it; add --yes if all are lost for good",
        group.name
    )))
}

fn as_json(said: &Said) -> Value {
    let segment = |missing: &MissingSegment| {
        json!({
            "segment": missing.segment.0,
            "bytes": missing.bytes,
            "lost": missing.lost,
            "directory": missing.directory.0,
            "members": missing.members.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    let volume = |volume: &VolumeSets| {
        json!({
            "volume": volume.volume,
            "group": volume.group,
            "missing_segments": volume.missing.segments,
            "missing_bytes": volume.missing.bytes,
            "lost_segments": volume.lost.segments,
            "lost_bytes": volume.lost.bytes,
            "segments": volume.list.iter().map(segment).collect::<Vec<_>>(),
            "files": volume.files,
        })
    };
    json!({
        "volumes": said.sets.iter().map(volume).collect::<Vec<_>>(),
        "not_known": said.unheard,
    })
}

#[cfg(test)]
mod tests {
    use forebay_group::{GroupId, MemberId};
    use forebay_types::{Ino, SegmentId};

    use super::*;

    const GONE: MemberId = MemberId([0xab; 16]);

    fn group() -> GroupInfo {
        GroupInfo {
            name: "fast".to_owned(),
            id: GroupId([1; 16]),
            epoch: forebay_group::ViewEpoch(3),
            copies: 2,
            members: Vec::new(),
            lost: vec![forebay_protocol::group::LostMember { id: GONE, node: "node7".to_owned() }],
            given_up: Vec::new(),
            volumes: Vec::new(),
        }
    }

    fn said(segments: &[(MemberId, bool)], more: u64, known: bool) -> Said {
        let missing = |(member, lost): &(MemberId, bool)| MissingSegment {
            segment: SegmentId(256),
            bytes: 10,
            lost: *lost,
            directory: Ino::ROOT,
            members: vec![*member],
        };
        let list: Vec<_> = segments.iter().map(missing).collect();
        let waits = list.iter().filter(|one| !one.lost).count() as u64;
        let tally = |segments| Tally { segments, bytes: 10 * segments };
        let one = VolumeSets {
            volume: "v".to_owned(),
            group: "fast".to_owned(),
            epoch: 1,
            open: Tally::default(),
            sealed: Tally::default(),
            under: Tally::default(),
            missing: tally(waits + more),
            lost: tally(list.len() as u64 - waits),
            known,
            oldest_s: 0,
            list,
            files: Vec::new(),
        };
        Said { unheard: BTreeMap::new(), sets: vec![one] }
    }

    #[test]
    fn what_would_be_lost_or_cannot_be_told_takes_a_yes() {
        let refused = |said: &Said| refuse_loss(&group(), "node7", said).unwrap_err().to_string();
        assert!(refused(&said(&[(GONE, false)], 0, true)).contains("no other member"));
        assert!(refused(&said(&[(MemberId([2; 16]), false)], 1, true)).contains("more than are named"));
        assert!(refused(&said(&[], 0, false)).contains("just taken it up"));
        let unheard = Said {
            unheard: [("w".to_owned(), "nobody owns it now".to_owned())].into(),
            ..said(&[], 0, true)
        };
        assert!(refused(&unheard).contains("nobody owns it now"));
        for nothing in
            [said(&[], 0, true), said(&[(GONE, true)], 0, true), said(&[(MemberId([2; 16]), false)], 0, true)]
        {
            refuse_loss(&group(), "node7", &nothing).unwrap();
        }
    }
}
