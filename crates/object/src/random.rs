//! Names that nobody else chooses, and the jitter of waits.

use std::io;

/// Sixteen random hexadecimal digits.
pub(crate) fn name() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_le_bytes(forebay_env::random::<8>()?)))
}

/// A number in `0.0..1.0`; 0.5 when the system has no random source, which only makes waits regular.
pub(crate) fn fraction() -> f64 {
    let bits = forebay_env::random::<4>().map_or(u32::MAX / 2, u32::from_le_bytes);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
