//! Object stores: directories and buckets, probed and retried
