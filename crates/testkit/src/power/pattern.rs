//! Bytes that say who wrote them: which file, which write, which place.

/// Bytes in one self-describing cell.
pub const CELL: u64 = 32;
const CELL_LEN: usize = 32;
const MAGIC: [u8; 4] = *b"fbCK";

/// The file a workload means, whatever its names are: the number of the thread that owns it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The thread that made it.
    pub thread: u16,
    /// Its number among that thread's files.
    pub number: u16,
}

/// The bytes that write `write` of `file` puts at `offset`.
#[must_use]
pub fn bytes(file: FileId, write: u32, offset: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + CELL_LEN);
    let skip = usize::try_from(offset % CELL).unwrap_or(0);
    let mut cell = offset / CELL;
    while out.len() < skip + len {
        out.extend_from_slice(&encode(file, write, cell));
        cell += 1;
    }
    out.truncate(skip + len);
    out.split_off(skip)
}

/// Says for a person what is at `at` of `seen`.
#[must_use]
pub fn describe(seen: &[u8], at: usize) -> String {
    let start = at - at % CELL_LEN;
    let Some(cell) = seen.get(start..start + CELL_LEN) else {
        return format!("{} bytes before the end of the file", seen.len().saturating_sub(at));
    };
    if cell.iter().all(|byte| *byte == 0) {
        return "zeros".to_owned();
    }
    match decode(cell) {
        Some((file, write, cell)) => {
            format!("write {write} of file {}.{} for offset {}", file.thread, file.number, cell * CELL)
        }
        None => format!("bytes that no single write made: {cell:02x?}"),
    }
}

/// A record for a file to which all threads append.
#[must_use]
pub fn append_record(thread: u16, number: u32) -> Vec<u8> {
    let file = FileId { thread, number: u16::MAX };
    let mut out = encode(file, number, 0).to_vec();
    out.extend_from_slice(&encode(file, number, 1));
    out
}

/// Bytes in one record of [`append_record`].
pub const APPEND_LEN: usize = 2 * CELL_LEN;

/// The thread and number of an append record, if `record` is one, whole and untouched.
#[must_use]
pub fn parse_append(record: &[u8]) -> Option<(u16, u32)> {
    let (file, number, _) = decode(record.get(..CELL_LEN)?)?;
    (append_record(file.thread, number) == record).then_some((file.thread, number))
}

fn encode(file: FileId, write: u32, cell: u64) -> [u8; CELL_LEN] {
    let mut out = [0; CELL_LEN];
    out[..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&file.thread.to_le_bytes());
    out[6..8].copy_from_slice(&file.number.to_le_bytes());
    out[8..12].copy_from_slice(&write.to_le_bytes());
    out[12..20].copy_from_slice(&cell.to_le_bytes());
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in &out[..20] {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    out[20..24].copy_from_slice(&sum.to_le_bytes()[..4]);
    out[24..].copy_from_slice(&sum.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    out
}

fn decode(cell: &[u8]) -> Option<(FileId, u32, u64)> {
    let short = |at: usize| Some(u16::from_le_bytes(cell.get(at..at + 2)?.try_into().ok()?));
    let file = FileId { thread: short(4)?, number: short(6)? };
    let write = u32::from_le_bytes(cell.get(8..12)?.try_into().ok()?);
    let number = u64::from_le_bytes(cell.get(12..20)?.try_into().ok()?);
    (encode(file, write, number) == cell).then_some((file, write, number))
}
