//! The store as a volume sees it: objects of data, read through a cache where the store is elsewhere.

mod reader;

pub(crate) use reader::ObjectReader;
