//! Times as people read them.

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

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn times_read_well() {
        let texts = [0, 59, 60, 3599, 3600, 11_100, 86_400, 187_200].map(human);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "59 min", "1 h", "3 h 5 min", "1 d", "2 d 4 h"]);
    }
}
