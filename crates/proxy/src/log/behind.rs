//! What comes behind a place of the log where no record is.

use forebay_format::member_log::{FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RECORD_MAGIC_BYTES, RecordHead};

use super::{DiskFile, window::Window};

/// Whole records, by their positions.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// Position, and up to where the log was on stable storage when it was appended.
    records: Vec<(u64, u64)>,
}

impl Behind {
    /// Whether what is at a position was on stable storage: a record behind it says so.
    pub(super) fn vouches(&self, position: u64) -> bool {
        self.records.iter().any(|(at, synced)| *at > position && *synced > position)
    }

    /// The next record behind a position.
    pub(super) fn next_after(&self, position: u64) -> Option<u64> {
        self.records.iter().map(|(at, _)| *at).find(|at| *at > position)
    }
}

/// Looks for whole records behind `position`, at each place where one may begin. What a record has in its bytes is none.
pub(super) fn find_behind(
    (file, len): (&dyn DiskFile, u64),
    head: &FileHead,
    position: u64,
    limit: u64,
) -> Behind {
    let mut window = Window::new(file, len);
    let mut behind = Behind::default();
    let mut at = position + RECORD_HEAD_LEN as u64;
    while at + RECORD_HEAD_LEN as u64 <= limit {
        let size = whole(&mut window, head, at, limit).map(|record| {
            behind.records.push((at, record.synced));
            record.size()
        });
        at += size.unwrap_or(RECORD_HEAD_LEN as u64);
    }
    behind
}

fn whole(window: &mut Window<'_>, head: &FileHead, at: u64, limit: u64) -> Option<RecordHead> {
    let offset = FILE_HEAD_LEN as u64 + (at - head.first);
    let bytes = window.get(offset, RECORD_HEAD_LEN);
    if !bytes.starts_with(&RECORD_MAGIC_BYTES) {
        return None;
    }
    let record = RecordHead::decode(bytes, &head.incarnation, at).ok()?;
    if at + record.size() > limit {
        return None;
    }
    let bytes = window.get(offset + RECORD_HEAD_LEN as u64, record.len as usize);
    (record.len == 0 || crc32c::crc32c(bytes) == record.check).then_some(record)
}
