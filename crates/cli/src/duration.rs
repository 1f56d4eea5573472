//! Times as people read and write them.

use std::str::FromStr;

/// A time in the two largest units that it has: `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
#[must_use]
pub fn human(seconds: u64) -> String {
    let pair = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => pair(hours, "h", minutes % 60, "min"),
        _ => pair(hours / 24, "d", hours % 24, "h"),
    }
}

/// A time from now on, in seconds: `90s`, `15m`, `12h`, `30d`, `52w`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime(pub u64);

/// A text that is no time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a time: write a number with a unit, such as 90s, 15m, 12h, 30d or 52w")]
pub struct ParseLifetimeError(String);

impl FromStr for Lifetime {
    type Err = ParseLifetimeError;

    fn from_str(text: &str) -> Result<Lifetime, ParseLifetimeError> {
        let wrong = || ParseLifetimeError(text.to_owned());
        let unit = text.chars().last().ok_or_else(wrong)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let digits = &text[..text.len() - unit.len_utf8()];
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
        let time = number.flatten().and_then(|number| number.checked_mul(seconds)).ok_or_else(wrong)?;
        if (1..=100 * 366 * 86_400).contains(&time) { Ok(Lifetime(time)) } else { Err(wrong()) }
    }
}

/// A point in time, in UTC: `2026-11-23 15:09:00`.
#[must_use]
pub fn stamp(secs: i64) -> String {
    let Ok(at) = time::OffsetDateTime::from_unix_timestamp(secs) else { return "?".to_owned() };
    let (date, month) = (at.date(), u8::from(at.month()));
    let (hour, minute, second) = at.to_hms();
    format!("{:04}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", date.year(), date.day())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use super::{Lifetime, human, stamp};

    #[test]
    fn lifetimes_are_read() {
        for (text, seconds) in [("1s", 1), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("1w", 604_800)]
        {
            assert_eq!(text.parse(), Ok(Lifetime(seconds)));
        }
        for wrong in ["", "5", "d", "-1d", "1.5h", "0s", "3y", "9999999w", "99999999999999999999d", "1ß"] {
            assert!(wrong.parse::<Lifetime>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn points_in_time_read_well() {
        assert_eq!(stamp(0), "1970-01-01 00:00:00");
        assert_eq!(stamp(1_795_446_540), "2026-11-23 15:09:00");
    }

    #[test]
    fn times_read_well() {
        let texts = [0, 59, 60, 3599, 3600, 11_100, 86_400, 187_200].map(human);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "59 min", "1 h", "3 h 5 min", "1 d", "2 d 4 h"]);
    }
}
