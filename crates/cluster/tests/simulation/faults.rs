//! What goes wrong in a world, and mistakes that are made in it on purpose.

use rand::{Rng, RngExt};

use crate::{
    messages::Node,
    world::{CLIENTS, MILLISECOND, SECOND, SERVERS},
};

/// A mistake in a server or a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The engine does not look at the fence.
    NoFence,
    /// A request is carried out before the leases in its way are returned.
    NoRecall,
    /// What a slot answered is not stored.
    NoRetryRow,
    /// Answers do not wait for the commit.
    ReplyBeforeCommit,
    /// A recalled lease is returned, and the kernel keeps what it has.
    StaleKernel,
    /// A lease is returned before what was changed under it is sent.
    FlushAfterReturn,
    /// An owner looks things up although another may have taken over.
    ServesTooLong,
    /// A client goes by its leases although its session may have ended.
    KeepsTooLong,
    /// A new owner changes things before leases to read were reclaimed.
    NoGrace,
    /// Leases to write are in no row.
    NoWriteRow,
    /// The kernel keeps that a name is not there when the lease on the directory is returned.
    StaleNegative,
    /// What was done ahead is told in another order.
    OutOfOrder,
    /// A lease is returned before what was done ahead under it is told.
    ReturnBeforeTold,
    /// What was done ahead and lost with a session is told in the next one, but for its beginning.
    KeepsPartOfQueue,
    /// What depends on a step that the owner refused is told all the same.
    GoesOnAfterRefusal,
    /// A change of names at the owner does not wait for what was done ahead elsewhere.
    OvertakesQueue,
    /// A file is moved before its bytes are stored.
    MovesBeforeData,
    /// fsync does not wait for what was done ahead.
    SyncsTooEarly,
    /// A commit names an object of which the store has not said that it has it.
    CommitBeforeStored,
    /// What the owner tells of a file counts more than what was written to it and is not told.
    OldOverNew,
    /// Locks are in no row.
    NoLockRow,
    /// A file's bytes that need no object are told before the file is made.
    CommitBeforeMade,
    /// fsync does not wait for a commit that goes along with steps.
    SyncsBeforeStep,
    /// A lease is returned before a commit that goes along with steps is told.
    ReturnsBeforeStep,
    /// A commit that went along and was refused counts as taken in.
    BelievesRefusedStep,
    /// What was done ahead is refused whole where the lease for a commit that goes along is missing.
    RefusesForCommit,
    /// A late copy of a request that was answered ends its session.
    EndsForLateCopy,
    /// A server takes the place when its log has stood still for a third of the time, and volumes with it.
    TakesPlaceEarly,
    /// What was put into the registry between the last look and its opening does not count.
    TakesPlaceUnseen,
    /// Where the server's beats renew an ownership, its batches do as well.
    BatchesRenew,
}

impl Planted {
    pub const ALL: &[Planted] = &[
        Planted::NoFence,
        Planted::NoRecall,
        Planted::NoRetryRow,
        Planted::ReplyBeforeCommit,
        Planted::StaleKernel,
        Planted::FlushAfterReturn,
        Planted::ServesTooLong,
        Planted::KeepsTooLong,
        Planted::NoGrace,
        Planted::NoWriteRow,
        Planted::StaleNegative,
        Planted::OutOfOrder,
        Planted::ReturnBeforeTold,
        Planted::KeepsPartOfQueue,
        Planted::GoesOnAfterRefusal,
        Planted::OvertakesQueue,
        Planted::MovesBeforeData,
        Planted::SyncsTooEarly,
        Planted::CommitBeforeStored,
        Planted::OldOverNew,
        Planted::NoLockRow,
        Planted::CommitBeforeMade,
        Planted::SyncsBeforeStep,
        Planted::ReturnsBeforeStep,
        Planted::BelievesRefusedStep,
        Planted::RefusesForCommit,
        Planted::EndsForLateCopy,
        Planted::TakesPlaceEarly,
        Planted::TakesPlaceUnseen,
        Planted::BatchesRenew,
    ];
}

/// Something that happens to a world.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A process dies, and its successor begins at once.
    Crash(Node),
    /// A process stands still for this long.
    Pause(Node, u64),
    /// Two processes do not reach each other for this long.
    Cut(Node, Node, u64),
    /// A process reaches nobody for this long.
    Isolate(Node, u64),
    /// A server reaches everybody but the engine for this long.
    NoEngine(Node, u64),
    /// The engine takes and gives nothing for this long.
    EngineAway(u64),
    /// A server stops in order.
    Stop(usize),
    /// A server reaches the engine but not the registry for this long.
    NoRegistry(Node, u64),
}

impl Fault {
    /// `alone`: one server at a time has the place.
    pub fn draw(rng: &mut impl Rng, alone: bool) -> Fault {
        let server = Node::Server(rng.random_range(0..SERVERS));
        let client = Node::Client(rng.random_range(0..CLIENTS));
        let either = if rng.random_bool(0.5) { server } else { client };
        let long = rng.random_range(200 * MILLISECOND..16 * SECOND);
        match rng.random_range(0..if alone { 16 } else { 14 }) {
            0 | 1 => Fault::Crash(server),
            2 => Fault::Crash(client),
            3 | 4 => Fault::Pause(server, long / 2),
            5 | 6 => Fault::Pause(client, long),
            7 => Fault::Cut(client, server, long),
            8 | 9 => Fault::Isolate(either, long),
            10 => Fault::EngineAway(long / 4),
            11 | 12 => Fault::NoEngine(server, long),
            14 | 15 => Fault::NoRegistry(server, long / 2),
            _ => Fault::Stop(rng.random_range(0..SERVERS)),
        }
    }
}
