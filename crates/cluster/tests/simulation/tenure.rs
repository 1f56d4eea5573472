//! A server's hold on a place that one server at a time has: it watches the registry until its log stands still, opens it, and says in it that it lives.

use std::time::Duration;

use forebay_cluster::Moment;

use crate::{
    engine::{Call, Opening, RegistryCall, RegistryReply},
    faults::Planted,
    process::Context,
};

const LOOK_EVERY: Duration = Duration::from_millis(500);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// For how long a log stands still before it is taken.
const QUIET: Duration = Duration::from_secs(3);
/// After which the registry counts as not opened.
const LOST_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum State {
    /// How long the log was, and when the look had ended that first found it so.
    Watches(Option<(u64, Moment)>),
    Opens,
    Has,
}

/// What a server does next about its volume.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It has the place; no other server's beat that began later was committed.
    Alone { since: Moment },
    /// Its beat that began then is committed.
    Renewed { began: Moment },
    /// Another server has the place: this process ends.
    ShutOut,
}

#[derive(Debug)]
pub struct Tenure {
    state: State,
    /// The last time that it opened the registry.
    opening: Opening,
    /// When something was last asked.
    asked: Option<Moment>,
}

impl Tenure {
    pub fn new(server: usize, life: u64) -> Tenure {
        Tenure { state: State::Watches(None), opening: Opening { server, life, number: 0 }, asked: None }
    }

    pub fn has(&self) -> bool {
        matches!(self.state, State::Has)
    }

    pub fn tick(&mut self, context: &mut Context<'_>) {
        let began = context.clock;
        let since = self.asked.map_or(Duration::MAX, |asked| began.since(asked));
        match self.state {
            State::Watches(_) if since >= LOOK_EVERY => self.ask(RegistryCall::Look { began }, context),
            State::Opens if since >= LOST_AFTER => self.state = State::Watches(None),
            State::Has if since >= BEAT_EVERY => {
                self.ask(RegistryCall::Beat { by: self.opening, began }, context);
            }
            _ => {}
        }
    }

    fn ask(&mut self, call: RegistryCall, context: &mut Context<'_>) {
        self.asked = Some(context.clock);
        context.call(Call::Registry(call));
    }

    pub fn answered(&mut self, reply: RegistryReply, context: &mut Context<'_>) -> Option<Event> {
        match (reply, &mut self.state) {
            (RegistryReply::Log { began, long }, State::Watches(seen)) => {
                match *seen {
                    Some((known, since)) if known == long => {
                        let early = context.planted(Planted::TakesPlaceEarly);
                        if began.since(since) >= if early { QUIET / 3 } else { QUIET } {
                            self.opening.number += 1;
                            self.state = State::Opens;
                            let seen = (long, since);
                            self.ask(RegistryCall::Open { by: self.opening, seen }, context);
                        }
                    }
                    _ => *seen = Some((long, context.clock)),
                }
                None
            }
            (RegistryReply::Opened { by, seen, still, first }, State::Opens) if by == self.opening => {
                (self.state, self.asked) = (State::Has, None);
                let still = still || context.planted(Planted::TakesPlaceUnseen);
                // Where it is the first that ever was, nobody else has beaten.
                let always = still && first || context.planted(Planted::TakesPlaceEarly);
                let since = if still { seen } else { context.clock };
                Some(Event::Alone { since: if always { Moment(0) } else { since } })
            }
            (RegistryReply::Beaten { by, began }, State::Has) if by == self.opening => {
                Some(Event::Renewed { began })
            }
            (RegistryReply::ShutOut { by }, State::Has) if by == self.opening => Some(Event::ShutOut),
            _ => None,
        }
    }
}
