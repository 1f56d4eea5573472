//! Bytes on the local disk: journal, streams, segments
