//! Greeting, renewing, reclaiming, beginning anew.

use std::time::{Duration, Instant};

use forebay_cluster::{Moment, Terms};
use forebay_protocol::{Hello, Reclaim, Refusal, Welcome};
use forebay_types::Epoch;

use super::{At, Phase, Shared, new_session};
use crate::{error::ClientError, transport::Trouble};

/// How long one server has to answer a greeting before the next one is tried.
const HELLO_PATIENCE: Duration = Duration::from_secs(4);
const RECLAIM_PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a greeting that failed; it doubles.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The pause after the owner has refused this client.
const REFUSED_PAUSE: Duration = Duration::from_secs(3);
/// The session is renewed this many times in its term.
const RENEWALS: u32 = 5;

enum Next {
    Stop,
    Greet,
    Renew(At),
}

/// What a greeting that failed leaves to be done.
enum Greeting {
    Up,
    Again,
    /// Only after a while.
    Later,
}

impl Shared {
    /// What the keeper does until the link is closed.
    pub(super) fn keep(&self) {
        let mut pause = PAUSE;
        loop {
            match self.next() {
                Next::Stop => return,
                Next::Renew(at) => self.renew(&at),
                Next::Greet => match self.greet() {
                    Greeting::Up => pause = PAUSE,
                    Greeting::Again => {
                        self.pause(pause);
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                    Greeting::Later => self.pause(REFUSED_PAUSE),
                },
            }
        }
    }

    fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Next::Stop;
            }
            if state.phase != Phase::Up {
                return Next::Greet;
            }
            let every = state.terms.session / RENEWALS;
            let silent = self.ticks.now().since(state.asked);
            if silent >= every {
                return Next::Renew(At { session: state.session, number: state.number, round: state.round });
            }
            self.changed.wait_for(&mut state, every - silent);
        }
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.closed && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    fn renew(&self, at: &At) {
        let sent = self.ticks.now();
        let patience = self.state.lock().terms.session / RENEWALS;
        match self.transport.renew(at.session, patience) {
            Ok(()) => self.heard(at.number, sent),
            Err(trouble) => {
                self.trouble(at.round, &trouble);
                if matches!(trouble, Trouble::Lost(_)) {
                    self.state.lock().go = Some(None);
                }
            }
        }
    }

    fn heard(&self, number: u64, sent: Moment) {
        {
            let mut state = self.state.lock();
            if state.number == number {
                state.asked = state.asked.max(sent);
            }
        }
        if let Some(events) = self.events.upgrade() {
            events.heard(number, sent);
        }
    }

    /// Ends the present session for this client, and draws the next one.
    fn over(&self) {
        let next = match new_session() {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(%error, "no random number for a session");
                return;
            }
        };
        {
            let mut state = self.state.lock();
            state.session = next;
            state.number += 1;
            (state.begun, state.ended) = (false, false);
            state.slots = super::Slots::new();
        }
        self.slot_freed.notify_all();
        tracing::warn!("the session with the volume's owner has ended: what was not durable is lost");
        if let Some(events) = self.events.upgrade() {
            events.over();
        }
    }

    fn greet(&self) -> Greeting {
        let (go, ended) = {
            let mut state = self.state.lock();
            (state.go.take(), state.ended)
        };
        if let Some(address) = go {
            self.transport.elsewhere(address.as_deref());
        }
        if ended {
            self.over();
        }
        let (session, number, resumes) = {
            let state = self.state.lock();
            (state.session, state.number, state.begun)
        };
        let hello = Hello {
            volume: self.config.volume.clone(),
            token: self.config.token.clone(),
            session,
            client: self.config.client.clone(),
            resumes,
        };
        let sent = self.ticks.now();
        let done = match self.transport.hello(&hello, HELLO_PATIENCE) {
            Ok(welcome) => self.welcomed(&At { session, number, round: 0 }, resumes, welcome, sent),
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(()) => Greeting::Up,
            Err(trouble) => self.not_welcome(trouble),
        }
    }

    fn welcomed(&self, at: &At, resumed: bool, welcome: Welcome, sent: Moment) -> Result<(), Trouble> {
        let Some(events) = self.events.upgrade() else {
            return Err(Trouble::Never("the volume is gone".to_owned()));
        };
        if let Some(why) = self.is_another(&welcome) {
            // Nothing is asked in it.
            let _ = self.transport.end(at.session, HELLO_PATIENCE);
            return Err(Trouble::Refused(Refusal::Denied(why)));
        }
        if !resumed {
            events.begun(at.number, &welcome, sent);
        } else if events.epoch() < welcome.epoch {
            self.reclaim(at, welcome.epoch)?;
        }
        if resumed {
            events.heard(at.number, sent);
        }
        // Also where it goes on: what it was to be told meanwhile is gone.
        events.limited(welcome.volume.limit.is_some());
        {
            let mut state = self.state.lock();
            state.phase = Phase::Up;
            state.round += 1;
            (state.begun, state.asked) = (true, sent);
            state.terms =
                Terms { session: Duration::from_millis(welcome.term_ms.max(100)), ..Terms::default() };
            state.volume = Some((welcome.volume, welcome.rights));
        }
        self.changed.notify_all();
        events.greeted();
        Ok(())
    }

    /// Why a session is not that of the mount: what was mounted under its root would be taken for something else.
    fn is_another(&self, welcome: &Welcome) -> Option<String> {
        let state = self.state.lock();
        let (volume, rights) = state.volume.as_ref()?;
        if volume.id != welcome.volume.id {
            return Some(format!("'{}' is another volume now: unmount it and mount it again", volume.name));
        }
        (*rights != welcome.rights).then(|| {
            "the token shows another directory than the one that is mounted, or has other rights: unmount it and mount it again"
                .to_owned()
        })
    }

    /// Says to the owner of this term which leases there are, until it has answered.
    fn reclaim(&self, at: &At, epoch: Epoch) -> Result<(), Trouble> {
        let Some(events) = self.events.upgrade() else { return Ok(()) };
        let mut epoch = epoch;
        loop {
            let reclaim = Reclaim { session: at.session, epoch, leases: events.to_reclaim(epoch) };
            let sent = self.ticks.now();
            match self.transport.reclaim(&reclaim, RECLAIM_PATIENCE) {
                Ok(reclaimed) => {
                    events.reclaimed(reclaimed.epoch, &reclaimed.grants);
                    return Ok(());
                }
                // Rows of such leases are still on their way, or another client has yet to say which it has. The owner has heard of this one all the same: it
                // need not end while one is waited for that is gone.
                Err(Trouble::Refused(Refusal::MustReclaim { epoch: of })) => {
                    events.heard(at.number, sent);
                    epoch = of;
                    if self.state.lock().closed {
                        return Err(Trouble::Never("closed".to_owned()));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    fn not_welcome(&self, trouble: Trouble) -> Greeting {
        let mut state = self.state.lock();
        match trouble {
            Trouble::Refused(Refusal::SessionEnded) => {
                state.ended = true;
                return Greeting::Again;
            }
            Trouble::Refused(Refusal::NotOwner { address }) => {
                drop(state);
                self.transport.elsewhere(address.as_deref());
                return Greeting::Again;
            }
            Trouble::Refused(Refusal::Unavailable(why)) => {
                tracing::info!(why, "the server cannot serve the volume now");
                return Greeting::Again;
            }
            Trouble::Lost(why) => {
                drop(state);
                tracing::debug!(why, "no greeting");
                self.transport.elsewhere(None);
                return Greeting::Again;
            }
            Trouble::Refused(Refusal::MustReclaim { .. }) => return Greeting::Again,
            Trouble::Refused(Refusal::Denied(why)) => {
                if state.phase != Phase::Refused(ClientError::Denied(why.clone())) {
                    tracing::error!(why, "the servers refuse this mount: nothing works until they do not");
                }
                state.phase = Phase::Refused(ClientError::Denied(why));
            }
            Trouble::Refused(Refusal::NoVolume(name)) => {
                state.phase = Phase::Refused(ClientError::NoVolume(name));
            }
            Trouble::Refused(other) => {
                state.phase = Phase::Refused(ClientError::Unexpected(other.to_string()));
            }
            Trouble::Never(why) | Trouble::Unreadable(why) => {
                state.phase = Phase::Refused(ClientError::Unexpected(why))
            }
        }
        drop(state);
        self.changed.notify_all();
        Greeting::Later
    }
}
