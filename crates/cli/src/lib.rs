//! The forebay command
