//! POSIX semantics over a volume: handles, permissions, locks
