//! The registry: which volumes, tokens and servers there are, in a database of the engine's place that all servers share.
//!
//! Guarantees: changes of volumes and tokens happen one after the other, each seen whole or not at all, whichever server makes them; a change
//! that is acknowledged is durable. Relies on the engine's fences: each change expects the row that counts changes as it was when it was decided,
//! and puts the next one, which also settles what became of a batch whose answer was lost.
//!
//! Beats of servers are no changes: each server puts its own row, and no other.

mod groups;
mod rows;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use forebay_cluster::ServerId;
use forebay_engine::{Batch, Engine, EngineError, Outcome, settle};
use forebay_format::{FormatError, row::Row};
use forebay_types::VolumeId;
use parking_lot::{Mutex, RwLock};

pub use groups::{Found, GroupBatch, GroupMembers};
use rows::{CHANGES, MEMBERS, SCHEMA, TOKENS, VOLUMES};
pub use rows::{
    DeletedRow, GroupEntry, GroupMemberRow, Mark, MemberRow, PlaceAddress, TokenId, TokenRow, VolumePlace,
    VolumeRow, VolumeState,
};

/// The version of the registry's layout that this release writes, and the last that it reads.
const VERSION: u32 = 1;
/// Rows that one call reads.
const PAGE: usize = 4096;
/// How often a change is settled whose outcome nobody knows, before its caller is told so.
const SETTLE_TRIES: u32 = 5;

/// Why the registry could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row is not what this release writes.
    #[error("the registry in {place} is damaged: {source}")]
    Damaged {
        /// Where it is.
        place: String,
        /// What is wrong.
        #[source]
        source: FormatError,
    },
    /// The system has no random bits.
    #[error("the system has no random bits: {0}")]
    Random(#[from] std::io::Error),
    /// A place with one writer has another one now.
    #[error("another metadata server has taken {place}: one at a time works over it, others stand by")]
    ShutOut {
        /// Where it is.
        place: String,
    },
    /// A change was handed to the engine, which does not answer any more.
    #[error("nobody knows whether the registry in {place} was changed: look before you repeat it")]
    Unknown {
        /// Where it is.
        place: String,
    },
}

/// All volumes and tokens, as they were after one change.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Which change.
    pub mark: Mark,
    /// Volumes by their names.
    pub volumes: BTreeMap<String, VolumeRow>,
    /// Tokens by their numbers.
    pub tokens: BTreeMap<TokenId, TokenRow>,
}

impl View {
    /// The volume with this identity, and its name.
    #[must_use]
    pub fn volume(&self, id: VolumeId) -> Option<(&str, &VolumeRow)> {
        self.volumes.iter().find(|(_, row)| row.id == id).map(|(name, row)| (name.as_str(), row))
    }
}

/// A row to be put, or taken away.
#[derive(Debug)]
pub enum Change {
    /// A volume of this name.
    Volume(String, Option<VolumeRow>),
    /// A token with this number.
    Token(TokenId, Option<TokenRow>),
    /// A volume was deleted: that is known for ever.
    Deleted(VolumeId, DeletedRow),
    /// The group of this name goes, whose row has these bytes.
    GroupGoes(String, Vec<u8>),
}

impl Change {
    fn row(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Change::Deleted(id, row) => (rows::deleted_key(*id), Some(row.encode())),
            Change::GroupGoes(name, _) => (rows::group_key(name), None),
            Change::Volume(name, row) => (rows::volume_key(name), row.as_ref().map(Row::encode)),
            Change::Token(id, row) => (rows::token_key(*id), row.as_ref().map(Row::encode)),
        }
    }
}

/// The registry of one place of engines. Calls block, and may come from any thread.
#[derive(Debug)]
pub struct Registry {
    engine: Arc<dyn Engine>,
    place: String,
    view: RwLock<Arc<View>>,
    /// Who reads all rows anew.
    reading: Mutex<()>,
}

impl Registry {
    /// Opens the registry in `engine`, or makes one where there is none.
    ///
    /// # Errors
    /// [`RegistryError`]; [`EngineError::Newer`] where a later release made it.
    pub fn open(engine: Arc<dyn Engine>, place: String) -> Result<Registry, RegistryError> {
        let registry = Registry { engine, place, view: RwLock::default(), reading: Mutex::new(()) };
        registry.check_version()?;
        registry.refresh()?;
        Ok(registry)
    }

    fn check_version(&self) -> Result<(), RegistryError> {
        let ours = VERSION.to_le_bytes();
        loop {
            if let Some(found) = self.engine.get(SCHEMA)? {
                let found = <[u8; 4]>::try_from(found.as_slice()).map(u32::from_le_bytes).map_err(|_| {
                    let detail = "its version has another length".to_owned();
                    self.damaged(FormatError::Invalid { what: "the registry", detail })
                })?;
                return match found {
                    VERSION => Ok(()),
                    _ => {
                        let place = format!("{} (its registry)", self.place);
                        Err(EngineError::Newer { place, found, known: VERSION }.into())
                    }
                };
            }
            // Whoever comes first; it is read again in any case.
            let batch = Batch { expect: vec![(SCHEMA.to_vec(), None)], rows: vec![(SCHEMA, Some(&ours))] };
            self.engine.commit(&batch)?;
        }
    }

    /// What was read last.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Reads again, if there was a change.
    ///
    /// # Errors
    /// [`RegistryError`]; what was read before stays.
    pub fn refresh(&self) -> Result<Arc<View>, RegistryError> {
        let _alone = self.reading.lock();
        let mut mark = self.mark()?;
        if mark == self.view().mark {
            return Ok(self.view());
        }
        loop {
            let mut view = View { mark, ..View::default() };
            self.each_row(VOLUMES, |key, value| {
                let row = VolumeRow::decode(value)?;
                view.volumes.extend(rows::name_of(key).map(|name| (name, row)));
                Ok(())
            })?;
            self.each_row(TOKENS, |key, value| {
                let row = TokenRow::decode(value)?;
                view.tokens.extend(rows::token_of(key).map(|id| (id, row)));
                Ok(())
            })?;
            let after = self.mark()?;
            if after == mark {
                let view = Arc::new(view);
                *self.view.write() = Arc::clone(&view);
                return Ok(view);
            }
            // Somebody changed it meanwhile: pages before and after may be of different changes.
            mark = after;
        }
    }

    /// Makes a change. `decide` is given all that there is and says which rows change, and is asked again where another change came first.
    ///
    /// # Errors
    /// What `decide` said, or [`RegistryError`].
    pub fn change<T, E: From<RegistryError>>(
        &self,
        mut decide: impl FnMut(&View) -> Result<(Vec<Change>, T), E>,
    ) -> Result<T, E> {
        loop {
            let view = self.refresh()?;
            let (changes, result) = decide(&view)?;
            if changes.is_empty() || self.commit(&view.mark, &changes)? {
                self.refresh()?;
                return Ok(result);
            }
        }
    }

    /// Whether the change was committed; else another one came first.
    fn commit(&self, before: &Mark, changes: &[Change]) -> Result<bool, RegistryError> {
        let nonce = u64::from_le_bytes(forebay_env::random()?);
        let next = Mark { number: before.number + 1, nonce }.encode();
        let expect = (*before != Mark::default()).then(|| before.encode());
        let rows: Vec<_> = changes.iter().map(Change::row).collect();
        let mut batch = Batch::of(&rows);
        batch.rows.push((CHANGES, Some(&next)));
        batch.expect.push((CHANGES.to_vec(), expect));
        for change in changes {
            if let Change::GroupGoes(name, bytes) = change {
                batch.expect.push((rows::group_key(name), Some(bytes.clone())));
            }
        }
        self.commit_settled(&batch, CHANGES)
    }

    /// Whether the batch was committed, which `mark` tells where its answer is lost; else one of its fences did not hold.
    fn commit_settled(&self, batch: &Batch<'_>, mark: &[u8]) -> Result<bool, RegistryError> {
        let mut outcome = self.engine.commit(batch)?;
        for _ in 0..SETTLE_TRIES {
            match outcome {
                Outcome::Committed => return Ok(true),
                Outcome::Fenced => return Ok(false),
                Outcome::Unknown => {}
            }
            match settle(self.engine.as_ref(), batch, mark) {
                Ok(settled) => outcome = settled,
                Err(error) => tracing::warn!(%error, "a change of the registry is not settled"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(RegistryError::Unknown { place: self.place.clone() })
    }

    /// The name that a volume had, where it is on record that it was deleted. No such record goes away again, so one that is read is true, by whichever server; where there
    /// is none, nothing is known.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn deleted(&self, id: VolumeId) -> Result<Option<String>, RegistryError> {
        let row = self.engine.get(&rows::deleted_key(id))?;
        let row = row.map(|row| DeletedRow::decode(&row)).transpose();
        Ok(row.map_err(|source| self.damaged(source))?.map(|row| row.name))
    }

    /// The servers that have rows, dead ones too.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn members(&self) -> Result<Vec<(ServerId, MemberRow)>, RegistryError> {
        let mut members = Vec::new();
        self.each_row(MEMBERS, |key, value| {
            let row = MemberRow::decode(value)?;
            members.extend(rows::member_of(key).map(|id| (id, row)));
            Ok(())
        })?;
        Ok(members)
    }

    /// Puts a server's row, or takes it away. Returns whether that is certain: else the next beat tells.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn put_member(&self, id: ServerId, row: Option<&MemberRow>) -> Result<bool, RegistryError> {
        let rows = [(rows::member_key(id), row.map(Row::encode))];
        match self.engine.commit(&Batch::of(&rows))? {
            // It expects nothing: the place itself fences.
            Outcome::Fenced => Err(RegistryError::ShutOut { place: self.place.clone() }),
            outcome => Ok(outcome == Outcome::Committed),
        }
    }

    fn mark(&self) -> Result<Mark, RegistryError> {
        let row = self.engine.get(CHANGES)?;
        row.map_or(Ok(Mark::default()), |row| Mark::decode(&row).map_err(|source| self.damaged(source)))
    }

    fn damaged(&self, source: FormatError) -> RegistryError {
        RegistryError::Damaged { place: self.place.clone(), source }
    }

    fn each_row(
        &self,
        prefix: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), FormatError>,
    ) -> Result<(), RegistryError> {
        // A prefix is one byte, none of them the last.
        let to = [prefix[0] + 1];
        let mut from = prefix.to_vec();
        loop {
            let page = self.engine.scan(&from, Some(&to), PAGE)?;
            for (key, value) in &page.rows {
                each(key, value).map_err(|source| self.damaged(source))?;
            }
            match page.rows.last() {
                Some((last, _)) if page.more => from = [last, &[0][..]].concat(),
                _ => return Ok(()),
            }
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
