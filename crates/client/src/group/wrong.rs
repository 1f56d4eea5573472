//! Bytes that were not what was written: read from the store for a while, and told to those who gave them.

use forebay_format::row::ObjectRef;
use forebay_protocol::group::Distrust;

use super::{Shared, WRONG_FOR, route};

impl Shared {
    /// Whether some of these bytes were wrong lately.
    pub(super) fn is_wrong(&self, object: ObjectRef, offset: u64, len: u64) -> bool {
        let mut wrong = self.wrong.lock();
        if wrong.is_empty() {
            return false;
        }
        wrong.retain(|(.., since)| since.elapsed() < WRONG_FOR);
        let end = offset.saturating_add(len);
        wrong.iter().any(|(of, from, to, _)| *of == object && *from < end && offset < *to)
    }

    /// Tells all members that may have given these bytes, of whichever group.
    pub(super) fn tell_wrong(&self, wrong: &[(ObjectRef, u64, u32)]) {
        let groups = self.groups();
        for (object, offset, len) in wrong {
            let (_, _, piece) = self.pieces.of(*object, *offset);
            let distrust = Distrust { object: *object, offset: *offset, len: *len };
            for known in groups.all() {
                let width = known.widths.of(piece).max(2) as usize;
                for id in route::ranked(&known.view, &known.here, piece).into_iter().take(width) {
                    if let Some(link) = known.links.get(&id) {
                        link.distrust(&distrust, &self.reader, known.id);
                    }
                }
            }
        }
    }
}
