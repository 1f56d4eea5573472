//! The groups of a volume as they are known, and the one that is gone by.

use std::sync::Arc;

use forebay_group::{GroupId, MemberId, View};
use rustc_hash::FxHashMap;

use super::{link::MemberLink, route::Widths};
use crate::data::Within;

/// A group as it is known.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) id: GroupId,
    pub(super) view: View,
    pub(super) links: FxHashMap<MemberId, Arc<MemberLink>>,
    /// Those of them that are on this machine.
    pub(super) here: Vec<MemberId>,
    /// On how many members what is written is before it counts, where it is written over the group.
    pub(super) writes: Option<u8>,
    /// On how many of its members pieces are.
    pub(super) widths: Arc<Widths>,
}

/// All of them, as they were told at one time.
#[derive(Default)]
pub(super) struct Groups {
    /// In the order in which the volume has them.
    all: Vec<Arc<Known>>,
    ids: Arc<[GroupId]>,
    chosen: Option<GroupId>,
}

impl Groups {
    /// All that are known, and the one that is gone by.
    pub(super) fn new(all: Vec<Arc<Known>>, chosen: Option<GroupId>) -> Groups {
        if let Some(known) = all.iter().find(|known| Some(known.id) == chosen) {
            known.links.values().for_each(|link| link.begin());
        }
        let ids = all.iter().map(|known| known.id).collect();
        Groups { all, ids, chosen }
    }

    pub(super) fn all(&self) -> &[Arc<Known>] {
        &self.all
    }

    /// Their ids, in the same order.
    pub(super) fn ids(&self) -> &Arc<[GroupId]> {
        &self.ids
    }

    /// The one through which new reads go and over which new segments are written; `None` where there is none, or none answers.
    pub(super) fn chosen(&self) -> Option<&Arc<Known>> {
        self.of(self.chosen?)
    }

    /// The one for what may be there alone.
    pub(super) fn within(&self, within: Within) -> Option<&Arc<Known>> {
        match within {
            Within::Any => self.chosen(),
            Within::Group(id) => self.of(id),
            Within::Nowhere => None,
        }
    }

    pub(super) fn of(&self, id: GroupId) -> Option<&Arc<Known>> {
        self.all.iter().find(|known| known.id == id)
    }

    /// How a member is reached, whichever group is chosen: it is of one of them.
    pub(super) fn link(&self, member: MemberId) -> Option<(&Arc<Known>, &Arc<MemberLink>)> {
        self.all.iter().find_map(|known| Some((known, known.links.get(&member)?)))
    }
}
