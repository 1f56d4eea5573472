//! What a member answers to writers.
