//! Segments over the logs of a group's members: what writers and members ask of the owner, and what they are told (`docs/design/proxy-group.md`).

use forebay_format::{Decoder, Encoder, FormatError, row::ObjectRef};
use forebay_group::{Candidate, Fenced, GroupId, MemberId, NotTaken, Offer, Verdict, placement::WEIGHT_MAX};
use forebay_types::{Epoch, Ino, SegmentId};

use crate::{
    answer::SegmentPlace,
    word::{OnlyLog, Word, choice, lists, number, record, wrong},
};

/// Segments that one request opens at most.
pub const OPEN_MAX: u32 = 256;
/// Members of a group that one request names at most.
pub const MEMBERS_MAX: usize = 1024;
/// Members of a set at most.
pub const SET_MAX: usize = 16;
/// Segments that one request offers, stores, seals, settles or says to be fenced at most.
pub const SEGMENTS_MAX: usize = 4096;
/// Bytes of a zone's name at most.
pub const ZONE_MAX: usize = 255;

/// Set in the number of the directory of segments whose bytes may not be on all disks (`docs/design/policies.md`). No inode has it.
const CONFINED: u64 = 1 << 63;

/// A directory, as it is named for segments whose bytes may not be on all disks.
#[must_use]
pub fn confined_in(directory: Ino) -> Ino {
    Ino(directory.0 | CONFINED)
}

/// Whether segments of a directory that is named so have bytes that may not be on all disks: nothing else is put into an object with them.
#[must_use]
pub fn is_confined(directory: Ino) -> bool {
    directory.0 & CONFINED != 0
}

/// The directory itself, however it is named.
#[must_use]
pub fn unconfined(directory: Ino) -> Ino {
    Ino(directory.0 & !CONFINED)
}

/// Opens segments that the session appends to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenSegments {
    /// The directory whose files they get: what lies together there gets neighbouring numbers. [`confined_in`] it, where bytes may not be on all disks.
    pub directory: Ino,
    /// They are of a stream: their numbers are at least 256 apart, such that members get them in turn. Else they follow each other, whoever opens them for this directory.
    pub apart: bool,
    /// How many: 1 to [`OPEN_MAX`].
    pub count: u32,
    /// The group.
    pub group: GroupId,
    /// Who gets them.
    pub placing: Placing,
}

/// Who gets segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placing {
    /// These: 1 to [`SET_MAX`], none twice.
    Set(Vec<MemberId>),
    /// The best of these for each one's number ([`forebay_group::placement::choose`]).
    Best {
        /// Who may be chosen: at least `copies`, none twice.
        members: Vec<Candidate>,
        /// How many for each: 1 to [`SET_MAX`].
        copies: u8,
        /// Who is to be the first of each, where it is one of them.
        near: Option<MemberId>,
    },
}

/// A segment that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedSegment {
    /// Its number.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who gets it.
    pub set: Vec<MemberId>,
}

/// An object with segments that members have put, under a number of the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSegments {
    /// Its name.
    pub object: ObjectRef,
    /// What it has, none twice.
    pub segments: Vec<StoredSegment>,
}

/// A segment in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSegment {
    /// Its number.
    pub segment: SegmentId,
    /// Its epoch as the member knows it.
    pub epoch: Epoch,
    /// Bytes.
    pub len: u64,
    /// CRC32C of them.
    pub check: u32,
    /// Where they start in the object.
    pub offset: u64,
    /// Raw bytes of the runs in it.
    pub raw: u64,
}

/// What a writer says of its segments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settle {
    /// Those that end here.
    pub sealed: Vec<SealedSegment>,
    /// Those that no request names which is still to come. They are sealed, here or before.
    pub settled: Vec<SegmentId>,
}

/// A segment that its writer has sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealedSegment {
    /// Its number.
    pub segment: SegmentId,
    /// Its epoch as the writer knows it.
    pub epoch: Epoch,
    /// Bytes: what all of its set have.
    pub len: u64,
    /// CRC32C of them.
    pub check: u32,
}

/// Copies that a member has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferCopies {
    /// The member.
    pub member: MemberId,
    /// Its group.
    pub group: GroupId,
    /// Of which segments.
    pub offers: Vec<Offer>,
}

/// What a member is told of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Of which segment.
    pub segment: SegmentId,
    /// What it is for.
    pub verdict: Verdict,
    /// The directory whose files are in it, as it was named when it was opened: segments of one directory are put together, and none that [`is_confined`] with others.
    pub directory: Ino,
    /// Where it is in the store, of what is clean: so the copy is a cache's.
    pub place: Option<SegmentPlace>,
    /// It is this member's turn to put it.
    pub puts: bool,
    /// This member is to copy it to that one, which says [`Reseat`] in this epoch once it has all of it.
    pub copy_to: Option<(MemberId, Epoch)>,
}

/// A member has all of a sealed segment that it was given in another's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reseat {
    /// Which segment.
    pub segment: SegmentId,
    /// In which epoch it was given.
    pub epoch: Epoch,
    /// The member.
    pub member: MemberId,
}

/// What a member has of segments that it has fenced: the answer to [`crate::Push::Fence`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FencedCopies {
    /// The member.
    pub member: MemberId,
    /// Each segment, the epoch in which it is fenced and that is on stable storage, and what there is.
    pub copies: Vec<FencedCopy>,
}

/// What a member has of a segment that it has fenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FencedCopy {
    /// Which segment.
    pub segment: SegmentId,
    /// In which epoch.
    pub epoch: Epoch,
    /// What there is.
    pub fenced: Fenced,
}

/// Where a segment is that the store may not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetPlace {
    /// Which segment.
    pub segment: SegmentId,
    /// The group.
    pub group: GroupId,
    /// Who has what was committed of it.
    pub set: Vec<MemberId>,
}

number!(MemberId, GroupId);
record!(OpenedSegment { segment, epoch, set });
record!(StoredSegment { segment, epoch, len, check, offset, raw });
record!(SealedSegment { segment, epoch, len, check });
record!(Offer { segment, epoch, end, check, sealed, damaged });
record!(Fenced { end, check, damaged });
record!(FencedCopy { segment, epoch, fenced });
record!(Judged { segment, verdict, directory, place, puts, copy_to });
record!(Reseat { segment, epoch, member });
record!(SetPlace { segment, group, set });
choice!(Verdict {
    1 => Wanted,
    2 => SealedAt { epoch, len, check },
    3 => Clean,
    4 => Unwanted(epoch),
    5 => Gone,
});
choice!(NotTaken { 1 => Over, 2 => Late(epoch), 3 => OtherLength(len), 4 => OtherBytes });
lists!(
    MemberId,
    Candidate,
    OpenedSegment,
    StoredSegment,
    SealedSegment,
    SegmentId,
    Offer,
    Judged,
    FencedCopy,
    SetPlace,
    (SegmentId, NotTaken),
);

/// Implements [`Word`] for a struct of which the owner takes only some: its fields in this order, and what is wrong with it.
macro_rules! checked {
    ($type:ty { $($field:ident),* $(,)? } $check:path) => {
        impl Word for $type {
            fn put(&self, to: &mut Encoder<'_>) {
                $(Word::put(&self.$field, to);)*
            }

            fn take(from: &mut Decoder<'_>) -> Result<Self, FormatError> {
                let taken = Self { $($field: Word::take(from)?),* };
                match $check(&taken) {
                    None => Ok(taken),
                    Some(why) => Err(wrong(why.to_owned())),
                }
            }
        }
    };
}

checked!(StoreSegments { object, segments } wrong_store);
checked!(Settle { sealed, settled } wrong_settle);
checked!(OfferCopies { member, group, offers } wrong_offer);
checked!(FencedCopies { member, copies } wrong_fenced);
checked!(Candidate { id, weight, zone } wrong_candidate);

impl Word for OpenSegments {
    fn put(&self, to: &mut Encoder<'_>) {
        let OpenSegments { directory, apart, count, group, placing } = self;
        OnlyLog.put(to);
        directory.put(to);
        apart.put(to);
        count.put(to);
        group.put(to);
        placing.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<OpenSegments, FormatError> {
        let OnlyLog = Word::take(from)?;
        let (directory, apart, count) = (Word::take(from)?, Word::take(from)?, Word::take(from)?);
        let (group, placing) = (Word::take(from)?, Word::take(from)?);
        let open = OpenSegments { directory, apart, count, group, placing };
        match wrong_open(&open) {
            None => Ok(open),
            Some(why) => Err(wrong(why.to_owned())),
        }
    }
}

impl Word for Placing {
    fn put(&self, to: &mut Encoder<'_>) {
        match self {
            Placing::Set(set) => {
                to.u8(1);
                set.put(to);
            }
            Placing::Best { members, copies, near } => {
                to.u8(2);
                members.put(to);
                copies.put(to);
                near.put(to);
            }
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Placing, FormatError> {
        let placing = match from.u8()? {
            1 => Placing::Set(Word::take(from)?),
            2 => {
                let (members, copies, near) = (Word::take(from)?, Word::take(from)?, Word::take(from)?);
                Placing::Best { members, copies, near }
            }
            tag => return Err(wrong(format!("{tag} is no way to place a segment"))),
        };
        placing.is_sound().then_some(placing).ok_or_else(|| wrong("a set that cannot be".to_owned()))
    }
}

impl Placing {
    /// Whether it gives each segment a set, of members that differ.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            Placing::Set(set) => (1..=SET_MAX).contains(&set.len()) && differ(set.iter().copied()),
            Placing::Best { members, copies, .. } => {
                let copies = usize::from(*copies);
                (1..=SET_MAX).contains(&copies)
                    && (copies..=MEMBERS_MAX).contains(&members.len())
                    && differ(members.iter().map(|member| member.id))
            }
        }
    }
}

fn differ<T: Ord>(all: impl Iterator<Item = T>) -> bool {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

fn wrong_open(open: &OpenSegments) -> Option<&'static str> {
    (!(1..=OPEN_MAX).contains(&open.count)).then_some("no segments are opened, or too many")
}

fn wrong_store(store: &StoreSegments) -> Option<&'static str> {
    let segments = &store.segments;
    let fits = |one: &StoredSegment| one.offset.checked_add(one.len).is_some();
    let sound = (1..=SEGMENTS_MAX).contains(&segments.len())
        && segments.iter().all(fits)
        && differ(segments.iter().map(|one| one.segment));
    (!sound).then_some("an object that has no segments, too many, or one twice")
}

fn wrong_settle(settle: &Settle) -> Option<&'static str> {
    let many = settle.sealed.len().max(settle.settled.len()) > SEGMENTS_MAX;
    many.then_some("too many segments at once")
}

fn wrong_offer(offer: &OfferCopies) -> Option<&'static str> {
    (offer.offers.len() > SEGMENTS_MAX).then_some("too many segments at once")
}

fn wrong_fenced(fenced: &FencedCopies) -> Option<&'static str> {
    (fenced.copies.len() > SEGMENTS_MAX).then_some("too many segments at once")
}

fn wrong_candidate(member: &Candidate) -> Option<&'static str> {
    let sound = (1..=WEIGHT_MAX).contains(&member.weight) && member.zone.len() <= ZONE_MAX;
    (!sound).then_some("a member whose weight or zone cannot be")
}
