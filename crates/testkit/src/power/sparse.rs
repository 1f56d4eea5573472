//! The bytes of one file, kept in chunks that copies share: a copy costs a map of pointers, a hole costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes in one chunk.
const CHUNK: u64 = 64 * 1024;
const CHUNK_LEN: usize = 64 * 1024;

/// A file's contents: a length, and bytes that are zero wherever nothing was written.
///
/// Bytes beyond the length are always zero, so that growing again never shows what a truncation removed.
#[derive(Debug, Clone, Default)]
pub struct Sparse {
    len: u64,
    chunks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Sparse {
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cuts off what lies beyond `len`, or grows with zeros up to it.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let first_dead = len.div_ceil(CHUNK);
            self.chunks.split_off(&first_dead);
            let tail = within(len);
            if tail > 0
                && let Some(chunk) = self.chunks.get_mut(&(len / CHUNK))
            {
                Arc::make_mut(chunk)[tail..].fill(0);
            }
        }
        self.len = len;
    }

    /// Puts `data` at `offset`, growing the file where needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = within(at);
            let (now, later) = rest.split_at(rest.len().min(CHUNK_LEN - start));
            let chunk = self.chunks.entry(at / CHUNK).or_insert_with(|| Arc::new(vec![0; CHUNK_LEN]));
            Arc::make_mut(chunk)[start..start + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        self.len = self.len.max(at);
    }

    /// Makes `len` bytes from `offset` on zero; the length stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        let mut at = offset;
        while at < end {
            let start = within(at);
            let step = (CHUNK - start as u64).min(end - at);
            if step == CHUNK {
                self.chunks.remove(&(at / CHUNK));
            } else if let Some(chunk) = self.chunks.get_mut(&(at / CHUNK)) {
                Arc::make_mut(chunk)[start..start + within_len(step)].fill(0);
            }
            at += step;
        }
    }

    /// Up to `len` bytes from `offset` on; fewer where the file ends.
    #[must_use]
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.len);
        let mut out = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        let mut at = offset;
        while at < end {
            let start = within(at);
            let step = within_len((CHUNK - start as u64).min(end - at));
            match self.chunks.get(&(at / CHUNK)) {
                Some(chunk) => out.extend_from_slice(&chunk[start..start + step]),
                None => out.resize(out.len() + step, 0),
            }
            at += step as u64;
        }
        out
    }

    /// The chunks that were written, in order, as (offset, bytes); none reaches beyond the length.
    pub fn written(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.chunks.iter().filter_map(|(index, chunk)| {
            let offset = index * CHUNK;
            let len = self.len.saturating_sub(offset).min(CHUNK);
            (len > 0).then(|| (offset, &chunk[..within_len(len)]))
        })
    }
}

fn within(offset: u64) -> usize {
    within_len(offset % CHUNK)
}

/// A length of at most one chunk as an index.
fn within_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(CHUNK_LEN)
}
