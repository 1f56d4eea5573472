//! Between a look-up and its use: what a look-up has told of is there when it is asked for by its number (`docs/design/shared-client.md`).

use std::{sync::Arc, time::Instant};

use forebay_meta::Inode;
use forebay_types::Ino;
use forebay_vfs::VfsError;

use super::{core::Core, jobs::Job, opens::EXPECTED};
use crate::names::is_sealed;

impl Core {
    /// What a name stands for, for the kernel, which comes back for what it is told of by its number. If somebody takes the inode's last name away in between, it finds it gone, asks for
    /// the name once more, and gives up the second time. So while that happens, what is told of counts as open for a moment: it is leased, or the owner was told.
    pub(crate) fn lookup_to_use(self: &Arc<Self>, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        let mut inode = self.lookup(parent, name)?;
        while self.opens.expects() && !inode.is_directory() && !is_sealed(&inode.row) {
            let ino = inode.ino;
            self.expect(ino);
            match self.inode(ino) {
                Err(VfsError::Stale(_)) => {
                    inode = self.lookup(parent, name)?;
                    if inode.ino == ino {
                        return Err(VfsError::Stale(ino));
                    }
                }
                held => return held,
            }
        }
        Ok(inode)
    }

    /// An inode that a look-up tells of counts as open for a while.
    pub(crate) fn expect(self: &Arc<Self>, ino: Ino) {
        if !self.opens.expect(ino) {
            return;
        }
        let core = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("forebay-expect".to_owned());
        let spawned = thread.spawn(move || {
            let mut pause = EXPECTED;
            loop {
                std::thread::sleep(pause);
                let Some(core) = core.upgrade() else { return };
                let (released, next) = core.opens.unexpected(false);
                core.release(released);
                match next {
                    Some(next) => pause = next.saturating_duration_since(Instant::now()),
                    None => return,
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to see to what was looked up");
            self.release(self.opens.unexpected(true).0);
        }
    }

    fn release(&self, inos: Vec<Ino>) {
        let session = self.desk.link.number();
        inos.into_iter().for_each(|ino| self.jobs.put(Job::Release(ino, session)));
    }
}
