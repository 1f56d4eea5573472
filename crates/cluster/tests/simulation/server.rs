//! A server: it stands by or owns the volume.

use std::time::Duration;

use forebay_cluster::{Claim, Moment, Ownership, ServerId};

use crate::{
    engine::{Call, RegistryReply, Reply},
    faults::Planted,
    messages::{Message, Node},
    owner::Owner,
    tenure::{Event, Tenure},
    world::{Context, terms},
};

const POLL: Duration = Duration::from_millis(500);
/// After which a call to the engine counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(600);

fn ownership(at: usize, life: u64) -> Ownership {
    let mut id = [0; 16];
    id[0] = at as u8;
    id[8..].copy_from_slice(&life.to_be_bytes());
    Ownership::new(ServerId(id), at.to_string(), terms())
}

#[derive(Debug)]
pub struct Server {
    at: usize,
    life: u64,
    /// Another server has the place.
    pub ended: bool,
    ownership: Ownership,
    /// Where one server at a time has the place.
    tenure: Option<Tenure>,
    owner: Option<Owner>,
    /// When the engine was last asked, and whether an answer is awaited.
    asked: Option<Moment>,
    awaits: bool,
    /// The claim under way, and when it was begun: an answer to an earlier one says nothing.
    claimed: Option<(Claim, Moment)>,
}

impl Server {
    /// `alone`: one server at a time has the place.
    pub fn new(at: usize, life: u64, alone: bool) -> Server {
        Server {
            at,
            life,
            ended: false,
            ownership: ownership(at, life),
            tenure: alone.then(|| Tenure::new(at, life)),
            owner: None,
            asked: None,
            awaits: false,
            claimed: None,
        }
    }

    pub fn may_look_up(&self, clock: Moment) -> bool {
        self.owner.is_some() && self.ownership.may_look_up(clock)
    }

    pub fn tick(&mut self, context: &mut Context<'_>) {
        let now = context.clock;
        let since = self.asked.map_or(Duration::MAX, |asked| now.since(asked));
        if let Some(tenure) = &mut self.tenure {
            tenure.tick(context);
            if !tenure.has() {
                return;
            }
        }
        match &mut self.owner {
            Some(owner) => {
                owner.tick(&mut self.ownership, context);
                let beats = self.ownership.is_renewed_by_beats();
                let due =
                    owner.has_pending() || !beats && self.ownership.beat_at().is_none_or(|at| at <= now);
                if (due && !self.awaits) || since >= LOST_AFTER && self.awaits {
                    self.commit(context);
                }
            }
            None if since >= if self.awaits { LOST_AFTER } else { POLL } => {
                self.ask(Call::ReadFence, context)
            }
            None => {}
        }
    }

    fn ask(&mut self, call: Call, context: &mut Context<'_>) {
        (self.asked, self.awaits, self.claimed) = (Some(context.clock), true, None);
        context.call(call);
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        let Some(owner) = &mut self.owner else { return };
        let Some(claim) = self.ownership.begin(context.clock) else { return };
        let rows = owner.batch();
        self.ask(Call::Commit { claim, rows, takes: false }, context);
    }

    fn of_registry(&mut self, reply: RegistryReply, context: &mut Context<'_>) {
        let Some(tenure) = &mut self.tenure else { return };
        match tenure.answered(reply, context) {
            Some(Event::Alone { since }) => self.ownership = ownership(self.at, self.life).alone(since),
            Some(Event::Renewed { began }) => {
                self.ownership.renew(began);
                if let Some(owner) = &mut self.owner {
                    owner.renewed(&mut self.ownership, context);
                }
            }
            Some(Event::ShutOut) => self.ended = true,
            None => {}
        }
    }

    pub fn answered(&mut self, reply: Reply, context: &mut Context<'_>) {
        let now = context.clock;
        match reply {
            Reply::Registry(reply) => self.of_registry(reply, context),
            Reply::Fence(found) if self.owner.is_none() => {
                self.awaits = false;
                if let Some(claim) = self.ownership.saw(found, now) {
                    self.ask(Call::Commit { claim: claim.clone(), rows: Vec::new(), takes: true }, context);
                    self.claimed = Some((claim, now));
                }
            }
            Reply::Committed(claim, Some(rows)) if self.owner.is_none() => {
                let Some((_, begun)) = self.claimed.take_if(|(under_way, _)| *under_way == claim) else {
                    return;
                };
                self.awaits = false;
                let epoch = claim.fence.epoch;
                self.ownership.claimed(claim, begun);
                self.owner = Some(Owner::load(epoch, &rows, context));
            }
            Reply::Committed(claim, None) if self.is_under_way(&claim, now) => self.committed(context),
            Reply::Fenced(claim, found) if self.is_under_way(&claim, now) => {
                if self.ownership.fenced(found, now) {
                    self.committed(context);
                } else {
                    (self.owner, self.awaits) = (None, false);
                }
            }
            Reply::Fenced(..) if self.owner.is_none() => self.awaits = false,
            _ => {}
        }
    }

    /// Whether an answer is about the batch under way, and not about one that was asked for twice.
    fn is_under_way(&mut self, claim: &Claim, now: Moment) -> bool {
        self.awaits && self.owner.is_some() && self.ownership.begin(now).as_ref() == Some(claim)
    }

    fn committed(&mut self, context: &mut Context<'_>) {
        self.awaits = false;
        self.ownership.committed();
        if context.planted(Planted::BatchesRenew)
            && let Some(asked) = self.asked
        {
            self.ownership.renew(asked);
        }
        if let Some(owner) = &mut self.owner {
            owner.committed(&mut self.ownership, context);
            if owner.has_pending() {
                self.commit(context);
            }
        }
    }

    /// Gives the volume up, if nothing is to be committed.
    pub fn stop(&mut self, context: &mut Context<'_>) {
        let ready = self.owner.as_ref().is_some_and(|owner| !owner.has_pending()) && !self.awaits;
        if let Some(claim) = ready.then(|| self.ownership.give_up()).flatten() {
            self.owner = None;
            self.ask(Call::Commit { claim, rows: Vec::new(), takes: false }, context);
        }
    }

    pub fn message(&mut self, from: Node, message: Message, context: &mut Context<'_>) {
        match &mut self.owner {
            Some(owner) => {
                owner.message(message, &mut self.ownership, context);
                if owner.has_pending() && !self.awaits {
                    self.commit(context);
                }
            }
            None => {
                let owner = self.ownership.other_owner().and_then(|fence| fence.address.parse().ok());
                context.send(from, Message::NotOwner { owner });
            }
        }
    }
}
