//! What a member's sessions with volumes have around them in a proxy: its membership, its cache, metadata servers, stores, other members.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_client::{RpcTransport, Transport};
use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, MemberId, MemberState, PieceKey, placement};
use forebay_object::{ObjectStore, StoreOptions, StoreUrl};
use forebay_protocol::{Kind, Refusal, SegmentPlace, VolumeInfo, VolumeRequest, group::Seal};
use forebay_rpc::{Address, Security};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::Mutex;

use crate::{
    membership::{Meta, MetaError, Place},
    reads::Objects,
    volumes::{Acting, Peers, Surroundings},
    writeback::WrittenHere,
};

/// How long the metadata servers may take to tell of volumes, in milliseconds.
const VOLUMES_MS: u32 = 3_000;
/// How long nothing clean is cached after a store did not say how long an object is: what makes room in the log does not wait for it.
const AWAY_FOR: Duration = Duration::from_secs(10);

/// A proxy around its sessions with volumes.
pub(super) struct Around {
    member: MemberId,
    meta: Meta,
    servers: Vec<Address>,
    security: Security,
    store: StoreOptions,
    place: Arc<Place>,
    objects: Arc<Objects>,
    written_here: Arc<WrittenHere>,
    peers: Peers,
    /// As what it last acted: while it joins anew it is known as that.
    acted: Mutex<Option<Acting>>,
    away: Mutex<Option<Instant>>,
}

impl Around {
    pub(super) fn new(
        (group, member): (GroupId, MemberId),
        (meta, servers, security): (Meta, &[Address], &Security),
        store: &StoreOptions,
        (place, objects): (Arc<Place>, Arc<Objects>),
        written_here: Arc<WrittenHere>,
    ) -> Around {
        Around {
            member,
            meta,
            servers: servers.to_vec(),
            security: security.clone(),
            store: store.clone(),
            place,
            objects,
            written_here,
            peers: Peers::new((group, member), security.clone()),
            acted: Mutex::new(None),
            away: Mutex::new(None),
        }
    }

    /// Whether this member is the one that is asked first for what begins a segment.
    fn belongs_here(&self, segment: SegmentId) -> bool {
        let members = self.place.view().map(|view| view.active()).unwrap_or_default();
        placement::first(PieceKey::of(segment, 0), &members) == Some(self.member)
    }
}

impl Surroundings for Around {
    fn acting(&self) -> Option<Acting> {
        let now = self.place.look(|membership| {
            let view = membership.view().filter(|_| membership.is_in())?;
            let drains = |state| state == MemberState::Draining;
            let draining = view.members.get(&self.member).is_some_and(|member| drains(member.state));
            Some(Acting { incarnation: membership.incarnation(), view: view.epoch, draining })
        });
        let mut acted = self.acted.lock();
        *acted = now.or(*acted);
        *acted
    }

    fn volume(&self, volume: VolumeId) -> Result<VolumeInfo, Refusal> {
        let all: Vec<VolumeInfo> = match self.meta.ask(Kind::Volumes, &VolumeRequest::List, VOLUMES_MS) {
            Ok(all) => all,
            Err(MetaError::Unanswered(why)) => return Err(Refusal::Unavailable(why)),
            Err(MetaError::Refused(why) | MetaError::Unsupported(why)) => return Err(Refusal::Denied(why)),
        };
        let found = all.into_iter().find(|info| info.id == volume);
        found.ok_or_else(|| Refusal::NoVolume(volume.to_string()))
    }

    fn was_deleted(&self, volume: VolumeId) -> Result<bool, Refusal> {
        match self.meta.ask::<Vec<VolumeInfo>>(Kind::Volumes, &VolumeRequest::Deleted(volume), VOLUMES_MS) {
            Ok(deleted) => Ok(deleted.iter().any(|info| info.id == volume)),
            Err(MetaError::Unanswered(why)) => Err(Refusal::Unavailable(why)),
            Err(MetaError::Refused(why) | MetaError::Unsupported(why)) => Err(Refusal::Denied(why)),
        }
    }

    fn transport(&self) -> io::Result<Arc<dyn Transport>> {
        Ok(Arc::new(RpcTransport::start(self.servers.clone(), self.security.clone())?))
    }

    fn store(&self, volume: &VolumeInfo) -> Result<ObjectStore, String> {
        let url: StoreUrl = volume.store.parse().map_err(|error| format!("{}: {error}", volume.store))?;
        let mut options = self.store.clone();
        options.endpoint = volume.endpoint.clone().or(options.endpoint);
        options.region = volume.region.clone().or(options.region);
        ObjectStore::open(&url, &options).map_err(|error| error.to_string())
    }

    fn stored(&self, volume: &VolumeInfo, object: ObjectRef, segments: &[SegmentId], bytes: &Bytes) {
        if !segments.iter().any(|segment| self.written_here.has(volume.id, *segment)) {
            return;
        }
        match self.objects.volume(volume) {
            Ok(number) => number.key(object).into_iter().for_each(|key| self.objects.keep_whole(key, bytes)),
            Err(why) => tracing::debug!(why, "what was written here is not cached"),
        }
    }

    fn keep(&self, volume: &VolumeInfo, segment: SegmentId, place: &SegmentPlace, bytes: &Bytes) {
        // Clients of this machine ask here first for all that they read.
        let is_read_here = self.written_here.has(volume.id, segment) || self.belongs_here(segment);
        if !is_read_here || self.away.lock().is_some_and(|since| since.elapsed() < AWAY_FOR) {
            return;
        }
        let number = match self.objects.volume(volume) {
            Ok(number) => number,
            Err(why) => return tracing::debug!(why, "what is clean is not cached"),
        };
        let Some(key) = number.key(place.object) else { return };
        match self.objects.length(key) {
            Ok(len) => self.objects.insert(key, len, place.offset, bytes),
            Err(error) => {
                *self.away.lock() = Some(Instant::now());
                tracing::debug!(%error, "what is clean is not cached");
            }
        }
    }

    fn writers_stream(&self) -> bool {
        self.written_here.is_stream()
    }

    fn copy_to(&self, member: MemberId, volume: VolumeId, seal: &Seal, bytes: Bytes) -> Result<(), String> {
        let view = self.place.view().ok_or("this member has no view")?;
        let to = view.members.get(&member).ok_or("it is not in the view")?;
        let acting = self.acting().ok_or("this member has not joined")?;
        self.peers.copy(&to.address, (acting.incarnation, volume), seal, bytes)
    }
}
