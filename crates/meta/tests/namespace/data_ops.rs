//! Random operations on what files hold, on the namespace and the model.

use forebay_meta::{Candidate, ExtentSource, NewExtent, WriteAttr};
use forebay_types::{Ino, SegmentId, SubvolumeId};

use crate::{
    model::Refusal,
    world::{BLOCK, World},
};

const ATTR: WriteAttr = WriteAttr { mode: None };
/// Bytes of a run besides its raw ones, as the tests have it.
const RUN_HEAD: u32 = 8;

impl World {
    pub fn fresh_tokens(&mut self, len: u32) -> Vec<u32> {
        self.token += len;
        (self.token - len..self.token).collect()
    }

    pub fn write_inline(&mut self) {
        let at = self.subvolume();
        let (ino, now) = (self.any_file(at), self.tick());
        let most = if self.random.one_in(5) { 1200 } else { 200 };
        let bytes: Vec<u8> = (0..self.random.below(most)).map(|_| self.random.next() as u8).collect();
        let size = (bytes.len() as u64 + self.random.below(30)).saturating_sub(self.random.below(4));
        let attr = WriteAttr { mode: self.random.one_in(2).then_some(0o777) };
        let got = self.ns.write_inline(at, ino, &bytes, size, attr).map(|_| ()).map_err(Refusal::from);
        let cut = self.ns.inode(at, ino).is_ok_and(|inode| inode.row.has_cuts);
        let tree = self.trees.get_mut(&at).unwrap();
        let node = match tree.file(ino) {
            Ok(node) => node,
            Err(refusal) => return assert_eq!(got, Err(refusal)),
        };
        let fits = bytes.len() <= 1024 && bytes.len() as u64 <= size;
        let extents = node.inline.is_none() && node.allocated() > 0;
        match got {
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Invalid);
                assert!(!fits || extents || cut, "refused for nothing");
            }
            Ok(()) => {
                assert!(fits && !extents);
                node.data = bytes.iter().map(|byte| u32::from(*byte)).collect();
                node.inline = (!bytes.is_empty()).then_some(bytes.len());
                node.data.resize(size as usize, 0);
                node.mode &= attr.mode.unwrap_or(0o7777);
                node.touch(now);
            }
        }
    }

    pub fn write(&mut self) {
        let at = self.subvolume();
        let (ino, now) = (self.any_file(at), self.tick());
        let (mut data_len, mut extents, mut tokens) = (0, Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(2) {
            let start = self.random.below(16 * u64::from(BLOCK));
            let most = if self.random.one_in(3) { 400 } else { 90 };
            let end = start + 1 + self.random.below(most);
            let stream = self.random.one_in(3);
            let mut offset = start;
            while offset < end {
                let room = u64::from(BLOCK) - offset % u64::from(BLOCK);
                let mut len = room.min(end - offset) as u32;
                if self.random.one_in(5) {
                    len = 1 + self.random.below(u64::from(len)) as u32;
                }
                let source = match stream {
                    true => self.stream_run(len),
                    false => ExtentSource::Record(data_len),
                };
                if !stream {
                    data_len += u64::from(len + RUN_HEAD);
                }
                let (stored_len, check) = (len + RUN_HEAD, self.token);
                extents.push(NewExtent { offset, len, source, stored_len, form: 3, check });
                tokens.push(self.fresh_tokens(len));
                offset += u64::from(len);
            }
        }
        let size = self.random.below(1200);
        let data = vec![0; data_len as usize];
        let got = self.ns.write(at, ino, &extents, &data, size, ATTR).map(|_| ()).map_err(Refusal::from);
        let node = match self.trees.get_mut(&at).unwrap().file(ino) {
            Ok(node) => node,
            Err(refusal) => return assert_eq!(got, Err(refusal)),
        };
        assert_eq!(got, Ok(()));
        if node.inline.take().is_some() {
            node.data.fill(0);
        }
        let ends = extents.iter().map(|new| new.offset as usize + new.len as usize);
        let size = ends.fold(node.data.len().max(size as usize), usize::max);
        node.resize(size);
        for (new, tokens) in extents.iter().zip(&tokens) {
            node.data[new.offset as usize..][..tokens.len()].copy_from_slice(tokens);
        }
        node.touch(now);
        self.register(at, ino, &extents, tokens);
    }

    /// Keeps what the runs that were written hold.
    fn register(&mut self, at: SubvolumeId, ino: Ino, extents: &[NewExtent], tokens: Vec<Vec<u32>>) {
        for (new, tokens) in extents.iter().zip(tokens) {
            let key = match new.source {
                ExtentSource::Record(from) => {
                    let place = self.log.place();
                    (place.segment, place.offset + from)
                }
                ExtentSource::Stream(segment, offset) => {
                    let block = (new.offset / u64::from(BLOCK)) as u32;
                    let named = self.named.entry(segment).or_default();
                    named.insert(Candidate { subvolume: at, ino, block });
                    (segment, offset)
                }
            };
            assert!(self.runs.insert(key, tokens).is_none(), "a run over another");
        }
    }

    fn stream_run(&mut self, len: u32) -> ExtentSource {
        let fresh = self.stream.is_none_or(|(_, offset)| offset > 600);
        let (segment, offset) = match self.stream {
            Some(stream) if !fresh => stream,
            _ => (self.ns.new_segment(), 0),
        };
        self.stream = Some((segment, offset + u64::from(len + RUN_HEAD)));
        ExtentSource::Stream(segment, offset)
    }

    /// The segment that is being written as a stream.
    pub fn open_stream(&self) -> Option<SegmentId> {
        self.stream.map(|(segment, _)| segment)
    }

    pub fn punch(&mut self) {
        let at = self.subvolume();
        let (ino, now) = (self.any_file(at), self.tick());
        let from = self.random.below(18 * u64::from(BLOCK));
        let to = if self.random.one_in(6) { u64::MAX } else { from + self.random.below(300) };
        let size = self.random.one_in(4).then(|| self.random.below(1300));
        let got = self.ns.punch(at, ino, from, to, size, ATTR).map(|_| ()).map_err(Refusal::from);
        let expected = self.trees.get_mut(&at).unwrap().file(ino).map(|node| {
            let end = (node.data.len() as u64).min(to) as usize;
            let start = (from as usize).min(end);
            node.data[start..end].fill(0);
            let size = size.map_or(node.data.len(), |size| node.data.len().max(size as usize));
            node.resize(size);
            node.touch(now);
        });
        assert_eq!(got, expected, "punch {from}..{to} of {ino}");
    }

    pub fn share(&mut self) {
        let at = self.subvolume();
        let (source, target, now) = (self.any_file(at), self.any_file(at), self.tick());
        let held = self.trees[&at].0.get(&source).map_or(0, |node| node.data.len() as u64);
        let from = self.random.below(held);
        let len = self.random.below(held.saturating_sub(from).min(500) + 1);
        let to = match self.random.one_in(2) {
            true => from + u64::from(BLOCK) * self.random.below(10),
            false => self.random.below(900),
        };
        if source == target && from < to + len && to < from + len {
            return;
        }
        let got =
            self.ns.share(at, (source, from), (target, to), len, ATTR).map(|_| ()).map_err(Refusal::from);
        let tree = self.trees.get_mut(&at).unwrap();
        let mut expected = || {
            if tree.file(target)?.inline.is_some() || tree.file(source)?.inline.is_some() {
                return Err(Refusal::Invalid);
            }
            let bytes = tree.0[&source].data[from as usize..(from + len) as usize].to_vec();
            let node = tree.get(target)?;
            node.resize(node.data.len().max((to + len) as usize));
            node.data[to as usize..][..bytes.len()].copy_from_slice(&bytes);
            node.touch(now);
            Ok(())
        };
        assert_eq!(got, expected(), "share {len} bytes from {from} of {source} with {to} of {target}");
    }
}
