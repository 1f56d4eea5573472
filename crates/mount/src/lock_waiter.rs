use forebay_fuse::LockReply;
use forebay_vfs::{LockWaiter, VfsError};

use crate::errno::errno;

/// A lock request of the kernel.
pub(crate) struct Waiter(pub(crate) LockReply);

impl LockWaiter for Waiter {
    fn unique(&self) -> u64 {
        self.0.unique()
    }

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }

    fn answer(self: Box<Self>, result: Result<(), VfsError>) {
        self.0.answer(result.map_err(|error| errno(&error)));
    }
}
