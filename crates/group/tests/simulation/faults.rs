//! What goes wrong in a world, and mistakes that are made in it on purpose.

use rand::{Rng, RngExt};

use crate::{
    messages::Node,
    world::{CLIENTS, MEMBERS, METAS, MILLISECOND, SECOND},
};

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// What one member has is committed, and counts.
    SingleCopy,
    /// What a member has failed to take is committed, and counts, once the others have it.
    SealWithoutAll,
    /// A member goes on acting by the view that it had.
    StaleView,
    /// A member that has much makes room by giving up what is dirty.
    EvictsDirty,
    /// A member gives a copy up when it has begun to put it.
    DropsBeforeStored,
    /// A member answers before its log is synced.
    AnswersBeforeSync,
    /// What a session asked for is carried out after its end.
    CommitsAfterEnd,
    /// A commit is sent before any of a set have said that they have the bytes.
    CommitsAtOnce,
    /// A segment is settled when it has ended, although the commit that names it is yet to be answered.
    SettlesEarly,
    /// Garbage collection looks at live bytes alone.
    CollectsUnsettled,
    /// A member is removed without looking at what it has.
    RemovesDirty,
    /// A copy for repair is in the set before it is there.
    SeatsAtOnce,
    /// A segment is given up once one of its set was, and not all.
    GivesUpTooMuch,
    /// Recovery takes a member that does not answer for one that has nothing.
    EndsUnheard,
    /// What members cannot take is named to the owner before the store has it.
    NamesBeforeStored,
}

impl Planted {
    pub const ALL: &[Planted] = &[
        Planted::SingleCopy,
        Planted::SealWithoutAll,
        Planted::StaleView,
        Planted::EvictsDirty,
        Planted::DropsBeforeStored,
        Planted::AnswersBeforeSync,
        Planted::CommitsAfterEnd,
        Planted::CommitsAtOnce,
        Planted::SettlesEarly,
        Planted::CollectsUnsettled,
        Planted::RemovesDirty,
        Planted::SeatsAtOnce,
        Planted::GivesUpTooMuch,
        Planted::EndsUnheard,
        Planted::NamesBeforeStored,
    ];
}

/// Something that happens to a world.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A process dies, and its successor begins at once. A member's disk loses some of what was not synced.
    Crash(Node),
    /// A process stands still for this long.
    Pause(Node, u64),
    /// Two processes do not reach each other for this long.
    Cut(Node, Node, u64),
    /// A process reaches nobody for this long.
    Isolate(Node, u64),
    /// The engine takes and gives nothing for this long.
    EngineAway(u64),
    /// So does the store.
    StoreAway(u64),
    /// A member's disk is lost; its successor has a new one.
    LoseDisk(usize),
    /// A member is to be drained and removed.
    Drain(usize),
    /// A member's disk is lost, whatever else was lost: perhaps nobody has what it had.
    Burn(usize),
    /// A member reaches nobody, then a client dies that had appends on their way to it, and the store is away: what it left is recovered from the others.
    HalfWay(usize, usize, u64),
    /// A member reaches nobody for this long, and the operator takes its disk for lost: it is given up once it is counted out, and then comes back with all that it has.
    Mistake(usize, u64),
}

impl Fault {
    pub fn draw(rng: &mut impl Rng) -> Fault {
        let member = Node::Member(rng.random_range(0..MEMBERS));
        let client = Node::Client(rng.random_range(0..CLIENTS));
        let meta = Node::Meta(rng.random_range(0..METAS));
        let any = [member, member, client, meta][rng.random_range(0..4)];
        let other = [member, meta, client][rng.random_range(0..3)];
        let long = rng.random_range(200 * MILLISECOND..20 * SECOND);
        match rng.random_range(0..25) {
            0..=2 => Fault::Crash(member),
            3..=5 => Fault::Crash(client),
            6 => Fault::Crash(meta),
            7 | 8 => Fault::Pause(any, long),
            9 => Fault::Pause(client, long),
            10..=12 => Fault::Cut(any, other, long),
            13 => Fault::Isolate(any, long),
            14 => Fault::EngineAway(long / 4),
            15 | 16 => Fault::StoreAway(long),
            17 | 18 => Fault::LoseDisk(rng.random_range(0..MEMBERS)),
            19 => Fault::Drain(rng.random_range(0..MEMBERS)),
            24 => Fault::HalfWay(rng.random_range(0..MEMBERS), rng.random_range(0..CLIENTS), long),
            20 | 21 => Fault::Burn(rng.random_range(0..MEMBERS)),
            _ => Fault::Mistake(rng.random_range(0..MEMBERS), 8 * SECOND + long),
        }
    }
}
