//! What is different where other machines change the volume too.
//!
//! The kernel keeps something only as long as a lease is sure to last, and asks again afterwards: names by the directory's lease, attributes and
//! pages by the inode's. Who has a file open for writing writes and reads past the page cache: a write that holds its page while it waits for the lease
//! would wait for a recall that waits for the page. `O_APPEND` is carried out where the file ends by then, not where the kernel takes it to end.

use std::{io, sync::Arc, time::Duration};

use forebay_fuse::{
    Notifier,
    flags::{Capabilities, WriteFlags},
    types::Write,
};
use forebay_types::Ino;
use forebay_vfs::{KernelCaches, WriteAt, Written};

use crate::{
    convert::{FOREVER, ino},
    moments::Moment,
    volume_fs::{VolumeFs, is_for_writing},
};

impl VolumeFs {
    /// Has the kernel told by `notifier` of what a shared volume recalls. What the volume is to be given; `None` where nobody else changes it.
    ///
    /// # Errors
    /// No thread could be started for it.
    pub fn tell_recalls_by(&self, notifier: Notifier) -> io::Result<Option<Arc<dyn KernelCaches>>> {
        let Some(recalls) = &self.recalls else { return Ok(None) };
        recalls.serve_by(notifier)?;
        Ok(Some(Arc::new(recalls.clone())))
    }

    /// Now, for an answer that tells what is looked at from now on.
    pub(crate) fn moment(&self) -> Moment {
        self.recalls.as_ref().map_or_else(Moment::default, |recalls| recalls.moment())
    }

    /// For how long the kernel may keep what was looked at since then.
    fn lease(&self, since: Moment, ino: Ino) -> Duration {
        let Some(recalls) = &self.recalls else { return FOREVER };
        let lifetime = self.vfs.files().lifetime(ino).unwrap_or(FOREVER);
        if recalls.recalled_since(since, ino) { Duration::ZERO } else { lifetime }
    }

    pub(crate) fn attr_lifetime(&self, since: Moment, ino: Ino) -> Duration {
        self.lifetimes.attr.min(self.lease(since, ino))
    }

    /// Of a directory's names; `child`: what it stands for, `None` for a missing one.
    pub(crate) fn entry_lifetime(&self, since: Moment, parent: u64, child: Option<Ino>) -> Duration {
        let Some(recalls) = &self.recalls else { return self.lifetimes.entry };
        let (files, parent) = (self.vfs.files(), ino(parent));
        let lifetime =
            child.map_or_else(|| files.lifetime(parent), |child| files.name_lifetime(parent, child));
        // Asked last: a recall from here on finds the name in the kernel.
        if !recalls.drops_names() || recalls.recalled_since(since, parent) {
            return Duration::ZERO;
        }
        self.lifetimes.entry.min(lifetime.unwrap_or(FOREVER))
    }

    /// How the kernel learns that pages are old. Where others write, it compares size and time of change whenever it has asked for attributes, which it does
    /// before a read once their lifetime is over: so it serves no page beyond a lease, even if this process stands still.
    pub(crate) fn page_capabilities(&self) -> Capabilities {
        match &self.recalls {
            None => Capabilities::EXPLICIT_INVAL_DATA,
            Some(_) => Capabilities::AUTO_INVAL_DATA | Capabilities::DIRECT_IO_ALLOW_MMAP,
        }
    }

    /// Whether a file opened this way bypasses the page cache.
    pub(crate) fn writes_directly(&self, flags: u32) -> bool {
        self.recalls.is_some() && is_for_writing(flags)
    }

    pub(crate) fn write_at(args: &Write) -> WriteAt {
        if args.write_flags.contains(WriteFlags::CACHE) {
            WriteAt::Pages(args.offset)
        } else if args.flags & libc::O_APPEND as u32 != 0 {
            WriteAt::End(args.offset)
        } else {
            WriteAt::Offset(args.offset)
        }
    }

    /// Bytes were written, and the kernel may have others where it expected them.
    pub(crate) fn wrote(&self, number: u64, args: &Write, written: &Written) {
        if let Some(recalls) = self.recalls.as_ref().filter(|_| written.offset != args.offset) {
            recalls.drop_pages(ino(number));
        }
    }

    /// Bytes are told that no lease stands for: pages of them are not to stay.
    pub(crate) fn was_read(&self, since: Moment, number: u64) {
        if let Some(recalls) = &self.recalls
            && self.lease(since, ino(number)).is_zero()
        {
            recalls.drop_pages(ino(number));
        }
    }
}
