//! A volume behind the kernel: the adapter from FUSE requests to the vfs
