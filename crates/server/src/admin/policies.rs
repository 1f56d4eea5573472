//! Policies of directories and files: asked and changed at the volume's owner.

use std::sync::Arc;

use forebay_format::policy_row::{GroupBytes, PolicyKeep};
use forebay_group::GroupId;
use forebay_meta::MetaError;
use forebay_owner::{PolicyFound, VolumeOwner};
use forebay_protocol::{
    Answer, Failure, KeptOf, PolicyChange, PolicyEdit, PolicyInfo, PolicyParts, PolicyRequest, PolicySaid,
    PolicyStep, PolicyWhat, Refusal, VolumeKept,
};
use forebay_rpc::Peer;
use forebay_types::{Ino, PolicyId, SyncClass};

use super::{check, groups::no_group, invalid, unavailable};
use crate::{
    cluster::Cluster,
    groups::Known,
    registry::{VolumeRow, VolumeState},
    service::{Refused, owner_of},
};

/// Names that one step looks at.
const STEP: usize = 1024;

/// [`forebay_protocol::Kind::Policies`]
pub(crate) fn policies(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    request: &PolicyRequest,
) -> Result<PolicyInfo, Refused> {
    check(cluster, peer)?;
    let PolicyRequest { volume, ino, what } = request;
    let view = cluster.registry.refresh()?;
    let row = view.volumes.get(volume).filter(|row| row.state == VolumeState::Ready);
    let row = row.ok_or_else(|| Refusal::NoVolume(volume.clone()))?;
    let hosted = cluster.hosted(row.id).ok_or(Refusal::NotOwner { address: None })?;
    let owner = owner_of(cluster, &hosted)?;
    let known = match what {
        PolicyWhat::Show | PolicyWhat::ShowIn(_) | PolicyWhat::Set(_) | PolicyWhat::Unset(_) => {
            cluster.groups.refresh(cluster)?
        }
        PolicyWhat::Give(..) | PolicyWhat::Spread(_) => cluster.groups.known(),
    };
    hosted.tell_owner(cluster);
    let groups = row.groups().filter_map(|name| Some((name.to_owned(), known.groups.get(name)?.row.id)));
    let groups = groups.collect();
    let at = At {
        owner: &owner,
        ino: *ino,
        volume: class_of(&known, row),
        name: volume,
        row,
        groups,
        known: &known,
    };
    match what {
        PolicyWhat::Show => {}
        PolicyWhat::ShowIn(group) => return at.info_in(group),
        PolicyWhat::Set(said) => at.set(said)?,
        PolicyWhat::Unset(parts) => at.unset(*parts)?,
        PolicyWhat::Give(policy, after) => {
            let step = at.give(*policy, after.as_deref())?;
            return Ok(PolicyInfo { step, ..at.info()? });
        }
        PolicyWhat::Spread(policy) => at.change(PolicyChange::Spread(*policy))?,
    }
    at.info()
}

/// [`forebay_protocol::Kind::Kept`]
pub(crate) fn kept(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    of: &KeptOf,
) -> Result<Vec<VolumeKept>, Refused> {
    check(cluster, peer)?;
    let (known, view) = (cluster.groups.known(), cluster.registry.view());
    let hosted: Vec<_> = cluster.hosted.read().values().cloned().collect();
    let mut all = Vec::new();
    for hosted in hosted {
        let (Some(owner), Some((_, row))) = (hosted.owner(), view.volume(hosted.id)) else { continue };
        for name in row.groups().filter(|name| of.group.as_ref().is_none_or(|wanted| wanted == name)) {
            let Some(group) = known.groups.get(name).map(|found| found.row.id) else { continue };
            if let Some(kept) = owner.kept(None, group) {
                let (volume, group) = (hosted.name.clone(), name.to_owned());
                all.push(VolumeKept { volume, group, epoch: hosted.epoch(), kept });
            }
        }
    }
    all.sort_by(|a, b| (&a.volume, &a.group).cmp(&(&b.volume, &b.group)));
    Ok(all)
}

/// What `fsync` on a volume waits for at least, whichever of its groups a mount goes by.
fn class_of(known: &Known, row: &VolumeRow) -> SyncClass {
    let of_group = |name| {
        let copies = known.groups.get(name).map(|group| group.row.row.view.copies);
        let copies = copies.and_then(|copies| row.class.copies(copies));
        copies.and_then(SyncClass::of_copies).unwrap_or(SyncClass::Object)
    };
    row.groups().map(of_group).min().unwrap_or(SyncClass::Object)
}

/// An inode of a volume.
struct At<'a> {
    owner: &'a VolumeOwner,
    ino: Ino,
    volume: SyncClass,
    name: &'a str,
    row: &'a VolumeRow,
    /// The groups through which the volume is read, those that are known.
    groups: Vec<(String, GroupId)>,
    known: &'a Known,
}

impl At<'_> {
    fn failed(&self, error: &MetaError) -> Refused {
        match error {
            MetaError::Stale(_) => invalid(format!("there is no inode {} any more", self.ino)),
            other => unavailable(other),
        }
    }

    fn found(&self) -> Result<PolicyFound, Refused> {
        self.owner.policy_of(self.ino).map_err(|error| self.failed(&error))
    }

    /// What counts, in one of the volume's groups.
    fn info_in(&self, name: &str) -> Result<PolicyInfo, Refused> {
        let Some((name, group)) = self.groups.iter().find(|(found, _)| found == name) else {
            return Err(invalid(format!("the volume '{}' is not read through a group '{name}'", self.name)));
        };
        let info = self.info()?;
        let (kept, disks) =
            (self.owner.kept(Some(info.policy), *group), self.owner.disks_of(info.policy, Some(*group)));
        Ok(PolicyInfo { group: name.clone(), kept, disks, ..info })
    }

    fn info(&self) -> Result<PolicyInfo, Refused> {
        let found = self.found()?;
        let own = found.row.map(|row| self.said(row.durability, &row.keep)).unwrap_or_default();
        let kept = self.groups.first().and_then(|(_, group)| self.owner.kept(Some(found.policy), *group));
        Ok(PolicyInfo {
            policy: found.policy,
            made_for: found.row.map(|row| row.made_for),
            said: self.said(found.class, &found.keep),
            own,
            group: self.row.group.clone(),
            disks: self.owner.disks_of(found.policy, None),
            kept,
            volume: self.volume,
            spread: found.row.is_none_or(|row| row.spread),
            directory: found.directory,
            step: PolicyStep::default(),
        })
    }

    /// What is said, with names of groups; of one that was deleted its number.
    fn said(&self, durability: Option<SyncClass>, keep: &PolicyKeep) -> PolicySaid {
        let name = |id: Option<GroupBytes>| {
            let id = GroupId(id?);
            let known = self.known.group(id).map(|(name, _)| name.to_owned());
            Some(known.unwrap_or_else(|| format!("{id}, which was deleted")))
        };
        let PolicyKeep { pin, confine, place, exclude } = *keep;
        PolicySaid { durability, pin, confine: name(confine), place: name(place), exclude: name(exclude) }
    }

    fn set(&self, said: &PolicySaid) -> Result<(), Refused> {
        let volume = self.name;
        if said.durability.is_some_and(|class| class < self.volume) {
            return Err(invalid(format!(
                "the volume '{volume}' is of class {}, and a policy never promises less than that: give {} or more, or change the volume by `forebay volume set {volume} --durability`",
                self.volume, self.volume
            )));
        }
        let id = |name: &Option<String>| match name {
            Some(name) => {
                let found = self.known.groups.get(name).ok_or_else(|| no_group(name))?;
                Ok::<_, Refused>(Some(Some(found.row.id)))
            }
            None => Ok(None),
        };
        let edit = PolicyEdit {
            durability: said.durability.map(Some),
            pin: said.pin.then_some(true),
            confine: id(&said.confine)?,
            place: id(&said.place)?,
            exclude: id(&said.exclude)?,
        };
        self.agree(&edit)?;
        self.change(PolicyChange::Set(self.ino, edit))
    }

    /// Refuses what could never be so, with what is said already.
    fn agree(&self, edit: &PolicyEdit) -> Result<(), Refused> {
        if edit.pin.is_none() && edit.confine.is_none() && edit.place.is_none() && edit.exclude.is_none() {
            return Ok(());
        }
        let found = self.found()?.keep;
        let group = |edit: Option<Option<GroupId>>, found| edit.map_or(found, |id| id.map(|id| id.0));
        let pin = edit.pin.unwrap_or(found.pin);
        let confine = group(edit.confine, found.confine);
        let (place, exclude) = (group(edit.place, found.place), group(edit.exclude, found.exclude));
        let all = self.said(None, &PolicyKeep { pin, confine, place, exclude });
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let volume = self.name;
        let own = self.groups.iter().map(|(name, _)| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        if confine.is_some() && confine == exclude {
            return Err(invalid(format!(
                "it would be confined to the group '{}' and excluded from it",
                name(&all.exclude)
            )));
        }
        if !pin && place.is_none() {
            return Ok(());
        }
        if self.groups.is_empty() {
            return Err(invalid(format!(
                "the volume '{volume}' is read through no group whose caches could have it: `forebay volume set {volume} --group G`"
            )));
        }
        if place.is_some_and(|place| self.groups.iter().all(|(_, group)| group.0 != place)) {
            return Err(invalid(format!(
                "the volume '{volume}' is read through {own}: what were placed on '{}' nobody would read there",
                name(&all.place)
            )));
        }
        // Of what is placed on one group that one counts, of what is pinned each that may have it.
        let keep = PolicyKeep { pin, confine, place, exclude };
        let meant = self.groups.iter().filter(|(_, group)| place.is_none_or(|place| group.0 == place));
        if meant.clone().all(|(_, group)| keep.bars(group.0)) {
            let why = match meant.clone().any(|(_, group)| exclude == Some(group.0)) {
                true => format!("is excluded from the group '{}'", name(&all.exclude)),
                false => format!("is confined to the group '{}'", name(&all.confine)),
            };
            return Err(invalid(format!(
                "it {why}, and the volume '{volume}' is read through {own}, in whose caches it then cannot be"
            )));
        }
        Ok(())
    }

    fn unset(&self, parts: PolicyParts) -> Result<(), Refused> {
        let found = self.found()?;
        let Some(row) = found.row.filter(|row| row.made_for == self.ino) else {
            let why = match found.row {
                Some(row) => format!("what counts there was said for inode {}: unset it there", row.made_for),
                None => "nothing was said there: what the volume says counts".to_owned(),
            };
            return Err(invalid(format!("it has no policy of its own; {why}")));
        };
        let PolicyKeep { pin, confine, place, exclude } = row.keep;
        let says = [
            (parts.durability, row.durability.is_some(), "--durability"),
            (parts.pin, pin, "--pin"),
            (parts.confine, confine.is_some(), "--confine-to"),
            (parts.place, place.is_some(), "--place-on"),
            (parts.exclude, exclude.is_some(), "--exclude-from"),
        ];
        if parts != PolicyParts::ALL
            && let Some((_, _, part)) = says.iter().find(|(wanted, says, _)| *wanted && !says)
        {
            return Err(invalid(format!("its own policy says nothing of {part}")));
        }
        let edit = PolicyEdit {
            durability: parts.durability.then_some(None),
            pin: parts.pin.then_some(false),
            confine: parts.confine.then_some(None),
            place: parts.place.then_some(None),
            exclude: parts.exclude.then_some(None),
        };
        self.change(PolicyChange::Set(self.ino, edit))
    }

    fn ask(&self, change: PolicyChange) -> Result<Answer, Refused> {
        match self.owner.change_policy(change)? {
            Answer::Failed(Failure::Stale) => Err(self.failed(&MetaError::Stale(self.ino))),
            Answer::Failed(Failure::NoSpace) => Err(invalid(
                "there is no room for another policy: 65,536 of a volume may be told apart, and numbers are never used again",
            )),
            Answer::Failed(failure) => {
                Err(unavailable(format!("the owner did not carry it out: {failure:?}")))
            }
            answer => Ok(answer),
        }
    }

    fn change(&self, change: PolicyChange) -> Result<(), Refused> {
        self.ask(change).map(drop)
    }

    /// One step through a directory: what is there goes by its policy from now on, unless it goes by another one.
    fn give(&self, policy: PolicyId, after: Option<&[u8]>) -> Result<PolicyStep, Refused> {
        let page = match self.owner.policy_page(self.ino, after, STEP) {
            Ok(page) => page,
            // It was removed meanwhile, and what was in it with it.
            Err(MetaError::Stale(_) | MetaError::NotDirectory(_)) => return Ok(PolicyStep::default()),
            Err(error) => return Err(self.failed(&error)),
        };
        let seen = page.inos.len() as u64;
        let kept = match page.inos.is_empty() {
            true => Vec::new(),
            false => match self.ask(PolicyChange::Give(policy, page.inos))? {
                Answer::Committed(kept) => kept,
                other => return Err(unavailable(format!("{other:?} to a change of policies"))),
            },
        };
        let mut directories = page.directories;
        directories.retain(|ino| !kept.contains(ino));
        Ok(PolicyStep { seen, kept: kept.len() as u64, directories, next: page.next })
    }
}
