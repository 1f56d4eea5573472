//! Where the pieces of an answer come together.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_env::buffers::{Buffer, Buffers};

/// Longer answers come in memory of their own, which grows with what comes: a length that is only announced reserves none.
const POOLED_MAX: u64 = 16 << 20;
/// A longer answer may be kept as it came, so it comes in a buffer only where that is hardly longer.
const LOOSE_MAX: u64 = 256 << 10;

/// An answer on its way.
pub(super) enum Body {
    /// In a buffer that is used again.
    Pooled {
        bytes: Buffer,
        came: usize,
    },
    Grown(BytesMut),
}

impl Body {
    /// For an answer of which `size` bytes are announced.
    pub(super) fn new(buffers: &Arc<Buffers>, size: u64) -> Body {
        let Some(len) = usize::try_from(size).ok().filter(|_| size <= POOLED_MAX) else {
            return Body::Grown(BytesMut::new());
        };
        let pooled = if size <= LOOSE_MAX { Some(buffers.take(len)) } else { buffers.take_snug(len) };
        match pooled {
            Some(bytes) => Body::Pooled { bytes, came: 0 },
            None => Body::Grown(BytesMut::with_capacity(len)),
        }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        match self {
            Body::Pooled { bytes, came } => {
                if let Some(place) = bytes.get_mut(*came..*came + piece.len()) {
                    place.copy_from_slice(piece);
                }
                *came += piece.len();
            }
            Body::Grown(bytes) => bytes.extend_from_slice(piece),
        }
    }

    /// All that came, if it is `size` bytes, as was announced; else how many they are.
    pub(super) fn finish(self, size: u64) -> Result<Bytes, u64> {
        let (came, bytes) = match self {
            Body::Pooled { bytes, came } => (came as u64, bytes.freeze()),
            Body::Grown(bytes) => (bytes.len() as u64, bytes.freeze()),
        };
        if came == size { Ok(bytes) } else { Err(came) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_what_was_announced_or_nothing() {
        let buffers = Buffers::new(1 << 20);
        for announced in [0, 10, LOOSE_MAX + 10, (1 << 20) - 10, POOLED_MAX + 10] {
            for (first, second) in [(4, 6), (4, 5), (4, 7), (11, 0), (0, 0)] {
                let mut body = Body::new(&buffers, announced);
                body.add(&vec![1; first]);
                body.add(&vec![2; second]);
                let came = (first + second) as u64;
                match body.finish(announced) {
                    Ok(bytes) => {
                        assert_eq!((bytes.len() as u64, came), (announced, announced));
                        assert!(bytes.iter().take(first).all(|byte| *byte == 1));
                        assert!(bytes.iter().skip(first).all(|byte| *byte == 2));
                    }
                    Err(told) => assert!(told == came && came != announced),
                }
            }
        }
    }

    #[test]
    fn no_reservation_is_made_for_what_is_only_announced() {
        let mut body = Body::new(&Buffers::new(0), u64::MAX);
        body.add(&[1]);
        assert_eq!(body.finish(u64::MAX), Err(1));
    }
}
