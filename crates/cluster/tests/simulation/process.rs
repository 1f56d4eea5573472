//! What processes do, and by what.

use std::collections::BTreeSet;

use forebay_cluster::Moment;
use rand::rngs::StdRng;

use crate::{
    client::Client,
    engine::{Call, Reply},
    faults::Planted,
    history::History,
    messages::{Message, Node},
    server::Server,
};

/// What a process does.
pub struct Context<'a> {
    /// The process's own clock.
    pub clock: Moment,
    /// The world's time.
    pub now: u64,
    pub rng: &'a mut StdRng,
    pub history: &'a mut History,
    pub planted: Option<Planted>,
    /// The objects in the store.
    pub stored: &'a BTreeSet<u64>,
    pub sends: Vec<(Node, Message)>,
    pub calls: Vec<Call>,
    pub puts: Vec<u64>,
}

impl Context<'_> {
    pub fn send(&mut self, to: Node, message: Message) {
        self.sends.push((to, message));
    }

    pub fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Puts an object into the store, where it is not there already.
    pub fn put(&mut self, object: u64) {
        self.puts.push(object);
    }

    pub fn planted(&self, mistake: Planted) -> bool {
        self.planted == Some(mistake)
    }
}

/// Who does something.
pub enum Process<'a> {
    Server(&'a mut Server),
    Client(&'a mut Client),
}

impl Process<'_> {
    pub fn tick(self, context: &mut Context<'_>) {
        match self {
            Process::Server(server) => server.tick(context),
            Process::Client(client) => client.tick(context),
        }
    }

    pub fn message(self, from: Node, message: Message, context: &mut Context<'_>) {
        match self {
            Process::Server(server) => server.message(from, message, context),
            Process::Client(client) => client.message(from, message, context),
        }
    }

    pub fn answered(self, reply: Reply, context: &mut Context<'_>) {
        if let Process::Server(server) = self {
            server.answered(reply, context);
        }
    }

    pub fn stored(self, object: u64, context: &mut Context<'_>) {
        if let Process::Client(client) = self {
            client.is_put(object, context);
        }
    }

    pub fn stop(self, context: &mut Context<'_>) {
        if let Process::Server(server) = self {
            server.stop(context);
        }
    }
}
