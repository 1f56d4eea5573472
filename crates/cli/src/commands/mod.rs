//! The commands, one a file.

pub(crate) mod bench;
pub(crate) mod create;
pub(crate) mod dev;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod group;
pub(crate) mod late_store;
pub(crate) mod meta;
pub(crate) mod migrate;
pub(crate) mod mount;
pub(crate) mod null_mount;
pub(crate) mod overview;
pub(crate) mod pages;
pub(crate) mod pki;
pub(crate) mod policy;
pub(crate) mod proxy;
pub(crate) mod servers;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod umount;
pub(crate) mod volume;
pub(crate) mod warm;
