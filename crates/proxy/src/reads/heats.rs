//! How often pieces are read here.

use forebay_cluster::Moment;
use forebay_group::{Heat, PieceKey};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Pieces that are followed; all are forgotten when there are more.
const MAX: usize = 1 << 16;

/// Heat of the pieces that are read.
#[derive(Debug, Default)]
pub(crate) struct Heats(Mutex<FxHashMap<PieceKey, Heat>>);

impl Heats {
    /// A read of a piece: on how many members it is to be asked for from now on.
    pub(crate) fn read(&self, piece: PieceKey, now: Moment) -> u32 {
        let mut heats = self.0.lock();
        if heats.len() >= MAX && !heats.contains_key(&piece) {
            heats.retain(|_, heat| heat.width(now) > 1);
            if heats.len() >= MAX {
                heats.clear();
            }
        }
        heats.entry(piece).or_insert_with(|| Heat::new(now)).read(now)
    }

    /// Pieces that are on more than one member.
    pub(crate) fn wide(&self, now: Moment) -> u64 {
        self.0.lock().values().filter(|heat| heat.width(now) > 1).count() as u64
    }
}
