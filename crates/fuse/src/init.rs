//! What kernel and server agree on when the mount begins.

use crate::errno::Errno;
use crate::flags::Capabilities;
use crate::protocol::{InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR};

/// Bytes of a page of the page cache, as the protocol counts pages.
pub(crate) const PAGE: u32 = 4096;

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOffer {
    /// Its minor protocol version (the major one is 7).
    pub minor: u32,
    /// Its read-ahead in bytes.
    pub max_readahead: u32,
    /// What it can.
    pub capabilities: Capabilities,
}

/// What the file system wants. What the kernel does not offer is left out; [`Agreed`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitConfig {
    /// Wanted capabilities.
    pub capabilities: Capabilities,
    /// Largest write (and, rounded up to pages, read) in bytes, from 4 KiB to 255 MiB. Above 1 MiB only if root raised
    /// `fs.fuse.max_pages_limit`.
    pub max_write: u32,
    /// Most read-ahead, write-back and other background requests in flight.
    pub max_background: u16,
    /// From how many of them on the kernel calls the mount congested; 0 means three quarters.
    pub congestion_threshold: u16,
    /// Granularity of timestamps in nanoseconds, 1 to 1_000_000_000.
    pub time_gran: u32,
    /// Bound on the kernel's read-ahead in bytes; the kernel only lowers its own by it.
    pub max_readahead: u32,
    /// How many file systems may be stacked on a passthrough file's; 0 without PASSTHROUGH.
    pub max_stack_depth: u32,
}

impl Default for InitConfig {
    /// 1 MiB requests, 64 in the background, nanoseconds, and the capabilities that need nothing of the file system.
    fn default() -> InitConfig {
        InitConfig {
            capabilities: Capabilities::ASYNC_READ
                | Capabilities::BIG_WRITES
                | Capabilities::ASYNC_DIO
                | Capabilities::PARALLEL_DIROPS
                | Capabilities::ABORT_ERROR
                | Capabilities::MAX_PAGES
                | Capabilities::HAS_IOCTL_DIR,
            max_write: 1 << 20,
            max_background: 64,
            congestion_threshold: 0,
            time_gran: 1,
            max_readahead: u32::MAX,
            max_stack_depth: 0,
        }
    }
}

impl InitConfig {
    /// With or without the rings, which are the session's to decide on.
    pub(crate) fn over_uring(mut self, wanted: bool) -> InitConfig {
        self.capabilities = self.capabilities.with(Capabilities::OVER_IO_URING, wanted);
        self
    }
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Minor protocol version in use.
    pub minor: u32,
    /// Capabilities in use.
    pub capabilities: Capabilities,
    /// Largest write in bytes. The kernel may use less: it holds requests to `fs.fuse.max_pages_limit` pages.
    pub max_write: u32,
    /// Read-ahead in bytes, before [`crate::SessionOptions::read_ahead_kb`] raises it.
    pub max_readahead: u32,
}

/// Why there is no agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disagreement {
    /// The kernel is newer by a major version and asks again when told ours.
    AskAgain,
    /// The kernel is too old.
    TooOld { major: u32, minor: u32 },
    /// The file system declined.
    Declined(Errno),
}

/// Brings the offer and the file system's wishes together.
pub(crate) fn negotiate(
    offer: &InitIn,
    wish: impl FnOnce(&KernelOffer) -> Result<InitConfig, Errno>,
) -> Result<(Agreed, InitOut), Disagreement> {
    if offer.major > MAJOR {
        return Err(Disagreement::AskAgain);
    }
    if offer.major < MAJOR || offer.minor < OLDEST_MINOR {
        return Err(Disagreement::TooOld { major: offer.major, minor: offer.minor });
    }
    let kernel = KernelOffer {
        minor: offer.minor,
        max_readahead: offer.max_readahead,
        capabilities: offer.capabilities,
    };
    let config = wish(&kernel).map_err(Disagreement::Declined)?;
    // Without INIT_EXT in the answer the kernel ignores flags2; it changes nothing else for us.
    let wanted = config.capabilities | Capabilities::INIT_EXT | Capabilities::MAX_PAGES;
    let capabilities = wanted & offer.capabilities;
    let max_pages = config.max_write.div_ceil(PAGE).clamp(1, u32::from(u16::MAX));
    let max_write = config.max_write.clamp(PAGE, max_pages * PAGE);
    let max_background = config.max_background.max(1);
    let threshold = match config.congestion_threshold {
        0 => (max_background / 4 * 3).max(1),
        given => given.min(max_background),
    };
    let agreed = Agreed {
        minor: offer.minor.min(MINOR),
        capabilities,
        max_write,
        max_readahead: config.max_readahead.min(offer.max_readahead),
    };
    let out = InitOut {
        minor: MINOR,
        max_readahead: agreed.max_readahead,
        capabilities,
        max_background,
        congestion_threshold: threshold,
        max_write,
        time_gran: config.time_gran.clamp(1, 1_000_000_000),
        max_pages: max_pages as u16,
        max_stack_depth: config.max_stack_depth,
    };
    Ok((agreed, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(major: u32, minor: u32, capabilities: Capabilities) -> InitIn {
        InitIn { major, minor, max_readahead: 1 << 17, capabilities }
    }

    #[test]
    fn only_what_is_offered_is_agreed() {
        let kernel = Capabilities::BIG_WRITES | Capabilities::PASSTHROUGH | Capabilities::INIT_EXT;
        let wish = InitConfig {
            capabilities: Capabilities::PASSTHROUGH | Capabilities::POSIX_ACL,
            max_write: 3 << 20,
            ..InitConfig::default()
        };
        let (agreed, out) = negotiate(&offer(7, 45, kernel), |_| Ok(wish)).unwrap();
        assert_eq!(agreed.capabilities, Capabilities::PASSTHROUGH | Capabilities::INIT_EXT);
        assert_eq!(agreed.max_write, 3 << 20);
        assert_eq!(out.max_pages, 768);
        assert_eq!(out.congestion_threshold, 48);
        assert_eq!(agreed.max_readahead, 1 << 17);
    }

    #[test]
    fn versions_out_of_range_are_told_apart() {
        let wish = |_: &KernelOffer| Ok(InitConfig::default());
        let none = Capabilities::NONE;
        assert_eq!(negotiate(&offer(8, 0, none), wish).unwrap_err(), Disagreement::AskAgain);
        assert_eq!(
            negotiate(&offer(7, 30, none), wish).unwrap_err(),
            Disagreement::TooOld { major: 7, minor: 30 }
        );
        assert_eq!(negotiate(&offer(7, 31, none), wish).unwrap().0.minor, 31);
        assert_eq!(negotiate(&offer(7, 99, none), wish).unwrap().0.minor, MINOR);
        let declined = negotiate(&offer(7, 45, none), |_| Err(Errno::EACCES));
        assert_eq!(declined.unwrap_err(), Disagreement::Declined(Errno::EACCES));
    }

    #[test]
    fn sizes_are_held_to_their_ranges() {
        let wish = InitConfig { max_write: 1, max_background: 0, time_gran: 0, ..InitConfig::default() };
        let (agreed, out) = negotiate(&offer(7, 45, Capabilities::NONE), |_| Ok(wish)).unwrap();
        assert_eq!((agreed.max_write, out.max_pages), (4096, 1));
        assert_eq!((out.max_background, out.congestion_threshold, out.time_gran), (1, 1, 1));
        let wish = InitConfig { max_write: u32::MAX, ..InitConfig::default() };
        let (agreed, _) = negotiate(&offer(7, 45, Capabilities::NONE), |_| Ok(wish)).unwrap();
        assert_eq!(agreed.max_write, 65535 * 4096);
    }
}
