//! What members of groups of proxies ask, and those who read through them.

use std::sync::Arc;

use forebay_group::{GroupId, ViewEpoch};
use forebay_protocol::{
    Message,
    group::{GroupView, RenewMember, ViewOf, ViewsOf},
};
use forebay_rpc::Peer;

use super::{Refused, Service, decode, hello::shows_a_part};
use crate::admin::{self, unavailable};

impl Service {
    /// [`forebay_protocol::Kind::RenewMember`]: answered once it is committed, with all others of its second.
    pub(super) async fn renew_member(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        admin::check(&self.cluster, peer)?;
        let renewal: RenewMember = decode(body)?;
        let answer = self.cluster.groups.renewals.push(renewal).await;
        let answer = answer.unwrap_or_else(|_| Err("the server stops".to_owned()));
        Ok(answer.map_err(unavailable)?.encode())
    }

    /// [`forebay_protocol::Kind::ViewOf`]: told to whoever may use the volume. Of several groups the first.
    pub(super) fn view_of(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let ViewOf { volume, token, known } = decode(body)?;
        let told = self.groups_of(peer, (&volume, token.as_deref()), |_| known)?;
        Ok(told.into_iter().next().encode())
    }

    /// [`forebay_protocol::Kind::ViewsOf`], likewise.
    pub(super) fn views_of(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let ViewsOf { volume, token, known } = decode(body)?;
        let of = |id| known.iter().find(|(group, _)| *group == id).map_or(ViewEpoch(0), |(_, view)| *view);
        Ok(self.groups_of(peer, (&volume, token.as_deref()), of)?.encode())
    }

    /// The groups of a volume in its order, as whoever may use it is told of them who knows these views. One that is known nowhere here is not among them.
    fn groups_of(
        &self,
        peer: &Arc<Peer>,
        (volume, token): (&str, Option<&str>),
        knows: impl Fn(GroupId) -> ViewEpoch,
    ) -> Result<Vec<GroupView>, Refused> {
        let (row, token) = self.allowed(peer, volume, token)?;
        // Who is shown a part of the volume reads from the store: proxies do not know whose bytes an object has.
        if row.group.is_empty() || token.is_some_and(|(_, token)| shows_a_part(&token)) {
            return Ok(Vec::new());
        }
        let groups = &self.cluster.groups;
        let mut found = groups.known();
        if row.groups().any(|name| !found.groups.contains_key(name)) {
            found = groups.refresh(&self.cluster)?;
        }
        // Before anybody else is told.
        if let Some(hosted) = self.cluster.hosted(row.id) {
            hosted.tell_owner(&self.cluster);
        }
        let told = |name: &str| {
            let group = &found.groups.get(name)?.row;
            let view = &group.row.view;
            Some(GroupView {
                name: name.to_owned(),
                id: group.id,
                view: (view.epoch > knows(group.id)).then(|| view.clone()),
                writes: row.class.copies(view.copies),
            })
        };
        Ok(row.groups().filter_map(told).collect())
    }
}
