use std::sync::atomic::{AtomicU64, Ordering};

use forebay_data::{DataError, Journal, Urgency};
use forebay_format::record::Changes;
use forebay_types::Sequence;

use crate::setting::{append, data, fresh, new_journal, replay, start};

#[test]
fn an_append_that_is_dropped_appends_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    drop(journal.begin(b"never", Urgency::Normal).expect("a place"));
    assert_eq!(journal.last(), Sequence(0));
    assert_eq!(append(&journal, 1), Sequence(1));
    journal.write_out();
    assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(1));
}

#[test]
fn bytes_are_read_from_buffer_and_file_alike() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let (first, second) = (vec![1u8; 100], vec![2u8; 100]);
    let append = journal.begin(&first, Urgency::Normal).expect("a place");
    let (segment, from) = (append.segment(), append.data_offset());
    append.commit(&Changes::default());
    journal.write_out();
    let append = journal.begin(&second, Urgency::Normal).expect("a place");
    let to = append.data_offset();
    append.commit(&Changes::default());
    let across = journal.read(segment, from, (to - from) as u32 + 100).expect("bytes of both");
    assert_eq!((&across[..100], &across[(to - from) as usize..]), (&first[..], &second[..]));
    journal.write_out();
    assert_eq!(journal.read(segment, from, across.len() as u32).expect("the same"), across);
    let beyond = journal.read(segment, to, 200);
    assert!(matches!(beyond, Err(DataError::OutOfRange { .. })), "{beyond:?}");
}

#[test]
fn files_follow_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    journal.rotate().expect("nothing to end");
    assert_eq!(journal.files().len(), 1);
    (1..=3).for_each(|number| assert_eq!(append(&journal, number), Sequence(number)));
    journal.rotate().expect("a new file");
    (4..=5).for_each(|number| assert_eq!(append(&journal, number), Sequence(number)));
    let files = journal.files();
    let about: Vec<_> = files.iter().map(|file| (file.first.0, file.last.0, file.data_bytes)).collect();
    let sum = |numbers: std::ops::RangeInclusive<u64>| numbers.map(|number| data(number).len() as u64).sum();
    assert_eq!(about, [(1, 3, sum(1..=3)), (4, 5, sum(4..=5))]);
    journal.sync(Sequence(5)).expect("a sync");
    let on_disk = std::fs::metadata(crate::setting::log_path(dir.path(), files[0].segment)).expect("a file");
    assert_eq!(on_disk.len(), files[0].len, "the unused end of a file was not given back");
    assert!(matches!(journal.remove(files[1].segment), Err(DataError::NoSegment { .. })));
    journal.remove(files[0].segment).expect("removed");
    assert!(matches!(journal.read(files[0].segment, 0, 1), Err(DataError::NoSegment { .. })));
    drop(journal);
    let (_, found) = replay(dir.path(), 3).expect("a replay");
    assert_eq!(found, [(4, true), (5, true)]);
}

#[test]
fn a_full_file_makes_place_for_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let data = vec![7; 4 << 20];
    for number in 1..=20 {
        let append = journal.begin(&data, Urgency::Normal).expect("a place");
        assert_eq!(append.commit(&Changes::default()), Sequence(number));
    }
    let files = journal.files();
    assert!(files.len() >= 3 && files.iter().all(|file| file.len <= 32 << 20), "{files:?}");
    assert!(files.windows(2).all(|pair| pair[0].last.next() == pair[1].first), "{files:?}");
    journal.sync(Sequence(20)).expect("a sync");
    assert_eq!(journal.synced(), Sequence(20));
    drop(journal);
    let mut count = 0;
    let replayed =
        Journal::replay(dir.path(), crate::setting::VOLUME, Sequence(0), &mut |_| true, &mut |record| {
            count += 1;
            if record.data == data { Ok(()) } else { Err("other data") }
        });
    assert_eq!((replayed.expect("a replay").cut, count), (None, 20));
}

#[test]
fn data_that_no_file_can_hold_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let long = vec![0; Journal::DATA_MAX + 1];
    assert!(matches!(journal.begin(&long, Urgency::Normal), Err(DataError::Io { .. })));
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("the journal still works");
}

/// Eight threads append and sync; each record has its own sequence in it, so that a mixed-up buffer is noticed at replay.
#[test]
fn threads_share_one_order() {
    const THREADS: usize = 8;
    const EACH: u64 = 150;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let largest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, largest) = (&journal, &largest);
            scope.spawn(move || {
                for round in 0..EACH {
                    // The data is known once the place is, so it is taken from the rows here.
                    let append = journal.begin(&[], Urgency::Normal).expect("a place");
                    let number = append.sequence().0;
                    let rows = crate::setting::changes(number);
                    let sequence = append.commit(&rows);
                    assert_eq!(sequence.0, number);
                    match (round + thread as u64) % 10 {
                        0 => {
                            journal.sync(sequence).expect("a sync");
                            assert!(journal.synced() >= sequence);
                            largest.fetch_max(sequence.0, Ordering::SeqCst);
                        }
                        1 => journal.rotate().expect("a new file"),
                        _ => journal.write_out(),
                    }
                }
            });
        }
    });
    journal.write_out();
    let total = THREADS as u64 * EACH;
    assert_eq!(journal.last(), Sequence(total));
    assert!(journal.synced().0 >= largest.into_inner());
    drop(journal);
    let mut next = 1;
    let replayed =
        Journal::replay(dir.path(), crate::setting::VOLUME, Sequence(0), &mut |_| true, &mut |record| {
            let right =
                record.sequence.0 == next && record.changes.rows == crate::setting::changes(next).rows;
            next += 1;
            if right { Ok(()) } else { Err(record.sequence) }
        })
        .expect("a replay");
    assert_eq!((replayed.last, replayed.cut), (Sequence(total), None));
}

#[test]
fn what_was_written_out_outlives_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    (1..=10).for_each(|number| assert_eq!(append(&journal, number), Sequence(number)));
    journal.write_out();
    append(&journal, 11);
    drop(journal);
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!((found, replayed.cut.as_deref()), (fresh(10), None));
    let journal = start(replayed, dir.path(), 2);
    assert_eq!((journal.last(), journal.synced()), (Sequence(10), Sequence(10)));
    assert_eq!(append(&journal, 11), Sequence(11));
}

#[test]
fn a_buffer_that_nobody_writes_out_stays_small() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let data = vec![5; 300 << 10];
    for _ in 0..20 {
        journal.begin(&data, Urgency::Normal).expect("a place").commit(&Changes::default());
    }
    let file = journal.files()[0];
    let bytes = std::fs::read(crate::setting::log_path(dir.path(), file.segment)).expect("a file");
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
    assert!(file.len - written <= 2 << 20, "{} bytes are buffered", file.len - written);
}
