//! Runs of a batch into objects, and those into the store.
//!
//! Guarantees: an object is put under numbers of its own, once; numbers of what was not put, or is not all of its batch, are noted as spent.

use bytes::Bytes;
use forebay_data::SegmentBuffer;
use forebay_format::{
    row::{Extent, ObjectRef},
    run::Trial,
};
use forebay_protocol::{FileCommit, ObjectCommit, SegmentCommit, SegmentPlace};
use forebay_types::SegmentId;

use super::{
    Shared, Within,
    batch::{Failed, file_commit},
    file::Taken,
    line::BATCH_MAX,
    numbers::Pair,
    put::{self, Tries},
    runs::{Runs, extent},
};
use crate::ClientError;

/// An object that is in the store and that the owner does not know yet.
pub(super) struct Stored {
    pub(super) commit: ObjectCommit,
    pub(super) place: (SegmentId, SegmentPlace),
}

impl Stored {
    pub(super) fn pair(&self) -> Pair {
        Pair { segment: self.place.0, object: self.place.1.object }
    }
}

/// Runs of one batch on their way into objects.
struct Packing<'a> {
    shared: &'a Shared,
    session: u64,
    /// Where they may be, besides the store.
    within: Within,
    tries: Tries,
    runs: Runs,
    /// Bytes of a segment at which the next one is begun: equal parts of the batch.
    part: u64,
    open: Option<(ObjectRef, SegmentBuffer)>,
    stored: Vec<Stored>,
    /// The numbers of all of these.
    pairs: Vec<Pair>,
}

impl Shared {
    /// Puts the runs of a batch as objects.
    pub(super) fn put_objects(
        &self,
        session: u64,
        (within, tries): (Within, Tries),
        taken: &[Taken],
    ) -> Result<(Vec<FileCommit>, Vec<Stored>), Failed> {
        let mut packing = Packing {
            shared: self,
            session,
            within,
            tries,
            runs: Runs::default(),
            part: part(taken, self.block_size()),
            open: None,
            stored: Vec::new(),
            pairs: Vec::new(),
        };
        let packed = packing.files(taken);
        if packed.is_err() {
            self.numbers.spend(session, packing.pairs);
        }
        Ok((packed?, packing.stored))
    }
}

/// Bytes of one object, where as few as have room for a batch are made of it. What tables of frames and the last run of each add must not leave a
/// small one over.
fn part(taken: &[Taken], block_size: u64) -> u64 {
    let in_objects = taken.iter().filter(|taken| taken.inline.is_none());
    let bytes: u64 = in_objects.map(|taken| taken.layer.cost()).sum();
    bytes / bytes.div_ceil(BATCH_MAX).max(1) + block_size
}

impl Packing<'_> {
    /// What the owner is told of files, all of their runs being in objects.
    fn files(&mut self, taken: &[Taken]) -> Result<Vec<FileCommit>, Failed> {
        let mut files = Vec::with_capacity(taken.len());
        for taken in taken {
            files.push(self.file(taken)?);
        }
        self.close()?;
        Ok(files)
    }

    /// What the owner is told of a file, its runs being in objects or in the one that is open.
    fn file(&mut self, taken: &Taken) -> Result<FileCommit, Failed> {
        let layer = &taken.layer;
        let mut extents = Vec::new();
        if taken.inline.is_none() {
            let mut trial = Trial::default();
            for (offset, parts) in layer.runs(self.shared.block_size()) {
                extents.push((offset, self.run(taken, offset, &parts, &mut trial)?));
            }
        }
        Ok(FileCommit { extents, ..file_commit(taken) })
    }

    fn run(
        &mut self,
        taken: &Taken,
        offset: u64,
        parts: &[&[u8]],
        trial: &mut Trial,
    ) -> Result<Extent, Failed> {
        if self.open.as_ref().is_some_and(|(_, segment)| segment.len() >= self.part) {
            self.close()?;
        }
        if self.open.is_none() {
            let pair = self.shared.numbers.next(self.shared.asks.as_ref(), self.session)?;
            self.pairs.push(pair);
            let Pair { segment, object } = pair;
            self.open = Some((object, SegmentBuffer::new(self.shared.volume.id, segment)));
        }
        let (entry, stored) = self.runs.encode(self.shared, taken.file.ino, (offset, parts), trial)?;
        let Some((_, segment)) = &mut self.open else {
            return Err(ClientError::Store("no segment is open".to_owned()).into());
        };
        let run_offset = segment.add(&entry, stored);
        Ok(extent(&entry, segment.segment(), run_offset))
    }

    /// Puts the open object, if there is one.
    fn close(&mut self) -> Result<(), Failed> {
        let Some((object, segment)) = self.open.take() else { return Ok(()) };
        let whole = segment.finish();
        let bytes = Bytes::from(whole.bytes);
        put::put(&self.shared.store, object, &bytes, self.tries).map_err(|error| {
            let lasting = !error.is_transient();
            Failed { error: put::told(&error), lasting }
        })?;
        if self.within == Within::Any {
            self.shared.source.objects().uploaded_bytes(object, &bytes);
        }
        self.shared.counts.object(bytes.len() as u64);
        let (segment, len) = (whole.segment, whole.len);
        let segments = vec![SegmentCommit { id: segment, offset: 0, len, raw: whole.raw }];
        self.stored.push(Stored {
            commit: ObjectCommit { object, segments },
            place: (segment, SegmentPlace { object, offset: 0, len }),
        });
        Ok(())
    }
}
