//! The side that connects: to one of several addresses, again and again.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio::{runtime::Handle, sync::Notify};

use crate::{
    connection::{CallError, Outgoing, Reply, Request, Terms},
    net::Address,
    tls::Security,
    wire::{Code, Refusal},
};

use super::{
    channel::{ASKED_EVERY, Channel},
    connect::connect,
    link::Broken,
    peer::{Handler, Handling, Peer},
    task::{Task, Watch},
};

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where; tried in turn.
    pub addresses: Vec<Address>,
    /// How connections are protected.
    pub security: Security,
    /// What is offered and asked for.
    pub terms: Terms,
    /// The wait after the first connection that failed; it doubles with each further one, and a random part of up to half of it is taken off.
    pub backoff_ms: u32,
    /// The longest wait.
    pub backoff_max_ms: u32,
}

impl ClientConfig {
    /// The usual limits.
    #[must_use]
    pub fn new(addresses: Vec<Address>, security: Security) -> ClientConfig {
        ClientConfig { addresses, security, terms: Terms::default(), backoff_ms: 50, backoff_max_ms: 3_000 }
    }
}

/// Requests to a server, from threads and from tasks. Cheap to clone; the connection ends with the last clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    /// The thread of its own runtime, if it has one.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    config: ClientConfig,
    handler: Arc<dyn Handler>,
    state: Mutex<State>,
    /// The state changed: for threads, for tasks.
    changed: (Condvar, Notify),
}

impl fmt::Debug for Shared {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?}", self.config)
    }
}

enum State {
    /// No connection, for this reason.
    Down(String),
    Up(Arc<Channel>),
    Closed,
}

/// Refuses what a server pushes.
struct NoPushes;

impl Handler for NoPushes {
    fn handle(&self, _: &Arc<Peer>, request: Request) -> Handling {
        let text = format!("this client takes no pushes of kind {}", request.kind);
        Box::pin(std::future::ready(Err(Refusal::new(Code::UNSUPPORTED, text))))
    }
}

impl Client {
    /// A client whose connections are served by a thread of its own. `handler` answers what the server pushes.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(config: ClientConfig, handler: Option<Arc<dyn Handler>>) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Shared::new(config, handler);
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("forebay-rpc".to_owned());
        let thread = thread.spawn(move || runtime.block_on(supervise(serving)))?;
        Ok(Client(Arc::new(Owner { shared, thread: Some(thread) })))
    }

    /// A client whose connections are served by tasks of a runtime.
    #[must_use]
    pub fn within(runtime: &Handle, config: ClientConfig, handler: Option<Arc<dyn Handler>>) -> Client {
        let shared = Shared::new(config, handler);
        runtime.spawn(supervise(shared.clone()));
        Client(Arc::new(Owner { shared, thread: None }))
    }

    /// Makes a request and waits for its answer in the calling thread, which is not one of an asynchronous runtime. Waits for a connection as well,
    /// and makes the request again on another connection as long as it is certain that it was not sent; never otherwise.
    ///
    /// # Errors
    /// Why there is no reply; [`CallError::class`] says what that means.
    pub fn call_blocking(&self, request: Outgoing) -> Result<Reply, CallError> {
        self.call_blocking_while(request, ASKED_EVERY, None)
    }

    /// The same, and once the request is sent no longer than `goes_on` says so, which is asked after `first`, counted from there, and then every [`ASKED_EVERY`]: then the request
    /// is cancelled. No lock of the connection is held while it is asked.
    ///
    /// # Errors
    /// As there; [`CallError::GivenUp`].
    pub fn call_blocking_while(
        &self,
        request: Outgoing,
        first: Duration,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Reply, CallError> {
        let deadline = Deadline::of(&request);
        let mut used = None;
        loop {
            let channel = self.0.shared.wait_up(&deadline, used.as_ref())?;
            let result = channel.call_blocking(deadline.rest(&request), first, goes_on);
            match result {
                Err(error) if again(&error) => used = Some(Arc::downgrade(&channel)),
                other => return other,
            }
        }
    }

    /// As [`Client::call_blocking`], in a task. Dropping the future cancels the request.
    ///
    /// # Errors
    /// As there.
    pub async fn call(&self, request: Outgoing) -> Result<Reply, CallError> {
        let deadline = Deadline::of(&request);
        let mut used = None;
        loop {
            let channel = self.0.shared.up(&deadline, used.as_ref()).await?;
            let result = channel.call(deadline.rest(&request)).await;
            match result {
                Err(error) if again(&error) => used = Some(Arc::downgrade(&channel)),
                other => return other,
            }
        }
    }

    /// Closes the connection; requests end as on any connection that is lost, and there will be no other one.
    pub fn close(&self) {
        self.0.close();
    }

    /// Bytes that have come over the connection that there is now, of whatever kind; 0 where there is none. A server that sends is not gone, whatever is waited for.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        match &*self.0.shared.state.lock() {
            State::Up(channel) => channel.received_bytes(),
            State::Down(_) | State::Closed => 0,
        }
    }

    /// Why there is no connection, if there is none.
    #[must_use]
    pub fn down(&self) -> Option<String> {
        match &*self.0.shared.state.lock() {
            State::Up(_) => None,
            State::Down(why) => Some(why.clone()),
            State::Closed => Some("closed".to_owned()),
        }
    }
}

/// Whether a request may be made again over another connection: it was not sent, or not taken.
fn again(error: &CallError) -> bool {
    match error {
        CallError::Lost { sent, .. } => !sent,
        CallError::Refused(refusal) => refusal.code == Code::GOING_AWAY,
        _ => false,
    }
}

impl Owner {
    fn close(&self) {
        if let State::Up(channel) = self.shared.set(State::Closed) {
            channel.drop_now("the client is closed");
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

struct Deadline(Instant);

impl Deadline {
    fn of(request: &Outgoing) -> Deadline {
        Deadline(Instant::now() + Duration::from_millis(request.deadline_ms.into()))
    }

    fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The request with what is left of its time.
    fn rest(&self, request: &Outgoing) -> Outgoing {
        let left = u32::try_from(self.left().as_micros().div_ceil(1000)).unwrap_or(u32::MAX);
        Outgoing { deadline_ms: left.min(request.deadline_ms).max(1), ..request.clone() }
    }
}

impl Shared {
    fn new(config: ClientConfig, handler: Option<Arc<dyn Handler>>) -> Arc<Shared> {
        Arc::new(Shared {
            config,
            handler: handler.unwrap_or_else(|| Arc::new(NoPushes)),
            state: Mutex::new(State::Down("not connected yet".to_owned())),
            changed: (Condvar::new(), Notify::new()),
        })
    }

    fn set(&self, state: State) -> State {
        let before = {
            let mut now = self.state.lock();
            if matches!(*now, State::Closed) {
                return State::Closed;
            }
            std::mem::replace(&mut *now, state)
        };
        self.changed.0.notify_all();
        self.changed.1.notify_waiters();
        before
    }

    /// The connection, if there is one other than `used`; or why there will be none.
    fn look(state: &State, used: Option<&Weak<Channel>>) -> Result<Option<Arc<Channel>>, CallError> {
        match state {
            State::Up(channel) if used.is_some_and(|used| used.as_ptr() == Arc::as_ptr(channel)) => Ok(None),
            State::Up(channel) => Ok(Some(channel.clone())),
            State::Down(_) => Ok(None),
            State::Closed => Err(CallError::Lost { sent: false, why: "the client is closed".to_owned() }),
        }
    }

    fn too_late(state: &State) -> CallError {
        match state {
            State::Down(why) => CallError::Lost { sent: false, why: why.clone() },
            _ => CallError::Deadline { sent: false },
        }
    }

    fn wait_up(&self, deadline: &Deadline, used: Option<&Weak<Channel>>) -> Result<Arc<Channel>, CallError> {
        let mut state = self.state.lock();
        loop {
            if let Some(channel) = Shared::look(&state, used)? {
                return Ok(channel);
            }
            if self.changed.0.wait_until(&mut state, deadline.0).timed_out() {
                return Shared::look(&state, used)?.ok_or_else(|| Shared::too_late(&state));
            }
        }
    }

    async fn up(&self, deadline: &Deadline, used: Option<&Weak<Channel>>) -> Result<Arc<Channel>, CallError> {
        loop {
            let changed = self.changed.1.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(channel) = Shared::look(&self.state.lock(), used)? {
                return Ok(channel);
            }
            if tokio::time::timeout_at(deadline.0.into(), changed).await.is_err() {
                let state = self.state.lock();
                return Shared::look(&state, used)?.ok_or_else(|| Shared::too_late(&state));
            }
        }
    }
}

/// What the task of a connection tells the supervisor.
struct Reports(tokio::sync::mpsc::UnboundedSender<Report>);

enum Report {
    Ready,
    GoingAway(Refusal),
    Ended(Arc<Broken>),
}

impl Watch for Reports {
    fn ready(&mut self, _: &Arc<Peer>) {
        // The supervisor is gone when the client is closed.
        let _ = self.0.send(Report::Ready);
    }

    fn going_away(&mut self, refusal: Refusal) {
        // As above.
        let _ = self.0.send(Report::GoingAway(refusal));
    }
}

/// A connection that lasted this long is followed by another one at once.
const LASTING: Duration = Duration::from_secs(1);

/// Keeps a connection, until the client is closed.
async fn supervise(shared: Arc<Shared>) {
    tokio::select! {
        () = closed(&shared) => {}
        () = keep_on(&shared) => {}
    }
}

async fn closed(shared: &Shared) {
    loop {
        let changed = shared.changed.1.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if matches!(*shared.state.lock(), State::Closed) {
            return;
        }
        changed.await;
    }
}

/// Connects to one address after the other, for ever.
async fn keep_on(shared: &Arc<Shared>) {
    let addresses = &shared.config.addresses;
    // A full round of addresses is tried before the first wait.
    let round = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_sub(1);
    let mut failures = 0_u32;
    let mut turn = addresses.iter().cycle();
    let mut redirect: Option<Address> = None;
    while let Some(address) = redirect.take().or_else(|| turn.next().cloned()) {
        let outcome = keep(shared, &address).await;
        failures = if outcome.lasted { 0 } else { failures.saturating_add(1) };
        redirect = outcome.redirect;
        shared.set(State::Down(outcome.why));
        tokio::time::sleep(backoff(&shared.config, failures.saturating_sub(round))).await;
    }
    shared.set(State::Down("there are no addresses".to_owned()));
}

/// How long to wait after so many failures.
fn backoff(config: &ClientConfig, failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let whole = config.backoff_ms.saturating_mul(1 << doublings.min(16)).min(config.backoff_max_ms);
    // Without random bits all wait equally long.
    let random = forebay_env::random::<4>().map_or(0, u32::from_le_bytes);
    Duration::from_millis(u64::from(whole - random % (whole / 2 + 1)))
}

/// Ends a connection that nobody keeps any more.
struct Guard<'a>(Option<&'a Arc<Channel>>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(channel) = self.0 {
            channel.drop_now("the client is closed");
        }
    }
}

struct Outcome {
    /// It was of use for a while: not one that a server ends as soon as it begins.
    lasted: bool,
    why: String,
    redirect: Option<Address>,
}

/// Connects, and returns when another connection is needed.
async fn keep(shared: &Arc<Shared>, address: &Address) -> Outcome {
    let failed = |why: String| Outcome { lasted: false, why, redirect: None };
    let patience = Duration::from_millis(shared.config.terms.timeouts.preface_ms.into());
    let connecting = connect(address, &shared.config.security, &shared.config.terms);
    let channel = match tokio::time::timeout(patience, connecting).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return failed(error.to_string()),
        Err(_) => return failed(format!("cannot reach {address}: no answer")),
    };
    let (tell, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let task = match Task::new(channel.clone(), shared.handler.clone(), Reports(tell.clone())) {
        Ok(task) => task,
        Err(error) => return failed(format!("cannot serve a connection to {address}: {error}")),
    };
    tokio::spawn(async move {
        let why = task.run().await;
        // The supervisor may have gone on to another connection.
        let _ = tell.send(Report::Ended(why));
    });
    let mut guard = Guard(Some(&channel));
    let mut ready = None;
    let lasted = |ready: Option<Instant>| ready.is_some_and(|since| since.elapsed() > LASTING);
    while let Some(report) = reports.recv().await {
        match report {
            Report::Ready => {
                ready = Some(Instant::now());
                if matches!(shared.set(State::Up(channel.clone())), State::Closed) {
                    return failed("the client is closed".to_owned());
                }
            }
            Report::GoingAway(refusal) => {
                // What was taken is answered there, beside the next connection.
                guard.0 = None;
                let redirect = refusal.redirect.parse().ok();
                return Outcome {
                    lasted: lasted(ready),
                    why: format!("{address} says: {refusal}"),
                    redirect,
                };
            }
            Report::Ended(why) => {
                let why = format!("connection to {address}: {why}");
                return Outcome { lasted: lasted(ready), why, redirect: None };
            }
        }
    }
    failed(format!("connection to {address} ended"))
}
