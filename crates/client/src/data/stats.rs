use std::sync::atomic::{AtomicU64, Ordering};

/// What is kept back and was done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentsStats {
    /// Bytes that are kept back.
    pub kept: u64,
    /// The most that there were.
    pub kept_max: u64,
    /// Objects that were put.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Bytes that members of the group have taken in, of whom one is on this machine: each once, however many have it.
    pub node_bytes: u64,
    /// And those of which no copy is on this machine.
    pub group_bytes: u64,
    /// Commits.
    pub commits: u64,
    /// Files in these.
    pub files: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    objects: AtomicU64,
    object_bytes: AtomicU64,
    node_bytes: AtomicU64,
    group_bytes: AtomicU64,
    commits: AtomicU64,
    files: AtomicU64,
}

impl Counts {
    pub(super) fn object(&self, bytes: u64) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.object_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn appended(&self, bytes: u64, to_here: bool) {
        let count = if to_here { &self.node_bytes } else { &self.group_bytes };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn committed(&self, files: usize) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.files.fetch_add(files as u64, Ordering::Relaxed);
    }

    pub(super) fn stats(&self, kept: u64, kept_max: u64) -> ContentsStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ContentsStats {
            kept,
            kept_max,
            objects: of(&self.objects),
            object_bytes: of(&self.object_bytes),
            node_bytes: of(&self.node_bytes),
            group_bytes: of(&self.group_bytes),
            commits: of(&self.commits),
            files: of(&self.files),
        }
    }
}
