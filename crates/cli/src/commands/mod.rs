//! The commands, one a file.

pub(crate) mod bench;
pub(crate) mod create;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod late_store;
pub(crate) mod mount;
pub(crate) mod null_mount;
pub(crate) mod pages;
pub(crate) mod pki;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod umount;
