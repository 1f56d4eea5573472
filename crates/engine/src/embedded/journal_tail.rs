//! The engine's own log after a power cut.
//!
//! fjall 3.1 refuses to open when the last batch of its log is torn (its reader expects that a batch which is not whole ends the file
//! exactly where the bytes end). A torn batch was never acknowledged, so it is cut off before the engine sees it. This reads the log's layout
//! as fjall 3.1 writes it, which is why that version is pinned; a batch of an unknown shape is left to the engine to judge.
//!
//! ```text
//! batch = 1 count:u32 sequence:u64, items, 3 xxh3-64 of the items:u64, "FJL" 3
//! item  = 2 compression:u8 type:u8 keyspace:u64 key length:u16 value length:u32 stored length:u32 key value  |  4 keyspace:u64
//! ```
//!
//! Damage further up loses acknowledged batches. That cannot pass unnoticed: the position that the rows then tell is before the first record that
//! the journal of the volume still has, and opening fails with the gap.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const START_LEN: usize = 13;
const ITEM_LEN: usize = 21;
const CLEAR_LEN: usize = 9;
const TRAILER: &[u8; 4] = b"FJL\x03";

/// Cuts what follows the last whole batch off the newest log file in `dir`. Changes nothing where the log ends as it should.
///
/// # Errors
/// The system's.
pub(crate) fn cut_torn_tail(dir: &Path) -> io::Result<()> {
    let Some(path) = newest_log(dir)? else { return Ok(()) };
    let bytes = fs::read(&path)?;
    let mut whole = 0;
    while let Some(len) = batch_len(&bytes[whole..]) {
        whole += len;
    }
    let rest = &bytes[whole..];
    if rest.is_empty() || rest.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    tracing::info!("'{}': {} bytes of a batch that a stop tore are cut off", path.display(), rest.len());
    let file = OpenOptions::new().write(true).open(&path)?;
    file.set_len(whole as u64)?;
    file.sync_all()
}

fn newest_log(dir: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in entries {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number.filter(|number| newest.as_ref().is_none_or(|(high, _)| number > high)) {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// The length of the whole batch that `bytes` begin with.
fn batch_len(bytes: &[u8]) -> Option<usize> {
    if *bytes.first()? != START {
        return None;
    }
    let mut at = START_LEN;
    for _ in 0..u32_at(bytes, 1)? {
        at = match *bytes.get(at)? {
            ITEM => {
                let key = u16::from_le_bytes(bytes.get(at + 11..at + 13)?.try_into().ok()?);
                let stored = u32_at(bytes, at + 17)?;
                at.checked_add(ITEM_LEN + usize::from(key))?.checked_add(stored)?
            }
            CLEAR => at + CLEAR_LEN,
            _ => return None,
        };
    }
    if *bytes.get(at)? != END {
        return None;
    }
    let sum = u64::from_le_bytes(bytes.get(at + 1..at + 9)?.try_into().ok()?);
    let end = at + 9 + TRAILER.len();
    let whole =
        bytes.get(at + 9..end)? == TRAILER && xxhash_rust::xxh3::xxh3_64(bytes.get(START_LEN..at)?) == sum;
    whole.then_some(end)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, EmbeddedEngine, Engine};

    fn rows(engine: &EmbeddedEngine) -> usize {
        engine.scan(b"", None, 1000).unwrap().rows.len()
    }

    /// Whatever length the last batch is cut to, and whatever its bytes become, the batches before it are there.
    #[test]
    fn torn_batches_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("engine");
        let engine = EmbeddedEngine::open(&place).unwrap();
        for key in [b"one", b"two"] {
            let rows = vec![(key.to_vec(), Some(vec![7; 100])), (key.repeat(2), None)];
            engine.commit(&Batch::of(&rows)).unwrap();
        }
        drop(engine);
        let log = newest_log(&place).unwrap().unwrap();
        let bytes = fs::read(&log).unwrap();
        let first = {
            let mut at = 0;
            let mut ends = Vec::new();
            while let Some(len) = batch_len(&bytes[at..]) {
                at += len;
                ends.push(at);
            }
            assert!(ends.len() >= 2, "the layout of the engine's log is not understood");
            (ends[ends.len() - 2], at)
        };
        for cut in (first.0 + 1..first.1).step_by(7) {
            for noise in [false, true] {
                let mut torn = bytes[..first.1].to_vec();
                torn[cut..].fill(if noise { 0xa5 } else { 0 });
                if !noise {
                    torn.truncate(cut);
                }
                let copy = dir.path().join("copy");
                copy_tree(&place, &copy);
                fs::write(copy.join(log.file_name().unwrap()), &torn).unwrap();
                let engine = EmbeddedEngine::open(&copy).unwrap();
                assert_eq!(rows(&engine), 1, "cut at {cut}");
                drop(engine);
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    }

    fn copy_tree(from: &Path, to: &Path) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy_tree(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}
