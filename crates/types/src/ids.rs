use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

id!(
    /// An inode number. The high 52 bits name the *run* it was handed out in, the low 12 bits its place there; a number is
    /// never used again. `Ino(1)` is the root of every subvolume.
    Ino(u64), "{}"
);
id!(
    /// A subvolume: one tree of names with its own generations. A volume starts with `SubvolumeId(1)`.
    SubvolumeId(u32), "{}"
);
id!(
    /// The snapshot counter of a subvolume. Starts at 1; a snapshot freezes the current one and makes the next current.
    Generation(u32), "{}"
);
id!(
    /// One immutable segment: a journal file, a stream or a packed segment. Never used again.
    SegmentId(u64), "{:016x}"
);
id!(
    /// One object of the store. Never used again; its name in the store also carries the epoch of its writer.
    ObjectId(u64), "{:016x}"
);
id!(
    /// An ownership term: raised by every mount, so that a machine that comes back late is told apart.
    Epoch(u64), "{}"
);
id!(
    /// What a directory or a file goes by besides its own row (`docs/design/policies.md`); [`PolicyId::NONE`] where by nothing. Never used again.
    PolicyId(u64), "{}"
);
id!(
    /// The place of a record in the journal's order. The first record has 1; there are no gaps.
    Sequence(u64), "{}"
);

impl PolicyId {
    /// No policy.
    pub const NONE: PolicyId = PolicyId(0);
}

impl Ino {
    /// The root directory of a subvolume.
    pub const ROOT: Ino = Ino(1);
    /// How many low bits number the inodes of one run.
    pub const RUN_BITS: u32 = 12;

    /// The number at `index` (below 4096) of `run`.
    #[must_use]
    pub const fn in_run(run: u64, index: u16) -> Ino {
        Ino(run << Self::RUN_BITS | (index as u64 & 0xfff))
    }

    /// The run that this number was handed out in.
    #[must_use]
    pub const fn run(self) -> u64 {
        self.0 >> Self::RUN_BITS
    }
}

impl SubvolumeId {
    /// The subvolume that a new volume has.
    pub const FIRST: SubvolumeId = SubvolumeId(1);
}

impl Generation {
    /// The generation that a new subvolume writes in.
    pub const FIRST: Generation = Generation(1);

    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl Epoch {
    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl Sequence {
    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

/// The identity of a volume: 128 random bits, drawn when it is created, part of everything that is stored for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeId(pub [u8; 16]);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeId({self})")
    }
}

impl From<VolumeId> for String {
    fn from(id: VolumeId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for VolumeId {
    type Error = String;

    fn try_from(text: String) -> Result<VolumeId, String> {
        let wrong = || format!("'{text}' is not a volume id: 32 hexadecimal digits are");
        if text.len() != 32 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut id = [0; 16];
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(VolumeId(id))
    }
}
