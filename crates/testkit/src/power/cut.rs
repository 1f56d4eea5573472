//! The power cut: from the log of a disk, what is left when the power goes at one point.
//!
//! Guarantees: what was synced before the point is there; of the rest, a seeded random part. File bytes are lost and kept in
//! sectors of 512 bytes; a length may survive without the bytes, which are then zeros or noise; a rename happens as a whole or not
//! at all; what a lost operation made is not built upon. The same log, point, rules and generator give the same image.
//!
//! Relies on the order of the log being the order of the operations. Points must be visited in rising order.

use std::collections::{BTreeMap, HashMap};

use super::image::Image;
use super::log::{Change, Event, Ino, Kind, Name, ROOT};
use super::rng::Rng;
use super::sparse::Sparse;

/// Bytes that a disk writes as a whole or not at all.
pub const SECTOR: u64 = 512;

/// What makes a name durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Nothing but `fsync` of its directory; names not synced survive in any combination that can be reached.
    Strict,
    /// As on ext4: the sync of a directory, or of a file whose name is not yet durable, makes all names up to the
    /// last one concerned durable; the others survive as a prefix in order.
    Ordered,
}

/// What unwritten sectors of a file that has grown hold after a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Zeros, or in some files random bytes.
    ZerosOrNoise,
    /// Also bytes that some other write of the same life had put on the disk.
    Stale,
}

/// How a disk behaves in a power cut.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// When names become durable.
    pub names: Names,
    /// What lost sectors hold.
    pub fill: Fill,
}

#[derive(Debug)]
struct Step {
    event: usize,
    /// The name in the root below which it is.
    top: Name,
    durable: bool,
    needs: Vec<usize>,
}

#[derive(Debug, Default)]
struct File {
    durable: Sparse,
    pending: Vec<usize>,
}

/// Walks a log and gives the image left by a cut at each point it stops at.
#[derive(Debug)]
pub struct Cutter<'a> {
    log: &'a [Event],
    rules: Rules,
    at: usize,
    steps: Vec<Step>,
    /// Steps before this one are all durable.
    settled: usize,
    last_of_slot: HashMap<(Ino, &'a [u8]), usize>,
    last_of_inode: HashMap<Ino, usize>,
    last_of_directory: HashMap<Ino, usize>,
    last_move: Option<usize>,
    kinds: HashMap<Ino, Kind>,
    files: HashMap<Ino, File>,
    /// For each inode the name in the root below which it was made.
    tops: HashMap<Ino, Name>,
}

impl<'a> Cutter<'a> {
    /// A walk over `log` from an empty disk on.
    #[must_use]
    pub fn new(log: &'a [Event], rules: Rules) -> Self {
        Self {
            log,
            rules,
            at: 0,
            steps: Vec::new(),
            settled: 0,
            last_of_slot: HashMap::new(),
            last_of_inode: HashMap::new(),
            last_of_directory: HashMap::new(),
            last_move: None,
            kinds: HashMap::from([(ROOT, Kind::Directory)]),
            files: HashMap::new(),
            tops: HashMap::new(),
        }
    }

    /// What a cut leaves after the first `point` events; `point` may not be lower than in an earlier call.
    pub fn image(&mut self, point: u64, rng: &mut Rng) -> Image {
        self.image_where(point, None, rng)
    }

    /// As [`Cutter::image`], where nothing is lost of what is below the name `lasting` in the root: it is on a machine whose power stays.
    pub fn image_where(&mut self, point: u64, lasting: Option<&[u8]>, rng: &mut Rng) -> Image {
        let to = usize::try_from(point).unwrap_or(usize::MAX).min(self.log.len());
        while self.at < to {
            self.advance(self.at);
            self.at += 1;
        }
        let tree = self.surviving_names(lasting, rng);
        let mut image = Image::default();
        let mut todo = vec![(ROOT, Vec::new())];
        while let Some((dir, path)) = todo.pop() {
            for (name, ino) in tree.get(&dir).into_iter().flatten() {
                let mut below: Vec<u8> = path.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name);
                let Some(kind) = self.kinds.get(ino) else { continue };
                if *kind == Kind::Directory {
                    todo.push((*ino, below.clone()));
                }
                if *kind == Kind::File && !image.has(*ino) {
                    let lasts = lasting.is_some() && self.tops.get(ino).map(Vec::as_slice) == lasting;
                    image.put_bytes(*ino, self.surviving_bytes(*ino, lasts, rng));
                }
                image.put_name(below, *ino, kind.clone());
            }
        }
        image
    }

    fn advance(&mut self, index: usize) {
        match &self.log[index] {
            Event::Names { born, slots, moves_directory } => {
                if let Some((ino, kind)) = born {
                    self.kinds.insert(*ino, kind.clone());
                }
                let step = self.steps.len();
                let top = slots.first().map(|slot| self.top(slot.dir, &slot.name)).unwrap_or_default();
                if let Some((ino, _)) = born {
                    self.tops.insert(*ino, top.clone());
                }
                let mut needs: Vec<usize> = Vec::new();
                for slot in slots {
                    needs.extend(self.last_of_slot.insert((slot.dir, &slot.name), step));
                    self.last_of_directory.insert(slot.dir, step);
                }
                for ino in self.log[index].inodes() {
                    self.last_of_inode.insert(ino, step);
                }
                if *moves_directory {
                    needs.extend(self.last_move.replace(step));
                }
                self.steps.push(Step { event: index, top, durable: false, needs });
            }
            Event::Data { ino, .. } => self.files.entry(*ino).or_default().pending.push(index),
            Event::SyncFile(ino) => self.sync_file(*ino),
            Event::SyncDirectory(dir) => self.sync_directory(*dir),
        }
    }

    /// The name in the root below which `name` of `dir` is.
    fn top(&self, dir: Ino, name: &Name) -> Name {
        if dir == ROOT { name.clone() } else { self.tops.get(&dir).cloned().unwrap_or_default() }
    }

    fn sync_file(&mut self, ino: Ino) {
        let file = self.files.entry(ino).or_default();
        for index in file.pending.drain(..) {
            if let Event::Data { change, .. } = &self.log[index] {
                change.apply(&mut file.durable);
            }
        }
        if self.rules.names == Names::Ordered
            && let Some(last) = self.last_of_inode.get(&ino)
        {
            self.settle(*last);
        }
    }

    fn sync_directory(&mut self, dir: Ino) {
        match self.rules.names {
            Names::Ordered => {
                if let Some(last) = self.last_of_directory.get(&dir) {
                    self.settle(*last);
                }
            }
            Names::Strict => {
                for at in (self.settled..self.steps.len()).rev() {
                    if !self.steps[at].durable && self.log[self.steps[at].event].touches(dir) {
                        self.steps[at].durable = true;
                    }
                    if self.steps[at].durable {
                        for need in self.steps[at].needs.clone() {
                            self.steps[need].durable = true;
                        }
                    }
                }
                while self.steps.get(self.settled).is_some_and(|step| step.durable) {
                    self.settled += 1;
                }
            }
        }
    }

    /// Makes all steps up to and with `last` durable.
    fn settle(&mut self, last: usize) {
        for step in self.steps.iter_mut().take(last + 1).skip(self.settled) {
            step.durable = true;
        }
        self.settled = self.settled.max(last + 1);
    }

    fn surviving_names(
        &self,
        lasting: Option<&[u8]>,
        rng: &mut Rng,
    ) -> HashMap<Ino, BTreeMap<&'a Name, Ino>> {
        let total = self.steps.len();
        let lasts = |step: &Step| lasting == Some(step.top.as_slice());
        let mut keep: Vec<bool> = self.steps.iter().map(|step| step.durable || lasts(step)).collect();
        let prefix = match rng.below(4) {
            0 => self.settled,
            1 => total,
            _ => usize::try_from(rng.between(self.settled as u64, total as u64)).unwrap_or(total),
        };
        let scattered = self.rules.names == Names::Strict && rng.chance(3, 4);
        let odds = rng.between(1, 15);
        for (at, kept) in keep.iter_mut().enumerate().skip(self.settled) {
            *kept |= if scattered { rng.chance(odds, 16) } else { at < prefix };
        }
        for at in (self.settled..total).rev() {
            if keep[at] {
                for need in &self.steps[at].needs {
                    keep[*need] = true;
                }
            }
        }
        let mut tree: HashMap<Ino, BTreeMap<&Name, Ino>> = HashMap::new();
        for step in self.steps.iter().zip(&keep).filter_map(|(step, kept)| kept.then_some(step)) {
            let Event::Names { slots, .. } = &self.log[step.event] else { continue };
            for slot in slots {
                let entries = tree.entry(slot.dir).or_default();
                match slot.new {
                    Some(ino) => entries.insert(&slot.name, ino),
                    None => entries.remove(&slot.name),
                };
            }
        }
        tree
    }

    fn surviving_bytes(&self, ino: Ino, lasts: bool, rng: &mut Rng) -> Sparse {
        let Some(file) = self.files.get(&ino) else { return Sparse::default() };
        let mut out = file.durable.clone();
        if lasts {
            let changes = file.pending.iter().filter_map(|index| match &self.log[*index] {
                Event::Data { change, .. } => Some(change),
                _ => None,
            });
            changes.for_each(|change| change.apply(&mut out));
            return out;
        }
        let tear = Tear::choose(file.pending.len(), rng);
        for (nth, index) in file.pending.iter().enumerate() {
            let Event::Data { change, .. } = &self.log[*index] else { continue };
            match change {
                Change::Write { offset, data } => self.torn_write(&mut out, *offset, data, (&tear, nth), rng),
                other if tear.keeps(nth, rng) => other.apply(&mut out),
                _ => {}
            }
        }
        out
    }

    /// Applies the part of a write that reached the disk.
    fn torn_write(&self, out: &mut Sparse, offset: u64, data: &[u8], tear: (&Tear, usize), rng: &mut Rng) {
        let old_len = out.len();
        let end = offset + data.len() as u64;
        let kept: Vec<(u64, u64)> =
            sectors(offset, end).filter(|_| tear.0.keeps_sector(tear.1, rng)).collect();
        let grown = if kept.is_empty() { rng.chance(1, 8) } else { rng.chance(3, 4) };
        let new_len = if grown {
            old_len.max(end)
        } else {
            // The length got as far as the last sector written in an unbroken row, or not at all.
            let row = kept.iter().fold(offset, |reach, (from, to)| if *from == reach { *to } else { reach });
            if rng.chance(1, 2) { old_len.max(row) } else { old_len }
        };
        if new_len > old_len {
            out.set_len(new_len);
            self.fill_lost(out, old_len, rng);
        }
        for (from, to) in kept {
            let to = to.min(new_len);
            if from < to {
                let part = data.get(index(from - offset)..index(to - offset)).unwrap_or_default();
                out.write(from, part);
            }
        }
    }

    /// Puts noise into what a file has gained, sometimes.
    fn fill_lost(&self, out: &mut Sparse, from: u64, rng: &mut Rng) {
        let len = (out.len() - from).min(1 << 20);
        match rng.below(4) {
            0 => {
                let noise: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
                out.write(from, &noise);
            }
            1 if self.rules.fill == Fill::Stale => {
                let start = rng.index(self.at.max(1));
                let old = self.log[start..self.at].iter().find_map(|event| match event {
                    Event::Data { change: Change::Write { data, .. }, .. } => Some(data),
                    _ => None,
                });
                if let Some(old) = old {
                    out.write(from, old.get(..index(len)).unwrap_or(old));
                }
            }
            _ => {}
        }
    }
}

/// Chooses `count` points at `first` or later, in rising order: half of them anywhere, half just before a sync or just after a change of
/// names, where what is missing shows.
pub fn points_to_cut(log: &[Event], first: u64, count: u64, rng: &mut Rng) -> Vec<u64> {
    let edges: Vec<u64> = (first..)
        .zip(log.iter().skip(index(first)))
        .filter_map(|(at, event)| match event {
            Event::Names { .. } => Some(at + 1),
            Event::SyncFile(_) | Event::SyncDirectory(_) => Some(at),
            Event::Data { .. } => None,
        })
        .collect();
    let mut points: Vec<u64> = (0..count)
        .map(|nth| match edges.get(rng.index(edges.len())) {
            Some(edge) if nth % 2 == 0 => *edge,
            _ => rng.between(first, log.len() as u64),
        })
        .collect();
    points.sort_unstable();
    points
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The pieces of `offset..end` that lie in one sector each.
fn sectors(offset: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = offset / SECTOR;
    let last = end.div_ceil(SECTOR);
    (first..last).map(move |sector| (offset.max(sector * SECTOR), end.min((sector + 1) * SECTOR)))
}

/// Which of a file's unsynced changes reach the disk.
#[derive(Debug)]
enum Tear {
    Nothing,
    Everything,
    /// Those before the n-th, and the n-th torn.
    Early(usize),
    /// Those after the n-th, and the n-th torn.
    Late(usize),
    /// Each as a whole, in so many of 16 cases, drawn from a seed of its own.
    Whole(u64, u64),
    /// Each sector on its own, in so many of 16 cases.
    Sectors(u64),
}

impl Tear {
    fn choose(pending: usize, rng: &mut Rng) -> Self {
        match rng.below(8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 | 3 => Self::Early(rng.index(pending + 1)),
            4 => Self::Late(rng.index(pending + 1)),
            5 => Self::Whole(rng.between(2, 14), rng.next_u64()),
            _ => Self::Sectors(rng.between(2, 15)),
        }
    }

    fn keeps(&self, nth: usize, rng: &mut Rng) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Early(n) => nth < *n,
            Self::Late(n) => nth > *n,
            // The draw must be the same for all sectors of one change.
            Self::Whole(odds, seed) => Rng::new(seed ^ nth as u64).chance(*odds, 16),
            Self::Sectors(odds) => rng.chance(*odds, 16),
        }
    }

    fn keeps_sector(&self, nth: usize, rng: &mut Rng) -> bool {
        match self {
            Self::Early(n) | Self::Late(n) if nth == *n => rng.chance(1, 2),
            _ => self.keeps(nth, rng),
        }
    }
}
