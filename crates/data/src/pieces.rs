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
