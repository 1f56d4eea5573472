use forebay_format::{
    footer::{Footer, TAIL_LEN},
    record::{Changes, FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RecordHead},
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};
use proptest::{collection::vec, prelude::*};

use crate::{
    damage::{always_refused, never_panics, noise},
    values,
};

/// A whole record: the way a reader takes it apart.
fn read_record(bytes: &[u8]) -> Option<(RecordHead, &[u8], Changes)> {
    let head = RecordHead::decode(bytes).ok()?;
    let rest = &bytes[RECORD_HEAD_LEN..];
    let (data, rest) = rest.split_at_checked(head.data_len as usize)?;
    let changes = rest.get(..head.changes_len as usize)?;
    head.check(data, changes).ok()?;
    Some((head, data, Changes::decode(changes).ok()?))
}

fn read_footer(bytes: &[u8]) -> Option<Footer> {
    let (body, tail) = bytes.split_last_chunk::<TAIL_LEN>()?;
    let len = Footer::len_from_tail(tail).ok()?;
    Footer::decode(body.get(body.len().checked_sub(len)?..)?, tail).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changes(changes in values::changes()) {
        let mut bytes = Vec::new();
        changes.encode_to(&mut bytes);
        never_panics(&bytes, |bytes| drop(Changes::decode(bytes)));
        prop_assert_eq!(changes.is_empty(), bytes == [0, 0, 0]);
        prop_assert_eq!(Changes::decode(&bytes), Ok(changes));
    }

    #[test]
    fn whole_records(
        changes in values::changes(), data in vec(any::<u8>(), 0..60), sequence in values::number(), epoch in values::number()
    ) {
        let mut encoded = Vec::new();
        changes.encode_to(&mut encoded);
        let head = RecordHead::new(Sequence(sequence), Epoch(epoch), &data, &encoded);
        let bytes = [&head.encode()[..], &data, &encoded].concat();
        always_refused(&bytes, |bytes| read_record(bytes).is_some());
        let (found, found_data, found_changes) = read_record(&bytes).expect("a whole record");
        prop_assert_eq!((found, found_data, found_changes), (head, data.as_slice(), changes));
    }

    #[test]
    fn file_heads(volume in any::<[u8; 16]>(), numbers in any::<[u64; 3]>()) {
        let head = FileHead {
            volume: VolumeId(volume),
            segment: SegmentId(numbers[0]),
            epoch: Epoch(numbers[1]),
            first: Sequence(numbers[2]),
        };
        prop_assert_eq!(FileHead::decode(&head.encode()), Ok(head));
        always_refused(&head.encode(), |bytes| FileHead::decode(bytes).is_ok());
    }

    #[test]
    fn footers(footer in values::footer(), before in noise()) {
        let mut bytes = before;
        footer.encode_to(&mut bytes);
        prop_assert_eq!(read_footer(&bytes), Some(footer.clone()));
        let mut bytes = Vec::new();
        footer.encode_to(&mut bytes);
        always_refused(&bytes, |bytes| read_footer(bytes).is_some());
    }

    #[test]
    fn heads_in_streams(run in values::run_entry(), segment in any::<u64>(), at in 0..u64::MAX / 2) {
        let segment = SegmentId(segment);
        let run = forebay_format::footer::RunEntry { run_offset: at + STREAM_HEAD_LEN as u64, ..run };
        let bytes = stream::encode(segment, &run);
        prop_assert_eq!(stream::decode(&bytes, segment, at), Ok(run));
        always_refused(&bytes, |bytes| stream::decode(bytes, segment, at).is_ok());
        prop_assert!(stream::decode(&bytes, segment, at + 1).is_err());
        prop_assert!(stream::decode(&bytes, SegmentId(segment.0.wrapping_add(1)), at).is_err());
    }

    #[test]
    fn noise_does_not_panic(bytes in noise()) {
        prop_assert!(read_record(&bytes).is_none());
        prop_assert!(read_footer(&bytes).is_none());
        prop_assert!(FileHead::decode(&bytes).is_err());
        prop_assert!(stream::decode(&bytes, SegmentId(1), 0).is_err());
        drop(Changes::decode(&bytes));
    }
}

#[test]
fn a_claim_of_many_entries_allocates_nothing() {
    let mut bytes = vec![0xff; 9];
    bytes.push(1);
    assert!(Changes::decode(&bytes).is_err());
}

#[test]
fn heads_have_their_lengths() {
    let head =
        FileHead { volume: VolumeId([7; 16]), segment: SegmentId(1), epoch: Epoch(2), first: Sequence(3) };
    assert_eq!(head.encode().len(), FILE_HEAD_LEN);
}
