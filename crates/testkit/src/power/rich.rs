//! What a workload also does where the target can do everything: files without a name, attributes, allocation, mappings, long streams.

use super::log::Change;
use super::observe::MODE;
use super::target::Target;
use super::worker::{Stop, Worker};
use super::workload::{append, free_name, small_len, unlink, with_file};

const MIB: usize = 1 << 20;
const PAGE: u64 = 4096;
const ACL: &str = "system.posix_acl_access";

/// How editors save: the old file gets a second name, the new one is written beside it, synced or not, and takes the name over.
pub(super) fn replace_as_editors_do<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let (Some((old, path)), Some(fresh)) = (worker.some_file(), free_name(worker)) else {
        return append(worker);
    };
    if worker.rng.chance(1, 3)
        && let Some(backup) = free_name(worker).filter(|backup| *backup != fresh)
    {
        worker.link(old, &path, &backup)?;
    }
    let (file, handle) = worker.create(&fresh)?;
    for _ in 0..worker.rng.between(1, 3) {
        let (offset, len) = (worker.len_of(file), small_len(&mut worker.rng));
        worker.write(file, &handle, offset, len)?;
    }
    let synced = worker.rng.chance(1, 2);
    if synced {
        worker.sync(file, &handle)?;
    }
    worker.close_new(file, handle)?;
    worker.rename_file(file, &fresh, &path)?;
    if synced && worker.rng.chance(1, 2) {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
        worker.sync_directory(&dir)?;
    }
    Ok(())
}

/// A file that gets its name when it is whole.
pub(super) fn name_when_written<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some(path) = free_name(worker) else { return unlink(worker) };
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
    let (file, handle) = worker.create_unnamed(&dir)?;
    for _ in 0..worker.rng.between(1, 3) {
        let (offset, len) = (worker.len_of(file), small_len(&mut worker.rng));
        worker.write(file, &handle, offset, len)?;
    }
    if worker.rng.chance(1, 3) {
        worker.sync(file, &handle)?;
    }
    worker.link_open(file, &handle, &path)?;
    let (offset, len) = (worker.len_of(file), small_len(&mut worker.rng));
    worker.write(file, &handle, offset, len)?;
    worker.close_new(file, handle)
}

/// Small writes, one after the other, over the length up to which a file is kept with its metadata, and back below it.
pub(super) fn grow<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some(path) = free_name(worker) else { return unlink(worker) };
    let (file, handle) = worker.create(&path)?;
    for _ in 0..worker.rng.between(4, 10) {
        let len = usize::try_from(worker.rng.between(60, 400)).unwrap_or(60);
        let offset = worker.len_of(file);
        worker.write(file, &handle, offset, len)?;
        if worker.rng.chance(1, 4) {
            worker.sync(file, &handle)?;
        }
        if worker.rng.chance(1, 8) {
            let len = worker.rng.below(worker.len_of(file));
            worker.change(file, &handle, &Change::SetLen(len))?;
        }
    }
    worker.close_new(file, handle)
}

pub(super) fn zero<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        let offset = worker.rng.below(worker.len_of(file) + 1);
        let len = worker.rng.between(1, 20_000);
        worker.change_by(file, &Change::Zero { offset, len }, |target| target.zero(handle, offset, len))
    })
}

pub(super) fn allocate<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        let len = worker.len_of(file) + worker.rng.between(1, 30_000);
        worker.change_by(file, &Change::SetLen(len), |target| target.allocate(handle, len))
    })
}

/// Bytes in some pages of a file, stored in a shared mapping, with `msync` or without.
pub(super) fn store_mapped<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    // Without space such a store fails later, when nobody can be told.
    let found = if worker.clock.room_may_end() { None } else { worker.some_file() };
    let Some((file, path)) = found.filter(|(file, _)| worker.len_of(*file) > 0) else {
        return append(worker);
    };
    let len = worker.len_of(file);
    let mut pages: Vec<u64> =
        (0..worker.rng.between(1, 6)).map(|_| worker.rng.below(len.div_ceil(PAGE))).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut places = Vec::with_capacity(pages.len());
    for page in pages {
        let (start, end) = (page * PAGE, len.min((page + 1) * PAGE));
        let whole = worker.rng.chance(1, 2);
        let from = if whole { start } else { worker.rng.between(start, end - 1) };
        let to = if whole { end } else { worker.rng.between(from + 1, end) };
        places.push((from, usize::try_from(to - from).unwrap_or(1)));
    }
    let sync = worker.rng.chance(1, 2);
    worker.store_mapped(file, &path, &places, sync)
}

/// A file opened under `O_TRUNC` and written again.
pub(super) fn start_over<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    let Some((file, path)) = worker.some_file() else { return append(worker) };
    let handle = worker.change_by(file, &Change::SetLen(0), |target| target.open_truncated(&path))?;
    let len = small_len(&mut worker.rng);
    worker.write(file, &handle, 0, len)?;
    if worker.rng.chance(1, 3) {
        worker.sync(file, &handle)?;
    }
    worker.target.close(handle);
    Ok(())
}

/// Permission bits, an ACL, or an extended attribute; the last one set, changed or removed.
pub(super) fn set_attribute<T: Target>(worker: &mut Worker<'_, T>) -> Result<(), Stop> {
    with_file(worker, false, |worker, file, handle| {
        let known = worker.files.get(&file).map(|live| live.attributes.clone()).unwrap_or_default();
        // Permission bits and ACL change each other: a file gets one or the other.
        match worker.rng.below(8) {
            0..3 if !known.contains_key(ACL) => {
                let mode: u32 = [0o600, 0o640, 0o644, 0o755, 0o4711][worker.rng.index(5)];
                let value = mode.to_le_bytes().to_vec();
                worker.attribute(file, MODE, Some(value), |target| target.chmod(handle, mode))?;
            }
            3 if !known.contains_key(MODE) => {
                let value = acl(u8::try_from(worker.rng.below(8)).unwrap_or(0));
                let set = |target: &T| target.set_xattr(handle, ACL, Some(&acl_bytes(&value)));
                worker.attribute(file, ACL, Some(acl_bytes(&value)), set)?;
            }
            _ => {
                let name = format!("user.a{}", worker.rng.below(3));
                let len = usize::try_from(worker.rng.below(300)).unwrap_or(0);
                let value = vec![worker.rng.next_u64().to_le_bytes()[0]; len];
                let remove = known.contains_key(&name) && worker.rng.chance(1, 4);
                let value = (!remove).then_some(value);
                let set = |target: &T| target.set_xattr(handle, &name, value.as_deref());
                worker.attribute(file, &name, value.clone(), set)?;
            }
        }
        if worker.rng.chance(1, 4) { worker.sync(file, handle) } else { Ok(()) }
    })
}

/// Entries of an ACL in which one user has these permissions: tag, permissions, id.
fn acl(permissions: u8) -> [(u16, u16, u32); 5] {
    let none = u32::MAX;
    [(1, 6, none), (2, u16::from(permissions), 1234), (4, 4, none), (16, 7, none), (32, 4, none)]
}

/// The form in which the kernel takes an ACL.
fn acl_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

/// A file of more than one block, in a few large writes.
pub(super) fn stream_long<T: Target>(worker: &mut Worker<'_, T>, allowed: u64) -> Result<(), Stop> {
    let Some(path) = free_name(worker).filter(|_| worker.streamed < allowed) else { return append(worker) };
    let (file, handle) = worker.create(&path)?;
    for _ in 0..2 {
        let len = 2 * MIB + usize::try_from(worker.rng.below(MIB as u64)).unwrap_or(0);
        let offset = worker.len_of(file);
        worker.write(file, &handle, offset, len)?;
        worker.streamed += len as u64;
    }
    if worker.rng.chance(1, 3) {
        worker.sync(file, &handle)?;
    }
    worker.close_new(file, handle)
}
