//! Keys in memory. A map of many rows is searched by comparing keys that lie beside each other, not behind a pointer each.

use std::{borrow::Borrow, cmp::Ordering, fmt};

/// Keys up to so many bytes are in place: all but those of long names.
const IN_PLACE: usize = 46;

/// The key of a row. Orders as its bytes do.
#[derive(Clone)]
pub(crate) enum RowKey {
    InPlace(u8, [u8; IN_PLACE]),
    Boxed(Box<[u8]>),
}

impl RowKey {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            RowKey::InPlace(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            RowKey::Boxed(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for RowKey {
    fn from(key: Vec<u8>) -> RowKey {
        let mut bytes = [0; IN_PLACE];
        match bytes.get_mut(..key.len()) {
            Some(place) => {
                place.copy_from_slice(&key);
                RowKey::InPlace(key.len() as u8, bytes)
            }
            None => RowKey::Boxed(key.into()),
        }
    }
}

impl Borrow<[u8]> for RowKey {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for RowKey {}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &RowKey) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::RowKey;

    #[test]
    fn keys_order_as_their_bytes_whatever_their_length() {
        let lengths = [0_usize, 1, 17, 45, 46, 47, 200];
        for first in lengths {
            for second in lengths {
                for last in [0_u8, 9] {
                    let one = vec![7; first];
                    let mut two = vec![7; second];
                    two.extend((second > 0).then_some(last));
                    let keys = (RowKey::from(one.clone()), RowKey::from(two.clone()));
                    assert_eq!(keys.0.cmp(&keys.1), one.cmp(&two));
                    assert_eq!(keys.0 == keys.1, one == two);
                    assert_eq!((keys.0.as_slice(), keys.1.as_slice()), (one.as_slice(), two.as_slice()));
                }
            }
        }
    }
}
