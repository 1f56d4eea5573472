//! The differences from ext4 that are meant, each with its reason.
//!
//! An entry allows one outcome pair in one case. A run prints each entry that it met. The table has no wildcard for the
//! outcome: a call that changes its mind in a third way fails the run.

use super::op::{Op, Outcome};

/// One allowed difference.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The case's name, or for random cases their profile's.
    pub case: &'static str,
    /// A part of the step as printed by `{:?}`.
    pub step: &'static str,
    /// The outcome on the file system under test: `Ok` (any value) or an errno's name.
    pub ours: &'static str,
    /// The outcome on the reference.
    pub reference: &'static str,
    /// Why it is right so.
    pub reason: &'static str,
}

/// Everything that may differ.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        case: "size-limits",
        step: "size: 17592186044416",
        ours: "Ok",
        reference: "EFBIG",
        reason: "ext4 with 4 KiB blocks ends one block short of 16 TiB; larger files are no error in themselves",
    },
    Allowed {
        case: "size-limits",
        step: "whence: Set, to: 9223372036854775807",
        ours: "Ok",
        reference: "EINVAL",
        reason: "a position may be as large as the largest file; ext4's largest is smaller than the kernel's",
    },
    Allowed {
        case: "times-of-opened-files",
        step: "Changed",
        ours: "Ok",
        reference: "Ok",
        reason: "opening for reading counts as the read: those that the kernel answers from its cache are not seen",
    },
    Allowed {
        case: "xattr-large",
        step: "SetXattr",
        ours: "Ok",
        reference: "ENOSPC",
        reason: "ext4 keeps an inode's attributes in one 4 KiB block; the kernel's own limit is 64 KiB a value",
    },
    Allowed {
        case: "xattr-large",
        step: "GetXattr",
        ours: "Ok",
        reference: "ENODATA",
        reason: "follows from ext4 refusing the large value",
    },
    Allowed {
        case: "xattr-large",
        step: "RemoveXattr",
        ours: "Ok",
        reference: "ENODATA",
        reason: "follows from ext4 refusing the large value",
    },
    Allowed {
        case: "direct-io-unaligned",
        step: "Pwrite",
        ours: "Ok",
        reference: "EINVAL",
        reason: "ext4 needs sector alignment for O_DIRECT; accepting more is allowed by open(2)",
    },
    Allowed {
        case: "direct-io-unaligned",
        step: "Pread",
        ours: "Ok",
        reference: "EINVAL",
        reason: "ext4 needs sector alignment for O_DIRECT; accepting more is allowed by open(2)",
    },
];

/// The entry that allows these two outcomes of `op` in `case`, if any.
pub fn find(case: &str, op: &Op, ours: &Outcome, reference: &Outcome) -> Option<&'static Allowed> {
    let step = format!("{op:?}");
    ALLOWED.iter().find(|entry| {
        entry.case == case
            && step.contains(entry.step)
            && entry.ours == outcome_name(ours)
            && entry.reference == outcome_name(reference)
    })
}

fn outcome_name(outcome: &Outcome) -> &str {
    match outcome {
        Ok(_) => "Ok",
        Err(name) => name,
    }
}
