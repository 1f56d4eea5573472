//! How far what policies want of a group's caches is so, as the owners of its volumes were told by members.

use std::collections::BTreeMap;

use forebay_protocol::{KeptOf, Kind, Message, Overview, VolumeKept, group::GroupInfo};
use serde_json::Value;

use crate::{
    args::ServersArgs,
    commands::{
        policy::{kept_json, kept_lines},
        servers::Servers,
    },
    error::CliError,
};

/// Asks all servers. What one of them does not say is left out: volumes of its are named as not known with their segments.
pub(super) fn ask(args: &ServersArgs, group: &GroupInfo) -> Result<Vec<VolumeKept>, CliError> {
    let servers = Servers::of(args)?;
    let overview: Overview = servers.ask(Kind::Overview, Vec::new())?;
    let of = KeptOf { group: Some(group.name.clone()) }.encode();
    let mut all: BTreeMap<String, VolumeKept> = BTreeMap::new();
    for member in overview.members.iter().filter(|member| member.alive) {
        let said: Result<Vec<VolumeKept>, _> = servers.ask_one(&member.address, Kind::Kept, &of);
        for one in said.unwrap_or_default() {
            // While a volume changes its owner two may say that it is theirs: the later one is right.
            if all.get(&one.volume).is_none_or(|known| known.epoch <= one.epoch) {
                all.insert(one.volume.clone(), one);
            }
        }
    }
    Ok(all.into_values().collect())
}

/// Lines of `forebay group show`.
pub(super) fn text(kept: &[VolumeKept]) -> String {
    let of =
        |one: &VolumeKept| kept_lines("policies", &one.kept, &format!("for the volume '{}'", one.volume));
    kept.iter().map(of).collect()
}

/// The same as JSON, by volumes.
pub(super) fn json(kept: &[VolumeKept]) -> Value {
    Value::Object(kept.iter().map(|one| (one.volume.clone(), kept_json(&one.kept))).collect())
}
