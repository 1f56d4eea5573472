//! The rows that are looked at: an engine's, with those on top that the journal has and those that repair would put.

use std::{
    collections::{BTreeMap, VecDeque, btree_map},
    iter::Peekable,
    sync::Arc,
};

use forebay_format::{
    key::{self, Item, VERSION_LEN},
    row::TOMBSTONE,
};
use forebay_meta::{Engine, EngineError};
use forebay_types::{Generation, Ino, SubvolumeId};

const PAGE: usize = 1024;

pub(super) type Overlay = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
pub(super) type KeyedRow = (Vec<u8>, Vec<u8>);

/// All rows of a volume at one moment.
pub(super) struct Image {
    engine: Arc<dyn Engine>,
    pub(super) overlay: Overlay,
}

impl Image {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Image {
        Image { engine, overlay: Overlay::new() }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self.overlay.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.engine.get(key),
        }
    }

    /// The rows whose keys begin with `prefix`, in their order; all rows where it is empty.
    pub(super) fn rows(&self, prefix: &[u8]) -> RowStream<'_> {
        let to = key::after_prefix(prefix);
        let on_top = match &to {
            Some(to) => self.overlay.range(prefix.to_vec()..to.clone()),
            None => self.overlay.range(prefix.to_vec()..),
        };
        RowStream {
            engine: self.engine.as_ref(),
            page: VecDeque::new(),
            next: Some(prefix.to_vec()),
            to,
            on_top: on_top.peekable(),
        }
    }
}

/// Rows in the order of their keys.
pub(super) struct RowStream<'a> {
    engine: &'a dyn Engine,
    page: VecDeque<KeyedRow>,
    next: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    on_top: Peekable<btree_map::Range<'a, Vec<u8>, Option<Vec<u8>>>>,
}

impl RowStream<'_> {
    fn fill(&mut self) -> Result<(), EngineError> {
        while self.page.is_empty()
            && let Some(from) = self.next.take()
        {
            let page = self.engine.scan(&from, self.to.as_deref(), PAGE)?;
            if page.more {
                self.next = page.rows.last().map(|(key, _)| [key.as_slice(), &[0]].concat());
            }
            self.page.extend(page.rows);
        }
        Ok(())
    }

    pub(super) fn next_row(&mut self) -> Result<Option<KeyedRow>, EngineError> {
        loop {
            self.fill()?;
            let below = self.page.front().map(|(key, _)| key);
            let on_top = self.on_top.peek().map(|(key, _)| *key);
            let covered = match (on_top, below) {
                (None, _) => return Ok(self.page.pop_front()),
                (Some(top), Some(below)) if below < top => return Ok(self.page.pop_front()),
                (Some(top), below) => below == Some(top),
            };
            if covered {
                self.page.pop_front();
            }
            if let Some((key, Some(value))) = self.on_top.next() {
                return Ok(Some((key.clone(), value.clone())));
            }
        }
    }
}

/// What a subvolume shows at its head or at a snapshot: its own versions first, then those of what it was cloned from.
#[derive(Clone, Debug)]
pub(super) struct View {
    levels: Vec<(SubvolumeId, Generation)>,
    pub(super) snapshot: bool,
}

/// A version that a view shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// The key after subvolume and tag, without the generation.
    pub(super) suffix: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Whether it is a row of the view's own subvolume.
    pub(super) own: bool,
}

impl Shown {
    pub(super) fn ino(&self) -> Option<Ino> {
        self.suffix.first_chunk().map(|ino| Ino(u64::from_be_bytes(*ino)))
    }

    /// The name at the end of the key of an entry or an attribute.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.suffix.get(8..)?.split_last().map(|(_, name)| name)
    }

    /// Block and offset at the end of the key of an extent.
    pub(super) fn place(&self) -> Option<(u32, u32)> {
        let (block, rest) = self.suffix.get(8..)?.split_first_chunk()?;
        let offset = rest.first_chunk()?;
        Some((u32::from_be_bytes(*block), u32::from_be_bytes(*offset)))
    }
}

impl View {
    pub(super) fn new(levels: Vec<(SubvolumeId, Generation)>, snapshot: bool) -> View {
        View { levels, snapshot }
    }

    pub(super) fn head(&self) -> (SubvolumeId, Generation) {
        self.levels.first().copied().unwrap_or((SubvolumeId::FIRST, Generation::FIRST))
    }

    /// The key under which this view's own version of an item is.
    pub(super) fn key(&self, item: &Item) -> Vec<u8> {
        let (subvolume, generation) = self.head();
        item.key(subvolume, generation)
    }

    /// What takes an item away: no row, or a tombstone where an older version might be shown instead.
    pub(super) fn nothing(&self) -> Option<Vec<u8>> {
        let history = self.levels.len() > 1 || self.head().1 > Generation::FIRST;
        history.then(|| TOMBSTONE.to_vec())
    }

    /// Everything of the kind that `like` is, in the order of the keys.
    pub(super) fn items<'a>(&self, image: &'a Image, like: &Item) -> ViewStream<'a> {
        self.below(image, &|id| like.prefix(id)[..5].to_vec())
    }

    /// Everything below the prefix that is given for a subvolume. Suffixes are counted from subvolume and tag.
    pub(super) fn below<'a>(
        &self,
        image: &'a Image,
        prefix: &dyn Fn(SubvolumeId) -> Vec<u8>,
    ) -> ViewStream<'a> {
        let levels = self.levels.iter().map(|(id, generation)| LevelStream {
            rows: image.rows(&prefix(*id)),
            generation: *generation,
            last: None,
            head: None,
            ended: false,
        });
        ViewStream(levels.collect())
    }

    pub(super) fn get(&self, image: &Image, item: &Item) -> Result<Option<Vec<u8>>, EngineError> {
        let mut found = self.below(image, &|id| item.prefix(id));
        Ok(found.next_item()?.map(|shown| shown.value))
    }
}

struct LevelStream<'a> {
    rows: RowStream<'a>,
    generation: Generation,
    last: Option<Vec<u8>>,
    head: Option<(Vec<u8>, Vec<u8>)>,
    ended: bool,
}

impl LevelStream<'_> {
    fn fill(&mut self) -> Result<(), EngineError> {
        while self.head.is_none() && !self.ended {
            let Some((key, value)) = self.rows.next_row()? else {
                self.ended = true;
                return Ok(());
            };
            let Some((item, version)) = key.split_last_chunk::<VERSION_LEN>() else { continue };
            let Some(suffix) = item.get(5..) else { continue };
            let version = Generation(!u32::from_be_bytes(*version));
            if version > self.generation || self.last.as_deref() == Some(suffix) {
                continue;
            }
            self.last = Some(suffix.to_vec());
            self.head = Some((suffix.to_vec(), value));
        }
        Ok(())
    }
}

/// Items of a view, each once.
pub(super) struct ViewStream<'a>(Vec<LevelStream<'a>>);

impl ViewStream<'_> {
    pub(super) fn next_item(&mut self) -> Result<Option<Shown>, EngineError> {
        loop {
            for level in &mut self.0 {
                level.fill()?;
            }
            let first = self.0.iter().filter_map(|level| level.head.as_ref().map(|(suffix, _)| suffix)).min();
            let Some(first) = first.cloned() else { return Ok(None) };
            let mut shown = None;
            for (index, level) in self.0.iter_mut().enumerate() {
                if level.head.as_ref().is_some_and(|(suffix, _)| *suffix == first)
                    && let Some((suffix, value)) = level.head.take()
                    && shown.is_none()
                {
                    shown = Some(Shown { suffix, value, own: index == 0 });
                }
            }
            if let Some(shown) = shown.filter(|shown| shown.value != TOMBSTONE) {
                return Ok(Some(shown));
            }
        }
    }
}
