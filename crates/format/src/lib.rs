//! Byte layouts of everything that is stored
