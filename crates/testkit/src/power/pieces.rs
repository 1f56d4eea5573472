//! A file's bytes after a crash: whether they are what some prefix of its writes gives.

use std::collections::BTreeMap;

use super::history::Store;
use super::log::Change;
use super::observe::MODE;
use super::pattern;

const PAGE: u64 = 4096;

/// The part of a change that survives as a whole or not at all; of stores in a mapping each one on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece<'a> {
    Write { offset: u64, data: &'a [u8] },
    SetLen(u64),
    Zero { offset: u64, len: u64 },
    Attribute { name: &'a str, value: Option<&'a [u8]> },
    Stores(&'a [Store]),
}

/// Attributes as they are seen.
pub(crate) type Attributes = BTreeMap<String, Vec<u8>>;

/// Appends the pieces of `change`: a write falls into pages, because the kernel may ask for it in several requests.
pub(crate) fn split<'a>(change: &'a Change, pieces: &mut Vec<Piece<'a>>) {
    match change {
        Change::SetLen(len) => pieces.push(Piece::SetLen(*len)),
        Change::Zero { offset, len } => pieces.push(Piece::Zero { offset: *offset, len: *len }),
        Change::Write { offset, data } => {
            let (mut at, mut rest) = (*offset, &data[..]);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(index(PAGE - at % PAGE)));
                pieces.push(Piece::Write { offset: at, data: now });
                at += now.len() as u64;
                rest = later;
            }
        }
    }
}

/// Compares `seen` and the attributes seen with what each prefix of `pieces` gives that has at least `floor` of them.
///
/// The error says how the nearest prefix differs.
pub(crate) fn compare(
    pieces: &[Piece<'_>],
    floor: usize,
    seen: &[u8],
    attributes: &Attributes,
) -> Result<(), String> {
    let mut model = Bytes::new(seen, attributes);
    let mut earlier = model.matches().then_some(0);
    if floor == 0 && earlier.is_some() {
        return Ok(());
    }
    let mut nearest = (usize::MAX, 0);
    for (place, piece) in pieces.iter().enumerate() {
        if place >= floor && model.matches_with_some(piece) {
            return Ok(());
        }
        model.apply(piece);
        let count = place + 1;
        if model.matches() {
            if count >= floor {
                return Ok(());
            }
            earlier = Some(count);
        }
        let distance = model
            .wrong
            .saturating_add(model.bytes_of_len_difference())
            .saturating_add(model.wrong_attributes);
        if count >= floor && distance < nearest.0 {
            nearest = (distance, count);
        }
    }
    if let Some(count) = earlier {
        return Err(format!("it has {} bytes, as after {count} of its {} writes", seen.len(), pieces.len()));
    }
    Err(describe(pieces, if nearest.0 == usize::MAX { floor } else { nearest.1 }, seen, attributes))
}

fn describe(pieces: &[Piece<'_>], count: usize, seen: &[u8], attributes: &Attributes) -> String {
    let none = Attributes::new();
    let mut model = Bytes::new(&[], &none);
    for piece in &pieces[..count] {
        model.apply(piece);
    }
    let expected: Vec<u8> =
        (0..index(model.len)).map(|at| model.bytes.get(at).copied().unwrap_or(0)).collect();
    let first = expected.iter().zip(seen).position(|(one, other)| one != other);
    let place = match first {
        Some(at) => format!(
            "at {at} there is {}, where {} belongs",
            pattern::describe(seen, at),
            pattern::describe(&expected, at)
        ),
        None if expected.len() != seen.len() => format!("its length should be {}", expected.len()),
        None => format!("its attributes are {attributes:?}, they should be {:?}", model.attributes),
    };
    format!(
        "its {} bytes are those of no prefix of its {} writes; compared with the nearest ({count}): {place}",
        seen.len(),
        pieces.len()
    )
}

/// A file as it grows, with a count of the bytes that differ from what is seen. Absent bytes count as zeros.
struct Bytes<'a> {
    bytes: Vec<u8>,
    len: u64,
    wrong: usize,
    seen: &'a [u8],
    attributes: BTreeMap<&'a str, &'a [u8]>,
    seen_attributes: &'a Attributes,
    /// Attributes that differ.
    wrong_attributes: usize,
}

impl<'a> Bytes<'a> {
    fn new(seen: &'a [u8], seen_attributes: &'a Attributes) -> Self {
        Self {
            bytes: Vec::new(),
            len: 0,
            wrong: seen.iter().filter(|byte| **byte != 0).count(),
            seen,
            attributes: BTreeMap::new(),
            seen_attributes,
            wrong_attributes: seen_attributes.keys().filter(|name| *name != MODE).count(),
        }
    }

    fn matches(&self) -> bool {
        self.wrong == 0 && self.len == self.seen.len() as u64 && self.wrong_attributes == 0
    }

    /// Whether it is as seen once some of the stores are made that `piece` is: each takes away bytes that differ, or can be left out.
    fn matches_with_some(&self, piece: &Piece<'_>) -> bool {
        let Piece::Stores(stores) = piece else { return false };
        let gained: usize = stores.iter().map(|store| self.gained(store)).sum();
        self.wrong == gained && self.len == self.seen.len() as u64 && self.wrong_attributes == 0
    }

    /// How many bytes fewer differ with a store than without it.
    fn gained(&self, (offset, data): &Store) -> usize {
        let start = index(*offset);
        let at = |bytes: &[u8], place: usize| bytes.get(start + place).copied().unwrap_or(0);
        let wrong = |place: usize, byte: u8| usize::from(byte != at(self.seen, place));
        let places = 0..data.len();
        let (before, after) = places.zip(data.iter()).fold((0, 0), |(before, after), (place, byte)| {
            (before + wrong(place, at(&self.bytes, place)), after + wrong(place, *byte))
        });
        before.saturating_sub(after)
    }

    /// Whether an attribute is as seen. Permission bits that nobody set may be any.
    fn attribute_is_wrong(&self, name: &str) -> bool {
        match (self.attributes.get(name), self.seen_attributes.get(name)) {
            (None, _) if name == MODE => false,
            (own, seen) => own.copied() != seen.map(Vec::as_slice),
        }
    }

    fn bytes_of_len_difference(&self) -> usize {
        index(self.len.abs_diff(self.seen.len() as u64))
    }

    fn apply(&mut self, piece: &Piece<'a>) {
        match piece {
            Piece::Attribute { name, value } => {
                let before = self.attribute_is_wrong(name);
                match value {
                    Some(value) => self.attributes.insert(name, value),
                    None => self.attributes.remove(name),
                };
                let after = self.attribute_is_wrong(name);
                self.wrong_attributes = self.wrong_attributes + usize::from(after) - usize::from(before);
            }
            Piece::Write { offset, data } => self.write(*offset, data),
            Piece::Stores(stores) => stores.iter().for_each(|(offset, data)| self.write(*offset, data)),
            Piece::SetLen(len) => {
                if *len < self.len {
                    self.change(index(*len), index(self.len), |bytes| bytes.fill(0));
                }
                self.len = *len;
            }
            Piece::Zero { offset, len } => {
                let end = offset.saturating_add(*len).min(self.len);
                self.change(index(*offset), index(end), |bytes| bytes.fill(0));
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let (start, end) = (index(offset), index(offset) + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.change(start, end, |bytes| bytes.copy_from_slice(data));
        self.len = self.len.max(end as u64);
    }

    fn change(&mut self, start: usize, end: usize, how: impl FnOnce(&mut [u8])) {
        let end = end.min(self.bytes.len());
        if start >= end {
            return;
        }
        self.wrong -= self.differing(start, end);
        how(&mut self.bytes[start..end]);
        self.wrong += self.differing(start, end);
    }

    fn differing(&self, start: usize, end: usize) -> usize {
        let own = &self.bytes[start..end];
        let inside = self.seen.len().clamp(start, end);
        let seen = self.seen.get(start..inside).unwrap_or(&[]);
        let (compared, beyond) = own.split_at(seen.len());
        let differing =
            if compared == seen { 0 } else { compared.iter().zip(seen).filter(|(a, b)| a != b).count() };
        differing + beyond.iter().filter(|byte| **byte != 0).count()
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
