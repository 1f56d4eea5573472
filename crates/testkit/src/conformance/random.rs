//! Random steps from a seed, played on both sides; a difference is shrunk to a short list before it is reported.
//!
//! Guarantees: a seed and a profile always make the same steps. Steps name few files, so that they meet each other.
//! Shrinking drops steps as long as some difference remains, within a fixed number of tries.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::op::{Op, Script, Slot, Step, When, Whence};
use super::runner::{Difference, OnDifference, Played, RunError, Runner};

/// What the random steps are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Names, links, permissions, attributes.
    Tree,
    /// Contents, sizes, holes, copies.
    Bytes,
}

impl Profile {
    /// The profile's name in reports and in the table of allowed differences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "random-tree",
            Self::Bytes => "random-bytes",
        }
    }
}

/// How many times a shorter script is tried.
const SHRINK_TRIES: usize = 250;

/// A random case that differed, as short as it could be made.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Steps that suffice to show a difference.
    pub steps: Vec<Step>,
    /// The difference they show.
    pub difference: Difference,
}

/// Plays `length` random steps. Gives what was played and, if it differed, the shrunk case.
pub fn play(
    runner: &mut Runner,
    profile: Profile,
    seed: u64,
    length: usize,
) -> Result<(Played, Option<Shrunk>), RunError> {
    let script = script(profile, seed, length);
    let played = runner.play(profile.name(), &script.name, &script, OnDifference::Stop)?;
    let Some(difference) = played.differences.first().cloned() else { return Ok((played, None)) };
    let shrunk = shrink(runner, profile, script, difference)?;
    Ok((played, Some(shrunk)))
}

/// The steps that `seed` stands for.
pub fn script(profile: Profile, seed: u64, length: usize) -> Script {
    let mut script = Script::new(&format!("{}-{seed}", profile.name()));
    let mut random = StdRng::seed_from_u64(seed);
    if profile == Profile::Bytes {
        for slot in 0..4 {
            script.op(open_any(&mut random, slot));
        }
    }
    while script.steps.len() < length {
        match profile {
            Profile::Tree => {
                let user = if random.random_ratio(3, 10) { random.random_range(1..4) } else { 0 };
                let op = tree_op(&mut random);
                script.by(user).op(op)
            }
            Profile::Bytes => {
                let op = bytes_op(&mut random);
                script.op(op)
            }
        };
    }
    script
}

fn shrink(
    runner: &mut Runner,
    profile: Profile,
    script: Script,
    mut difference: Difference,
) -> Result<Shrunk, RunError> {
    let mut steps = script.steps.clone();
    if let Difference::Step { index, .. } = &difference {
        steps.truncate(index + 1);
    }
    let mut tries = 0;
    let mut chunk = (steps.len() / 2).max(1);
    loop {
        let mut at = 0;
        let mut dropped = false;
        while at < steps.len() && tries < SHRINK_TRIES {
            let mut shorter = script.clone();
            shorter.steps = [&steps[..at], &steps[(at + chunk).min(steps.len())..]].concat();
            tries += 1;
            let dir = format!("{}-shrink-{tries}", script.name);
            let played = runner.play(profile.name(), &dir, &shorter, OnDifference::Stop)?;
            match played.differences.into_iter().next() {
                Some(still) => {
                    steps = shorter.steps;
                    difference = still;
                    dropped = true;
                }
                None => at += chunk,
            }
        }
        if tries >= SHRINK_TRIES || (chunk == 1 && !dropped) {
            return Ok(Shrunk { steps, difference });
        }
        chunk = (chunk / 2).max(1);
    }
}

fn name(random: &mut StdRng) -> String {
    const NAMES: [&str; 5] = ["a", "b", "c", "d%FF", "e.long-enough-to-look-like-a-name"];
    NAMES[random.random_range(0..NAMES.len())].to_owned()
}

fn path(random: &mut StdRng) -> String {
    let depth = random.random_range(1..=3);
    (0..depth).map(|_| name(random)).collect::<Vec<_>>().join("/")
}

fn mode(random: &mut StdRng) -> u32 {
    const MODES: [u32; 10] = [0o777, 0o755, 0o700, 0o644, 0o600, 0o666, 0o1777, 0o2775, 0o6755, 0o070];
    MODES[random.random_range(0..MODES.len())]
}

fn owner(random: &mut StdRng) -> Option<u32> {
    const OWNERS: [Option<u32>; 5] = [None, Some(0), Some(10_001), Some(10_002), Some(10_003)];
    OWNERS[random.random_range(0..OWNERS.len())]
}

fn tree_op(random: &mut StdRng) -> Op {
    let r = random;
    match r.random_range(0..100) {
        0..14 => Op::Mkdir { path: path(r), mode: mode(r) },
        14..19 => Op::Rmdir { path: path(r) },
        19..32 => Op::Open {
            slot: r.random_range(0..4),
            path: path(r),
            flags: libc::O_RDWR
                | libc::O_CREAT
                | [0, libc::O_EXCL, libc::O_TRUNC, libc::O_NOFOLLOW][r.random_range(0..4)],
            mode: mode(r),
        },
        32..36 => Op::Write { slot: r.random_range(0..4), len: r.random_range(1..5000), seed: r.random() },
        36..39 => Op::Close { slot: r.random_range(0..4) },
        39..44 => Op::Unlink { path: path(r) },
        44..58 => Op::Rename {
            from: path(r),
            to: path(r),
            flags: [0, 0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE][r.random_range(0..5)],
        },
        58..64 => Op::Link { from: path(r), to: path(r), follow: r.random() },
        64..69 => Op::Symlink { target: path(r), path: path(r) },
        69..71 => Op::Readlink { path: path(r) },
        71..76 => Op::Chmod { path: path(r), mode: mode(r) },
        76..80 => Op::Chown { path: path(r), uid: owner(r), gid: owner(r), follow: r.random() },
        80..84 => attribute_op(r),
        84..87 => Op::Utimens {
            path: path(r),
            access: When::At(r.random_range(1..1_500_000_000), r.random_range(0..1_000_000_000)),
            modify: When::At(r.random_range(1..1_500_000_000), r.random_range(0..1_000_000_000)),
            follow: r.random(),
        },
        87..93 => Op::Stat { path: path(r), follow: r.random() },
        93..96 => Op::List { path: [".".to_owned(), path(r)][r.random_range(0..2)].clone() },
        96..98 => Op::Access { path: path(r), mode: r.random_range(0..8) },
        98 => Op::Fstat { slot: r.random_range(0..4) },
        _ => Op::Umask([0o022, 0, 0o077, 0o027][r.random_range(0..4)]),
    }
}

fn attribute_op(random: &mut StdRng) -> Op {
    let (path, name) = (path(random), format!("user.{}", ["one", "two"][random.random_range(0..2)]));
    match random.random_range(0..4) {
        0 => Op::GetXattr { path, name },
        1 => Op::RemoveXattr { path, name },
        2 => Op::ListXattr { path },
        _ => Op::SetXattr {
            path,
            name,
            len: random.random_range(0..200),
            seed: random.random(),
            flags: random.random_range(0..3),
        },
    }
}

fn open_any(random: &mut StdRng, slot: Slot) -> Op {
    const FLAGS: [i32; 5] = [0, libc::O_APPEND, libc::O_TRUNC, libc::O_SYNC, libc::O_DSYNC];
    let path = ["f", "g", "h"][random.random_range(0..3)].to_owned();
    let flags = libc::O_RDWR | libc::O_CREAT | FLAGS[random.random_range(0..FLAGS.len())];
    Op::Open { slot, path, flags, mode: 0o644 }
}

fn offset(random: &mut StdRng) -> u64 {
    match random.random_range(0..10) {
        0..5 => random.random_range(0..300_000),
        5..8 => random.random_range(0..80) * 4096,
        8 => (4 << 20) - random.random_range(0..70_000),
        _ => (1 << 32) + random.random_range(0..100_000),
    }
}

fn length(random: &mut StdRng) -> u64 {
    match random.random_range(0..10) {
        0..5 => random.random_range(1..9_000),
        5..8 => random.random_range(1..20) * 4096,
        _ => random.random_range(1..200_000),
    }
}

fn bytes_op(random: &mut StdRng) -> Op {
    let r = random;
    let slot = r.random_range(0..4);
    match r.random_range(0..100) {
        0..28 => Op::Pwrite { slot, at: offset(r), len: length(r) as usize, seed: r.random() },
        28..50 => Op::Pread { slot, at: offset(r), len: length(r) as usize },
        50..55 => Op::Write { slot, len: length(r) as usize, seed: r.random() },
        55..59 => Op::Read { slot, len: length(r) as usize },
        59..63 => Op::Seek {
            slot,
            whence: [Whence::Set, Whence::Current, Whence::End][r.random_range(0..3)],
            to: r.random_range(-5_000..200_000),
        },
        63..70 => Op::Ftruncate { slot, size: offset(r) },
        70..80 => Op::Fallocate { slot, mode: fallocate_mode(r), at: offset(r), len: length(r) },
        80..85 => Op::CopyRange {
            from: slot,
            at: offset(r),
            to: (slot + 1) % 4,
            to_at: offset(r),
            len: length(r) as usize,
        },
        85..89 => Op::Fsync { slot, data_only: r.random() },
        89..92 => Op::Fstat { slot },
        92..94 => Op::Holes { slot },
        94..97 => Op::Content { path: ["f", "g", "h"][r.random_range(0..3)].to_owned() },
        97 => Op::Unlink { path: ["f", "g", "h"][r.random_range(0..3)].to_owned() },
        98 => Op::Rename { from: "f".into(), to: "g".into(), flags: libc::RENAME_EXCHANGE },
        _ => open_any(r, slot),
    }
}

fn fallocate_mode(random: &mut StdRng) -> i32 {
    const MODES: [i32; 5] = [
        0,
        libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_ZERO_RANGE,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    ];
    MODES[random.random_range(0..MODES.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_steps() {
        for profile in [Profile::Tree, Profile::Bytes] {
            assert_eq!(script(profile, 7, 200).steps, script(profile, 7, 200).steps);
            assert_ne!(script(profile, 7, 200).steps, script(profile, 8, 200).steps);
        }
    }
}
