use forebay_data::{DataError, Journal, PackedWriter, Streams, Urgency};
use forebay_format::record::Changes;
use forebay_types::{Ino, Sequence};

use crate::{
    setting::{SmallDisk, VOLUME, append, changes, data, fresh, new_journal, replay, segments, start},
    staging::{entry, run},
};

const PIECE: usize = 256 << 10;

/// Appends until refused for space; how many records that were.
fn fill(journal: &Journal, urgency: Urgency) -> u64 {
    let data = vec![9; PIECE];
    for count in 0..1000 {
        match journal.begin(&data, urgency) {
            Ok(append) => drop(append.commit(&Changes::default())),
            Err(DataError::NoSpace { .. }) => return count,
            Err(error) => panic!("refused otherwise: {error}"),
        }
    }
    panic!("never refused");
}

/// 72 MiB have room for two files of the journal. The last quarter of the second one is for what frees space.
#[test]
fn a_full_disk_keeps_a_reserve_for_what_frees_space() {
    let disk = SmallDisk::new(72);
    let journal = new_journal(disk.path());
    let normal = fill(&journal, Urgency::Normal);
    assert!((48 << 20..64 << 20).contains(&(normal as usize * PIECE)), "{normal} normal ones");
    let reclaim = fill(&journal, Urgency::Reclaim);
    assert!((6 << 20..=8 << 20).contains(&(reclaim as usize * PIECE)), "{reclaim} in the reserve");
    journal.sync(journal.last()).expect("what was appended is on disk");
    let first = journal.files()[0];
    journal.remove(first.segment).expect("applied, so it can go");
    let data = vec![1; PIECE];
    let append = journal.begin(&data, Urgency::Normal).expect("space was freed");
    append.commit(&Changes::default());
    journal.sync(journal.last()).expect("a sync");
    assert_eq!(journal.last(), Sequence(normal + reclaim + 1));
}

/// Others free the space, so nobody tells the journal.
#[test]
fn space_that_comes_back_is_noticed_after_some_appends() {
    let disk = SmallDisk::new(40);
    let ballast = disk.path().join("ballast");
    let journal = new_journal(disk.path());
    std::fs::write(&ballast, vec![1; 4 << 20]).expect("ballast");
    fill(&journal, Urgency::Normal);
    std::fs::remove_file(&ballast).expect("removed");
    rustix::mount::mount_remount(disk.path(), rustix::mount::MountFlags::empty(), c"size=100m")
        .expect("a larger disk");
    let accepted = (0..100).position(|_| journal.begin(&[], Urgency::Normal).is_ok());
    assert!(accepted.is_some_and(|tries| tries <= 40), "{accepted:?}");
}

#[test]
fn a_disk_without_any_room_cannot_start_a_journal() {
    let disk = SmallDisk::new(8);
    disk.fill();
    let (replayed, _) = replay(disk.path(), 0).expect("a replay");
    let refused = Journal::start(replayed, disk.path(), VOLUME, forebay_types::Epoch(1), segments());
    assert!(matches!(refused, Err(DataError::NoSpace { .. })), "{refused:?}");
}

/// The spare of the last run is there, so a mount on a full disk can still begin a file.
#[test]
fn the_spare_is_taken_over() {
    let disk = SmallDisk::new(72);
    let journal = new_journal(disk.path());
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("a sync");
    drop(journal);
    disk.fill();
    let (replayed, found) = replay(disk.path(), 0).expect("a replay");
    assert_eq!(found, fresh(1));
    let journal = start(replayed, disk.path(), 2);
    append(&journal, 2);
    journal.sync(Sequence(2)).expect("a sync");
}

#[test]
fn streams_and_packed_segments_refuse_and_go_on() {
    let disk = SmallDisk::new(4);
    let streams = Streams::open(Vec::new(), disk.path(), VOLUME, segments());
    let (stored, about) = run(1, 1 << 20);
    let ballast = disk.fill();
    let refused = streams.append(Ino(1), &entry(1, &about), [&stored, &[]]);
    assert!(matches!(refused, Err(DataError::NoSpace { .. })), "{refused:?}");
    let refused = PackedWriter::create(disk.path(), VOLUME, segments()()).and_then(|mut packed| {
        packed.add(&entry(1, &about), [&stored, &[]])?;
        packed.finish()
    });
    assert!(matches!(refused, Err(DataError::NoSpace { .. })), "{refused:?}");
    let left = std::fs::read_dir(disk.path()).expect("a directory").filter_map(Result::ok);
    let parts = left.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "part"));
    assert_eq!(parts.count(), 0, "an unfinished segment is left");
    std::fs::remove_file(ballast).expect("removed");
    let place = streams.append(Ino(1), &entry(1, &about), [&stored, &[]]).expect("space was freed");
    streams.sync().expect("a sync");
    drop(streams);
    let recovered = Streams::recover(disk.path()).expect("recovered");
    assert!(recovered[0].has(&place).expect("read"));
}

/// The spare was taken away, and the disk is full: a short first file is enough to free space by.
#[test]
fn a_full_disk_without_a_spare_can_be_started_on() {
    let disk = SmallDisk::new(80);
    let journal = new_journal(disk.path());
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("a sync");
    drop(journal);
    std::fs::remove_file(disk.path().join("spare")).expect("there was a spare");
    let (replayed, found) = replay(disk.path(), 0).expect("a replay");
    assert_eq!(found, fresh(1));
    Journal::cut(replayed, disk.path()).expect("the space behind the last record");
    let ballast = disk.fill();
    let file = std::fs::File::options().write(true).open(&ballast).expect("the ballast");
    let len = file.metadata().expect("its length").len();
    file.set_len(len - (3 << 20)).expect("some room");
    drop(file);
    let replayed = replay(disk.path(), 0).expect("a replay").0;
    let journal = start(replayed, disk.path(), 2);
    let refused = journal.begin(&[1], Urgency::Normal);
    assert!(matches!(refused, Err(DataError::NoSpace { .. })), "{refused:?}");
    drop(refused);
    let data = data(2);
    journal.begin(&data, Urgency::Reclaim).expect("a place").commit(&changes(2));
    std::fs::remove_file(&ballast).expect("space is freed");
    let free = (0..100).any(|_| journal.begin(&[], Urgency::Normal).is_ok());
    assert!(free, "nothing can be written although there is room again");
    journal.sync(Sequence(2)).expect("a sync");
    drop(journal);
    assert_eq!(replay(disk.path(), 0).expect("a replay").1, fresh(2));
}
