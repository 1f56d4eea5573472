//! What clients are told, and its bytes: a slot's answer is kept in a row, and told again by a later owner.

use forebay_format::{
    Decoder, Encoder, FormatError,
    row::{DirectoryRow, InodeRow, Row},
};
use forebay_meta::{DirEntry, Inode, LogError, MetaError};
use forebay_types::{FileKind, Ino};

/// An inode as a client is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeAnswer {
    /// Its number.
    pub ino: Ino,
    /// Its row.
    pub row: InodeRow,
    /// Times and counts, of a directory.
    pub directory: Option<DirectoryRow>,
}

impl InodeAnswer {
    pub(crate) fn of(inode: &Inode) -> InodeAnswer {
        InodeAnswer { ino: inode.ino, row: inode.row, directory: inode.directory }
    }
}

/// Why an operation did not take place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Failure {
    /// No such name.
    NotFound = 1,
    /// The inode was removed.
    Stale,
    /// The name is taken.
    Exists,
    /// A directory is needed.
    NotDirectory,
    /// A directory is not allowed.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// A directory would be put inside itself.
    IntoItself,
    /// The name is too long.
    NameTooLong,
    /// The inode has as many names as it can.
    TooManyLinks,
    /// The file would be too large.
    FileTooLarge,
    /// No such extended attribute.
    NoAttribute,
    /// The extended attribute exists.
    AttributeExists,
    /// Too many extended attributes.
    TooManyAttributes,
    /// The operation does not fit the inode or contradicts itself.
    Invalid,
    /// No such subvolume.
    NoSubvolume,
    /// No space is left for metadata.
    NoSpace,
    /// The engine or the rows in it failed; the owner's log says how.
    Io,
}

impl Failure {
    const ALL: [Failure; 17] = {
        use Failure::*;
        [
            NotFound,
            Stale,
            Exists,
            NotDirectory,
            IsDirectory,
            NotEmpty,
            IntoItself,
            NameTooLong,
            TooManyLinks,
            FileTooLarge,
            NoAttribute,
            AttributeExists,
            TooManyAttributes,
            Invalid,
            NoSubvolume,
            NoSpace,
            Io,
        ]
    };

    fn of(error: &MetaError) -> Failure {
        match error {
            MetaError::NotFound => Failure::NotFound,
            MetaError::Stale(_) => Failure::Stale,
            MetaError::Exists => Failure::Exists,
            MetaError::NotDirectory(_) => Failure::NotDirectory,
            MetaError::IsDirectory(_) => Failure::IsDirectory,
            MetaError::NotEmpty(_) => Failure::NotEmpty,
            MetaError::IntoItself => Failure::IntoItself,
            MetaError::NameTooLong(_) => Failure::NameTooLong,
            MetaError::TooManyLinks(_) => Failure::TooManyLinks,
            MetaError::FileTooLarge(_) => Failure::FileTooLarge,
            MetaError::NoAttribute => Failure::NoAttribute,
            MetaError::AttributeExists => Failure::AttributeExists,
            MetaError::TooManyAttributes(_) => Failure::TooManyAttributes,
            MetaError::Invalid(_) => Failure::Invalid,
            MetaError::NoSubvolume(_) => Failure::NoSubvolume,
            MetaError::Log(LogError::NoSpace) => Failure::NoSpace,
            MetaError::Log(LogError::Failed(_)) | MetaError::Engine(_) | MetaError::Damaged { .. } => {
                Failure::Io
            }
        }
    }
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// The inode that was looked up, made or changed, as it is now.
    Inode(Box<InodeAnswer>),
    /// Entries of a directory; none at its end.
    Entries(Vec<DirEntry>),
    /// Bytes: a target, inline data, the value of an attribute.
    Bytes(Vec<u8>),
    /// Names of attributes.
    Names(Vec<Vec<u8>>),
    /// Nothing was changed.
    Failed(Failure),
}

impl Answer {
    pub(crate) fn failed(error: &MetaError) -> Answer {
        let failure = Failure::of(error);
        if failure == Failure::Io {
            tracing::error!(%error, "an operation failed");
        }
        Answer::Failed(failure)
    }

    /// The inode that it is about.
    #[must_use]
    pub fn inode(&self) -> Option<&InodeAnswer> {
        match self {
            Answer::Inode(inode) => Some(inode),
            _ => None,
        }
    }

    /// Its bytes: a tag, then what it has.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        let to = &mut Encoder(&mut bytes);
        match self {
            Answer::Done => to.u8(0),
            Answer::Inode(inode) => {
                to.u8(1);
                to.varint(inode.ino.0);
                to.bytes(&inode.row.encode());
                to.bytes(&inode.directory.as_ref().map(Row::encode).unwrap_or_default());
            }
            Answer::Entries(entries) => {
                to.u8(2);
                to.varint(entries.len() as u64);
                for entry in entries {
                    to.bytes(&entry.name);
                    to.varint(entry.ino.0);
                    to.u8(KINDS.iter().position(|kind| *kind == entry.kind).map_or(u8::MAX, |at| at as u8));
                }
            }
            Answer::Bytes(found) => {
                to.u8(3);
                to.bytes(found);
            }
            Answer::Names(names) => {
                to.u8(4);
                to.varint(names.len() as u64);
                names.iter().for_each(|name| to.bytes(name));
            }
            Answer::Failed(failure) => {
                to.u8(5);
                to.u8(*failure as u8);
            }
        }
        bytes
    }

    /// The answer that these bytes are.
    ///
    /// # Errors
    /// [`FormatError`] where they are none.
    pub fn decode(bytes: &[u8]) -> Result<Answer, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        let answer = match from.u8()? {
            0 => Answer::Done,
            1 => {
                let ino = Ino(from.varint()?);
                let row = InodeRow::decode(from.bytes()?)?;
                let directory = match from.bytes()? {
                    [] => None,
                    bytes => Some(DirectoryRow::decode(bytes)?),
                };
                Answer::Inode(Box::new(InodeAnswer { ino, row, directory }))
            }
            2 => Answer::Entries(many(&mut from, entry)?),
            3 => Answer::Bytes(from.bytes()?.to_vec()),
            4 => Answer::Names(many(&mut from, |from| Ok(from.bytes()?.to_vec()))?),
            5 => {
                let code = usize::from(from.u8()?);
                let failure = code.checked_sub(1).and_then(|at| Failure::ALL.get(at));
                Answer::Failed(*failure.ok_or_else(|| wrong(format!("{code} is no failure")))?)
            }
            tag => return Err(wrong(format!("{tag} is no kind of answer"))),
        };
        from.end()?;
        Ok(answer)
    }
}

const WHAT: &str = "an answer";

/// Kinds of inodes by their codes.
const KINDS: [FileKind; 7] = {
    use FileKind::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
    [Regular, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice]
};

fn wrong(detail: String) -> FormatError {
    FormatError::Invalid { what: WHAT, detail }
}

fn many<T>(
    from: &mut Decoder<'_>,
    one: impl Fn(&mut Decoder<'_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    (0..from.varint()?).map(|_| one(from)).collect()
}

fn entry(from: &mut Decoder<'_>) -> Result<DirEntry, FormatError> {
    let (name, ino, code) = (from.bytes()?.to_vec(), Ino(from.varint()?), from.u8()?);
    let kind = KINDS.get(usize::from(code)).copied();
    Ok(DirEntry { name, ino, kind: kind.ok_or_else(|| wrong(format!("{code} is no kind of inode")))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_codes() {
        for (at, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, at + 1);
            let answer = Answer::Failed(failure);
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let entry = DirEntry { name: b"a".to_vec(), ino: Ino(4097), kind: FileKind::Symlink };
        for answer in [
            Answer::Done,
            Answer::Entries(vec![entry.clone(), DirEntry { kind: FileKind::Directory, ..entry }]),
            Answer::Bytes(b"to".to_vec()),
            Answer::Names(vec![b"user.a".to_vec(), b"user.b".to_vec()]),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in
            [&[][..], &[9], &[5, 0], &[5, 18], &[0, 0], &[2, 1, 1, b'a', 1, 99], &[4, 255, 255, 255, 255, 1]]
        {
            assert!(Answer::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
