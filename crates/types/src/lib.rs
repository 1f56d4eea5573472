//! Identifiers, limits and error kinds; no input or output
