//! What members of groups of proxies ask, and those who read through them.

use std::sync::Arc;

use forebay_protocol::{
    Message,
    group::{GroupView, RenewMember, ViewOf},
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

    /// [`forebay_protocol::Kind::ViewOf`]: told to whoever may use the volume.
    pub(super) fn view_of(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let ViewOf { volume, token, known } = decode(body)?;
        let (row, token) = self.allowed(peer, &volume, token.as_deref())?;
        // Who is shown a part of the volume reads from the store: proxies do not know whose bytes an object has.
        if row.group.is_empty() || token.is_some_and(|(_, token)| shows_a_part(&token)) {
            return Ok(None::<GroupView>.encode());
        }
        let groups = &self.cluster.groups;
        let mut found = groups.known();
        if !found.groups.contains_key(&row.group) {
            found = groups.refresh(&self.cluster)?;
        }
        if let Some(hosted) = self.cluster.hosted(row.id) {
            hosted.tell_owner(&self.cluster);
        }
        let group = found.groups.get(&row.group).map(|found| &found.row);
        let view = group.map(|group| GroupView {
            name: row.group.clone(),
            id: group.id,
            view: (group.row.view.epoch > known).then(|| group.row.view.clone()),
            writes: row.class.copies(group.row.view.copies),
        });
        Ok(view.encode())
    }
}
