//! Replies: values to bytes, appended to a buffer.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{DIRENT, MAJOR};
use crate::flags::{Capabilities, OpenFlags};
use crate::types::*;

/// Longest lifetime that is sent: the kernel adds it to its clock, and a century is as good as for ever.
const MAX_TTL_SECS: u64 = 100 * 365 * 24 * 3600;

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_ne_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_ne_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_ne_bytes());
}

pub(crate) const fn align8(len: usize) -> usize {
    (len + 7) & !7
}

fn ttl(value: Duration) -> (u64, u32) {
    if value.as_secs() >= MAX_TTL_SECS { (MAX_TTL_SECS, 0) } else { (value.as_secs(), value.subsec_nanos()) }
}

fn put_attr(out: &mut Vec<u8>, attr: &FileAttr) {
    put_u64(out, attr.ino);
    put_u64(out, attr.size);
    put_u64(out, attr.blocks);
    put_u64(out, attr.atime.secs as u64);
    put_u64(out, attr.mtime.secs as u64);
    put_u64(out, attr.ctime.secs as u64);
    put_u32(out, attr.atime.nanos);
    put_u32(out, attr.mtime.nanos);
    put_u32(out, attr.ctime.nanos);
    put_u32(out, attr.mode);
    put_u32(out, attr.nlink);
    put_u32(out, attr.uid);
    put_u32(out, attr.gid);
    put_u32(out, attr.rdev);
    put_u32(out, attr.blksize);
    put_u32(out, 0);
}

pub(crate) fn put_attr_out(out: &mut Vec<u8>, attr: &Attr) {
    let (secs, nanos) = ttl(attr.ttl);
    put_u64(out, secs);
    put_u32(out, nanos);
    put_u32(out, 0);
    put_attr(out, &attr.attr);
}

pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    let (entry_secs, entry_nanos) = ttl(entry.entry_ttl);
    let (attr_secs, attr_nanos) = ttl(entry.attr_ttl);
    put_u64(out, entry.node);
    put_u64(out, entry.generation);
    put_u64(out, entry_secs);
    put_u64(out, attr_secs);
    put_u32(out, entry_nanos);
    put_u32(out, attr_nanos);
    put_attr(out, &entry.attr);
}

pub(crate) fn put_open(out: &mut Vec<u8>, opened: &Opened) {
    put_u64(out, opened.fh);
    let by_kernel = opened.passthrough.is_some();
    put_u32(out, opened.flags.with(OpenFlags::PASSTHROUGH, by_kernel).bits());
    put_u32(out, opened.passthrough.map_or(0, NonZeroU32::get));
}

/// One directory entry, padded to 8 bytes: `DIRENT` bytes and the name. `kind` is the file type's `DT_*` number.
pub(crate) fn put_dirent(out: &mut Vec<u8>, ino: u64, next_offset: u64, kind: FileKind, name: &[u8]) {
    put_u64(out, ino);
    put_u64(out, next_offset);
    put_u32(out, name.len() as u32);
    put_u32(out, kind.mode_bits() >> 12);
    out.extend_from_slice(name);
    let padding = align8(DIRENT + name.len()) - DIRENT - name.len();
    out.extend_from_slice(&[0; 8][..padding]);
}

pub(crate) fn put_statfs(out: &mut Vec<u8>, st: &StatFs) {
    for value in [st.blocks, st.bfree, st.bavail, st.files, st.ffree] {
        put_u64(out, value);
    }
    for value in [st.bsize, st.namelen, st.frsize] {
        put_u32(out, value);
    }
    out.extend_from_slice(&[0; 28]);
}

pub(crate) fn put_lock(out: &mut Vec<u8>, range: &LockRange) {
    put_u64(out, range.start);
    put_u64(out, range.end);
    let kind = match range.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    put_u32(out, kind as u32);
    put_u32(out, range.pid);
}

fn put_sx_time(out: &mut Vec<u8>, time: Timestamp) {
    put_u64(out, time.secs as u64);
    put_u32(out, time.nanos);
    put_u32(out, 0);
}

pub(crate) fn put_statx(out: &mut Vec<u8>, reply: &StatxReply) {
    const BASIC_STATS: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    let (secs, nanos) = ttl(reply.ttl);
    put_u64(out, secs);
    put_u32(out, nanos);
    put_u32(out, 0);
    out.extend_from_slice(&[0; 16]);
    let attr = &reply.attr;
    put_u32(out, BASIC_STATS | if reply.btime.is_some() { BTIME } else { 0 });
    put_u32(out, attr.blksize);
    put_u64(out, reply.attributes);
    put_u32(out, attr.nlink);
    put_u32(out, attr.uid);
    put_u32(out, attr.gid);
    put_u16(out, attr.mode as u16);
    put_u16(out, 0);
    put_u64(out, attr.ino);
    put_u64(out, attr.size);
    put_u64(out, attr.blocks);
    put_u64(out, reply.attributes_mask);
    put_sx_time(out, attr.atime);
    put_sx_time(out, reply.btime.unwrap_or_default());
    put_sx_time(out, attr.ctime);
    put_sx_time(out, attr.mtime);
    // rdev is in the kernel's encoding: 20 bits of minor around 12 of major.
    put_u32(out, (attr.rdev >> 8) & 0xfff);
    put_u32(out, (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00));
    put_u64(out, 0);
    out.extend_from_slice(&[0; 112]);
}

/// Our side of INIT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitOut {
    pub minor: u32,
    pub max_readahead: u32,
    pub capabilities: Capabilities,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub max_stack_depth: u32,
}

pub(crate) fn put_init(out: &mut Vec<u8>, init: &InitOut) {
    put_u32(out, MAJOR);
    put_u32(out, init.minor);
    put_u32(out, init.max_readahead);
    put_u32(out, init.capabilities.bits() as u32);
    put_u16(out, init.max_background);
    put_u16(out, init.congestion_threshold);
    put_u32(out, init.max_write);
    put_u32(out, init.time_gran);
    put_u16(out, init.max_pages);
    put_u16(out, 0);
    put_u32(out, (init.capabilities.bits() >> 32) as u32);
    put_u32(out, init.max_stack_depth);
    out.extend_from_slice(&[0; 24]);
}
