//! What operations touch, and on what they may bring a lease.

use forebay_protocol::Operation;
use forebay_types::Ino;

use super::changes::Touch;

/// What a change changes, besides the contents that a commit does. `named` says what a name stands for, as far as that is known.
pub(super) fn touches(operation: &Operation, named: &dyn Fn(Ino, &[u8]) -> Option<Ino>) -> Vec<Touch> {
    let name = |parent: Ino, name: &[u8]| Touch::Name(parent, name.to_vec());
    match operation {
        Operation::Make(parent, new_name, _) => {
            vec![Touch::Inode(*parent), Touch::List(*parent), name(*parent, new_name)]
        }
        Operation::Link(ino, parent, new_name) => {
            vec![Touch::Inode(*ino), Touch::Inode(*parent), Touch::List(*parent), name(*parent, new_name)]
        }
        Operation::Unlink(parent, old, _) | Operation::Rmdir(parent, old, _) => {
            let mut touches = vec![Touch::Inode(*parent), Touch::List(*parent), name(*parent, old)];
            touches.extend(named(*parent, old).map(Touch::Inode));
            touches
        }
        Operation::Rename { from, name: old, to, new_name, .. } => {
            let mut touches = vec![Touch::Inode(*from), Touch::List(*from), name(*from, old)];
            if from != to {
                touches.extend([Touch::Inode(*to), Touch::List(*to)]);
            }
            touches.push(name(*to, new_name));
            touches.extend(named(*from, old).map(Touch::Inode));
            touches.extend(named(*to, new_name).map(Touch::Inode));
            touches
        }
        Operation::SetAttr(ino, set) => {
            let mut touches = vec![Touch::Inode(*ino)];
            if !set.xattrs.is_empty() {
                touches.push(Touch::Xattrs(*ino));
            }
            touches
        }
        Operation::SetXattr(ino, ..) | Operation::RemoveXattr(ino, _) => {
            vec![Touch::Inode(*ino), Touch::Xattrs(*ino)]
        }
        Operation::Seal(inos) => inos.iter().copied().map(Touch::Inode).collect(),
        Operation::SetAtime(ino, _) | Operation::Punch { ino, .. } => vec![Touch::Inode(*ino)],
        Operation::Share { source, target, .. } if source == target => vec![Touch::Inode(*target)],
        Operation::Share { source, target, .. } => vec![Touch::Inode(*target), Touch::Inode(*source)],
        _ => Vec::new(),
    }
}

/// The files whose contents a commit tells. They are known until it is answered: under the lease to write nobody else sees them.
pub(super) fn committed(operation: &Operation) -> Vec<Ino> {
    match operation {
        Operation::Commit(commit) => commit.files.iter().map(|file| file.ino).collect(),
        _ => Vec::new(),
    }
}

/// The directory whose times and counts a change of one name changes, in a way that can be told from the answer.
pub(super) fn counted(operation: &Operation) -> Option<Ino> {
    match operation {
        Operation::Make(parent, ..)
        | Operation::Link(_, parent, _)
        | Operation::Unlink(parent, ..)
        | Operation::Rmdir(parent, ..) => Some(*parent),
        _ => None,
    }
}

/// The inodes that an operation names.
pub(super) fn wants(operation: &Operation) -> Vec<Ino> {
    match operation {
        Operation::Lookup(ino, _)
        | Operation::Inode(ino)
        | Operation::Entries { directory: ino, .. }
        | Operation::ReadLink(ino)
        | Operation::Xattr(ino, _)
        | Operation::Xattrs(ino)
        | Operation::Map(ino, ..)
        | Operation::Make(ino, ..)
        | Operation::MakeNameless(ino, _)
        | Operation::Unlink(ino, ..)
        | Operation::Rmdir(ino, ..)
        | Operation::SetAttr(ino, _)
        | Operation::SetAtime(ino, _)
        | Operation::SetXattr(ino, ..)
        | Operation::RemoveXattr(ino, _)
        | Operation::Punch { ino, .. } => vec![*ino],
        Operation::Link(ino, parent, _) => vec![*ino, *parent],
        Operation::Rename { from, to, .. } => vec![*from, *to],
        Operation::Share { source, target, .. } => vec![*source, *target],
        Operation::Hold(inos) | Operation::Seal(inos) => inos.clone(),
        _ => Vec::new(),
    }
}
