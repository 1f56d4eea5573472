use std::time::Duration;

/// How long things last in a group. All parts of a cluster have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupTerms {
    /// How often a member renews.
    pub renew_every: Duration,
    /// How long after it sent the last renewal that was committed a member acts.
    pub act_for: Duration,
    /// How long a server sees a member's row unchanged before it counts the member out.
    pub count_out_after: Duration,
    /// How long a view has stood before it is what a miss looks back to.
    pub settled_after: Duration,
    /// How long recovery waits for further answers once a segment has one.
    pub survivors_within: Duration,
}

impl Default for GroupTerms {
    /// Renewed every second, acts for 8 s, counted out after 10 s; settled after 10 min; 2 s for further survivors.
    fn default() -> GroupTerms {
        GroupTerms {
            renew_every: Duration::from_secs(1),
            act_for: Duration::from_secs(8),
            count_out_after: Duration::from_secs(10),
            settled_after: Duration::from_secs(600),
            survivors_within: Duration::from_secs(2),
        }
    }
}

impl GroupTerms {
    /// Whether a member stops before it is counted out although its clock runs slower by a tenth, and has three renewals until then.
    #[must_use]
    pub fn are_safe(&self) -> bool {
        self.act_for + self.act_for / 10 < self.count_out_after && self.renew_every * 3 <= self.act_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_overlap_are_told() {
        let terms = GroupTerms::default();
        assert!(terms.are_safe());
        assert!(!GroupTerms { act_for: Duration::from_millis(9_500), ..terms }.are_safe());
        assert!(!GroupTerms { renew_every: Duration::from_secs(3), ..terms }.are_safe());
    }
}
