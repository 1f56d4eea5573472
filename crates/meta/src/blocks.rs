//! The extents of one block: pure list operations.

use forebay_format::row::Extent;

/// An extent at its place in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it starts in the block, in bytes.
    pub offset: u32,
    /// The extent.
    pub extent: Extent,
    /// Whether its row is one of the head's generation.
    pub(crate) at_head: bool,
}

impl Placed {
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.extent.len
    }
}

/// Removes `from..to` from a list that is sorted and free of overlaps. Parts of extents that reach over an edge stay.
pub(crate) fn carve(list: &mut Vec<Placed>, from: u32, to: u32) {
    if from >= to || list.iter().all(|placed| placed.end() <= from || placed.offset >= to) {
        return;
    }
    let mut kept = Vec::with_capacity(list.len() + 1);
    for placed in list.iter() {
        let (start, end) = (placed.offset, placed.end());
        if end <= from || start >= to {
            kept.push(*placed);
            continue;
        }
        if start < from {
            kept.push(Placed { extent: placed.extent.part(0, from - start), ..*placed });
        }
        if end > to {
            kept.push(Placed {
                offset: to,
                extent: placed.extent.part(to - start, end - to),
                at_head: false,
            });
        }
    }
    *list = kept;
}

/// Puts an extent over whatever is there.
pub(crate) fn overlay(list: &mut Vec<Placed>, offset: u32, extent: Extent) {
    carve(list, offset, offset + extent.len);
    let at = list.partition_point(|placed| placed.offset < offset);
    list.insert(at, Placed { offset, extent, at_head: false });
    join(list, at);
}

/// Makes one extent of the one at `at` and its neighbours, where they continue each other in the same run.
pub(crate) fn join(list: &mut Vec<Placed>, at: usize) {
    for left in [at, at.wrapping_sub(1)] {
        let (Some(first), Some(second)) = (list.get(left), list.get(left.wrapping_add(1))) else { continue };
        if let Some(extent) = continues(first, second) {
            list[left].extent = extent;
            list.remove(left + 1);
        }
    }
}

fn continues(first: &Placed, second: &Placed) -> Option<Extent> {
    let (one, two) = (&first.extent, &second.extent);
    let same_run = one.segment == two.segment && one.run_offset == two.run_offset && one.check == two.check;
    let adjacent = first.end() == second.offset && one.skip + one.len == two.skip;
    (same_run && adjacent).then(|| Extent { len: one.len + two.len, ..*one })
}

/// Raw bytes of all extents.
pub(crate) fn bytes(list: &[Placed]) -> u64 {
    list.iter().map(|placed| u64::from(placed.extent.len)).sum()
}
