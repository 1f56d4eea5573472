//! The life that a process has at the moment: none while another process may be taking the mount over, and another one if that failed.

use std::{
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use forebay_fuse::Pauser;

use crate::daemon::{life::Life, settings::Settings};

/// Who is to take over, and since when nobody serves.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) stream: UnixStream,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(crate) paused_ns: u64,
}

#[derive(Debug, Default)]
struct State {
    life: Option<Arc<Life>>,
    pauser: Option<Pauser>,
    successor: Option<Successor>,
    /// Somebody has asked to take over.
    asked: bool,
}

/// Shared by all threads that outlive a life.
#[derive(Debug)]
pub(crate) struct Lives {
    pub(crate) settings: Settings,
    state: Mutex<State>,
}

impl Lives {
    pub(crate) fn new(life: Arc<Life>, settings: Settings) -> Arc<Lives> {
        let state = State { life: Some(life), ..State::default() };
        Arc::new(Lives { settings, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life, unless the process is between two. To be held for one request only.
    pub(crate) fn current(&self) -> Option<Arc<Life>> {
        self.state().life.clone()
    }

    /// Ends the life: nobody gets it any more.
    pub(crate) fn end(&self) -> Option<Arc<Life>> {
        self.state().life.take()
    }

    /// Begins another one.
    pub(crate) fn begin(&self, life: Arc<Life>) {
        self.state().life = Some(life);
    }

    /// By what the session is paused that is served now.
    pub(crate) fn set_pauser(&self, pauser: Pauser) {
        self.state().pauser = Some(pauser);
    }

    pub(crate) fn pauser(&self) -> Option<Pauser> {
        self.state().pauser.clone()
    }

    /// Lets one at a time ask to take over. False: somebody has.
    pub(crate) fn ask(&self) -> bool {
        !std::mem::replace(&mut self.state().asked, true)
    }

    /// Nobody takes over any more.
    pub(crate) fn asked_no_more(&self) {
        self.state().asked = false;
    }

    pub(crate) fn set_successor(&self, successor: Option<Successor>) {
        self.state().successor = successor;
    }

    pub(crate) fn successor(&self) -> Option<Successor> {
        self.state().successor.take()
    }
}
