//! Volumes, tokens and servers, for those who run them.

use forebay_types::{Compression, Timespec, VolumeId};

use crate::word::{choice, lists, record};

/// A volume, as its registry has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeInfo {
    /// Its name: 1 to 64 of `a-z 0-9 - _ .`, beginning with a letter or digit.
    pub name: String,
    /// Its number, never used again.
    pub id: VolumeId,
    /// Where its data is: `s3://`, `gs://`, `az://` or `file://`, as clients reach it.
    pub store: String,
    /// The store's endpoint, where it is not the vendor's own.
    pub endpoint: Option<String>,
    /// The store's region.
    pub region: Option<String>,
    /// The size of a block of a file, in bytes.
    pub block_size: u32,
    /// How data is compressed.
    pub compression: Compression,
    /// When it was made.
    pub created: Timespec,
    /// How many bytes its files may have; `None` for no limit.
    pub limit: Option<u64>,
    /// Raised by each change.
    pub generation: u64,
}

/// What is to be done with volumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeRequest {
    /// Makes one: name, store and the like as wanted; id, time and generation are the server's.
    Create(VolumeInfo),
    /// All of them.
    List,
    /// One of them.
    Show(String),
    /// Changes one.
    Set(String, VolumeSet),
    /// The one with this number, if it is on record that it was deleted, or is being deleted: it never comes back. Nothing where that is not known.
    Deleted(VolumeId),
    /// Forgets one that nobody has mounted. Its objects stay unless the second says otherwise.
    Delete(String, bool),
}

/// What is to be changed of a volume; `None` leaves it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeSet {
    /// How new data is compressed.
    pub compression: Option<Compression>,
    /// How many bytes its files may have; `Some(None)` for no limit.
    pub limit: Option<Option<u64>>,
    /// Where its store is reached.
    pub endpoint: Option<Option<String>>,
}

/// A token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenInfo {
    /// Its name in lists: not the secret.
    pub id: String,
    /// The volume that it is for.
    pub volume: String,
    /// The directory that is its root, `/` for all.
    pub root: String,
    /// It changes nothing.
    pub read_only: bool,
    /// Nothing is executed.
    pub no_exec: bool,
    /// Its root user is nobody.
    pub root_squash: bool,
    /// When it was made.
    pub created: Timespec,
    /// Until when it counts; `None` for ever.
    pub expires: Option<Timespec>,
}

/// What is to be done with tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenRequest {
    /// Makes one: its id and time are the server's. The answer has the secret, which nobody can read again.
    Create(TokenInfo),
    /// Those of a volume, or all.
    List(Option<String>),
    /// Ends one, and the sessions that began with it.
    Revoke(String),
}

/// Asks how a volume is moved to another place of engines, and may begin that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrateRequest {
    /// The volume.
    pub volume: String,
    /// Where to, as `forebay meta --engine` takes it; `None` only asks.
    pub to: Option<String>,
}

/// How far the move of a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MigratePhase {
    /// It is not moved, as far as the owner knows.
    #[default]
    Idle,
    /// Rows are copied.
    Copying,
    /// Rows that changed meanwhile are copied.
    CatchingUp,
    /// Both sides are compared.
    Comparing,
    /// It changes over.
    Switching,
    /// It is over there; what was left is removed.
    CleaningUp,
    /// All is done.
    Done,
}

/// How the move of a volume stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigrateStatus {
    /// Where its rows are now, without secrets.
    pub place: String,
    /// Where it is moved to, or was last; empty: nowhere.
    pub to: String,
    /// How far that is.
    pub phase: MigratePhase,
    /// Rows that were copied, and bytes of their keys and values.
    pub rows: u64,
    /// Those bytes.
    pub bytes: u64,
    /// Rows that were compared.
    pub compared: u64,
    /// How long requests waited, in microseconds; known once it has changed over.
    pub pause_us: u64,
    /// Why it failed.
    pub failed: Option<String>,
}

/// A server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its number, for people.
    pub id: String,
    /// Where it is reached.
    pub address: String,
    /// Whether it was heard of lately.
    pub alive: bool,
    /// Its release.
    pub release: String,
}

/// A volume, and who owns it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnedStatus {
    /// Its name.
    pub name: String,
    /// The owner's address; empty where there is none.
    pub owner: String,
    /// The owner's term.
    pub epoch: u64,
    /// Sessions; what follows is known of volumes that the asked server owns.
    pub sessions: Option<u64>,
    /// Names of the clients.
    pub clients: Vec<String>,
    /// Requests that wait for leases.
    pub waiting: u64,
    /// Batches that were committed.
    pub batches: u64,
    /// Bytes of its files.
    pub used: u64,
}

/// What a server says of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerStatus {
    /// The server that was asked.
    pub server: String,
    /// The engine.
    pub engine: String,
    /// All servers.
    pub members: Vec<MemberStatus>,
    /// All volumes.
    pub volumes: Vec<OwnedStatus>,
}

/// A client of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientStatus {
    /// What it calls itself.
    pub name: String,
    /// Where it is connected from; `None` while it is not.
    pub address: Option<String>,
    /// When it was heard of last: so many milliseconds ago.
    pub heard_ms: u64,
    /// Its leases.
    pub leases: u64,
}

/// What a volume's owner knows of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnerDetail {
    /// Those that have a session.
    pub clients: Vec<ClientStatus>,
    /// Requests that wait, most of them for leases.
    pub waiting: u64,
    /// Batches that this owner has committed.
    pub batches: u64,
    /// What one of them took the engine lately, in microseconds.
    pub commit_us: u64,
    /// Bytes of its files.
    pub used: u64,
    /// How many they may have; `None` for no limit.
    pub limit: Option<u64>,
}

/// A volume, as one server sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// The owner's address; empty where there is none.
    pub owner: String,
    /// The owner's term.
    pub epoch: u64,
    /// What the owner says, where that is the server that was asked.
    pub detail: Option<OwnerDetail>,
}

/// What one server says of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overview {
    /// The server that was asked.
    pub server: String,
    /// The engine.
    pub engine: String,
    /// For how long it has served, in milliseconds.
    pub uptime_ms: u64,
    /// All servers.
    pub members: Vec<MemberStatus>,
    /// All volumes.
    pub volumes: Vec<VolumeStatus>,
}

record!(VolumeInfo {
    name,
    id,
    store,
    endpoint,
    region,
    block_size,
    compression,
    created,
    limit,
    generation,
});
record!(VolumeSet { compression, limit, endpoint });
record!(TokenInfo { id, volume, root, read_only, no_exec, root_squash, created, expires });
record!(MemberStatus { id, address, alive, release });
record!(OwnedStatus { name, owner, epoch, sessions, clients, waiting, batches, used });
record!(MigrateRequest { volume, to });
record!(MigrateStatus { place, to, phase, rows, bytes, compared, pause_us, failed });
record!(ServerStatus { server, engine, members, volumes });
record!(ClientStatus { name, address, heard_ms, leases });
record!(OwnerDetail { clients, waiting, batches, commit_us, used, limit });
record!(VolumeStatus { name, owner, epoch, detail });
record!(Overview { server, engine, uptime_ms, members, volumes });
choice!(VolumeRequest {
    1 => Create(volume),
    2 => List,
    3 => Show(name),
    4 => Set(name, set),
    5 => Delete(name, objects),
    6 => Deleted(id),
});
choice!(MigratePhase {
    1 => Idle,
    2 => Copying,
    3 => CatchingUp,
    4 => Comparing,
    5 => Switching,
    6 => CleaningUp,
    7 => Done,
});
choice!(TokenRequest { 1 => Create(token), 2 => List(volume), 3 => Revoke(id) });
lists!(VolumeInfo, TokenInfo, MemberStatus, OwnedStatus, ClientStatus, VolumeStatus);
