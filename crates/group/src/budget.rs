use std::time::Duration;

/// How long a writer waits before its next append when the budget is all but used up.
const PACE_MAX: Duration = Duration::from_millis(100);
/// What is taken of open segments beyond the budget, in bytes.
const BEYOND: u64 = 64 << 20;

/// How many bytes of dirty data a member takes. Beyond it, nothing that is dirty makes room: writers wait, or go elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes.
    pub limit: u64,
}

impl Budget {
    /// Whether a new segment is taken.
    #[must_use]
    pub fn opens(&self, dirty: u64) -> bool {
        dirty < self.limit
    }

    /// Whether so many bytes are taken of a segment that is open.
    #[must_use]
    pub fn takes(&self, dirty: u64, bytes: u64) -> bool {
        dirty.saturating_add(bytes) <= self.limit.saturating_add(BEYOND)
    }

    /// Whether so little is dirty that what is to be put may wait a while.
    #[must_use]
    pub fn is_far(&self, dirty: u64) -> bool {
        dirty < self.limit / 4
    }

    /// How long a writer is to wait: nothing up to half of the budget, then more and more.
    #[must_use]
    pub fn pace(&self, dirty: u64) -> Duration {
        let half = self.limit / 2;
        let over = u128::from(dirty.saturating_sub(half).min(self.limit - half));
        let nanos = PACE_MAX.as_nanos() * over / u128::from((self.limit - half).max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_slowed_before_the_budget_is_used_up() {
        let budget = Budget { limit: 1_000 };
        assert_eq!(budget.pace(500), Duration::ZERO);
        assert_eq!(budget.pace(750), Duration::from_millis(50));
        assert_eq!((budget.pace(1_000), budget.pace(u64::MAX)), (PACE_MAX, PACE_MAX));
        assert!(budget.is_far(249) && !budget.is_far(250));
        assert!(budget.opens(999) && !budget.opens(1_000));
        assert!(budget.takes(1_000, BEYOND) && !budget.takes(1_001, BEYOND));
        assert_eq!(Budget { limit: 0 }.pace(0), Duration::ZERO);
    }
}
