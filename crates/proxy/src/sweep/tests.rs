#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it cannot go on")]

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use forebay_cache::CHUNK_BYTES;
use forebay_format::row::ObjectRef;
use forebay_group::{Candidate, GroupId, Incarnation, MemberId, PieceKey, ViewEpoch, placement};
use forebay_object::{DirectoryStore, StoreOptions};
use forebay_protocol::{
    PolicyReport, PolicyVersion, SegmentPlace, VolumeInfo, Wanted, WantedOf, WantedPlace, Wish,
};
use forebay_reading::object_key;
use forebay_types::{Compression, Epoch, Ino, ObjectId, PolicyId, SegmentId, Timespec, VolumeId};
use parking_lot::Mutex;

use super::{Acts, Asks, Pace, Rounds, Shared, Until};
use crate::{Directory, reads::Objects};

const GROUP: GroupId = GroupId([9; 16]);
const OTHER: MemberId = MemberId([1; 16]);
const MIB: u64 = 1 << 20;

/// Servers that say what they are told to.
struct Office {
    own: MemberId,
    store: String,
    /// By volumes.
    wanted: Mutex<BTreeMap<String, Vec<WantedPlace>>>,
    version: Mutex<u64>,
    view: Mutex<(u64, Vec<MemberId>)>,
    /// How many questions go unanswered from the next on, after so many that do not.
    fails: Mutex<Option<(usize, usize)>>,
    reports: Mutex<Vec<PolicyReport>>,
    /// Whose owner is away.
    silent: Mutex<Option<String>>,
    /// Questions to it.
    unanswered: AtomicUsize,
    /// Pages that were asked for.
    pages: AtomicUsize,
    /// What happens while a page is asked for, after so many others.
    meanwhile: Mutex<Option<(usize, Meanwhile)>>,
}

type Meanwhile = Box<dyn FnOnce(&Office) + Send>;

impl Asks for Arc<Office> {
    fn acts(&self) -> Option<Acts> {
        let (epoch, members) = self.view.lock().clone();
        let candidate = |id: &MemberId| Candidate { id: *id, weight: 1, zone: id.to_string() };
        let active = members.iter().map(candidate).collect();
        Some(Acts { incarnation: Incarnation::default(), view: ViewEpoch(epoch), active })
    }

    fn volumes(&self) -> Result<Vec<String>, String> {
        Ok(self.wanted.lock().keys().cloned().collect())
    }

    fn wanted(&self, of: &WantedOf) -> Result<Wanted, String> {
        assert_eq!((of.group, of.member), (GROUP, self.own));
        if *self.silent.lock() == Some(of.volume.clone()) {
            self.unanswered.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(1));
            return Err("its owner is away".to_owned());
        }
        // As an owner does: before it looks.
        let version = PolicyVersion { epoch: Epoch(1), batch: *self.version.lock() };
        if of.from.is_none() {
            self.reports.lock().extend(of.report.clone());
        } else {
            self.pages.fetch_add(1, Relaxed);
            let meanwhile = self.meanwhile.lock().take();
            match meanwhile {
                Some((0, happens)) => happens(self),
                Some((after, happens)) => *self.meanwhile.lock() = Some((after - 1, happens)),
                None => {}
            }
            self.answers()?;
        }
        let all = self.wanted.lock()[&of.volume].clone();
        // Two places a page.
        let at = of.from.map_or(0, |(ino, _)| ino.0 as usize);
        let end = all.len().min(at + 2);
        let next = (end < all.len()).then_some((Ino(end as u64), 0));
        let (places, next) = match of.from {
            Some(_) => (all[at..end].to_vec(), next),
            None => (Vec::new(), None),
        };
        Ok(Wanted { volume: info(&of.volume, &self.store), version, places, next })
    }
}

impl Office {
    /// Whether a page is answered.
    fn answers(&self) -> Result<(), String> {
        if let Some((after, times)) = &mut *self.fails.lock() {
            match (*after, *times) {
                (0, 0) => {}
                (0, _) => {
                    *times -= 1;
                    return Err("the server is away".to_owned());
                }
                _ => *after -= 1,
            }
        }
        Ok(())
    }
}

fn info(name: &str, store: &str) -> VolumeInfo {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    VolumeInfo {
        name: name.to_owned(),
        id: VolumeId(id),
        store: store.to_owned(),
        endpoint: None,
        region: None,
        block_size: 4 << 20,
        compression: Compression::None,
        created: Timespec::default(),
        limit: None,
        generation: 1,
    }
}

fn object(number: u64) -> ObjectRef {
    ObjectRef { epoch: Epoch(1), id: ObjectId(number) }
}

/// A member with its cache, the store and the servers.
struct Bed {
    dir: tempfile::TempDir,
    office: Arc<Office>,
    shared: Shared,
    rounds: Rounds,
    until: Until,
    going: Option<mpsc::Sender<()>>,
}

impl Bed {
    /// With a cache of so many bytes.
    fn new(cache: u64) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::claim(&dir.path().join("member"), GROUP).unwrap();
        let own = directory.member;
        let root = dir.path().join("store");
        DirectoryStore::create(&root).unwrap();
        let store = format!("file://{}", root.display());
        let office = Arc::new(Office {
            own,
            store,
            wanted: Mutex::new(BTreeMap::from([("v".to_owned(), Vec::new())])),
            version: Mutex::new(1),
            view: Mutex::new((1, vec![own])),
            fails: Mutex::new(None),
            reports: Mutex::default(),
            silent: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            meanwhile: Mutex::default(),
        });
        let objects = Arc::new(Objects::open(&directory, cache, StoreOptions::default()).unwrap());
        // The lock on the directory lasts as long as this process.
        std::mem::forget(directory);
        let hour = Duration::from_secs(3600);
        let pace = Pace { ask_every: hour, pause: (hour, hour), view_stands: hour, silent: (0, hour) };
        let asks = Box::new(Arc::clone(&office));
        let shared = Shared { ids: (GROUP, own), asks, objects, pace, known: Mutex::default() };
        let (going, ended) = mpsc::channel();
        Bed { dir, office, shared, rounds: Rounds::default(), until: Until(ended), going: Some(going) }
    }

    /// Puts an object of so many bytes.
    fn put(&self, number: u64, len: u64) {
        let path = self.path(number);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>()).unwrap();
    }

    fn path(&self, number: u64) -> std::path::PathBuf {
        self.dir.path().join("store").join(Path::new(&object_key(object(number)).to_string()))
    }

    /// What the owner of `v` wants, by a later version.
    fn wants(&self, places: Vec<WantedPlace>) {
        self.office.wanted.lock().insert("v".to_owned(), places);
        *self.office.version.lock() += 1;
    }

    fn round(&mut self) -> Result<(), String> {
        let acts = self.shared.asks.acts().unwrap();
        self.rounds.round(&self.shared, &acts, &self.until)
    }

    fn pinned(&self) -> u64 {
        self.shared.objects.stats().pinned_bytes
    }

    fn fetches(&self) -> u64 {
        self.shared.objects.stats().fetches
    }

    /// What was found of the volume.
    fn found(&self) -> forebay_protocol::PolicySums {
        let known = self.shared.known.lock();
        let report = known["v"].report.as_ref().unwrap();
        assert!(report.whole);
        let mut sums = report.sums.clone();
        sums.pop().map(|(_, sums)| sums).unwrap_or_default()
    }
}

/// All of an object, which has one segment of the same number times 256.
fn place(number: u64, len: u64, wish: Wish) -> WantedPlace {
    WantedPlace {
        policy: PolicyId(1),
        wish,
        segment: SegmentId(number << 8),
        place: SegmentPlace { object: object(number), offset: 0, len },
        from: 0,
        len,
    }
}

#[test]
fn what_is_pinned_comes_stays_and_is_let_go_again() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..3 {
        bed.put(number, 3 * MIB);
    }
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.fetches()), (0, 0), "nothing is wanted");
    bed.wants((0..3).map(|number| place(number, 3 * MIB, Wish::Stay)).collect());
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 9 * MIB);
    let found = bed.found();
    assert_eq!((found.wanted, found.kept, found.no_room), (9 * MIB, 9 * MIB, 0));
    // Nothing has changed, so no pass is made; one that is made fetches nothing.
    let fetches = bed.fetches();
    bed.round().unwrap();
    assert_eq!(
        bed.office.reports.lock().last().unwrap().sums[0].1,
        found,
        "it is told with the next question"
    );
    bed.wants((1..3).map(|number| place(number, 3 * MIB, Wish::Stay)).collect());
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.fetches()), (6 * MIB, fetches));
    // A volume that is read through the group no longer wants nothing.
    bed.office.wanted.lock().clear();
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 0);
}

#[test]
fn a_server_that_is_away_in_the_middle_unpins_nothing() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..5 {
        bed.put(number, MIB);
    }
    let all = |numbers: std::ops::Range<u64>| numbers.map(|number| place(number, MIB, Wish::Stay)).collect();
    bed.wants(all(0..5));
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 5 * MIB);
    bed.wants(all(1..5));
    *bed.office.fails.lock() = Some((1, 1));
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 5 * MIB, "the second page did not come");
    assert!(bed.rounds.next.unwrap() > std::time::Instant::now());
    bed.rounds.next = None;
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 4 * MIB);
}

#[test]
fn an_owner_that_is_away_keeps_the_pins_of_its_volume_alone() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..4 {
        bed.put(number, MIB);
    }
    let of = |numbers: &[u64]| numbers.iter().map(|number| place(*number, MIB, Wish::Stay)).collect();
    bed.wants(of(&[0, 1]));
    bed.office.wanted.lock().insert("w".to_owned(), of(&[2, 3]));
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 4 * MIB);
    *bed.office.silent.lock() = Some("w".to_owned());
    bed.wants(of(&[1]));
    bed.office.wanted.lock().insert("w".to_owned(), of(&[3]));
    for _ in 0..3 {
        assert!(bed.round().is_err());
        assert_eq!(bed.pinned(), 3 * MIB, "what is not wanted of the other is let go");
        bed.rounds.next = None;
    }
    *bed.office.silent.lock() = None;
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 2 * MIB);
}

#[test]
fn an_owner_that_does_not_answer_is_left_alone_for_a_while() {
    let mut bed = Bed::new(64 * MIB);
    bed.shared.pace.silent = (u32::MAX, Duration::from_secs(3600));
    for number in 0..2 {
        bed.put(number, MIB);
    }
    bed.office.wanted.lock().insert("a".to_owned(), Vec::new());
    *bed.office.silent.lock() = Some("a".to_owned());
    // It is asked for the version all the time, if it were.
    bed.shared.pace.ask_every = Duration::ZERO;
    for number in 0..2 {
        bed.wants(vec![place(number, MIB, Wish::Stay)]);
        assert_eq!(bed.round(), Err("its owner is away".to_owned()));
        assert_eq!(bed.pinned(), MIB, "the other one has its turn");
    }
    assert_eq!(bed.office.unanswered.load(Relaxed), 1);
    *bed.office.silent.lock() = None;
    bed.shared.known.lock().get_mut("a").unwrap().silent.as_mut().unwrap().0 = std::time::Instant::now();
    assert_eq!(bed.round(), Ok(()));
    assert!(bed.shared.known.lock()["a"].silent.is_none());
}

#[test]
fn what_is_to_be_nowhere_goes_before_anything_comes() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..8 {
        bed.put(number, MIB);
    }
    let of = |numbers: std::ops::Range<u64>, wish| {
        numbers.map(|number| place(number, MIB, wish)).collect::<Vec<_>>()
    };
    bed.wants(of(6..8, Wish::Near));
    bed.office.wanted.lock().insert("w".to_owned(), of(5..6, Wish::Near));
    bed.round().unwrap();
    let used = |bed: &Bed| bed.shared.objects.stats().used_bytes;
    assert_eq!(used(&bed), 3 * MIB);
    // At the end of one volume and in the next one; the proxy stops when the first bytes are to come.
    bed.wants([of(0..6, Wish::Stay), of(6..8, Wish::Nowhere)].concat());
    bed.office.wanted.lock().insert("w".to_owned(), of(5..6, Wish::Nowhere));
    let going = bed.going.take();
    *bed.office.meanwhile.lock() = Some((5, Box::new(move |_| drop(going))));
    bed.round().unwrap();
    assert_eq!((used(&bed), bed.pinned()), (0, 0));
    assert!(bed.office.meanwhile.lock().is_none());
}

#[test]
fn pins_of_an_object_of_which_the_store_does_not_say_anything_stay() {
    let mut bed = Bed::new(64 * MIB);
    bed.put(1, MIB);
    bed.wants(vec![place(1, MIB, Wish::Stay)]);
    bed.round().unwrap();
    std::fs::remove_file(bed.path(1)).unwrap();
    bed.shared.objects.forget_lengths();
    bed.rounds.next = None;
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.found().kept, bed.found().failed), (MIB, MIB, 0));
    bed.wants(Vec::new());
    bed.round().unwrap();
    assert_eq!(bed.pinned(), 0);
}

#[test]
fn where_files_are_replaced_all_the_time_passes_have_pauses() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..20 {
        bed.put(number, 4 * MIB);
    }
    let mut at_once = Vec::new();
    for first in 0..6 {
        // No policy has changed, but what there is: another pass finds it when it is due.
        let all = (first..first + 12).map(|number| place(number, 4 * MIB, Wish::Stay)).collect();
        bed.office.wanted.lock().insert("v".to_owned(), all);
        bed.rounds.next = None;
        bed.round().unwrap();
        assert!(bed.found().no_room > 0);
        at_once.push(bed.rounds.next.unwrap() <= std::time::Instant::now());
    }
    assert_eq!(at_once, [false, true, false, true, false, true]);
}

#[test]
fn what_is_here_of_volumes_that_are_read_elsewhere_now_is_dropped() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..4 {
        bed.put(number, MIB);
    }
    let of = |numbers: &[u64], wish| numbers.iter().map(|number| place(*number, MIB, wish)).collect();
    bed.wants(of(&[0, 1], Wish::Stay));
    bed.office.wanted.lock().insert("w".to_owned(), of(&[2, 3], Wish::Near));
    bed.round().unwrap();
    let used = |bed: &Bed| bed.shared.objects.stats().used_bytes;
    assert_eq!(used(&bed), 4 * MIB);
    bed.office.wanted.lock().remove("w");
    bed.round().unwrap();
    assert_eq!(used(&bed), 4 * MIB, "it may come back in a moment");
    bed.shared.pace.view_stands = Duration::ZERO;
    // While the owner of another is away, which it is is known from before.
    *bed.office.silent.lock() = Some("v".to_owned());
    assert!(bed.round().is_err());
    assert_eq!((used(&bed), bed.pinned()), (2 * MIB, 2 * MIB), "it is not wanted anywhere here");
    // Of one that nobody has heard of since this process began, it may be what is here.
    *bed.office.silent.lock() = Some("w".to_owned());
    bed.office.wanted.lock().remove("v");
    bed.office.wanted.lock().insert("w".to_owned(), Vec::new());
    bed.shared.known.lock().clear();
    assert!(bed.round().is_err());
    assert_eq!(used(&bed), 2 * MIB);
}

#[test]
fn a_pass_ends_where_policies_have_changed_meanwhile() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..6 {
        bed.put(number, MIB);
    }
    let mut all: Vec<_> = (0..6).map(|number| place(number, MIB, Wish::Stay)).collect();
    // By the next page, or before the next range, where it is time to ask.
    for (ask_every, fetched) in [(bed.shared.pace.ask_every, 2), (Duration::ZERO, 0)] {
        bed.shared.pace.ask_every = ask_every;
        bed.wants(all.iter().copied().rev().collect());
        let fetches = bed.fetches();
        let change = |office: &Office| *office.version.lock() += 1;
        // Once all pages have been gone through for what is to be dropped.
        *bed.office.meanwhile.lock() = Some((3, Box::new(change)));
        bed.round().unwrap();
        assert_eq!(bed.fetches(), fetches + fetched, "what was wanted before is not fetched any more");
        all.reverse();
    }
    // The next one goes by what is wanted now.
    bed.wants(all[..2].to_vec());
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.found().kept), (2 * MIB, 2 * MIB));
}

#[test]
fn where_policies_change_all_the_time_every_third_pass_goes_on_to_its_end() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..6 {
        bed.put(number, MIB);
    }
    let all: Vec<_> = (0..6).map(|number| place(number, MIB, Wish::Stay)).collect();
    bed.wants(all.clone());
    for pinned in [2, 2, 6] {
        let change = |office: &Office| *office.version.lock() += 1;
        // Once all pages have been gone through for what is to be dropped.
        *bed.office.meanwhile.lock() = Some((3, Box::new(change)));
        bed.round().unwrap();
        assert_eq!(bed.pinned(), pinned * MIB);
    }
    // What it did not heed the next one goes by.
    bed.wants(all[..1].to_vec());
    bed.round().unwrap();
    assert_eq!(bed.pinned(), MIB);
}

#[test]
fn a_pass_ends_where_the_proxy_stops() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..6 {
        bed.put(number, MIB);
    }
    let all: Vec<_> = (0..6).map(|number| place(number, MIB, Wish::Stay)).collect();
    bed.wants(all.clone());
    bed.office.wanted.lock().insert("w".to_owned(), all.clone());
    bed.round().unwrap();
    bed.wants(all[1..].to_vec());
    // Nothing of it has to be fetched, or waited for.
    let (pages, going) = (bed.office.pages.load(Relaxed), bed.going.take());
    *bed.office.meanwhile.lock() = Some((0, Box::new(move |_| drop(going))));
    let pinned = bed.pinned();
    bed.round().unwrap();
    assert_eq!(bed.office.pages.load(Relaxed), pages + 1, "neither the next page nor another volume's");
    assert_eq!(bed.pinned(), pinned, "and nothing is let go");
}

#[test]
fn what_does_not_fit_is_said_and_not_fetched() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..5 {
        bed.put(number, 10 * MIB);
    }
    bed.wants((0..5).map(|number| place(number, 10 * MIB, Wish::Stay)).collect());
    bed.round().unwrap();
    let share = bed.shared.objects.stats().pinned_max_bytes;
    let found = bed.found();
    assert_eq!((found.wanted, found.kept, found.failed), (50 * MIB, share, 0));
    assert_eq!(found.no_room, 50 * MIB - share);
    assert_eq!(bed.shared.objects.stats().fetched_bytes, share);
    // What is unpinned makes room, in the pass after the one in which it was seen not to be wanted.
    bed.wants((1..5).map(|number| place(number, 10 * MIB, Wish::Stay)).collect());
    bed.round().unwrap();
    assert_eq!(bed.pinned(), share - 10 * MIB);
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.found().no_room), (share, 40 * MIB - share));
}

#[test]
fn each_chunk_counts_once_and_only_at_its_first_member() {
    let mut bed = Bed::new(64 * MIB);
    bed.put(1, 40 * MIB);
    bed.office.view.lock().1.push(OTHER);
    let acts = bed.shared.asks.acts().unwrap();
    // Small files side by side, and one large one over them.
    let whole = place(1, 40 * MIB, Wish::Stay);
    let small = |at: u64| WantedPlace { from: at * 100_000, len: 90_000, ..whole };
    let mut all: Vec<WantedPlace> = (0..40).map(small).collect();
    all.push(whole);
    bed.wants(all);
    bed.round().unwrap();
    let own = |chunk: &u64| {
        let piece = PieceKey::of(whole.segment, chunk * CHUNK_BYTES);
        placement::first(piece, &acts.active) == Some(bed.office.own)
    };
    let expected = (0..160).filter(own).count() as u64 * CHUNK_BYTES;
    assert!(expected > 0 && expected < 40 * MIB, "{expected}");
    let share = bed.shared.objects.stats().pinned_max_bytes;
    assert_eq!((bed.found().wanted, bed.pinned()), (expected, expected.min(share)));
    // Once the view has stood for long enough, the other's are this one's.
    *bed.office.view.lock() = (2, vec![bed.office.own]);
    bed.round().unwrap();
    assert_eq!(bed.found().wanted, expected);
    bed.shared.pace.view_stands = Duration::ZERO;
    bed.round().unwrap();
    assert_eq!(bed.found().wanted, 40 * MIB);
}

#[test]
fn what_the_store_does_not_give_is_said_and_the_rest_comes() {
    let mut bed = Bed::new(64 * MIB);
    bed.put(1, MIB);
    bed.wants(vec![place(7, MIB, Wish::Stay), place(1, MIB, Wish::Stay)]);
    bed.round().unwrap();
    let found = bed.found();
    assert_eq!((found.wanted, found.kept, found.failed), (2 * MIB, MIB, MIB));
    assert!(!found.why.is_empty());
    bed.put(7, MIB);
    bed.rounds.next = None;
    bed.round().unwrap();
    assert_eq!((bed.found().kept, bed.found().failed), (2 * MIB, 0));
}

#[test]
fn a_store_that_gives_nothing_is_left_alone_for_the_rest_of_a_pass() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..2 {
        bed.put(number, MIB);
    }
    bed.wants(vec![place(1, MIB, Wish::Stay)]);
    bed.round().unwrap();
    // Not that an object is gone, but that the store cannot give it.
    for number in 2..5 {
        std::fs::create_dir_all(bed.path(number).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(bed.path(number), bed.path(number)).unwrap();
    }
    bed.put(5, MIB);
    let all = [2, 3, 4, 5, 1].map(|number| place(number, MIB, Wish::Stay));
    bed.wants(all.to_vec());
    bed.round().unwrap();
    let found = bed.found();
    assert_eq!((found.wanted, found.kept, found.failed), (5 * MIB, MIB, 4 * MIB), "what is here stays");
    assert!(!found.why.is_empty());
    // Two in a row may be chance.
    bed.wants(vec![all[0], all[1], all[3], all[2], all[4]]);
    bed.round().unwrap();
    assert_eq!((bed.found().kept, bed.found().failed), (2 * MIB, 3 * MIB));
    for number in 2..5 {
        std::fs::remove_file(bed.path(number)).unwrap();
        bed.put(number, MIB);
    }
    bed.rounds.next = None;
    bed.round().unwrap();
    assert_eq!((bed.found().kept, bed.found().failed), (5 * MIB, 0));
}

#[test]
fn what_is_placed_may_leave_and_what_is_not_to_be_here_goes() {
    let mut bed = Bed::new(64 * MIB);
    for number in 0..3 {
        bed.put(number, 2 * MIB);
    }
    bed.wants(vec![place(0, 2 * MIB, Wish::Near), place(1, 2 * MIB, Wish::Stay)]);
    bed.round().unwrap();
    assert_eq!((bed.pinned(), bed.found().kept), (2 * MIB, 4 * MIB));
    bed.wants(vec![place(0, 2 * MIB, Wish::Nowhere), place(1, 2 * MIB, Wish::Nowhere)]);
    // Whoever the first is: this one had them.
    *bed.office.view.lock() = (2, vec![OTHER]);
    bed.round().unwrap();
    let stats = bed.shared.objects.stats();
    assert_eq!((stats.used_bytes, stats.pinned_bytes, bed.found().dropped), (0, 0, 4 * MIB));
    bed.rounds.next = None;
    bed.round().unwrap();
    assert_eq!(bed.found().dropped, 0, "there was nothing any more");
}
