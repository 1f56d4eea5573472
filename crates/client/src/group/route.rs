//! Which members are asked for a piece, in which order.

use std::time::{Duration, Instant};

use forebay_format::row::ObjectRef;
use forebay_group::{MemberId, MemberState, PieceKey, View, placement};
use forebay_protocol::SegmentPlace;
use forebay_types::SegmentId;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

/// What a cache keeps: all of it is asked of one member, so that no two have parts of it.
pub(super) const CHUNK: u64 = 256 << 10;
/// How long a width is believed that nobody repeats.
const WIDE_FOR: Duration = Duration::from_secs(10);
/// Widths that are remembered; all are forgotten when there are more.
const WIDTHS_MAX: usize = 1 << 14;

/// A segment in an object: from which byte on, how many, which.
type Within = (u64, u64, SegmentId);

/// Where in objects segments are: their pieces are placed by them.
#[derive(Debug, Default)]
pub(super) struct Pieces(RwLock<FxHashMap<ObjectRef, Vec<Within>>>);

impl Pieces {
    pub(super) fn learn(&self, segment: SegmentId, place: &SegmentPlace) {
        let mut objects = self.0.write();
        let segments = objects.entry(place.object).or_default();
        if !segments.iter().any(|(_, _, known)| *known == segment) {
            segments.push((place.offset, place.len, segment));
            segments.sort_unstable();
        }
    }

    pub(super) fn forget(&self, object: ObjectRef) {
        self.0.write().remove(&object);
    }

    /// The segment whose bytes are in the chunk with this byte, an offset in it, and the piece; of an object of which nothing is known, as if it were one segment.
    pub(super) fn of(&self, object: ObjectRef, offset: u64) -> (SegmentId, u64, PieceKey) {
        let start = offset - offset % CHUNK;
        let objects = self.0.read();
        let within = |(at, len, _): &&Within| *at < start + CHUNK && start < at.saturating_add(*len);
        let found = objects.get(&object).and_then(|segments| segments.iter().find(within));
        let (segment, at) = match found {
            Some((from, _, segment)) => (*segment, start.saturating_sub(*from)),
            None => (SegmentId(object.id.0), start),
        };
        (segment, at, PieceKey::of(segment, at))
    }
}

/// On how many members pieces are, as members say.
#[derive(Debug, Default)]
pub(super) struct Widths(Mutex<FxHashMap<PieceKey, (u32, Instant)>>);

impl Widths {
    pub(super) fn learn(&self, piece: PieceKey, width: u32) {
        let mut widths = self.0.lock();
        if width > 1 {
            if widths.len() >= WIDTHS_MAX {
                widths.clear();
            }
            let known = widths.get(&piece).filter(|(_, since)| since.elapsed() < WIDE_FOR);
            // One of several that have it knows less than the first.
            let width = known.map_or(width, |(known, _)| width.max(*known));
            widths.insert(piece, (width, Instant::now()));
        }
    }

    pub(super) fn of(&self, piece: PieceKey) -> u32 {
        let widths = self.0.lock();
        widths.get(&piece).filter(|(_, since)| since.elapsed() < WIDE_FOR).map_or(1, |(width, _)| *width)
    }
}

/// All members in the order in which they are asked for a piece: of this machine; active; draining; within these by their score.
pub(super) fn ranked(view: &View, here: &[MemberId], piece: PieceKey) -> Vec<MemberId> {
    let all = view.all();
    let mut ranked: Vec<MemberId> =
        placement::rank(piece, &all).into_iter().map(|candidate| candidate.id).collect();
    // Stable: the score orders those that are alike.
    ranked.sort_by_key(|id| {
        let member = view.members.get(id);
        let active = member.is_some_and(|member| member.state == MemberState::Active);
        (!(active && here.contains(id)), !active)
    });
    ranked
}

/// Whom to ask for a piece that is on `width` members: two at most. Of those that have it the one that costs less, of two drawn at random; behind it the first
/// one, or the next.
pub(super) fn candidates(
    view: &View,
    here: &[MemberId],
    piece: PieceKey,
    width: u32,
    cost: impl Fn(MemberId) -> u64,
) -> Vec<MemberId> {
    let mut ranked = ranked(view, here, piece);
    let width = (width as usize).min(ranked.len());
    if width > 1 && !ranked.first().is_some_and(|first| here.contains(first)) {
        let (one, other) = two_of(width);
        let better = if cost(ranked[other]) < cost(ranked[one]) { other } else { one };
        let chosen = ranked.remove(better);
        ranked.insert(0, chosen);
    }
    ranked.truncate(2);
    ranked
}

/// Two different numbers below `count`, at random.
fn two_of(count: usize) -> (usize, usize) {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(0);
    let one = (bits >> 32) as usize % count;
    let other = (bits & 0xffff_ffff) as usize % (count - 1);
    (one, if other >= one { other + 1 } else { other })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use forebay_group::{Incarnation, Member};
    use forebay_types::{Epoch, ObjectId};

    use super::*;

    fn id(number: u8) -> MemberId {
        MemberId([number; 16])
    }

    fn view(members: &[(u8, &str, MemberState)]) -> View {
        let mut view = View::new(2);
        for (number, node, state) in members {
            let member = Member {
                incarnation: Incarnation([1; 16]),
                address: "a:1".to_owned(),
                node: (*node).to_owned(),
                zone: "z".to_owned(),
                weight: 1,
                state: *state,
            };
            view.members.insert(id(*number), member);
        }
        view
    }

    fn piece(number: u64) -> PieceKey {
        PieceKey::of(SegmentId(number << 8), 0)
    }

    use MemberState::{Active, Draining};

    #[test]
    fn a_member_of_this_machine_is_first_and_draining_ones_are_last() {
        let view = view(&[(1, "a", Active), (2, "b", Active), (3, "c", Draining), (4, "d", Active)]);
        for number in 0..100 {
            let near = candidates(&view, &[id(2)], piece(number), 1, |_| 0);
            assert_eq!((near.len(), near[0]), (2, id(2)));
            assert_eq!(candidates(&view, &[id(2)], piece(number), 4, |_| 0)[0], id(2), "tier 0 is not left");
            let far = ranked(&view, &[], piece(number));
            assert_eq!(far[3], id(3), "it is asked last");
            assert_eq!(ranked(&view, &[id(3)], piece(number))[3], id(3), "also by its own machine");
            assert_eq!(Some(far[0]), placement::first(piece(number), &view.active()));
        }
        assert!(candidates(&super::tests::view(&[]), &[id(1)], piece(1), 3, |_| 0).is_empty());
    }

    #[test]
    fn of_many_that_have_a_piece_the_one_with_less_to_do_is_asked() {
        let members: Vec<_> = (1..=6).map(|number| (number, "n", Active)).collect();
        let view = view(&members);
        let order = ranked(&view, &[], piece(7));
        let mut asked = std::collections::BTreeMap::new();
        for _ in 0..600 {
            let chosen = candidates(&view, &[], piece(7), 3, |id| u64::from(id == order[0]));
            *asked.entry(chosen[0]).or_insert(0) += 1;
            assert_ne!(chosen[0], chosen[1]);
        }
        assert!(!asked.contains_key(&order[0]), "the other of two costs less each time");
        assert!(order[1..3].iter().all(|id| asked[id] > 100), "{asked:?}");
        assert_eq!(asked.len(), 2, "no others than the first three");
    }

    #[test]
    fn chunks_are_placed_by_the_segment_that_lies_in_them() {
        let pieces = Pieces::default();
        let object = ObjectRef { epoch: Epoch(1), id: ObjectId(77) };
        assert_eq!(
            pieces.of(object, 5 << 20),
            (SegmentId(77), 5 << 20, PieceKey::of(SegmentId(77), 5 << 20))
        );
        pieces.learn(SegmentId(0x900), &SegmentPlace { object, offset: 128, len: 10 << 20 });
        pieces.learn(SegmentId(0x900), &SegmentPlace { object, offset: 128, len: 10 << 20 });
        let next = (10 << 20) + 128;
        pieces.learn(SegmentId(0xa00), &SegmentPlace { object, offset: next, len: 1000 });
        assert_eq!(pieces.of(object, 0).0, SegmentId(0x900));
        assert_eq!(
            pieces.of(object, 300_000),
            (SegmentId(0x900), CHUNK - 128, PieceKey::of(SegmentId(0x900), 0))
        );
        let within = |offset: u64| pieces.of(object, offset);
        assert_eq!(within(CHUNK + 1), within(2 * CHUNK - 1), "a chunk is one");
        assert_eq!(within(10 << 20).0, SegmentId(0x900), "the first that lies in it");
        assert_eq!(within(20 << 20).0, SegmentId(77));
        pieces.forget(object);
        assert_eq!(within(0).0, SegmentId(77));
    }
}
