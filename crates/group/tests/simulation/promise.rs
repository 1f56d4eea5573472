//! What was promised, held against what is on disks, in the store and in the engine.

use std::collections::BTreeMap;

use forebay_group::{Incarnation, MemberId, SetRow, SetState};
use forebay_types::SegmentId;

use crate::{
    engine::{Key, Rows, SegmentRow, Value},
    messages::{Extent, contents},
    meta,
    world::World,
};

/// Whoever takes something in is in the view.
pub fn acts(rows: &Rows, id: MemberId, incarnation: Incarnation) -> Option<String> {
    let named =
        matches!(rows.get(&Key::Group), Some(Value::Group(group)) if group.view.names(id, incarnation));
    (!named).then(|| format!("{id:?} takes something in as {incarnation:?}, which is in no view"))
}

fn place(rows: &Rows, segment: SegmentId) -> Option<SegmentRow> {
    match rows.get(&Key::Segment(segment)) {
        Some(Value::Segment(row)) => Some(*row),
        _ => None,
    }
}

fn stored(world: &World, segment: SegmentId) -> Option<Vec<u8>> {
    let (object, at) = place(&world.rows, segment)?.object?;
    let parts = world.objects.get(&object)?;
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    Some(whole[at as usize..].to_vec())
}

/// Whether the operator has given a member up.
pub fn is_given_up(rows: &Rows, id: MemberId) -> bool {
    matches!(rows.get(&Key::Group), Some(Value::Group(group)) if group.given_up.contains(&id))
}

/// Whether what a member had never comes back: it was given up, or its disk is gone.
fn is_doomed(world: &World, id: MemberId) -> bool {
    let gone = || world.lost.contains(&id) && world.members.iter().all(|member| member.disk.id != id);
    is_given_up(&world.rows, id) || gone()
}

/// Whether all that had a segment are gone for good, or it is given up for that.
fn is_lost(world: &World, segment: SegmentId) -> bool {
    match world.rows.get(&Key::Set(segment)) {
        Some(Value::Set(row)) => {
            row.state == SetState::Lost
                || row.state != SetState::Stored && row.set.iter().all(|id| is_doomed(world, *id))
        }
        _ => false,
    }
}

/// A member that alone has all of what a recovery has sealed, of which others have less.
pub fn alone(world: &World) -> Option<usize> {
    let disks: Vec<_> = world.members.iter().map(|member| member.disk.durable()).collect();
    let alone = |segment: &SegmentId, row: &SetRow| {
        let SetState::Sealed { len, .. } = row.state else { return None };
        let of_set = |at: &usize| row.set.contains(&world.members[*at].disk.id);
        let has = |at: &usize| disks[*at].get(segment).map_or(0, Vec::len) as u64;
        let (whole, less): (Vec<usize>, Vec<usize>) =
            (0..world.members.len()).filter(of_set).partition(|at| has(at) >= len);
        (row.recovered && whole.len() == 1 && !less.is_empty()).then(|| whole[0])
    };
    meta::dirty(&world.rows).iter().find_map(|(segment, row)| alone(segment, row))
}

/// No segment is given up that a member may have who may come back.
pub fn gives_up(world: &World, segment: SegmentId) -> Option<String> {
    let Some(Value::Set(row)) = world.rows.get(&Key::Set(segment)) else { return None };
    let Some(Value::Group(group)) = world.rows.get(&Key::Group) else { return None };
    let gone = |id: &MemberId| group.given_up.contains(id) || group.removed.contains(id);
    if let Some(other) = row.set.iter().find(|id| !gone(id)) {
        return Some(format!("{segment} is given up, and {other:?} may come back: {row:?}"));
    }
    let SetState::Sealed { len, .. } = row.state else { return None };
    let joins = |member: &&crate::member::Member| {
        let has = || member.disk.durable().get(&segment).is_some_and(|bytes| bytes.len() as u64 >= len);
        row.joining == Some(member.disk.id) && !gone(&member.disk.id) && len > 0 && has()
    };
    let joined = world.members.iter().find(joins)?;
    Some(format!("{segment} is given up, and {:?} had got all of it: {row:?}", joined.disk.id))
}

/// What was acknowledged is known to the owner.
pub fn counts(world: &World, extent: &Extent) -> Option<String> {
    let Extent { write, .. } = extent;
    let known = match world.rows.get(&Key::File(write.file)) {
        Some(Value::File(row)) => row.version,
        _ => 0,
    };
    (known < write.version).then(|| format!("{extent:?} was acknowledged, and the owner has version {known}"))
}

/// Nobody gives up a copy that is needed.
pub fn drops(world: &World, id: MemberId, segment: SegmentId) -> Option<String> {
    if let Some(row) = meta::is_needed(&world.rows, id, segment) {
        return Some(format!("{id:?} gives up {segment}, which is needed: {row:?}"));
    }
    let needed = place(&world.rows, segment).is_some_and(|row| row.live > 0);
    let named =
        matches!(world.rows.get(&Key::Set(segment)), Some(Value::Set(row)) if row.state != SetState::Stored);
    (needed && !named && stored(world, segment).is_none())
        .then(|| format!("{id:?} gives up {segment}, which the store has not got"))
}

/// No object is deleted of which anything is in use.
pub fn deletes(world: &World, object: u64) -> Option<String> {
    let uses = |(key, value): (&Key, &Value)| match (key, value) {
        (Key::Segment(segment), Value::Segment(row)) if row.object.is_some_and(|(of, _)| of == object) => {
            Some(format!("object {object:x} is deleted, and has {segment}: {row:?}"))
        }
        _ => None,
    };
    world.rows.iter().find_map(uses)
}

/// Whether a disk may be lost, so that of nothing all copies are: two, or one in class `local`.
pub fn may_lose(world: &World, id: MemberId) -> bool {
    let left = |other: &MemberId| *other != id && !world.lost.contains(other);
    let kept = |row: &SetRow| row.state == SetState::Stored || row.set.iter().any(left);
    meta::dirty(&world.rows).iter().filter(|(_, row)| row.set.contains(&id)).all(|(_, row)| kept(row))
}

/// Everything that files consist of is somewhere.
pub fn holds(world: &World) -> Option<String> {
    let there = world.members.iter().filter(|member| !is_given_up(&world.rows, member.disk.id));
    let disks: Vec<BTreeMap<SegmentId, Vec<u8>>> = there.map(|member| member.disk.durable()).collect();
    let has = |segment: SegmentId, offset: u64, bytes: &[u8]| {
        let inside = |whole: &[u8]| whole.get(offset as usize..).is_some_and(|rest| rest.starts_with(bytes));
        let on_disk = disks.iter().any(|disk| disk.get(&segment).is_some_and(|whole| inside(whole)));
        on_disk || stored(world, segment).is_some_and(|whole| inside(&whole))
    };
    for (key, value) in &world.rows {
        match (key, value) {
            (Key::File(file), Value::File(row))
                if !has(row.segment, row.offset, &contents(*file, row.version))
                    && !is_lost(world, row.segment) =>
            {
                return Some(format!("file {file} is lost: {row:?}"));
            }
            _ => {}
        }
    }
    None
}

/// Once all is calm: everything acknowledged is in the files, and in the store; nobody has anything dirty.
pub fn at_the_end(world: &World) -> Result<(), String> {
    for (file, version) in &world.acknowledged {
        let row = match world.rows.get(&Key::File(*file)) {
            Some(Value::File(row)) if row.version >= *version => *row,
            other => return Err(format!("version {version} of file {file} was acknowledged: {other:?}")),
        };
        let there = stored(world, row.segment).is_some_and(|whole| {
            whole
                .get(row.offset as usize..)
                .is_some_and(|rest| rest.starts_with(&contents(*file, row.version)))
        });
        let set = world.rows.get(&Key::Set(row.segment));
        // It says so of itself: whoever reads it is told.
        if matches!(set, Some(Value::Set(set)) if set.state == SetState::Lost) {
            continue;
        }
        if !there {
            let set = world.rows.get(&Key::Set(row.segment));
            return Err(format!("file {file} is not in the store: {row:?}, {set:?}"));
        }
    }
    let mut dirty = meta::dirty(&world.rows);
    dirty.retain(|(segment, row)| {
        let used = place(&world.rows, *segment).is_some_and(|row| row.live > 0);
        !(row.state == SetState::Lost && used)
    });
    if !dirty.is_empty() {
        return Err(format!("some is dirty still: {dirty:?}"));
    }
    let has = |member: &&crate::member::Member| {
        member.log.segments() > 0 && !is_given_up(&world.rows, member.disk.id)
    };
    match world.members.iter().find(has) {
        Some(member) => Err(format!("{:?} has copies still: {:?}", member.disk.id, member.log.offers())),
        None => Ok(()),
    }
}
