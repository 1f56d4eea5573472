//! Any value of each kind.

use forebay_format::{
    footer::{Footer, RunEntry, SegmentEntry},
    key::{Item, Key},
    policy_row::{PolicyKeep, PolicyRow},
    record::{Changes, StreamRun},
    row::{
        AppliedRow, CountersRow, Cut, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Layout, ObjectRef,
        SegmentKind, SegmentRow, SegmentState, SubvolumeRow,
    },
    set_row::{SegmentSetRow, SetRowState},
};
use forebay_types::{
    Coherence, Epoch, FileKind, Generation, Ino, ObjectId, PolicyId, SegmentId, Sequence, SubvolumeId,
    SyncClass, Timespec, VolumeId,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Small numbers, large ones and the edges: neighbours and collisions are likely.
pub fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, 120..140u64, any::<u64>(), Just(u64::MAX)]
}

pub fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![0..5u32, 120..140u32, any::<u32>(), Just(u32::MAX)]
}

pub fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(1u8), Just(b'a'), Just(b'b'), 1..=255u8];
    prop_oneof![vec(byte, 1..4), vec(1..=255u8, 255)]
}

fn ino() -> impl Strategy<Value = Ino> {
    number().prop_map(Ino)
}

fn time() -> impl Strategy<Value = Timespec> {
    (prop_oneof![-3..3i64, any::<i64>()], 0..1_000_000_000u32)
        .prop_map(|(secs, nanos)| Timespec { secs, nanos })
}

fn kind() -> impl Strategy<Value = FileKind> {
    use FileKind::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
    select(vec![Regular, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice])
}

pub fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        ino().prop_map(Item::Inode),
        ino().prop_map(Item::Inline),
        ino().prop_map(Item::Directory),
        ino().prop_map(Item::Cuts),
        (ino(), name()).prop_map(|(ino, name)| Item::Dentry(ino, name)),
        (ino(), number32(), number32()).prop_map(|(ino, block, offset)| Item::Extent(ino, block, offset)),
        (ino(), name()).prop_map(|(ino, name)| Item::Xattr(ino, name)),
    ]
}

pub fn key() -> impl Strategy<Value = Key> {
    let subvolume = || number32().prop_map(|id| SubvolumeId(id.max(1)));
    let segment = || number().prop_map(SegmentId);
    prop_oneof![
        6 => (subvolume(), item(), number32())
            .prop_map(|(subvolume, item, generation)| Key::Versioned(subvolume, item, Generation(generation))),
        1 => segment().prop_map(Key::Segment),
        1 => (segment(), subvolume(), ino(), number32())
            .prop_map(|(segment, subvolume, ino, block)| Key::Share(segment, subvolume, ino, block)),
        1 => select(vec![Key::Counters, Key::Applied, Key::Fence]),
        1 => subvolume().prop_map(Key::Subvolume),
        1 => (subvolume(), ino()).prop_map(|(subvolume, ino)| Key::Orphan(subvolume, ino)),
        1 => (number(), number()).prop_map(|(epoch, object)| Key::Garbage(epoch, object)),
        1 => any::<u128>().prop_map(Key::Session),
        1 => any::<(u128, u16)>().prop_map(|(session, slot)| Key::Retry(session, slot)),
        1 => (any::<u128>(), subvolume(), ino())
            .prop_map(|(session, subvolume, ino)| Key::WriteLease(session, subvolume, ino)),
        1 => segment().prop_map(Key::Set),
        1 => number().prop_map(|id| Key::Policy(PolicyId(id))),
        1 => any::<u128>().prop_map(Key::Numbers),
        1 => (any::<u128>(), subvolume(), ino())
            .prop_map(|(session, subvolume, ino)| Key::Open(session, subvolume, ino)),
        1 => (any::<u128>(), subvolume(), ino())
            .prop_map(|(session, subvolume, ino)| Key::Locks(session, subvolume, ino)),
    ]
}

pub fn extent() -> impl Strategy<Value = Extent> {
    let part = (1..=u32::MAX).prop_flat_map(|run_len| {
        (Just(run_len), 0..run_len).prop_flat_map(|(run_len, skip)| {
            let whole = Just((run_len, 0, run_len));
            prop_oneof![whole, (1..=run_len - skip).prop_map(move |len| (run_len, skip, len))]
        })
    });
    (part, number(), number(), number32(), 0..128u8, any::<u32>()).prop_map(
        |((run_len, skip, len), segment, run_offset, stored_len, form, check)| {
            let segment = SegmentId(segment);
            Extent { len, segment, run_offset, stored_len, run_len, skip, form, check }
        },
    )
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::Empty),
        Just(Layout::Inline),
        Just(Layout::Extents),
        (number32(), number32(), extent())
            .prop_map(|(block, offset, extent)| Layout::Single(block, offset, extent)),
    ]
}

pub fn inode() -> impl Strategy<Value = InodeRow> {
    let times = prop_oneof![time().prop_map(|time| [time; 4]), [time(), time(), time(), time()],];
    let numbers = (number32(), number32(), number32(), number32(), number(), number(), number());
    let mode = select(Coherence::ALL);
    let policy = prop_oneof![Just(0), number()].prop_map(PolicyId);
    let flags = (any::<bool>(), any::<bool>(), mode, policy);
    (kind(), 0..0o10000u16, times, numbers, flags, layout()).prop_map(
        |(kind, mode, [atime, mtime, ctime, btime], numbers, flags, layout)| {
            let (has_xattrs, has_cuts, coherence, policy) = flags;
            let (nlink, uid, gid, rdev, size, allocated, parent) = numbers;
            let parent = Ino(parent);
            InodeRow {
                kind,
                mode,
                nlink,
                uid,
                gid,
                rdev,
                size,
                allocated,
                atime,
                mtime,
                ctime,
                btime,
                parent,
                has_xattrs,
                has_cuts,
                coherence,
                policy,
                layout,
            }
        },
    )
}

pub fn cuts() -> impl Strategy<Value = CutsRow> {
    let part = || prop_oneof![0..3u32, any::<u32>()];
    vec((part(), part()), 1..5).prop_map(|parts| {
        let (mut cuts, mut free) = (Vec::new(), 0u32);
        for (gap, more) in parts {
            let first = free.saturating_add(gap);
            let last = first.saturating_add(more);
            cuts.push(Cut { first, last });
            match last.checked_add(2) {
                Some(next) => free = next,
                None => break,
            }
        }
        CutsRow(cuts)
    })
}

pub fn directory() -> impl Strategy<Value = DirectoryRow> {
    (number(), number32(), time(), time()).prop_map(|(entries, directories, mtime, ctime)| DirectoryRow {
        entries,
        directories,
        mtime,
        ctime,
    })
}

pub fn dentry() -> impl Strategy<Value = DentryRow> {
    (ino(), kind()).prop_map(|(ino, kind)| DentryRow { ino, kind })
}

pub fn segment() -> impl Strategy<Value = SegmentRow> {
    let object =
        (number(), number()).prop_map(|(epoch, id)| ObjectRef { epoch: Epoch(epoch), id: ObjectId(id) });
    (
        select(vec![SegmentKind::Journal, SegmentKind::Stream, SegmentKind::Packed]),
        select(vec![SegmentState::Open, SegmentState::Sealed, SegmentState::Stored]),
        option::of(object),
        [number(), number(), number(), number(), number()],
    )
        .prop_map(|(kind, state, object, [object_offset, len, raw, live, epoch])| {
            let epoch = Epoch(epoch);
            SegmentRow { kind, state, object, object_offset, len, raw, live, epoch }
        })
}

pub fn set() -> impl Strategy<Value = SegmentSetRow> {
    let state = prop_oneof![
        Just(SetRowState::Open),
        Just(SetRowState::Stored),
        Just(SetRowState::Lost),
        (number(), any::<u32>()).prop_map(|(len, check)| SetRowState::Sealed { len, check }),
    ];
    let members = (prop::collection::btree_set(any::<[u8; 16]>(), 1..=16), any::<bool>());
    (any::<u128>(), [number(), number()], any::<(bool, bool, [u8; 16])>(), members, state).prop_map(
        |(writer, [epoch, directory], (settled, recovered, group), (members, joins), state)| {
            let mut set: Vec<_> = members.into_iter().collect();
            let joining = if joins && set.len() > 1 { set.pop() } else { None };
            let (epoch, directory) = (Epoch(epoch), Ino(directory));
            SegmentSetRow { writer, epoch, directory, group, set, joining, state, settled, recovered }
        },
    )
}

pub fn policy() -> impl Strategy<Value = PolicyRow> {
    let class =
        prop_oneof![Just(SyncClass::Object), Just(SyncClass::Local), (2..=8u8).prop_map(SyncClass::Replica)];
    let group = || option::of(any::<[u8; 16]>());
    let groups = (group(), group(), group());
    let keep = (any::<bool>(), groups).prop_map(|(pin, (confine, place, exclude))| PolicyKeep {
        pin,
        confine,
        place,
        exclude,
    });
    ([number(), number()], option::of(class), keep, any::<bool>()).prop_map(
        |([made_for, before], durability, keep, spread)| {
            let (made_for, before) = (Ino(made_for), PolicyId(before));
            PolicyRow { made_for, before, durability, keep, spread }
        },
    )
}

pub fn counters() -> impl Strategy<Value = CountersRow> {
    (number(), number(), number(), number32(), option::of(number())).prop_map(
        |(run, segment, object, subvolume, inodes)| CountersRow { run, segment, object, subvolume, inodes },
    )
}

pub fn subvolume() -> impl Strategy<Value = SubvolumeRow> {
    let origin = (1..=u32::MAX, number32());
    (option::of(origin), prop::collection::btree_set(0..50u32, 0..5), 50..60u32).prop_map(
        |(origin, snapshots, generation)| SubvolumeRow {
            generation: Generation(generation),
            origin: origin.map(|(id, generation)| (SubvolumeId(id), Generation(generation))),
            snapshots: snapshots.into_iter().map(Generation).collect(),
        },
    )
}

pub fn applied() -> impl Strategy<Value = AppliedRow> {
    (number(), number())
        .prop_map(|(sequence, epoch)| AppliedRow { sequence: Sequence(sequence), epoch: Epoch(epoch) })
}

pub fn run_entry() -> impl Strategy<Value = RunEntry> {
    (
        [number32(), number32(), number32(), number32(), number32(), number32(), number32()],
        number(),
        number(),
        any::<u8>(),
    )
        .prop_map(|(numbers, ino, run_offset, form)| {
            let [subvolume, generation, block, offset, run_len, stored_len, check] = numbers;
            let (subvolume, generation) = (SubvolumeId(subvolume), Generation(generation));
            let ino = Ino(ino);
            RunEntry {
                subvolume,
                generation,
                ino,
                block,
                offset,
                run_len,
                run_offset,
                stored_len,
                form,
                check,
            }
        })
}

pub fn footer() -> impl Strategy<Value = Footer> {
    let segment = (number(), number(), number(), vec(run_entry(), 0..4))
        .prop_map(|(id, offset, len, runs)| SegmentEntry { id: SegmentId(id), offset, len, runs });
    (any::<[u8; 16]>(), vec(segment, 0..4))
        .prop_map(|(volume, segments)| Footer { volume: VolumeId(volume), segments })
}

pub fn changes() -> impl Strategy<Value = Changes> {
    let bytes = || vec(any::<u8>(), 0..20);
    let live = (number(), any::<i64>()).prop_map(|(segment, bytes)| (SegmentId(segment), bytes));
    let stream = (number(), number(), number32(), number32(), any::<u8>(), any::<u32>()).prop_map(
        |(segment, run_offset, stored_len, run_len, form, check)| StreamRun {
            segment: SegmentId(segment),
            run_offset,
            stored_len,
            run_len,
            form,
            check,
        },
    );
    (vec((bytes(), option::of(bytes())), 0..4), vec(live, 0..3), vec(stream, 0..3))
        .prop_map(|(rows, live, streams)| Changes { rows, live, streams })
}
