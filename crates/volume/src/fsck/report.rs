use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Takes space or is in the way; nothing is wrong with what the volume shows.
    Untidy,
    /// The metadata contradicts itself; nothing is known to be lost, and repair puts it right.
    Damage,
    /// Something that the volume should have is not there any more.
    Loss,
}

impl Severity {
    /// The word for it in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Untidy => "untidy",
            Severity::Damage => "damage",
            Severity::Loss => "loss",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in kebab-case: one of those that `docs/design/fsck.md` lists.
    pub code: String,
    /// The name of the inode that it is about, as far as it can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The subvolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subvolume: Option<u32>,
    /// The generation of the snapshot, where it is one that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u32>,
    /// The inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// The segment, 16 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<String>,
    /// The key of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What happened.
    pub message: String,
    /// What repair does about it; `None` where it can do nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// Files whose bytes are affected, at most [`Finding::FILES_MAX`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl Finding {
    /// Most files that one finding names.
    pub const FILES_MAX: usize = 100;
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.severity.as_str(), self.code)?;
        if let Some(path) = &self.path {
            write!(f, " '{path}'")?;
        }
        if let Some(inode) = self.inode {
            write!(f, " inode {inode}")?;
        }
        if let Some(subvolume) = self.subvolume.filter(|id| *id != 1 || self.snapshot.is_some()) {
            write!(f, " subvolume {subvolume}")?;
        }
        if let Some(snapshot) = self.snapshot {
            write!(f, " snapshot {snapshot}")?;
        }
        if let Some(segment) = &self.segment {
            write!(f, " segment {segment}")?;
        }
        if let Some(object) = &self.object {
            write!(f, " object {object}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.repair {
            Some(repair) => write!(f, "; repair {repair}")?,
            None => write!(f, "; repair leaves it")?,
        }
        if !self.files.is_empty() {
            write!(f, "; in {}", self.files.join(", "))?;
        }
        Ok(())
    }
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Rows of the metadata.
    pub rows: u64,
    /// Subvolumes.
    pub subvolumes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Inodes, in each subvolume and snapshot.
    pub inodes: u64,
    /// Names, likewise.
    pub entries: u64,
    /// Extents, of every generation.
    pub extents: u64,
    /// Segments.
    pub segments: u64,
    /// Objects in the store.
    pub objects: u64,
    /// Records of the journal that the metadata did not contain yet.
    pub records: u64,
    /// Stored bytes that were read and verified.
    pub data_bytes: u64,
}

/// What a check found, or a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The identity of the volume; empty where it cannot be told.
    pub volume: String,
    /// What was found, in no order that means anything.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub counts: Counts,
    /// Whether the check went to its end. Not where a finding says that what comes after it cannot be looked at.
    pub complete: bool,
    /// Rows that a repair changed, and files and objects that it changed or removed.
    #[serde(default)]
    pub repaired: u64,
}

impl Report {
    /// Whether nothing at all was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.complete && self.findings.is_empty()
    }

    /// Whether nothing was found but what takes space.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.complete && self.findings.iter().all(|finding| finding.severity == Severity::Untidy)
    }

    /// The codes that were found, each once, in their order.
    #[must_use]
    pub fn codes(&self) -> Vec<&str> {
        let mut codes: Vec<&str> = self.findings.iter().map(|finding| finding.code.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

impl fmt::Display for Report {
    /// One line a finding, and one that sums up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let Counts { inodes, entries, extents, segments, objects, .. } = self.counts;
        let verdict = match (self.complete, self.findings.len()) {
            (false, _) => "the check could not go to its end".to_owned(),
            (true, 0) => "clean".to_owned(),
            (true, 1) => "1 finding".to_owned(),
            (true, many) => format!("{many} findings"),
        };
        write!(
            f,
            "{verdict}: {inodes} inodes, {entries} names, {extents} extents, {segments} segments, {objects} objects"
        )?;
        if self.counts.data_bytes > 0 {
            write!(f, ", {} bytes of data verified", self.counts.data_bytes)?;
        }
        Ok(())
    }
}
