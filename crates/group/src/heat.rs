use std::time::Duration;

use forebay_cluster::Moment;

/// Reads a second from which on a piece is hot.
const HOT: f64 = 64.0;
/// On how many members a piece is at most.
const WIDTH_MAX: u32 = 16;
/// After how long without heat a piece is on half as many.
const COOLS_AFTER: Duration = Duration::from_secs(10);

/// How often one piece is read at one member, and on how many members it should be therefore.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Heat {
    /// Reads a second: an exponential mean over a second.
    rate: f64,
    read: Moment,
    hot: Moment,
    width: u32,
}

impl Heat {
    /// A piece that was never read, at `now`.
    #[must_use]
    pub fn new(now: Moment) -> Heat {
        Heat { rate: 0.0, read: now, hot: now, width: 1 }
    }

    /// One read. Returns on how many members the piece is to be from now on.
    pub fn read(&mut self, now: Moment) -> u32 {
        let passed = now.since(self.read).as_secs_f64();
        self.rate = self.rate * (-passed).exp() + 1.0;
        self.read = now;
        let since = now.since(self.hot);
        if self.rate >= HOT && (self.width == 1 || since >= Duration::from_secs(1)) {
            (self.width, self.hot) = ((self.width * 2).min(WIDTH_MAX), now);
        }
        self.width(now)
    }

    /// On how many members the piece is to be.
    #[must_use]
    pub fn width(&self, now: Moment) -> u32 {
        let cooled = now.since(self.hot).as_secs() / COOLS_AFTER.as_secs();
        (self.width >> cooled.min(31)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    #[test]
    fn what_is_read_often_widens_and_falls_back() {
        let mut heat = Heat::new(at(0));
        let widths: Vec<u32> = (0..5_000).map(|milli| heat.read(at(milli))).collect();
        assert_eq!((widths[10], widths[100]), (1, 2));
        assert_eq!(widths.iter().max(), Some(&16), "each second twice as many: {:?}", widths.last());
        assert_eq!(heat.width(at(5_000)), 16);
        assert_eq!((heat.width(at(15_000)), heat.width(at(60_000))), (8, 1));
    }

    #[test]
    fn what_is_read_now_and_then_stays_on_one() {
        let mut heat = Heat::new(at(0));
        assert!((0..1_000).all(|read| heat.read(at(read * 50)) == 1), "20 a second");
    }
}
