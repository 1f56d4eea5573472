use bytes::Bytes;
use smallvec::SmallVec;

/// A piece of what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadPiece {
    /// These bytes.
    Bytes(Bytes),
    /// So many zeros.
    Zeros(usize),
}

/// What a read found, one piece behind the other. Most are of one, which takes no memory of its own.
pub type ReadPieces = SmallVec<[ReadPiece; 1]>;

/// Bytes that lie in several places, one behind the other. Most are in one.
pub type Parts = SmallVec<[Bytes; 1]>;

/// How many bytes there are.
pub(crate) fn parts_len(parts: &Parts) -> usize {
    parts.iter().map(Bytes::len).sum()
}

/// Takes the first `len` bytes, as many as there are at most.
pub(crate) fn take_parts(parts: &mut Parts, mut len: usize) -> Parts {
    let mut taken = Parts::new();
    while len > 0
        && let Some(first) = parts.first_mut()
    {
        let part = first.split_to(len.min(first.len()));
        len -= part.len();
        taken.push(part);
        if first.is_empty() {
            parts.remove(0);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_from_the_front() {
        let mut parts: Parts = ["ab", "cdef", "g"].map(Bytes::from).into_iter().collect();
        assert_eq!(take_parts(&mut parts, 0).len(), 0);
        assert_eq!(take_parts(&mut parts, 3).as_slice(), ["ab", "c"]);
        assert_eq!((parts.as_slice(), parts_len(&parts)), (["def", "g"].map(Bytes::from).as_slice(), 4));
        assert_eq!(take_parts(&mut parts, 9).as_slice(), ["def", "g"]);
        assert!(parts.is_empty() && take_parts(&mut parts, 1).is_empty());
    }
}
