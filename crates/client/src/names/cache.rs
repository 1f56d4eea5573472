//! What is known of inodes, by inode: gone with the lease on it. Whether the lease is there is asked by others.

use std::{collections::BTreeMap, sync::Arc};

use forebay_meta::{DirEntry, Inode};
use forebay_types::Ino;
use rustc_hash::FxHashMap;

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    /// How many entries were asked for.
    pub(crate) limit: usize,
    /// Whether their inodes were, too.
    pub(crate) inodes: bool,
    pub(crate) entries: Vec<DirEntry>,
}

/// What is known of one inode, and by its lease.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) inode: Option<Arc<Inode>>,
    /// Whether it is a directory: stays while the inode is not known.
    pub(crate) is_directory: Option<bool>,
    /// Of a directory: what names stand for, missing ones too.
    pub(crate) names: FxHashMap<Box<[u8]>, Option<Ino>>,
    /// Pages of the listing by the name after which they begin (none: empty).
    pub(crate) pages: BTreeMap<Vec<u8>, Page>,
    pub(crate) xattrs: FxHashMap<Vec<u8>, Option<Arc<[u8]>>>,
    pub(crate) xattr_names: Option<Arc<Vec<Vec<u8>>>>,
    pub(crate) target: Option<Arc<[u8]>>,
    used: bool,
    /// It is being given up.
    leaves: bool,
}

impl Node {
    /// About how much memory it takes, in units of an inode.
    fn weight(&self) -> usize {
        1 + self.listed() + self.xattrs.len()
    }

    /// How much of that is names and pages.
    fn listed(&self) -> usize {
        self.names.len() + self.pages.values().map(|page| page.entries.len()).sum::<usize>()
    }
}

/// What is known of all inodes.
#[derive(Debug)]
pub(crate) struct Cache {
    nodes: FxHashMap<Ino, Node>,
    /// Things put in since it was last weighed.
    since: usize,
    max: usize,
}

impl Cache {
    pub(crate) fn new(max: usize) -> Cache {
        Cache { nodes: FxHashMap::default(), since: 0, max }
    }

    pub(crate) fn get(&mut self, ino: Ino) -> Option<&Node> {
        let node = self.nodes.get_mut(&ino)?;
        node.used = true;
        Some(node)
    }

    /// To look without using it.
    pub(crate) fn peek(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// To put something in.
    pub(crate) fn node(&mut self, ino: Ino) -> &mut Node {
        self.since += 1;
        let node = self.nodes.entry(ino).or_default();
        node.used = true;
        node
    }

    /// To change something, where there is anything.
    pub(crate) fn known(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino)
    }

    pub(crate) fn drop_node(&mut self, ino: Ino) {
        self.nodes.remove(&ino);
    }

    pub(crate) fn clear(&mut self) -> Vec<Ino> {
        self.since = 0;
        std::mem::take(&mut self.nodes).into_keys().collect()
    }

    /// What is too much: inodes that were not asked for since this was last called, or any where that is not enough. They are still there, and their leases too, and are not named again, unless
    /// they [stay](Cache::stay). What is known of
    /// the names of a directory that has very many is dropped first, and its lease stays: by that whoever makes files in it works ahead of the owner.
    pub(crate) fn too_much(&mut self) -> Vec<Ino> {
        if self.since < self.max / 8 + 1 {
            return Vec::new();
        }
        self.since = 0;
        let mut weight: usize = self.nodes.values().filter(|node| !node.leaves).map(Node::weight).sum();
        let mut leave = Vec::new();
        if weight <= self.max {
            return leave;
        }
        for node in self.nodes.values_mut().filter(|node| !node.leaves && node.listed() > self.max / 8) {
            weight -= node.listed();
            (node.names, node.pages) = (FxHashMap::default(), BTreeMap::new());
        }
        let goal = self.max - self.max / 4;
        for all in [false, true] {
            for (ino, node) in &mut self.nodes {
                if weight > goal && *ino != Ino::ROOT && (all || !node.used) && !node.leaves {
                    weight = weight.saturating_sub(node.weight());
                    node.leaves = true;
                    leave.push(*ino);
                }
            }
        }
        self.nodes.values_mut().for_each(|node| node.used = false);
        leave
    }

    /// One that was too much is not given up after all.
    pub(crate) fn stay(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.leaves = false;
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_very_many_names_loses_these_and_not_its_lease() {
        let mut cache = Cache::new(800);
        let large = Ino(9);
        let mut left = 0;
        for at in 0..10_000 {
            cache.node(large).names.insert(format!("{at}").into_bytes().into(), Some(Ino(100 + at)));
            cache.node(Ino(100 + at));
            for ino in cache.too_much() {
                assert_ne!(ino, large);
                cache.drop_node(ino);
                left += 1;
            }
            let weight: usize = cache.nodes.values().map(Node::weight).sum();
            assert!(weight <= 800 + 800 / 8 + 2, "{weight}");
        }
        assert!(left > 9000, "{left}");
        // Names of one that has few stay.
        cache.node(Ino(8)).names.insert(b"a".as_slice().into(), None);
        for at in 0..2000 {
            cache.node(Ino(50_000 + at)).used = false;
            cache.get(Ino(8));
            cache.too_much().into_iter().for_each(|ino| cache.drop_node(ino));
        }
        assert_eq!(cache.peek(Ino(8)).map(|node| node.names.len()), Some(1));
    }

    #[test]
    fn what_nobody_asks_for_leaves_first() {
        let mut cache = Cache::new(64);
        for at in 0..60 {
            cache.node(Ino(100 + at)).used = false;
        }
        for at in 0..30 {
            cache.node(Ino(200 + at));
        }
        let leave = cache.too_much();
        assert!(leave.len() >= 90 - 64, "{}", leave.len());
        assert!(leave.iter().all(|ino| ino.0 < 200), "{leave:?}");
        for ino in leave {
            cache.drop_node(ino);
        }
        assert!(cache.len() <= 64);
        assert!(cache.too_much().is_empty());
    }

    #[test]
    fn what_is_given_up_is_named_once_unless_it_stays() {
        let mut cache = Cache::new(64);
        let fill =
            |cache: &mut Cache, from: u64| (0..80).for_each(|at| cache.node(Ino(from + at)).used = false);
        fill(&mut cache, 100);
        let first = cache.too_much();
        assert!(!first.is_empty());
        let stays = first[0];
        cache.stay(stays);
        fill(&mut cache, 1000);
        let second = cache.too_much();
        assert!(second.contains(&stays));
        assert!(first[1..].iter().all(|ino| !second.contains(ino)), "it is on its way");
    }
}
