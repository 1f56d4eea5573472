//! The namespace: inodes, dentries, extents, over an ordered engine
