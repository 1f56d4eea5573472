//! What clients, metadata servers and proxies of a shared volume say to each other, and its bytes.
//!
//! Guarantees: what is decoded is what was encoded; bytes that are no message are an error that takes no more memory than they have themselves.
//! Relies on the frames below for whole messages (`docs/design/wire.md`). The messages are listed in `docs/design/messages.md`.

mod admin;
mod ahead;
mod answer;
mod commit;
mod foreign;
pub mod group;
mod kind;
mod operation;
mod policy;
mod refusal;
mod request;
mod session;
mod sets;
mod word;

pub use admin::{
    ClientStatus, MemberStatus, MigratePhase, MigrateRequest, MigrateStatus, Overview, OwnedStatus,
    OwnerDetail, ServerStatus, TokenInfo, TokenRequest, VolumeInfo, VolumeRequest, VolumeSet, VolumeStatus,
};
pub use ahead::{Step, Undone};
pub use answer::{Answer, Contents, DirectoryEntry, Failure, InodeAnswer, Mapped, SegmentPlace, SpaceAnswer};
pub use commit::{Commit, FileCommit, Numbers, ObjectCommit, SegmentCommit};
pub use kind::Kind;
pub use operation::{MAP_PIECES_MAX, Operation};
pub use policy::{
    Bounds, Disks, GroupRule, KeptOf, POLICIES_MAX, PolicyChange, PolicyEdit, PolicyInfo, PolicyKept,
    PolicyParts, PolicyReport, PolicyRequest, PolicyRule, PolicySaid, PolicyStep, PolicySums, PolicyVersion,
    PolicyWhat, VolumeKept, Wanted, WantedOf, WantedPlace, Wish,
};
pub use refusal::{Refusal, Rights};
pub use request::{Request, Response};
pub use session::{Hello, Push, RETURNS_MAX, Recall, Reclaim, Reclaimed, Return, Welcome};
pub use sets::{
    FencedCopies, FencedCopy, Judged, MEMBERS_MAX, OPEN_MAX, OfferCopies, OpenSegments, OpenedSegment,
    Placing, Reseat, SEGMENTS_MAX, SET_MAX, SealedSegment, SetPlace, Settle, StoreSegments, StoredSegment,
    ZONE_MAX, confined_in, is_confined, unconfined,
};
pub use word::{Message, Word};
