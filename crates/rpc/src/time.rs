/// Milliseconds since a start that whoever drives a connection chose. It never runs backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// This many milliseconds later.
    #[must_use]
    pub const fn after(self, ms: u32) -> Time {
        Time(self.0.saturating_add(ms as u64))
    }

    /// Milliseconds from here to `later`; 0 if that is past.
    #[must_use]
    pub fn until(self, later: Time) -> u32 {
        u32::try_from(later.0.saturating_sub(self.0)).unwrap_or(u32::MAX)
    }
}
