//! What a decoder must bear.

use proptest::prelude::*;

/// Every truncation of `bytes` and every single flipped bit must be refused by `accepts`.
pub fn always_refused(bytes: &[u8], accepts: impl Fn(&[u8]) -> bool) {
    assert!(accepts(bytes), "the undamaged bytes are refused");
    for len in 0..bytes.len() {
        assert!(!accepts(&bytes[..len]), "accepted after truncation to {len} of {} bytes", bytes.len());
    }
    let mut flipped = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!accepts(&flipped), "accepted with bit {bit} flipped");
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Truncations and flipped bits of `bytes` must not make `decode` panic.
pub fn never_panics(bytes: &[u8], decode: impl Fn(&[u8])) {
    (0..=bytes.len()).for_each(|len| decode(&bytes[..len]));
    let mut flipped = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        flipped[bit / 8] ^= 1 << (bit % 8);
        decode(&flipped);
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Bytes of any kind.
pub fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}
