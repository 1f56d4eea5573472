//! Runs of a batch, encoded one after the other, for objects and for segments over the logs of members alike.

use forebay_format::{
    footer::RunEntry,
    row::Extent,
    run::{RunEncoder, Trial},
};
use forebay_types::{Generation, Ino, SegmentId, SubvolumeId};

use super::Shared;
use crate::ClientError;

/// Encodes runs, and keeps its buffers for the next.
#[derive(Default)]
pub(super) struct Runs {
    encoder: RunEncoder,
    scratch: Vec<u8>,
}

impl Runs {
    /// A run of a file, from an offset on: what a footer says of it, its place in a segment left out, and its bytes in two parts.
    ///
    /// # Errors
    /// [`ClientError::Store`] where it cannot be encoded.
    pub(super) fn encode<'a>(
        &'a mut self,
        shared: &Shared,
        ino: Ino,
        (offset, parts): (u64, &'a [&'a [u8]]),
        trial: &mut Trial,
    ) -> Result<(RunEntry, [&'a [u8]; 2]), ClientError> {
        let raw: &[u8] = match parts {
            [only] => only,
            several => {
                self.scratch.clear();
                several.iter().for_each(|part| self.scratch.extend_from_slice(part));
                &self.scratch
            }
        };
        let (compression, sealer) = (shared.volume.compression, shared.sealer.as_ref());
        let run = self.encoder.encode(raw, compression, sealer, trial);
        let run = run.map_err(|error| ClientError::Store(format!("cannot encode data: {error}")))?;
        let block_size = shared.block_size();
        let entry = RunEntry {
            subvolume: SubvolumeId::FIRST,
            generation: Generation::FIRST,
            ino,
            block: (offset / block_size) as u32,
            offset: (offset % block_size) as u32,
            run_len: raw.len() as u32,
            run_offset: 0,
            stored_len: run.about.stored_len,
            form: run.about.form,
            check: run.about.check,
        };
        Ok((entry, run.parts))
    }
}

/// All of a run that lies in a segment from `run_offset` on.
pub(super) fn extent(entry: &RunEntry, segment: SegmentId, run_offset: u64) -> Extent {
    Extent {
        len: entry.run_len,
        segment,
        run_offset,
        stored_len: entry.stored_len,
        run_len: entry.run_len,
        skip: 0,
        form: entry.form,
        check: entry.check,
    }
}
