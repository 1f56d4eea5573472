use forebay_format::{
    Keyring, MasterKey, RunSealer,
    run::{self, EncodedRun, RunEncoder, RunForm, RunTable, Trial},
};
use forebay_types::{Compression, limits::FRAME_SIZE};
use proptest::{prelude::*, sample::select};

use crate::damage::{always_refused, noise};

fn master() -> MasterKey {
    MasterKey::new(1, [5; 32])
}

/// Raw bytes that shrink in part, of a length around the frames' edges.
fn raw() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        1..200usize,
        select(vec![FRAME_SIZE - 1, FRAME_SIZE, FRAME_SIZE + 1, 2 * FRAME_SIZE]),
        1..3 * FRAME_SIZE,
    ];
    (len, any::<u64>(), any::<bool>()).prop_map(|(len, seed, random)| {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if random { state as u8 } else { (state as u8) & 3 }
        };
        (0..len).map(|_| next()).collect()
    })
}

fn encode(raw: &[u8], compression: Compression, sealed: bool) -> (Vec<u8>, EncodedRun) {
    let sealer = RunSealer::new(&master(), [9; 16]).expect("a sealer");
    let mut stored = Vec::new();
    let about = run::encode(raw, compression, sealed.then_some(&sealer), &mut stored).expect("a run");
    assert_eq!(about.stored_len as usize, stored.len());
    (stored, about)
}

fn decode(stored: &[u8], about: EncodedRun, run_len: usize, keys: &Keyring) -> Option<Vec<u8>> {
    let table = RunTable::decode(stored, about.form, run_len as u32, about.stored_len, about.check).ok()?;
    let mut raw = Vec::new();
    for index in 0..table.frames() {
        let (at, len) = table.stored(index, index).ok()?;
        let frame = stored.get(at as usize..(at + len) as usize)?;
        table.decode_frame(index, frame, keys, &mut raw).ok()?;
    }
    Some(raw)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn come_back(raw in raw(), compression in select(Compression::ALL), sealed in any::<bool>()) {
        let keys = Keyring::new(vec![master()]);
        let (stored, about) = encode(&raw, compression, sealed);
        prop_assert!(run::verify(&stored, about.form, raw.len() as u32, about.check).is_ok());
        prop_assert!(decode(&stored, about, raw.len(), &keys) == Some(raw.clone()));
        prop_assert_eq!(about.form == RunForm::Sealed.number(), sealed);
        if sealed {
            prop_assert!(decode(&stored, about, raw.len(), &Keyring::default()).is_none());
            prop_assert!(decode(&stored, about, raw.len(), &Keyring::new(vec![MasterKey::new(1, [6; 32])])).is_none());
        }
    }

    #[test]
    fn damage_is_found(
        raw in raw(), compression in select(Compression::ALL), sealed in any::<bool>(), place in any::<prop::sample::Index>(),
        bit in 0..8u8, len in any::<prop::sample::Index>()
    ) {
        let keys = Keyring::new(vec![master()]);
        let (stored, about) = encode(&raw, compression, sealed);
        let mut flipped = stored.clone();
        flipped[place.index(stored.len())] ^= 1 << bit;
        for damaged in [&flipped[..], &stored[..len.index(stored.len())]] {
            prop_assert!(run::verify(damaged, about.form, raw.len() as u32, about.check).is_err());
            prop_assert!(decode(damaged, about, raw.len(), &keys).is_none());
        }
    }

    #[test]
    fn noise_does_not_panic(bytes in noise(), form in 0..3u8, run_len in any::<u32>(), stored_len in any::<u32>()) {
        let check = forebay_format::record::RecordHead::data_crc(&bytes);
        prop_assert!(run::verify(&bytes, form, run_len, !check).is_err());
        let table_len = RunForm::from_number(form).map_or(0, |form| form.table_len(run_len % (1 << 20)));
        let table = &bytes[..table_len.min(bytes.len())];
        let check = forebay_format::record::RecordHead::data_crc(table);
        if let Ok(table) = RunTable::decode(&bytes, form, run_len % (1 << 20), stored_len, check) {
            let mut out = Vec::new();
            (0..table.frames() + 1).for_each(|index| {
                drop(table.decode_frame(index, &bytes, &Keyring::default(), &mut out));
                drop(table.stored(index, index));
            });
        }
    }
}

#[test]
fn each_bit_of_small_runs_is_covered() {
    let keys = Keyring::new(vec![master()]);
    let raw: Vec<u8> = (0..120u8).map(|byte| byte % 7).collect();
    for compression in Compression::ALL {
        for sealed in [false, true] {
            let (stored, about) = encode(&raw, *compression, sealed);
            always_refused(&stored, |bytes| run::verify(bytes, about.form, 120, about.check).is_ok());
            always_refused(&stored, |bytes| decode(bytes, about, 120, &keys).is_some());
        }
    }
}

#[test]
fn what_does_not_shrink_stays_as_it_is() {
    let raw: Vec<u8> = (0..=255u8).map(|byte| byte.wrapping_mul(167)).collect();
    let (stored, about) = encode(&raw, Compression::Lz4, false);
    assert_eq!(about.stored_len as usize, RunForm::Plain.table_len(256) + 256);
    assert_eq!(&stored[8..], &raw[..]);
}

#[test]
fn equal_runs_are_sealed_to_different_bytes() {
    let sealer = RunSealer::new(&master(), [9; 16]).expect("a sealer");
    let mut stored = [Vec::new(), Vec::new()];
    for out in &mut stored {
        run::encode(b"the same bytes", Compression::None, Some(&sealer), out).expect("a run");
    }
    assert_ne!(stored[0], stored[1]);
}

/// Frames that do not shrink, then some that do.
fn mixed(hard: usize, easy: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let mut raw: Vec<u8> = (0..hard * FRAME_SIZE).map(|_| next()).collect();
    raw.resize((hard + easy) * FRAME_SIZE, 7);
    raw
}

/// How many of the frames are stored shorter than they are.
fn compressed(stored: &[u8], about: EncodedRun, run_len: usize) -> usize {
    let table = RunTable::decode(stored, about.form, run_len as u32, about.stored_len, about.check);
    let table = table.expect("a frame table");
    let lens = (0..table.frames()).map(|index| table.stored(index, index).expect("a frame").1 as usize);
    lens.filter(|len| *len < FRAME_SIZE).count()
}

#[test]
fn bytes_that_do_not_compress_are_not_copied_and_seldom_tried() {
    let raw = mixed(16, 0);
    let (mut encoder, mut trial) = (RunEncoder::default(), Trial::default());
    let run = encoder.encode(&raw, Compression::Lz4, None, &mut trial).expect("a run");
    assert!(std::ptr::eq(run.parts[1], &raw[..]), "the frames are the raw bytes themselves");
    // By now an attempt leaves out fifteen frames: of sixteen that would shrink, the last few are found out.
    let raw = mixed(0, 16);
    let run = encoder.encode(&raw, Compression::Lz4, None, &mut trial).expect("a run");
    let (stored, about) = (run.parts.concat(), run.about);
    let found = compressed(&stored, about, raw.len());
    assert!((1..16).contains(&found), "{found} of 16 frames");
    let keys = Keyring::default();
    assert!(decode(&stored, about, raw.len(), &keys).is_some_and(|back| back == raw));
    let run = encoder.encode(&raw, Compression::Lz4, None, &mut trial).expect("a run");
    assert_eq!(compressed(&run.parts.concat(), run.about, raw.len()), 16, "every frame is tried again");
}

#[test]
fn an_encoder_gives_the_same_run_every_time() {
    let keys = Keyring::new(vec![master()]);
    let mut encoder = RunEncoder::default();
    for compression in Compression::ALL {
        for (hard, easy) in [(0, 3), (1, 2), (3, 0), (2, 1)] {
            let raw = mixed(hard, easy);
            let once = encode(&raw, *compression, false);
            let again = encoder.encode(&raw, *compression, None, &mut Trial::default()).expect("a run");
            assert_eq!((again.parts.concat(), again.about), once, "{compression:?} {hard} {easy}");
            let sealer = RunSealer::new(&master(), [9; 16]).expect("a sealer");
            let sealed = encoder.encode(&raw, *compression, Some(&sealer), &mut Trial::default());
            let sealed = sealed.expect("a sealed run");
            let back = decode(&sealed.parts.concat(), sealed.about, raw.len(), &keys);
            assert!(back.is_some_and(|back| back == raw), "{compression:?} {hard} {easy}");
        }
    }
}
