//! Names after a crash: which prefixes of one thread's operations give the names that are seen.

use std::collections::{BTreeMap, HashSet};

use super::history::{History, Op, Record};
use super::observe::{Entry, Observed};
use super::pattern::FileId;
use super::worker::summary;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Directory,
    File(FileId),
    Symlink(String),
}

/// The directory that holds `path`; empty for the root.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The thread that a name belongs to; none for one that no workload makes.
fn owner(history: &History, path: &str) -> Option<usize> {
    let number = |text: &str| text.strip_prefix('t')?.parse().ok().filter(|number| *number > 0);
    match path.split_once('/') {
        None if path == "shared" => Some(0),
        None => number(path).map(|thread| history.first_of_group(history.group(thread))),
        Some(("shared", "log")) => Some(0),
        Some(("shared", name)) => number(name.split_once('-')?.0),
        Some((base, _)) => number(base),
    }
}

/// Names that are seen though no thread can have made them.
pub(crate) fn strangers(history: &History, seen: &Observed) -> Vec<String> {
    let unknown = seen.entries.keys().filter(|path| owner(history, path).is_none());
    unknown.map(|path| format!("/{path} is there though nothing made it")).collect()
}

/// Compares one thread's names, operation by operation, with those seen.
pub(crate) struct Matcher<'a> {
    thread: usize,
    history: &'a History,
    seen: BTreeMap<&'a str, &'a Entry>,
    model: BTreeMap<String, Node>,
    /// Names on which model and sight differ.
    wrong: HashSet<String>,
}

impl<'a> Matcher<'a> {
    pub fn new(thread: usize, history: &'a History, seen: &'a Observed) -> Self {
        let own = seen.entries.iter().filter(|(path, _)| owner(history, path) == Some(thread));
        let seen: BTreeMap<&str, &Entry> = own.map(|(path, entry)| (path.as_str(), entry)).collect();
        let wrong = seen.keys().map(|path| (*path).to_owned()).collect();
        Self { thread, history, seen, model: BTreeMap::new(), wrong }
    }

    /// The counts of operations, rising, after which the names are those seen.
    ///
    /// When there are none: what differs after the count that comes nearest.
    pub fn prefixes(&mut self, ops: &[&Record]) -> Result<Vec<usize>, String> {
        let mut found = Vec::new();
        let mut nearest = (self.wrong.len(), 0, self.wrong.clone());
        if self.wrong.is_empty() {
            found.push(0);
        }
        for (place, record) in ops.iter().enumerate() {
            apply(&record.op, &mut Model::Compared(self));
            if self.wrong.is_empty() {
                found.push(place + 1);
            } else if self.wrong.len() <= nearest.0 {
                nearest = (self.wrong.len(), place + 1, self.wrong.clone());
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let (_, count, wrong) = nearest;
        let mut wrong: Vec<String> = wrong.into_iter().collect();
        wrong.sort();
        wrong.truncate(6);
        let last = count.checked_sub(1).and_then(|at| ops.get(at)).map(|record| summary(Some(&record.op)));
        Err(format!(
            "thread {}: the names are those of no prefix of its {} operations; after {count} ({}) these differ: {}",
            self.thread,
            ops.len(),
            last.unwrap_or_default(),
            wrong.iter().map(|path| self.difference(path)).collect::<Vec<_>>().join(", ")
        ))
    }

    fn difference(&self, path: &str) -> String {
        let there = match self.seen.get(path) {
            None => "missing".to_owned(),
            Some(Entry::File { inode, bytes, .. }) => format!("file, inode {inode}, {} bytes", bytes.len()),
            Some(Entry::Directory) => "directory".to_owned(),
            Some(other) => format!("{other:?}"),
        };
        format!("/{path} ({there})")
    }

    fn set(&mut self, path: &str, node: Option<Node>) {
        let same = match (&node, self.seen.get(path)) {
            (None, None) | (Some(Node::Directory), Some(Entry::Directory)) => true,
            (Some(Node::File(file)), Some(Entry::File { inode, .. })) => {
                self.history.inodes.get(file).is_none_or(|known| known == inode)
            }
            (Some(Node::Symlink(target)), Some(Entry::Symlink(there))) => target == there,
            _ => false,
        };
        if same {
            self.wrong.remove(path);
        } else {
            self.wrong.insert(path.to_owned());
        }
        put(&mut self.model, path, node);
    }
}

fn put(model: &mut BTreeMap<String, Node>, path: &str, node: Option<Node>) {
    match node {
        Some(node) => model.insert(path.to_owned(), node),
        None => model.remove(path),
    };
}

/// Where operations are applied: to names alone, or with comparison.
enum Model<'m, 'a> {
    Plain(&'m mut BTreeMap<String, Node>),
    Compared(&'m mut Matcher<'a>),
}

impl Model<'_, '_> {
    fn names(&self) -> &BTreeMap<String, Node> {
        match self {
            Self::Plain(names) => names,
            Self::Compared(matcher) => &matcher.model,
        }
    }

    fn set(&mut self, path: &str, node: Option<Node>) {
        match self {
            Self::Plain(names) => put(names, path, node),
            Self::Compared(matcher) => matcher.set(path, node),
        }
    }
}

fn apply(op: &Op, model: &mut Model<'_, '_>) {
    match op {
        Op::Create { path, file } => model.set(path, Some(Node::File(*file))),
        Op::Mkdir { path } => model.set(path, Some(Node::Directory)),
        Op::Symlink { path, target } => model.set(path, Some(Node::Symlink(target.clone()))),
        Op::Link { to, file, .. } => model.set(to, Some(Node::File(*file))),
        Op::Unlink { path } | Op::Rmdir { path } => model.set(path, None),
        Op::Exchange { one, other } => {
            model.set(&one.0, Some(Node::File(other.1)));
            model.set(&other.0, Some(Node::File(one.1)));
        }
        Op::Rename { from, to, .. } => {
            let below = format!("{from}/");
            let inside =
                model.names().range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
            let moved: Vec<(String, Node)> = model
                .names()
                .get_key_value(from)
                .into_iter()
                .chain(inside)
                .map(|(path, node)| (path.clone(), node.clone()))
                .collect();
            for (path, _) in &moved {
                model.set(path, None);
            }
            for (path, node) in moved {
                let rest = path.strip_prefix(from.as_str()).unwrap_or_default();
                model.set(&format!("{to}{rest}"), Some(node));
            }
        }
        _ => {}
    }
}

/// The files that have names after `ops`, with their names.
pub(crate) fn files_after(ops: &[&Record]) -> BTreeMap<FileId, Vec<String>> {
    let mut names = BTreeMap::new();
    for record in ops {
        apply(&record.op, &mut Model::Plain(&mut names));
    }
    let mut files: BTreeMap<FileId, Vec<String>> = BTreeMap::new();
    for (path, node) in names {
        if let Node::File(file) = node {
            files.entry(file).or_default().push(path);
        }
    }
    files
}
