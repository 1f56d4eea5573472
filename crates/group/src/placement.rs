//! Which members have a piece: weighted rendezvous hashing.
//!
//! Guarantees: machines that know the same members agree to the bit (integers only); a member that comes or goes moves only what is to be its own;
//! a member's share is its weight's; k copies lie in k zones where there are as many. Cost: one hash and 32 multiplications a member.

use forebay_types::SegmentId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::MemberId;

/// Bytes of a piece, and of a group's segment at most.
pub const PIECE: u64 = 4 << 20;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// Bytes of a zone's name at most.
pub const ZONE_MAX: usize = 64;

/// What is placed: 4 MiB of a segment. Segments of one run of 256 numbers lie together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PieceKey {
    run: u64,
    piece: u64,
}

impl PieceKey {
    /// The piece with the byte at `offset` of a segment.
    #[must_use]
    pub const fn of(segment: SegmentId, offset: u64) -> PieceKey {
        PieceKey { run: segment.0 >> 8, piece: offset / PIECE }
    }
}

/// A member as placement sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who.
    pub id: MemberId,
    /// Its share, 1 to [`WEIGHT_MAX`]; what is beyond counts as the nearest of these.
    pub weight: u32,
    /// Its failure domain.
    pub zone: String,
}

/// The members, best first. Of two with one score the greater id comes first.
#[must_use]
pub fn rank(key: PieceKey, members: &[Candidate]) -> Vec<&Candidate> {
    let mut scored: Vec<_> = members.iter().map(|member| (cost(key, member), member)).collect();
    scored.sort_by(|(one, a), (other, b)| smaller(*one, *other).then_with(|| b.id.cmp(&a.id)));
    scored.into_iter().map(|(_, member)| member).collect()
}

/// The best member; `None` where there is none.
#[must_use]
pub fn first(key: PieceKey, members: &[Candidate]) -> Option<MemberId> {
    rank(key, members).first().map(|member| member.id)
}

/// At most `copies` members: `near` first where it is one of them, then the best in zones that have none yet, then the best of the rest.
#[must_use]
pub fn choose(key: PieceKey, members: &[Candidate], copies: usize, near: Option<MemberId>) -> Vec<MemberId> {
    let mut ranked = rank(key, members);
    if let Some(at) = ranked.iter().position(|member| Some(member.id) == near) {
        let near = ranked.remove(at);
        ranked.insert(0, near);
    }
    let mut chosen: Vec<&Candidate> = Vec::with_capacity(copies);
    for member in &ranked {
        if chosen.len() < copies && chosen.iter().all(|other| other.zone != member.zone) {
            chosen.push(member);
        }
    }
    for member in ranked {
        if chosen.len() < copies && chosen.iter().all(|other| other.id != member.id) {
            chosen.push(member);
        }
    }
    chosen.into_iter().map(|member| member.id).collect()
}

/// −log2(u) and the weight: the least quotient is the best.
type Cost = (u64, u32);

fn cost(key: PieceKey, member: &Candidate) -> Cost {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&key.run.to_le_bytes());
    bytes[8..16].copy_from_slice(&key.piece.to_le_bytes());
    bytes[16..].copy_from_slice(&member.id.0);
    (minus_log2(xxh3_64_with_seed(&bytes, 0)), member.weight.clamp(1, WEIGHT_MAX))
}

fn smaller(one: Cost, other: Cost) -> std::cmp::Ordering {
    // Below 2^38 and 2^21: the products fit.
    (one.0 * u64::from(other.1)).cmp(&(other.0 * u64::from(one.1)))
}

/// −log2(u / 2^64) with 32 bits after the point, for u from 1 to 2^64: `hash` + 1.
fn minus_log2(hash: u64) -> u64 {
    let Some(u) = hash.checked_add(1) else { return 0 };
    let whole = 63 - u.leading_zeros();
    // In [1, 2) with 63 bits after the point; squared 32 times, each time one bit of the logarithm.
    let mut mantissa = u << u.leading_zeros();
    let mut part = 0u64;
    for _ in 0..32 {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        part <<= 1;
        if square >> 64 == 0 {
            mantissa = square as u64;
        } else {
            part |= 1;
            mantissa = (square >> 1) as u64;
        }
    }
    (64 << 32) - ((u64::from(whole) << 32) | part)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn member(number: u8, weight: u32, zone: u8) -> Candidate {
        Candidate { id: MemberId([number; 16]), weight, zone: format!("z{zone}") }
    }

    fn key(number: u64) -> PieceKey {
        PieceKey::of(SegmentId(number << 8), 0)
    }

    #[test]
    fn logarithms_are_right() {
        assert_eq!(minus_log2(u64::MAX), 0);
        assert_eq!(minus_log2((1 << 63) - 1), 1 << 32);
        assert_eq!(minus_log2(0), 64 << 32);
        for hash in [1, 12_345, 1 << 40, u64::MAX / 3, u64::MAX / 5 * 4] {
            let exact = 64.0 - ((hash as f64) + 1.0).log2();
            let found = minus_log2(hash) as f64 / f64::from(1u32 << 16) / f64::from(1u32 << 16);
            assert!((exact - found).abs() < 1e-8, "{hash}: {exact} {found}");
        }
    }

    #[test]
    fn placement_is_fixed_for_ever() {
        let members: Vec<_> = (1..=5).map(|at| member(at, u32::from(at), at % 2)).collect();
        let placed: Vec<u8> =
            (0..16).map(|at| first(key(at), &members).map_or(0, |member| member.0[0])).collect();
        assert_eq!(placed, [5, 1, 3, 4, 4, 5, 5, 2, 4, 5, 5, 5, 5, 2, 1, 5], "releases mix: they must agree");
    }

    #[test]
    fn what_lies_together_is_a_run_of_numbers() {
        let of = |segment, offset| PieceKey::of(SegmentId(segment), offset);
        assert_eq!(of(0x100, 0), of(0x1ff, PIECE - 1));
        assert_ne!(of(0x1ff, 0), of(0x200, 0));
        assert_ne!(of(0x100, 0), of(0x100, PIECE));
    }

    #[test]
    fn shares_are_the_weights() {
        let members = [member(1, 10, 0), member(2, 20, 0), member(3, 70, 0), member(4, 100, 0)];
        let mut counts = BTreeMap::new();
        for at in 0..40_000 {
            *counts.entry(first(key(at), &members)).or_insert(0) += 1;
        }
        for member in &members {
            let expected = 200 * member.weight;
            let found: u32 = counts[&Some(member.id)];
            assert!(found.abs_diff(expected) < expected / 10, "{member:?}: {found} of {expected}");
        }
    }

    #[test]
    fn a_member_nearby_is_the_first() {
        let members = [member(1, 1, 0), member(2, 1, 1), member(3, 1, 2)];
        for at in 0..50 {
            let set = choose(key(at), &members, 2, Some(members[1].id));
            assert_eq!((set.len(), set[0]), (2, members[1].id));
            assert_eq!(choose(key(at), &members, 5, None).len(), 3, "no more than there are");
        }
        assert!(choose(key(1), &[], 2, None).is_empty());
    }

    proptest! {
        #[test]
        fn a_join_moves_only_what_becomes_its_own(
            weights in prop::collection::vec(1..1000u32, 1..12),
            joins in 1..1000u32,
            keys in prop::collection::vec(any::<u64>(), 50),
        ) {
            let members: Vec<_> = weights.iter().zip(1..).map(|(weight, at)| member(at, *weight, 0)).collect();
            let joined = member(200, joins, 0);
            let more: Vec<_> = members.iter().cloned().chain([joined.clone()]).collect();
            for number in keys {
                let key = PieceKey { run: number, piece: 0 };
                let (before, after) = (rank(key, &members), rank(key, &more));
                let without: Vec<_> = after.into_iter().filter(|member| member.id != joined.id).collect();
                prop_assert_eq!(before, without, "the others keep their order");
            }
        }

        #[test]
        fn copies_lie_in_as_many_zones_as_can_be(
            zones in prop::collection::vec(0..5u8, 1..10),
            copies in 1..5usize,
            number in any::<u64>(),
            near in prop::option::of(1..10u8),
        ) {
            let members: Vec<_> = zones.iter().zip(1..).map(|(zone, at)| member(at, 7, *zone)).collect();
            let key = PieceKey { run: number, piece: 1 };
            let chosen = choose(key, &members, copies, near.map(|at| MemberId([at; 16])));
            let distinct: BTreeSet<_> = chosen.iter().collect();
            prop_assert_eq!(distinct.len(), copies.min(members.len()), "different members");
            let zone = |id: &MemberId| members.iter().find(|member| member.id == *id).map(|member| &member.zone);
            let there: BTreeSet<_> = members.iter().map(|member| &member.zone).collect();
            let used: BTreeSet<_> = chosen.iter().filter_map(zone).collect();
            prop_assert_eq!(used.len(), copies.min(there.len()));
        }
    }
}
