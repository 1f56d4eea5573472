use forebay_data::{DataError, Journal, Streams, Urgency};
use forebay_format::record::Changes;
use forebay_types::{Epoch, Ino, Sequence};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::{
    setting::{SmallDisk, VOLUME, append, fresh, new_journal, replay, segments},
    staging::{entry, run},
};

/// Changes that make the file longer than was reserved, on a disk that has nothing left.
#[test]
fn after_a_failed_write_nothing_claims_success() {
    let disk = SmallDisk::new(72);
    let journal = new_journal(disk.path());
    (1..=3).for_each(|number| assert_eq!(append(&journal, number), Sequence(number)));
    journal.sync(Sequence(3)).expect("a sync");
    disk.fill();
    let huge = Changes { rows: vec![(vec![1; 40 << 20], None)], ..Changes::default() };
    let append = journal.begin(b"some data", Urgency::Reclaim).expect("a place");
    let (segment, offset) = (append.segment(), append.data_offset());
    let sequence = append.commit(&huge);
    let failed = journal.sync(sequence);
    assert!(matches!(failed, Err(DataError::JournalFailed { .. })), "{failed:?}");
    let message = failed.expect_err("a failure").to_string();
    assert!(message.contains("write to") && message.contains("No space left"), "{message}");
    assert_eq!(journal.synced(), Sequence(3));
    for again in [journal.sync(sequence), journal.sync(Sequence(1)), journal.rotate()] {
        assert_eq!(again.expect_err("still failed").to_string(), message, "the first cause is named");
    }
    assert!(matches!(journal.begin(&[], Urgency::Reclaim), Err(DataError::JournalFailed { .. })));
    journal.write_out();
    assert_eq!(journal.read(segment, offset, 9).expect("what was appended is still seen"), "some data");
    drop(journal);
    assert_eq!(replay(disk.path(), 0).expect("a replay").1, fresh(3));
}

#[test]
fn a_directory_that_is_gone_stops_the_next_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let inner = dir.path().join("journal");
    std::fs::create_dir(&inner).expect("a directory");
    let journal = new_journal(&inner);
    append(&journal, 1);
    std::fs::remove_dir_all(&inner).expect("removed");
    let refused = journal.rotate();
    assert!(matches!(&refused, Err(DataError::Io { path, .. }) if path.starts_with(&inner)), "{refused:?}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let disk = SmallDisk::new(80);
    let inner = disk.path().join("journal");
    std::fs::create_dir(&inner).expect("a directory");
    let journal = new_journal(&inner);
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("a sync");
    drop(journal);
    mount_bind(&inner, &inner).expect("a bind mount");
    mount_remount(&inner, MountFlags::BIND | MountFlags::RDONLY, c"").expect("read-only");
    let replayed = replay(&inner, 0);
    let refused = replayed
        .map(|(replayed, found)| (Journal::start(replayed, &inner, VOLUME, Epoch(2), segments()), found));
    unmount(&inner, UnmountFlags::DETACH).expect("unmounted");
    let (refused, found) = refused.expect("reading needs no right to write");
    assert_eq!(found, fresh(1));
    assert!(matches!(&refused, Err(DataError::Io { path, .. }) if path.starts_with(&inner)), "{refused:?}");
}

#[test]
fn after_a_failed_sync_streams_claim_no_success() {
    let dir = tempfile::tempdir().expect("a directory");
    let inner = dir.path().join("staging");
    std::fs::create_dir(&inner).expect("a directory");
    let streams = Streams::open(Vec::new(), &inner, VOLUME, segments());
    let (stored, about) = run(1, 1000);
    let place = streams.append(Ino(1), &entry(1, &about), [&stored, &[]]).expect("a place");
    std::fs::remove_dir_all(&inner).expect("removed");
    let failed = streams.sync();
    assert!(matches!(failed, Err(DataError::StreamsFailed { .. })), "{failed:?}");
    std::fs::create_dir(&inner).expect("a directory");
    assert!(matches!(streams.sync(), Err(DataError::StreamsFailed { .. })));
    let refused = streams.append(Ino(1), &entry(1, &about), [&stored, &[]]);
    assert!(matches!(refused, Err(DataError::StreamsFailed { .. })));
    assert!(matches!(streams.seal(place.segment), Err(DataError::StreamsFailed { .. })));
    assert_eq!(streams.read(place.segment, place.run_offset, place.stored_len).expect("read"), stored);
}
