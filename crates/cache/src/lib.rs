//! Memory and disk cache of stored frames, and read-ahead
