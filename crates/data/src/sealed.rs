use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_format::{
    FormatError,
    footer::{Footer, RunEntry, SegmentEntry, TAIL_LEN},
};
use forebay_types::{SegmentId, VolumeId};

use crate::{DataError, error::io_error, segment_file};

/// A segment that is whole: a file whose body is followed by a footer, and which is an object of one segment as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedSegment {
    /// Which one.
    pub segment: SegmentId,
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the body.
    pub len: u64,
    /// Raw bytes of all runs.
    pub raw: u64,
    /// The runs.
    pub runs: Vec<RunEntry>,
}

impl SealedSegment {
    pub(crate) fn footer(&self, volume: VolumeId) -> Vec<u8> {
        let entry = SegmentEntry { id: self.segment, offset: 0, len: self.len, runs: self.runs.clone() };
        let mut bytes = Vec::new();
        Footer { volume, segments: vec![entry] }.encode_to(&mut bytes);
        bytes
    }
}

/// The sum of the raw bytes of `runs`.
pub(crate) fn raw_bytes(runs: &[RunEntry]) -> u64 {
    runs.iter().map(|run| u64::from(run.run_len)).sum()
}

/// Writes the bodies of `sealed`, one after the other, and one footer for all to the new file `out`. Returns the footer: it has each
/// segment's offset in the object. Nothing is synced; an unfinished file is removed.
///
/// # Errors
/// [`DataError::NoSpace`], [`DataError::Io`].
pub fn combine(volume: VolumeId, sealed: &[SealedSegment], out: &Path) -> Result<Footer, DataError> {
    let file = segment_file::create(out)?;
    let written = write_bodies(file, volume, sealed, out);
    if written.is_err() {
        segment_file::delete(out)?;
    }
    written
}

fn write_bodies(
    mut file: File,
    volume: VolumeId,
    sealed: &[SealedSegment],
    out: &Path,
) -> Result<Footer, DataError> {
    let mut footer = Footer { volume, segments: Vec::with_capacity(sealed.len()) };
    let mut offset = 0;
    for segment in sealed {
        let body = File::open(&segment.path).map_err(io_error("open", &segment.path))?;
        let mut body = std::io::Read::take(body, segment.len);
        let copied = std::io::copy(&mut body, &mut file).map_err(io_error("copy segments to", out))?;
        segment_file::check_range(segment.segment, 0, segment.len, copied)?;
        let (id, len, runs) = (segment.segment, segment.len, segment.runs.clone());
        footer.segments.push(SegmentEntry { id, offset, len, runs });
        offset += len;
    }
    let mut bytes = Vec::new();
    footer.encode_to(&mut bytes);
    file.seek(SeekFrom::Start(offset)).map_err(io_error("seek in", out))?;
    file.write_all(&bytes).map_err(io_error("write to", out))?;
    Ok(footer)
}

/// Reads the footer of a sealed segment or an object. `path` is for error messages only.
///
/// # Errors
/// [`DataError::Format`] where the file does not end in one, [`DataError::Io`].
pub fn read_footer(file: &File, path: &Path) -> Result<Footer, DataError> {
    let format = |source| DataError::Format { path: path.to_owned(), source };
    let truncated = || format(FormatError::Truncated { what: "an object's footer" });
    let len = file.metadata().map_err(io_error("stat", path))?.len();
    let tail_at = len.checked_sub(TAIL_LEN as u64).ok_or_else(truncated)?;
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(&mut tail, tail_at).map_err(io_error("read", path))?;
    let body_len = Footer::len_from_tail(&tail).map_err(format)?;
    let body_at = tail_at.checked_sub(body_len as u64).ok_or_else(truncated)?;
    let body = segment_file::read_at(file, path, body_at, body_len)?;
    Footer::decode(&body, &tail).map_err(format)
}
