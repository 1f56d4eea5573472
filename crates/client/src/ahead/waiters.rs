//! Changes of names that wait for what was done here before, to be carried out at the owner.

use forebay_protocol::{Operation, Undone};
use forebay_types::Ino;

use crate::error::ClientError;

/// What happened to what they wait for. Kept only while somebody waits.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    count: usize,
    refused: Vec<Undone>,
    /// The first number of what was lost, each time, and why.
    lost: Vec<(u64, ClientError)>,
}

/// One that waits: how much had happened before.
#[derive(Debug)]
pub(super) struct Waiter {
    refused: usize,
    lost: usize,
}

impl Waiters {
    pub(super) fn begin(&mut self) -> Waiter {
        self.count += 1;
        Waiter { refused: self.refused.len(), lost: self.lost.len() }
    }

    /// It waits no more. What it waited for up to this number was lost, or the owner has refused something that the operation depends on: then it is not to be
    /// carried out, and this says why.
    pub(super) fn end(
        &mut self,
        waiter: &Waiter,
        until: u64,
        (operation, concerned): (&Operation, &[Ino]),
    ) -> Result<(), ClientError> {
        let lost = self.lost[waiter.lost..].iter().find(|(first, _)| *first <= until);
        let lost = lost.map(|(_, why)| why.clone());
        let undone = || {
            let mut refused = self.refused[waiter.refused..].iter();
            refused.find_map(|undone| undone.concerns(operation, concerned.iter().copied()))
        };
        let failed = lost.or_else(|| undone().map(ClientError::Failed));
        self.count -= 1;
        if self.count == 0 {
            self.refused.clear();
            self.lost.clear();
        }
        failed.map_or(Ok(()), Err)
    }

    pub(super) fn refused(&mut self, undone: Undone) {
        if self.count > 0 {
            self.refused.push(undone);
        }
    }

    pub(super) fn lost(&mut self, first: u64, why: &ClientError) {
        if self.count > 0 {
            self.lost.push((first, why.clone()));
        }
    }
}
