//! The FUSE protocol over /dev/fuse
