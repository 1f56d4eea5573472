//! What was promised, held against what is on disks, in the store and in the engine.

use std::collections::BTreeMap;

use forebay_group::{Incarnation, MemberId, SetState};
use forebay_types::SegmentId;

use crate::{
    engine::{Key, Rows, SegmentRow, Value},
    messages::contents,
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

/// Whether a disk may be lost, so that of nothing all k copies are: k is 2.
pub fn may_lose(world: &World, id: MemberId) -> bool {
    meta::dirty(&world.rows).iter().filter(|(_, row)| row.set.contains(&id)).all(|(segment, row)| {
        let first = row.state == SetState::Stored || !row.set.iter().any(|other| world.lost.contains(other));
        // What a recovery found beyond the acknowledged has fewer copies until it is stored.
        let thin = match row.state {
            SetState::Sealed { len, .. } if world.ended.contains(&row.writer) => {
                let has = |member: &crate::member::Member| {
                    let other = member.disk.id != id && row.set.contains(&member.disk.id);
                    other && member.disk.durable().get(segment).is_some_and(|bytes| bytes.len() as u64 >= len)
                };
                len > 0 && !world.members.iter().any(has)
            }
            SetState::Open => row.epoch.0 > 1,
            _ => false,
        };
        first && !thin
    })
}

/// Everything that files consist of, and everything that was acknowledged, is somewhere.
pub fn holds(world: &World) -> Option<String> {
    let disks: Vec<BTreeMap<SegmentId, Vec<u8>>> =
        world.members.iter().map(|member| member.disk.durable()).collect();
    let has = |segment: SegmentId, offset: u64, bytes: &[u8]| {
        let inside = |whole: &[u8]| whole.get(offset as usize..).is_some_and(|rest| rest.starts_with(bytes));
        let on_disk = disks.iter().any(|disk| disk.get(&segment).is_some_and(|whole| inside(whole)));
        on_disk || stored(world, segment).is_some_and(|whole| inside(&whole))
    };
    for (key, value) in &world.rows {
        match (key, value) {
            (Key::File(file), Value::File(row))
                if !has(row.segment, row.offset, &contents(*file, row.version)) =>
            {
                return Some(format!("file {file} is lost: {row:?}"));
            }
            (Key::Session(id), Value::Session(session)) => {
                let Some(acknowledged) = world.acknowledged.get(id) else { continue };
                for request in acknowledged.range(session.applied + 1..).map(|(_, request)| request) {
                    let bytes = contents(request.file, request.version);
                    if !has(request.segment, request.offset, &bytes) {
                        return Some(format!("{request:?} was acknowledged, and its bytes are lost"));
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// Once all is calm: everything acknowledged is in the files, and in the store; nobody has anything dirty.
pub fn at_the_end(world: &World) -> Result<(), String> {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for request in world.acknowledged.values().flat_map(BTreeMap::values) {
        let version = last.entry(request.file).or_insert(0);
        *version = (*version).max(request.version);
    }
    for (file, version) in last {
        let row = match world.rows.get(&Key::File(file)) {
            Some(Value::File(row)) if row.version >= version => *row,
            other => return Err(format!("version {version} of file {file} was acknowledged: {other:?}")),
        };
        let there = stored(world, row.segment).is_some_and(|whole| {
            whole
                .get(row.offset as usize..)
                .is_some_and(|rest| rest.starts_with(&contents(file, row.version)))
        });
        if !there {
            let set = world.rows.get(&Key::Set(row.segment));
            return Err(format!("file {file} is not in the store: {row:?}, {set:?}"));
        }
    }
    let dirty = meta::dirty(&world.rows);
    if !dirty.is_empty() {
        return Err(format!("some is dirty still: {dirty:?}"));
    }
    match world.members.iter().find(|member| member.log.segments() > 0) {
        Some(member) => Err(format!("{:?} has copies still: {:?}", member.disk.id, member.log.offers())),
        None => Ok(()),
    }
}
