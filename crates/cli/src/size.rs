//! Sizes as people write and read them: `4MiB`, `512k`, `10GiB`.

use std::str::FromStr;

/// A number of bytes. Suffixes `k`, `M`, `G`, `T` (also `K`, `KiB`, `KB`, `m`, …) all count in powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub u64);

/// A text that is no size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a size: write a number of bytes, or one with a unit such as 512k, 4MiB or 10GiB")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<ByteSize, ParseSizeError> {
        parse(text.trim()).map(ByteSize).ok_or_else(|| ParseSizeError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(1 << shift),
        Some(_) if shift == 0 => None,
        Some((whole, fraction)) => {
            let whole = whole.parse::<u64>().ok()?.checked_mul(1 << shift)?;
            let valid =
                !fraction.is_empty() && fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
            let part = if valid { fraction.parse::<u64>().ok()? } else { return None };
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            let part = (u128::from(part) << shift) / scale;
            whole.checked_add(u64::try_from(part).ok()?)
        }
    }
}

/// A size as people read it: three digits and a unit.
#[must_use]
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<ByteSize>().ok().map(|size| size.0)
    }

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("512k"), Some(512 << 10));
        assert_eq!(bytes("4MiB"), Some(4 << 20));
        assert_eq!(bytes("4 mb"), Some(4 << 20));
        assert_eq!(bytes("10GiB"), Some(10 << 30));
        assert_eq!(bytes("1.5G"), Some(3 << 29));
        assert_eq!(bytes("2T"), Some(2 << 40));
        assert_eq!(bytes("0"), Some(0));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "k",
            "-5",
            "many",
            "4XiB",
            "1.5",
            "1.",
            "1..5k",
            "99999999999T",
            "1.5.k",
            "18446744073709551616",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [0, 999, 1024, 1536, 1 << 20, 10 << 30].map(human),
            ["0 B", "999 B", "1.00 KiB", "1.50 KiB", "1.00 MiB", "10.0 GiB"]
        );
        assert_eq!(human(1_048_575), "1.00 MiB");
        assert_eq!(human(u64::MAX), "16384 PiB");
    }
}
