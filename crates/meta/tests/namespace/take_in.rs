//! Random commits of what was put into the store elsewhere, and those that are refused.

use std::collections::BTreeSet;

use forebay_format::row::{Extent, ObjectRef, SegmentState};
use forebay_meta::{Candidate, NewContents, NewSegment, WriteAttr};
use forebay_types::{Ino, SegmentId, SubvolumeId};

use crate::{
    model::{Node, Refusal},
    world::{BLOCK, World, time},
};

/// Bytes of a run besides its raw ones.
const RUN_HEAD: u32 = 8;

/// A file of a commit that is being made up.
struct File {
    ino: Ino,
    inline: Option<Vec<u8>>,
    extents: Vec<(u64, Extent)>,
    tokens: Vec<Vec<u32>>,
    size: u64,
    mode: Option<u16>,
    mtime: i64,
}

impl File {
    fn contents(&self) -> NewContents<'_> {
        NewContents {
            ino: self.ino,
            inline: self.inline.as_deref(),
            extents: &self.extents,
            size: self.size,
            attr: WriteAttr { mode: self.mode },
            mtime: time(self.mtime),
        }
    }

    fn write_to(&self, node: &mut Node) {
        let mut size = node.data.len().max(self.size as usize);
        if let Some(bytes) = &self.inline {
            node.data = bytes.iter().map(|byte| u32::from(*byte)).collect();
            node.inline = (!bytes.is_empty()).then_some(bytes.len());
            size = size.max(bytes.len());
        } else if !self.extents.is_empty() && node.inline.take().is_some() {
            node.data.fill(0);
        }
        for (offset, extent) in &self.extents {
            size = size.max(*offset as usize + extent.len as usize);
        }
        node.resize(size);
        for ((offset, _), tokens) in self.extents.iter().zip(&self.tokens) {
            node.data[*offset as usize..][..tokens.len()].copy_from_slice(tokens);
        }
        node.mode &= self.mode.unwrap_or(0o7777);
        node.mtime = self.mtime;
        node.ctime = node.ctime.max(self.mtime);
    }
}

impl World {
    /// One random commit: some objects, some files, extents over each other, inline data where extents were and the other way round.
    pub fn take_in(&mut self) {
        let (at, now) = (self.subvolume(), self.tick());
        let segments: Vec<SegmentId> = (0..self.random.below(4)).map(|_| self.ns.new_segment()).collect();
        let mut ends: Vec<u64> = vec![0; segments.len()];
        let mut files: Vec<File> = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let file = self.new_contents(at, now, &segments, &mut ends);
            if files.iter().all(|other| other.ino != file.ino) {
                files.push(file);
            }
        }
        let objects = self.objects_of(&segments, &ends);
        let contents: Vec<NewContents<'_>> = files.iter().map(File::contents).collect();
        if self.random.one_in(6) {
            self.refused_commits(at, &objects, &contents);
        }
        let gone = self.ns.take_in(at, &objects, &contents).unwrap();
        let tree = self.trees.get_mut(&at).unwrap();
        let mut missing = Vec::new();
        for file in &files {
            match tree.file(file.ino) {
                Ok(node) => file.write_to(node),
                Err(_) => missing.push(file.ino),
            }
        }
        assert_eq!(gone, missing);
        for (object, segments) in objects {
            let held = segments.iter().map(|segment| segment.id).collect();
            assert!(self.objects.insert(object, held).is_none(), "an object's number again");
        }
    }

    /// Two objects at most, with these segments.
    fn objects_of(&mut self, ids: &[SegmentId], ends: &[u64]) -> Vec<(ObjectRef, Vec<NewSegment>)> {
        let mut objects: Vec<(ObjectRef, Vec<NewSegment>)> = Vec::new();
        let mut offset = 0;
        for (id, len) in ids.iter().zip(ends) {
            if objects.is_empty() || (objects.len() == 1 && self.random.one_in(2)) {
                objects.push((self.ns.new_object(), Vec::new()));
                offset = 0;
            }
            let segment = NewSegment { id: *id, offset, len: len + 10, raw: *len };
            offset += len + 10;
            objects.last_mut().unwrap().1.push(segment);
        }
        objects
    }

    fn new_contents(&mut self, at: SubvolumeId, now: i64, segments: &[SegmentId], ends: &mut [u64]) -> File {
        let mut file = File {
            ino: self.any_file(at),
            inline: None,
            extents: Vec::new(),
            tokens: Vec::new(),
            size: if self.random.one_in(3) { self.random.below(1100) } else { 0 },
            mode: self.random.one_in(3).then_some(0o777),
            mtime: (now - self.random.below(5_000_000) as i64).max(0),
        };
        if self.random.one_in(3) {
            file.inline = Some((0..self.random.below(200)).map(|_| self.random.next() as u8).collect());
            return file;
        }
        for _ in 0..self.random.below(6) {
            let offset = self.random.below(10 * u64::from(BLOCK));
            let room = (u64::from(BLOCK) - offset % u64::from(BLOCK)) as u32;
            let extent = match self.random.one_in(4) {
                true => self.known_extent(room),
                false => self.fresh_extent(room, segments, ends),
            };
            let Some(extent) = extent else { continue };
            if segments.contains(&extent.segment) {
                let candidate =
                    Candidate { subvolume: at, ino: file.ino, block: (offset / u64::from(BLOCK)) as u32 };
                self.named.entry(extent.segment).or_default().insert(candidate);
            }
            file.tokens.push(self.resolve(&extent).to_vec());
            file.extents.push((offset, extent));
        }
        file
    }

    /// A part of a run that is new.
    fn fresh_extent(&mut self, room: u32, segments: &[SegmentId], ends: &mut [u64]) -> Option<Extent> {
        let at = self.random.below(segments.len() as u64) as usize;
        let (segment, run_offset) = (*segments.get(at)?, *ends.get(at)?);
        let len = 1 + self.random.below(u64::from(room)) as u32;
        let skip = if self.random.one_in(3) { self.random.below(9) as u32 } else { 0 };
        let run_len = len + skip + if self.random.one_in(3) { 5 } else { 0 };
        let tokens = self.fresh_tokens(run_len);
        self.runs.insert((segment, run_offset), tokens);
        let stored_len = run_len + RUN_HEAD;
        ends[at] += u64::from(stored_len);
        Some(Extent { len, segment, run_offset, stored_len, run_len, skip, form: 3, check: self.token })
    }

    /// A part of a run that the store has already.
    fn known_extent(&mut self, room: u32) -> Option<Extent> {
        let runs: Vec<_> = self.runs.keys().copied().collect();
        let (segment, run_offset) = self.random.pick(&runs)?;
        let run_len = self.runs[&(segment, run_offset)].len() as u32;
        let row = self.ns.segment(segment).filter(|row| row.state == SegmentState::Stored)?;
        let stored_len = run_len + RUN_HEAD;
        if run_offset + u64::from(stored_len) > row.len || run_len == 0 {
            return None;
        }
        let skip = self.random.below(u64::from(run_len)) as u32;
        let len = (1 + self.random.below(u64::from(run_len - skip)) as u32).min(room);
        Some(Extent { len, segment, run_offset, stored_len, run_len, skip, form: 3, check: 7 })
    }

    /// Nothing of a commit is taken where one part of it is wrong.
    fn refused_commits(
        &mut self,
        at: SubvolumeId,
        objects: &[(ObjectRef, Vec<NewSegment>)],
        files: &[NewContents<'_>],
    ) {
        let refused = |objects: &[(ObjectRef, Vec<NewSegment>)], files: &[NewContents<'_>]| {
            let got = self.ns.take_in(at, objects, files).map_err(Refusal::from);
            assert_eq!(got, Err(Refusal::Invalid));
        };
        let known: BTreeSet<Ino> = files.iter().map(|file| file.ino).collect();
        let tree = &self.trees[&at].0;
        let file = tree
            .iter()
            .find(|(ino, node)| node.kind == forebay_types::FileKind::Regular && !known.contains(ino));
        if let Some((ino, _)) = file {
            let extent = Extent {
                len: 1,
                segment: SegmentId(1 << 40),
                run_offset: 0,
                stored_len: 9,
                run_len: 1,
                skip: 0,
                form: 3,
                check: 0,
            };
            let of = |extents| NewContents {
                ino: *ino,
                inline: None,
                extents,
                size: 0,
                attr: WriteAttr::default(),
                mtime: time(0),
            };
            let wrong = [(0, extent)];
            refused(objects, &[files, &[of(&wrong)]].concat());
            refused(objects, &[files, &[of(&[]), of(&[])]].concat());
            if let Some(first) = objects.first().and_then(|(_, segments)| segments.first()) {
                let beyond = [(0, Extent { segment: first.id, run_offset: first.len - 8, ..extent })];
                refused(objects, &[files, &[of(&beyond)]].concat());
                let across =
                    [(u64::from(BLOCK) - 1, Extent { segment: first.id, len: 2, run_len: 2, ..extent })];
                refused(objects, &[files, &[of(&across)]].concat());
                let inside = [(0, Extent { segment: first.id, ..extent })];
                let both = NewContents { inline: Some(b"both"), ..of(&inside) };
                refused(objects, &[files, &[both]].concat());
            }
        }
        if let Some((object, segments)) = objects.first() {
            refused(&[objects, &[(*object, segments.clone())]].concat(), files);
            let other = ObjectRef { id: forebay_types::ObjectId(1 << 40), ..*object };
            refused(&[objects, &[(other, segments.clone())]].concat(), files);
            refused(&[objects, &[(other, Vec::new())]].concat(), files);
        }
        if let Some((object, held)) = self.objects.iter().find(|(_, held)| !held.is_empty()) {
            let new = NewSegment { id: SegmentId(1 << 41), offset: 0, len: 1, raw: 0 };
            refused(&[(*object, vec![new])], &[]);
            let other = ObjectRef { id: forebay_types::ObjectId(1 << 40), ..*object };
            let taken = *held.iter().next().unwrap();
            refused(&[(other, vec![NewSegment { id: taken, ..new }])], &[]);
        }
        if let Some(garbage) = self.garbage.iter().next() {
            let new = NewSegment { id: SegmentId(1 << 41), offset: 0, len: 1, raw: 0 };
            refused(&[(*garbage, vec![new])], &[]);
        }
    }
}
