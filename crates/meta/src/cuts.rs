//! The cuts of a file: pure list operations. A list is ascending, with at least one block between two cuts.

use forebay_format::row::Cut;

/// The cut that a block is in.
pub(crate) fn around(cuts: &[Cut], block: u32) -> Option<Cut> {
    let at = cuts.partition_point(|cut| cut.last < block);
    cuts.get(at).filter(|cut| cut.first <= block).copied()
}

/// Adds blocks; cuts that overlap or touch become one.
pub(crate) fn add(cuts: &mut Vec<Cut>, Cut { mut first, mut last }: Cut) {
    let from = cuts.partition_point(|cut| cut.last.saturating_add(1) < first);
    let to = cuts.partition_point(|cut| cut.first <= last.saturating_add(1));
    for cut in cuts.drain(from..to) {
        first = first.min(cut.first);
        last = last.max(cut.last);
    }
    cuts.insert(from, Cut { first, last });
}

/// Takes one block out.
pub(crate) fn remove(cuts: &mut Vec<Cut>, block: u32) {
    let at = cuts.partition_point(|cut| cut.last < block);
    let Some(cut) = cuts.get(at).filter(|cut| cut.first <= block).copied() else { return };
    let below = (cut.first < block).then(|| Cut { last: block - 1, ..cut });
    let above = (block < cut.last).then(|| Cut { first: block + 1, ..cut });
    cuts.splice(at..=at, below.into_iter().chain(above));
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 40;

    fn blocks(cuts: &[Cut]) -> Vec<bool> {
        (0..END).map(|block| cuts.iter().any(|cut| (cut.first..=cut.last).contains(&block))).collect()
    }

    #[test]
    fn cuts_are_the_blocks_that_were_added_and_not_removed() {
        let mut random = 7u32;
        let mut below = |end: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % end
        };
        let (mut cuts, mut expected) = (Vec::new(), vec![false; END as usize]);
        for _ in 0..5000 {
            let first = below(END);
            if below(3) == 0 {
                let last = (first + below(9)).min(END - 1);
                add(&mut cuts, Cut { first, last });
                expected[first as usize..=last as usize].fill(true);
            } else {
                remove(&mut cuts, first);
                expected[first as usize] = false;
            }
            assert_eq!(blocks(&cuts), expected, "{cuts:?}");
            assert!(cuts.iter().all(|cut| cut.first <= cut.last), "{cuts:?}");
            assert!(cuts.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "{cuts:?}");
            for block in 0..END {
                assert_eq!(around(&cuts, block).is_some(), expected[block as usize]);
            }
        }
    }

    #[test]
    fn the_last_block_of_all_is_one_like_others() {
        let mut cuts = vec![Cut { first: 0, last: u32::MAX }];
        remove(&mut cuts, u32::MAX);
        assert_eq!(cuts, [Cut { first: 0, last: u32::MAX - 1 }]);
        add(&mut cuts, Cut { first: u32::MAX, last: u32::MAX });
        assert_eq!(cuts, [Cut { first: 0, last: u32::MAX }]);
        assert_eq!(around(&cuts, u32::MAX), Some(cuts[0]));
    }
}
