use std::path::{Path, PathBuf};

use forebay_data::{Damage, DataError, Journal, JournalFile, Replay, ReplayError, Urgency};
use forebay_format::record::{Changes, RecordHead, StreamRun};
use forebay_types::{SegmentId, Sequence};
use tempfile::TempDir;

use crate::setting::{
    VOLUME, append, bytes_of, changes, data, fresh, log_path, new_journal, replay, replay_with, start,
};

type Files = Vec<(PathBuf, Vec<u8>)>;

/// A journal of two files with records 1 to 5 and 6 to 9: the files' bytes, and where each record ends in its file.
fn two_files() -> (Files, Vec<(usize, usize)>) {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let mut ends = Vec::new();
    for number in 1..=9 {
        if number == 6 {
            journal.rotate().expect("a second file");
        }
        append(&journal, number);
        let files = journal.files();
        ends.push((files.len() - 1, files.last().expect("a file").len as usize));
    }
    journal.sync(Sequence(9)).expect("a sync");
    (bytes_of(dir.path(), &journal.files()), ends)
}

fn lay_out(files: &[(PathBuf, Vec<u8>)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), files);
    dir
}

fn write(dir: &Path, files: &[(PathBuf, Vec<u8>)]) {
    files.iter().for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).expect("a file"));
}

/// How many records end within the first `len` bytes of `file`, all earlier files being whole.
fn prefix(ends: &[(usize, usize)], file: usize, len: usize) -> u64 {
    ends.iter().filter(|(of, end)| *of < file || (*of == file && *end <= len)).count() as u64
}

#[test]
fn truncated_at_every_byte_it_ends_before_the_cut() {
    let (files, ends) = two_files();
    let dir = lay_out(&files);
    for (index, (_, bytes)) in files.iter().enumerate() {
        for len in 0..=bytes.len() {
            let mut cut = files.clone();
            cut[index].1.truncate(len);
            write(dir.path(), &cut);
            let whole = len == bytes.len();
            let expected = if whole { 9 } else { prefix(&ends, index, len) };
            let later = index == 0 && !whole;
            if later && len < 64 {
                // The second file shows that the first one's head was durable.
                let gap = replay(dir.path(), 0);
                assert!(
                    matches!(gap, Err(ReplayError::Data(DataError::JournalGap { .. }))),
                    "{len}: {gap:?}"
                );
                continue;
            }
            let (replay, found) = replay(dir.path(), 0).expect("a replay");
            assert_eq!(found, fresh(expected), "file {index} cut at {len}");
            assert_eq!(replay.last, Sequence(expected));
        }
    }
}

#[test]
fn with_any_bit_flipped_it_ends_before_the_record() {
    let (files, ends) = two_files();
    let dir = lay_out(&files);
    for (index, (name, bytes)) in files.iter().enumerate() {
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(dir.path().join(name), &flipped).expect("a file");
            let outcome = replay(dir.path(), 0);
            let (replay, found) = outcome.expect("a replay");
            if at < 64 {
                assert_eq!((found, replay.cut), (fresh(9), None), "head of {index} at {at}");
                continue;
            }
            assert_eq!(found, fresh(prefix(&ends, index, at)), "file {index} flipped at {at}");
            assert!(replay.cut.is_some());
        }
        std::fs::write(dir.path().join(name), bytes).expect("a file");
    }
}

/// Zeros where a record was, as a lost write leaves them in a preallocated file.
#[test]
fn a_lost_write_in_the_middle_ends_it_there() {
    let (mut files, ends) = two_files();
    files[0].1[ends[1].1..ends[2].1].fill(0);
    let dir = lay_out(&files);
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!(found, fresh(2));
    let journal = start(replayed, dir.path(), 2);
    let left = std::fs::metadata(dir.path().join(&files[0].0)).expect("the cut file").len();
    assert_eq!(left as usize, ends[1].1, "what is beyond the cut is still in the file");
    assert_eq!(append(&journal, 3), Sequence(3));
    journal.sync(Sequence(3)).expect("a sync");
    drop(journal);
    assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(3), "the old tail is back");
}

/// At each record's edge, continue with other records and stop again: nothing of the old tail may follow them.
#[test]
fn after_a_cut_the_old_tail_never_returns() {
    let (files, ends) = two_files();
    for (number, (index, end)) in ends.iter().enumerate() {
        for len in [end - 1, *end] {
            let mut cut = files.clone();
            // The cut is damage, and everything behind it is still there.
            if let Some(byte) = cut[*index].1.get_mut(len) {
                *byte ^= 0x55;
            } else if *index == 0 {
                continue;
            }
            let dir = lay_out(&cut);
            let expected = number as u64 + u64::from(len == *end);
            let (replayed, found) = replay(dir.path(), 0).expect("a replay");
            assert_eq!(found, fresh(expected));
            let journal = start(replayed, dir.path(), 2);
            assert_eq!(journal.last(), Sequence(expected));
            // One record takes the place of the first lost one; those after it were good bytes of the old epoch.
            append(&journal, expected + 1);
            journal.sync(Sequence(expected + 1)).expect("a sync");
            drop(journal);
            let (replayed, found) = replay(dir.path(), 0).expect("a replay");
            assert_eq!(found, fresh(expected + 1), "after a cut at {len} of file {index}");
            assert_eq!(replayed.cut, None);
            let journal = start(replayed, dir.path(), 3);
            append(&journal, expected + 2);
            journal.write_out();
            drop(journal);
            assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(expected + 2));
        }
    }
}

/// The truncation after a cut was lost, and a newer file begins where the old records do.
#[test]
fn a_newer_file_overrules_records_behind_a_cut() {
    let (files, _) = two_files();
    let dir = lay_out(&files[..1]);
    let stale = std::fs::read(dir.path().join(&files[0].0)).expect("the file");
    let wants_stream = &mut |_: &StreamRun| true;
    let (mut replayed, _) = replay_with(dir.path(), 0, wants_stream).expect("a replay");
    // Cut after record 3, as a denied stream would do it.
    replayed.last = Sequence(3);
    let journal = start(replayed, dir.path(), 2);
    append(&journal, 4);
    journal.sync(Sequence(4)).expect("a sync");
    drop(journal);
    std::fs::write(dir.path().join(&files[0].0), stale).expect("the old bytes are back");
    let (_, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!(found, fresh(4));
}

#[test]
fn a_record_waits_for_its_streams() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    for number in 1..=4 {
        let run = StreamRun {
            segment: SegmentId(1 << 40),
            run_offset: number,
            stored_len: 1,
            run_len: 1,
            form: 0,
            check: 0,
        };
        let data = data(number);
        let append = journal.begin(&data, Urgency::Normal).expect("a place");
        append.commit(&Changes { streams: vec![run], ..changes(number) });
    }
    journal.sync(Sequence(4)).expect("a sync");
    drop(journal);
    let (replayed, found) = replay_with(dir.path(), 0, &mut |run| run.run_offset != 3).expect("a replay");
    assert_eq!(found, fresh(2));
    assert!(replayed.cut.as_deref().is_some_and(|cut| cut.contains("stream")), "{:?}", replayed.cut);
    let (_, found) =
        replay_with(dir.path(), 3, &mut |run| run.run_offset > 3).expect("applied ones are not asked");
    assert_eq!(found, [(1, false), (2, false), (3, false), (4, true)]);
    let journal = start(replayed, dir.path(), 2);
    append(&journal, 3);
    journal.sync(Sequence(3)).expect("a sync");
    drop(journal);
    assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(3));
}

/// The journal may be synced past a record before its streams are: it is cut there although later records call it durable.
#[test]
fn a_record_without_its_streams_is_no_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let run =
        StreamRun { segment: SegmentId(9), run_offset: 1, stored_len: 1, run_len: 1, form: 0, check: 0 };
    append(&journal, 1);
    let data = data(2);
    let second = journal.begin(&data, Urgency::Normal).expect("a place");
    second.commit(&Changes { streams: vec![run], ..changes(2) });
    journal.sync(Sequence(2)).expect("a sync");
    append(&journal, 3);
    journal.sync(Sequence(3)).expect("a sync");
    drop(journal);
    let (replayed, found) = replay_with(dir.path(), 0, &mut |_| false).expect("a replay");
    assert_eq!((found, replayed.dropped), (fresh(1), None));
    assert!(replayed.cut.is_some_and(|cut| cut.contains("stream")));
}

#[test]
fn what_was_applied_may_be_gone() {
    let (files, _) = two_files();
    let dir = lay_out(&files[1..]);
    let expected = vec![(6, false), (7, true), (8, true), (9, true)];
    assert_eq!(replay(dir.path(), 6).expect("a replay").1, expected);
    assert_eq!(replay(dir.path(), 5).expect("a replay").1.len(), 4);
    let gap = replay(dir.path(), 4);
    let needed = |gap| match gap {
        Err(ReplayError::Data(DataError::JournalGap { needed, found, .. })) => Some((needed.0, found)),
        _ => None,
    };
    assert_eq!(needed(gap), Some((5, Some(Sequence(6)))));
}

#[test]
fn an_empty_directory_continues_after_what_was_applied() {
    let dir = tempfile::tempdir().expect("a directory");
    let (replayed, found) = replay(dir.path(), 41).expect("a replay");
    assert!(found.is_empty());
    let journal = start(replayed, dir.path(), 9);
    assert_eq!(append(&journal, 42), Sequence(42));
}

#[test]
fn damage_among_applied_records_costs_nothing_but_keeps_their_data() {
    let (mut files, ends) = two_files();
    files[0].1[ends[1].1 + 3] ^= 1;
    let dir = lay_out(&files);
    let (replayed, found) = replay(dir.path(), 5).expect("a replay");
    let expected =
        [(1, false), (2, false), (4, false), (5, false), (6, true), (7, true), (8, true), (9, true)];
    assert_eq!(found, expected);
    let [Damage { from, to, first, last, .. }] = replayed.damages.as_slice() else { panic!("{replayed:?}") };
    assert_eq!((*from as usize, *to as usize), (ends[1].1, ends[2].1));
    assert_eq!((*first, *last), (Sequence(3), Sequence(3)));
    let first: JournalFile = replayed.files[0];
    assert_eq!((first.len as usize, first.last), (files[0].1.len(), Sequence(5)));
    let journal = start(replayed, dir.path(), 2);
    let kept = journal.read(first.segment, 0, first.len as u32).expect("the data of applied records");
    assert_eq!(kept, files[0].1);
    let (_, found) = replay(lay_out(&files[..1]).path(), 4).expect("a replay");
    assert_eq!(found, [(1, false), (2, false), (4, false), (5, true)]);
}

/// Wherever a byte is wrong in a record that was applied, all later ones are there.
#[test]
fn damage_among_applied_records_hides_no_later_one() {
    let (files, ends) = two_files();
    let dir = lay_out(&files);
    for (index, (name, bytes)) in files.iter().enumerate() {
        for at in 64..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(dir.path().join(name), &flipped).expect("a file");
            let damaged = prefix(&ends, index, at) + 1;
            for applied in [damaged, (damaged + 1).min(9), 9] {
                let (replay, found) = replay(dir.path(), applied).expect("a replay");
                let late: Vec<_> = found.into_iter().filter(|(_, fresh)| *fresh).collect();
                let expected: Vec<_> = (applied + 1..=9).map(|number| (number, true)).collect();
                assert_eq!(late, expected, "file {index} flipped at {at}, {applied} applied");
                assert_eq!((replay.last, replay.cut), (Sequence(9), None));
                assert_eq!(replay.damages.len(), 1, "file {index} flipped at {at}, {applied} applied");
            }
        }
        std::fs::write(dir.path().join(name), bytes).expect("a file");
    }
}

/// The journal ends before what was applied: the file was cut, or an old one was put in its place.
#[test]
fn what_was_applied_may_be_cut_off() {
    let (files, ends) = two_files();
    for (number, (index, end)) in ends.iter().enumerate().filter(|(_, (index, _))| *index == 1) {
        let mut cut = files.clone();
        cut[*index].1.truncate(*end);
        let dir = lay_out(&cut);
        let (replayed, found) = replay(dir.path(), 9).expect("a replay");
        assert_eq!((replayed.last, found.len()), (Sequence(9), number + 1));
        assert_eq!(replayed.damages.len(), usize::from(number + 1 < 9));
        let journal = start(replayed, dir.path(), 2);
        assert_eq!(append(&journal, 10), Sequence(10));
        journal.sync(Sequence(10)).expect("a sync");
        drop(journal);
        let (_, found) = replay(dir.path(), 9).expect("a replay");
        assert_eq!(found.last(), Some(&(10, true)));
    }
}

/// The file between two others was removed, because nothing was left in it.
#[test]
fn applied_files_may_be_gone_from_the_middle() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let journal = start(replay(dir.path(), 9).expect("a replay").0, dir.path(), 2);
    append(&journal, 10);
    journal.sync(Sequence(10)).expect("a sync");
    drop(journal);
    std::fs::remove_file(dir.path().join(&files[1].0)).expect("the middle one");
    let (replayed, found) = replay(dir.path(), 9).expect("a replay");
    assert_eq!((replayed.last, found.len(), replayed.damages.as_slice()), (Sequence(10), 6, &[][..]));
    assert!(replay(dir.path(), 8).is_err(), "what was not applied may not");
}

/// Records 1 to 9 of one file; from record 6 on they say that the first five are durable.
fn synced_after_five() -> (Files, Vec<(usize, usize)>) {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let mut ends = Vec::new();
    for number in 1..=9 {
        append(&journal, number);
        if number == 5 {
            journal.sync(Sequence(5)).expect("a sync");
        }
        ends.push((0, journal.files()[0].len as usize));
    }
    journal.sync(Sequence(9)).expect("a sync");
    (bytes_of(dir.path(), &journal.files()), ends)
}

#[test]
fn durable_records_that_are_lost_are_an_error() {
    let (files, ends) = synced_after_five();
    let (name, bytes) = &files[0];
    let dir = lay_out(&files);
    for at in 64..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(dir.path().join(name), &flipped).expect("a file");
        let damaged = prefix(&ends, 0, at) + 1;
        let outcome = replay(dir.path(), 0);
        if damaged > 5 {
            let (replay, found) = outcome.expect("a replay");
            assert_eq!((found, replay.dropped), (fresh(damaged - 1), None), "flipped at {at}");
            continue;
        }
        match outcome {
            Err(ReplayError::Data(error @ DataError::JournalGap { needed, found, .. })) => {
                assert_eq!((needed, found), (Sequence(damaged), Some(Sequence(damaged + 1))));
                let text = error.to_string();
                assert!(text.contains("--cut-journal") && text.contains("at byte"), "{text}");
            }
            other => panic!("flipped at {at}: {other:?}"),
        }
        let (_, found) = replay(dir.path(), damaged).expect("a replay of what was applied");
        assert_eq!(found.iter().filter(|(_, fresh)| *fresh).count() as u64, 9 - damaged);
    }
}

/// A copy may lack what its writer had: it ends there.
#[test]
fn a_copy_ends_where_something_is_missing() {
    let (mut files, ends) = synced_after_five();
    files[0].1[ends[1].1 + 3] ^= 1;
    let dir = lay_out(&files);
    let mut found = Vec::new();
    let copy = Journal::replay_copy::<()>(dir.path(), VOLUME, Sequence(0), &mut |_| true, &mut |record| {
        found.push(record.sequence.0);
        Ok(())
    });
    assert_eq!((copy.expect("a replay").last, found), (Sequence(2), vec![1, 2]));
}

fn salvage(dir: &Path, applied: u64) -> (Replay, Vec<u64>) {
    let mut found = Vec::new();
    let replay = Journal::salvage::<()>(dir, VOLUME, Sequence(applied), &mut |_| true, &mut |record| {
        found.push(record.sequence.0);
        Ok(())
    });
    (replay.expect("a salvage"), found)
}

#[test]
fn a_salvage_gives_up_what_is_behind_the_gap_and_nothing_else() {
    let (mut files, ends) = synced_after_five();
    files[0].1[ends[1].1 + 3] ^= 1;
    let dir = lay_out(&files);
    let (salvaged, found) = salvage(dir.path(), 0);
    assert_eq!((found, salvaged.last), (vec![1, 2], Sequence(2)));
    let dropped = salvaged.dropped.clone().expect("something is given up");
    assert_eq!((dropped.needed, dropped.records), (Sequence(3), 6));
    assert!(replay(dir.path(), 0).is_err(), "a salvage changes nothing by itself");
    Journal::cut(salvaged, dir.path()).expect("a cut");
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!((found, replayed.cut), (fresh(2), None));
    let (files, _) = synced_after_five();
    let dir = lay_out(&files);
    assert_eq!(salvage(dir.path(), 0).0.dropped, None, "nothing is wrong");
}

#[test]
fn a_salvage_takes_no_file_of_another_volume_for_damage() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let other = forebay_types::VolumeId([4; 16]);
    let outcome = Journal::salvage::<()>(dir.path(), other, Sequence(0), &mut |_| true, &mut |_| Ok(()));
    assert!(matches!(outcome, Err(ReplayError::Data(DataError::Format { .. }))), "{outcome:?}");
}

/// The first file is gone: what a salvage leaves is what was applied.
#[test]
fn a_salvage_of_a_lost_file_keeps_what_was_applied() {
    let (files, _) = two_files();
    let dir = lay_out(&files[1..]);
    let (salvaged, found) = salvage(dir.path(), 3);
    assert_eq!((found, salvaged.last), (vec![], Sequence(3)));
    assert_eq!(salvaged.dropped.as_ref().map(|dropped| dropped.records), Some(4));
    Journal::cut(salvaged, dir.path()).expect("a cut");
    assert_eq!(replay(dir.path(), 3).expect("a replay").0.last, Sequence(3));
}

#[test]
fn files_that_were_renamed_are_named() {
    let (files, _) = two_files();
    let swapped = [(files[0].0.clone(), files[1].1.clone()), (files[1].0.clone(), files[0].1.clone())];
    let error = replay(lay_out(&swapped).path(), 9).expect_err("swapped files").to_string();
    assert!(error.contains("give it its name back") && error.contains(".log"), "{error}");
    let mut copied = files.clone();
    copied.push((PathBuf::from("00000000000fffff.log"), files[0].1.clone()));
    let error = replay(lay_out(&copied).path(), 9).expect_err("a copied file").to_string();
    assert!(error.contains("00000000000fffff.log"), "{error}");
}

/// A file that was removed long ago is put back.
#[test]
fn an_old_file_that_was_put_back_is_ignored() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let (replayed, _) = replay(dir.path(), 9).expect("a replay");
    let journal = start(replayed, dir.path(), 2);
    for number in 10..=12 {
        append(&journal, number);
    }
    journal.sync(Sequence(12)).expect("a sync");
    drop(journal);
    std::fs::remove_file(dir.path().join(&files[1].0)).expect("the file was removed");
    let (replayed, found) = replay(dir.path(), 10).expect("a replay");
    assert_eq!((replayed.last, found.len()), (Sequence(12), 8));
}

#[test]
fn a_damaged_head_is_kept_only_where_all_was_applied() {
    let (mut files, _) = two_files();
    files[0].1[20] ^= 1;
    files[0].1[70] ^= 1;
    let dir = lay_out(&files);
    let (replayed, found) = replay(dir.path(), 7).expect("a replay");
    assert_eq!(found, [(6, false), (7, false), (8, true), (9, true)]);
    assert_eq!(replayed.files.len(), 2);
    let journal = start(replayed, dir.path(), 2);
    let opaque = journal.files()[0];
    assert_eq!(opaque.last, Sequence(5));
    assert_eq!(journal.read(opaque.segment, 0, opaque.len as u32).expect("its bytes"), files[0].1);
    assert!(replay(lay_out(&files).path(), 4).is_err());
}

#[test]
fn files_of_another_volume_or_a_newer_release_are_left_alone() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let other = Journal::replay::<()>(
        dir.path(),
        forebay_types::VolumeId([4; 16]),
        Sequence(0),
        &mut |_| true,
        &mut |_| Ok(()),
    );
    assert!(matches!(other, Err(ReplayError::Data(DataError::Format { .. }))), "{other:?}");
    assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(9));
    let mut newer = files[1].1.clone();
    newer[8] = 2;
    let crc = RecordHead::data_crc(&newer[..52]).to_le_bytes();
    newer[52..56].copy_from_slice(&crc);
    std::fs::write(dir.path().join(&files[1].0), newer).expect("a file of version 2");
    let newer = replay(dir.path(), 0).expect_err("a newer version").to_string();
    assert!(newer.contains("format version 2"), "{newer}");
}

#[test]
fn records_of_an_older_epoch_do_not_follow_newer_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = replay(dir.path(), 0).expect("a replay").0;
    let journal = start(empty, dir.path(), 7);
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("a sync");
    drop(journal);
    let replayed = replay(dir.path(), 0).expect("a replay").0;
    let journal = start(replayed, dir.path(), 6);
    append(&journal, 2);
    journal.sync(Sequence(2)).expect("a sync");
    drop(journal);
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!(found, fresh(1));
    assert!(replayed.cut.as_deref().is_some_and(|cut| cut.contains("older epoch")), "{:?}", replayed.cut);
}

/// Records of an older journal stand exactly where new ones end.
#[test]
fn what_a_file_had_before_is_not_replayed() {
    let (files, ends) = two_files();
    let dir = tempfile::tempdir().expect("a directory");
    let journal = start(replay(dir.path(), 0).expect("a replay").0, dir.path(), 2);
    append(&journal, 1);
    journal.sync(Sequence(1)).expect("a sync");
    let mut bytes = bytes_of(dir.path(), &journal.files()).remove(0);
    drop(journal);
    bytes.1.extend_from_slice(&files[0].1[ends[0].1..]);
    write(dir.path(), &[bytes]);
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!(found, fresh(1));
    assert!(replayed.cut.as_deref().is_some_and(|cut| cut.contains("old record 2")), "{:?}", replayed.cut);
}

/// A crash undid the renaming of a spare that had a head and records already. With those under its next name, and the new head not yet
/// durable, it would be a file that was renamed.
#[test]
fn a_reserved_file_that_was_used_is_made_anew() {
    let (files, _) = two_files();
    let mut used = files[0].1.clone();
    // As long as a spare is made.
    used.resize(34 << 20, 0);
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("spare"), &used).expect("a spare");
    let journal = start(replay(dir.path(), 0).expect("a replay").0, dir.path(), 2);
    let current = std::fs::read(log_path(dir.path(), journal.files()[0].segment)).expect("the first file");
    assert!(current[64..].iter().all(|byte| *byte == 0), "what the spare had is still there");
}

#[test]
fn a_file_that_got_no_head_is_not_part_of_it() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let unborn = log_path(dir.path(), SegmentId(u64::MAX));
    std::fs::write(&unborn, vec![0; 4096]).expect("a file");
    let (replayed, found) = replay(dir.path(), 0).expect("a replay");
    assert_eq!((found, replayed.cut.as_deref()), (fresh(9), None));
    assert!(unborn.exists(), "a replay changes nothing");
    drop(start(replayed, dir.path(), 2));
    assert!(!unborn.exists());
}

#[test]
fn a_refusal_of_the_visitor_names_the_record() {
    let (files, _) = two_files();
    let dir = lay_out(&files);
    let refused = Journal::replay(dir.path(), VOLUME, Sequence(0), &mut |_| true, &mut |record| {
        if record.sequence == Sequence(4) { Err("no") } else { Ok(()) }
    });
    let sequence = match refused {
        Err(ReplayError::Visit { sequence, source: "no" }) => Some(sequence),
        _ => None,
    };
    assert_eq!(sequence, Some(Sequence(4)));
}
