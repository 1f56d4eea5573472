//! The protocols by which proxies share a cache and keep what was written until the store has it, as state machines without I/O, clock or
//! thread of their own.
//!
//! - [`placement`]: which members of a view have a piece.
//! - [`GroupRow`], [`MemberRow`], [`Change`]: views, each change of which is one fenced batch; [`Watch`]: who is counted out.
//! - [`Membership`]: the same from a member's side: until when it acts.
//! - [`MemberLog`]: what a member has in its log, and what it refuses.
//! - [`Replication`]: a writer's open segment over k logs, and up to where all of them have it.
//! - [`SetRow`]: the owner's row of a segment that the store may not have; what members are told who offer a copy.
//! - [`Recovery`]: what a writer that ended has left, from any survivors; [`Inquiry`]: the same once those who had all of it are gone.
//! - [`Budget`]: how much dirty data a member takes.
//!
//! Times are passed in, what is to be sent or stored is handed out. What each guarantees, and why, is in `docs/design/proxy-group.md`.

mod budget;
mod changes;
mod heat;
mod ids;
mod inquiry;
mod keeper;
mod log;
mod membership;
pub mod placement;
mod recovery;
mod refusal;
mod replication;
mod set;
mod terms;
mod view;

pub use budget::Budget;
pub use changes::Shape;
pub use heat::Heat;
pub use ids::{GroupId, Incarnation, MemberId, NoMemberId, ViewEpoch};
pub use inquiry::{Inquiry, Left};
pub use keeper::{Change, Joining, MemberRow, Renewal, Watch};
pub use log::{Append, Fenced, Kept, LogError, MemberLog, Offer, Piece, Record, Step};
pub use membership::{Membership, NotActing};
pub use placement::{Candidate, PieceKey};
pub use recovery::{Recovered, Recovery};
pub use refusal::Refusal;
pub use replication::{Closed, Replication};
pub use set::{Gone, Hope, NotTaken, SetRow, SetState, Verdict, repair};
pub use terms::GroupTerms;
pub use view::{GroupRow, Member, MemberState, View};
