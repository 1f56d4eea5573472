use super::DiskFile;

/// Bytes that are read ahead.
const WINDOW: usize = 4 << 20;
/// What a disk refuses is refused by blocks of this.
const BLOCK: usize = 4096;

/// A file, read from its front to its end. What the disk refuses is read as bytes that nobody wrote.
pub(super) struct Window<'a> {
    file: &'a dyn DiskFile,
    /// Where the file ends.
    end: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a dyn DiskFile, end: u64) -> Window<'a> {
        Window { file, end, at: 0, bytes: Vec::new() }
    }

    /// So many bytes at an offset: zeros behind the end of the file.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> &[u8] {
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + len as u64 > end {
            let ahead = WINDOW.min(usize::try_from(self.end.saturating_sub(offset)).unwrap_or(WINDOW));
            self.fill(offset, len.max(ahead));
        }
        let from = (offset - self.at) as usize;
        &self.bytes[from..from + len]
    }

    fn fill(&mut self, offset: u64, len: usize) {
        self.at = offset;
        self.bytes.resize(len, 0);
        match self.file.read(offset, &mut self.bytes) {
            Ok(read) => self.bytes[read..].fill(0),
            Err(error) => {
                tracing::error!("a part of the log cannot be read: {error}");
                self.fill_by_blocks(offset);
            }
        }
    }

    fn fill_by_blocks(&mut self, offset: u64) {
        let mut done = 0;
        while done < self.bytes.len() {
            let to = (done + BLOCK).min(self.bytes.len());
            let piece = &mut self.bytes[done..to];
            match self.file.read(offset + done as u64, piece) {
                Ok(read) => piece[read..].fill(0),
                Err(_) => piece.fill(0xff),
            }
            done = to;
        }
    }
}
