use bytes::Bytes;

use super::*;

const S: SegmentId = SegmentId(256);

fn append(offset: u64, bytes: &'static [u8], epoch: u64) -> Append {
    let (bytes, check) = (Bytes::from_static(bytes), crc32c::crc32c(bytes));
    Append { segment: S, epoch: Epoch(epoch), offset, bytes, check }
}

/// A log that keeps what it was told to write.
#[derive(Default)]
struct Disk(MemberLog, Vec<(u64, Record)>);

impl Disk {
    fn note(&mut self, record: Option<Record>) {
        if let Some(record) = record {
            let position = self.0.end() - record.size();
            self.1.push((position, record));
        }
    }

    fn append(&mut self, append: &Append) -> Result<u64, LogError> {
        let step = self.0.append(append)?;
        self.note(step.record);
        Ok(step.end)
    }

    fn again(&self) -> MemberLog {
        let mut log = MemberLog::new();
        for (position, record) in &self.1 {
            log.replay(*position, record);
        }
        log.replayed(0);
        log
    }
}

#[test]
fn appends_follow_each_other_and_may_come_twice() {
    let mut disk = Disk::default();
    assert_eq!(disk.append(&append(0, b"abc", 1)), Ok(3));
    assert_eq!(disk.append(&append(5, b"x", 1)), Err(LogError::EndsAt(3)));
    assert_eq!(disk.append(&append(3, b"de", 1)), Ok(5));
    assert_eq!(disk.append(&append(0, b"abc", 1)), Ok(3), "again");
    assert_eq!(disk.append(&append(0, b"abd", 1)), Err(LogError::Different));
    assert_eq!(disk.append(&append(1, b"bc", 1)), Err(LogError::Different));
    let wrong = Append { check: 1, ..append(5, b"f", 1) };
    assert_eq!(disk.append(&wrong), Err(LogError::Different));
    assert_eq!(disk.1.len(), 2);
    assert_eq!((disk.0.dirty(), disk.0.kept(S).unwrap().check()), (5, crc32c::crc32c(b"abcde")));
}

#[test]
fn an_answer_waits_for_its_own_record_also_when_it_came_twice() {
    let mut log = MemberLog::new();
    let first = log.append(&append(0, b"abc", 1)).unwrap();
    let again = log.append(&append(0, b"abc", 1)).unwrap();
    assert_eq!(first.upto, again.upto);
    assert!(log.synced_upto() < again.upto);
    log.synced(first.upto);
    assert_eq!(log.synced_upto(), first.upto);
}

#[test]
fn after_a_fence_a_former_writer_is_refused() {
    let mut log = MemberLog::new();
    log.append(&append(0, b"abc", 1)).unwrap();
    let (step, fenced) = log.fence(S, Epoch(2)).unwrap();
    assert!(step.record.is_some());
    assert_eq!((fenced.end, fenced.check), (3, crc32c::crc32c(b"abc")));
    assert!(log.fence(S, Epoch(2)).unwrap().0.record.is_none(), "again");
    assert_eq!(log.append(&append(3, b"x", 1)), Err(LogError::Fenced(Epoch(2))));
    assert_eq!(log.seal(S, Epoch(1), 3, fenced.check), Err(LogError::Fenced(Epoch(2))));
    assert_eq!(log.fence(S, Epoch(1)).unwrap_err(), LogError::Fenced(Epoch(2)));
    // Where nothing had come yet.
    let empty = SegmentId(512);
    assert_eq!(log.fence(empty, Epoch(2)).unwrap().1.end, 0);
    let late = Append { segment: empty, ..append(0, b"x", 1) };
    assert_eq!(log.append(&late), Err(LogError::Fenced(Epoch(2))));
}

#[test]
fn a_seal_cuts_what_was_not_acknowledged() {
    let mut log = MemberLog::new();
    log.append(&append(0, b"abc", 1)).unwrap();
    log.append(&append(3, b"de", 1)).unwrap();
    let check = crc32c::crc32c(b"abc");
    assert_eq!(log.seal(S, Epoch(1), 4, check), Err(LogError::Different), "not where an append ended");
    assert_eq!(log.seal(S, Epoch(1), 3, 1), Err(LogError::Different));
    assert_eq!(log.seal(S, Epoch(1), 9, check), Err(LogError::EndsAt(5)));
    assert_eq!(log.seal(S, Epoch(1), 3, check).unwrap().end, 3);
    assert!(log.seal(S, Epoch(1), 3, check).unwrap().record.is_none(), "again");
    assert_eq!(log.append(&append(3, b"de", 1)), Err(LogError::Sealed(3)));
    assert_eq!(log.dirty(), 3);
    assert_eq!((log.places(S, 1, 3).len(), log.places(S, 1, 4).len()), (1, 0));
}

#[test]
fn copies_go_only_by_a_verdict() {
    let mut log = MemberLog::new();
    log.append(&append(0, b"abc", 1)).unwrap();
    log.append(&append(3, b"de", 1)).unwrap();
    let check = crc32c::crc32c(b"abc");
    assert!(log.judged(S, Verdict::Wanted).is_none());
    let record = log.judged(S, Verdict::SealedAt { epoch: Epoch(3), len: 3, check });
    assert!(matches!(record, Some(Record::Seal { .. })));
    assert_eq!(log.offers()[0].sealed, Some((3, check)));
    assert!(matches!(log.judged(S, Verdict::Clean), Some(Record::Drop { .. })));
    assert!(log.offers().is_empty() && log.judged(S, Verdict::Clean).is_none());
    log.append(&append(0, b"abc", 5)).unwrap();
    assert!(log.judged(S, Verdict::Unwanted(Epoch(4))).is_none(), "that was about an older copy");
    assert!(log.judged(S, Verdict::Unwanted(Epoch(5))).is_some());
}

#[test]
fn a_log_that_is_read_again_is_the_same() {
    let mut disk = Disk::default();
    for (offset, bytes) in [(0, &b"abc"[..]), (3, b"de"), (5, b"f")] {
        disk.append(&append(offset, bytes, 1)).unwrap();
    }
    let (step, _) = disk.0.fence(SegmentId(9), Epoch(4)).unwrap();
    disk.note(step.record);
    let step = disk.0.seal(S, Epoch(1), 5, crc32c::crc32c(b"abcde")).unwrap();
    disk.note(step.record);
    let again = disk.again();
    assert_eq!((again.offers(), again.end()), (disk.0.offers(), disk.0.end()));
    assert_eq!(again.synced_upto(), again.end(), "the driver syncs what it accepts");
    // A torn tail is a log that ended earlier.
    let mut torn = MemberLog::new();
    for (position, record) in &disk.1[..2] {
        torn.replay(*position, record);
    }
    torn.replayed(0);
    assert_eq!(torn.kept(S).unwrap().end(), 5);
    // A record is missing in the middle: that segment counts for nothing, others do.
    let mut gap = MemberLog::new();
    for (position, record) in disk.1.iter().skip(1) {
        gap.replay(*position, record);
    }
    gap.replayed(0);
    assert!(gap.kept(S).unwrap().damaged);
    assert!(gap.places(S, 0, 1).is_empty() && gap.append(&append(0, b"abc", 1)) == Err(LogError::Damaged));
    assert!(!gap.kept(SegmentId(9)).unwrap().damaged);
}

/// Bytes move from the front of the log to its end, in whatever order, and the front goes.
#[test]
fn bytes_that_were_appended_anew_are_those_of_their_segment() {
    let mut disk = Disk::default();
    for (offset, bytes) in [(0, &b"abc"[..]), (3, b"de"), (5, b"f")] {
        disk.append(&append(offset, bytes, 1)).unwrap();
    }
    let check = crc32c::crc32c(b"abcde");
    let step = disk.0.seal(S, Epoch(1), 5, check).unwrap();
    disk.note(step.record);
    let (begin, first) = (disk.0.end(), disk.0.kept(S).unwrap().pieces[0]);
    assert_eq!((disk.0.oldest(), disk.0.needing(first.position + 1)), (Some(0), vec![S]));
    let mut moved = disk.0.again(S, &first, Bytes::from_static(b"abc"));
    let (again, _) = (disk.0.end(), moved.take().map(|record| disk.1.push((begin, record))));
    assert_eq!(disk.0.again(S, &first, Bytes::from_static(b"abc")), None, "it is not there any more");
    assert_eq!(disk.0.say_again(S, 1), None);
    assert!(disk.0.say_again(S, begin).is_some_and(|record| matches!(record, Record::Seal { .. })));
    assert_eq!(disk.0.oldest(), Some(disk.1[1].0), "the second piece");
    let mut log = MemberLog::new();
    for (position, record) in &disk.1[1..] {
        match record {
            Record::Append(append) if *position == begin => log.replay_again(*position, append),
            record => log.replay(*position, record),
        }
    }
    log.replayed(0);
    assert!(again > begin && !log.kept(S).unwrap().damaged);
    assert_eq!((log.offers(), log.dirty()), (disk.0.offers(), 5));
    assert_eq!(log.places(S, 0, 5), disk.0.places(S, 0, 5));
}

/// Records are gone, and nobody knows of which segments.
#[test]
fn a_log_that_lost_records_vouches_for_nothing_that_may_have_been_among_them() {
    let mut disk = Disk::default();
    let of = |segment| Append { segment, ..append(0, b"abc", 1) };
    let (sealed, open, later, unknown) = (SegmentId(1), SegmentId(2), SegmentId(3), SegmentId(4));
    disk.append(&of(sealed)).unwrap();
    let step = disk.0.seal(sealed, Epoch(1), 3, crc32c::crc32c(b"abc")).unwrap();
    disk.note(step.record);
    disk.append(&of(open)).unwrap();
    let lost_before = disk.0.end();
    disk.append(&of(later)).unwrap();
    let mut log = MemberLog::new();
    for (position, record) in &disk.1 {
        log.replay(*position, record);
    }
    log.replayed(lost_before);
    let damaged = |log: &MemberLog, segment| log.kept(segment).unwrap().damaged;
    assert!(!damaged(&log, sealed) && damaged(&log, open) && !damaged(&log, later));
    assert!(log.fence(unknown, Epoch(2)).unwrap().1.damaged, "it may have been here");
    let check = crc32c::crc32c(b"abc");
    assert_eq!(log.judged(open, Verdict::SealedAt { epoch: Epoch(1), len: 3, check: 1 }), None);
    assert!(
        log.judged(open, Verdict::SealedAt { epoch: Epoch(1), len: 3, check }).is_some(),
        "nothing is missing"
    );
    assert!(!damaged(&log, open));
    let fresh = SegmentId(5);
    assert!(log.append(&of(fresh)).is_ok() && !damaged(&log, fresh));
}

#[test]
fn what_cannot_be_read_back_is_given_up() {
    let mut log = MemberLog::new();
    log.append(&append(0, b"abc", 1)).unwrap();
    log.append(&append(3, b"de", 1)).unwrap();
    log.unreadable(S, 3);
    assert_eq!((log.dirty(), log.kept(S).unwrap().end(), log.kept(S).unwrap().damaged), (3, 3, true));
}

/// The record of a seal is needed, whatever is said of the segment later.
#[test]
fn a_fence_does_not_stand_for_a_seal() {
    let mut log = MemberLog::new();
    log.seal(S, Epoch(1), 0, 0).unwrap();
    log.fence(S, Epoch(2)).unwrap();
    assert_eq!((log.oldest(), log.needing(1)), (Some(0), vec![S]));
    let position = log.end();
    let again = log.say_again(S, 1);
    assert_eq!(again, Some(Record::Seal { segment: S, epoch: Epoch(2), len: 0, check: 0 }));
    assert_eq!(log.oldest(), Some(position));
}
