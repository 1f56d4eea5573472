//! One connection to a server, driven by the thread that asks: no other thread has to be woken for an answer.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Error, Statement, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    statements::{Query, Table},
    trouble::Trouble,
};

/// Prepared statements that a connection keeps: beyond that it begins anew, so that a server with thousands of tables does not pay for all.
const PREPARED_MAX: usize = 256;
/// A read that takes longer is given up; the server gives it up somewhat earlier (see [`READS`]).
const READ_LIMIT: Duration = Duration::from_secs(35);
/// A transaction whose end is not known by then is given up.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

/// What every connection is set to, as far as the server knows it: reads and commits by the index, whatever the server believes of a
/// table that it has not counted yet; plans made once; what is acknowledged is on disk.
const EVERY: &[&str] = &[
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
    "SET lock_timeout = '10s'",
    "SET idle_in_transaction_session_timeout = '10s'",
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET enable_sort = off",
    "SET jit = off",
    "SET plan_cache_mode = force_generic_plan",
];
const READS: &[&str] = &["SET statement_timeout = '30s'"];
/// A timeout that struck while a COMMIT waits for a standby would end that wait with success.
const COMMITS: &[&str] = &["SET statement_timeout = 0", GUARD];
/// Where BEGIN fails, what was sent behind it would each be a transaction of its own, with no fence before it: those change nothing.
const GUARD: &str = "SET default_transaction_read_only = on";
/// Begins a transaction that changes something.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE";

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Reads,
    Commits,
}

/// A statement with its parameters.
pub(super) struct Step<'a> {
    pub(super) statement: Statement,
    pub(super) parameters: Vec<Box<dyn ToSql + Sync + 'a>>,
}

/// What moves a connection's bytes while it is polled.
type Driven = dyn Future<Output = Result<(), Error>> + Send;

pub(super) struct Wire {
    // Before the runtime, which its socket belongs to.
    client: Client,
    /// `None` once it has ended.
    connection: Option<Pin<Box<Driven>>>,
    runtime: Runtime,
    limit: Duration,
    prepared: HashMap<(Table, Query), Statement>,
    /// Whether [`GUARD`] holds: else nothing is sent behind a BEGIN that was not answered.
    guarded: bool,
}

impl Wire {
    pub(super) fn connect(
        config: &Config,
        tls: &MakeRustlsConnect,
        purpose: Purpose,
    ) -> Result<Wire, Trouble> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Trouble::Lost(format!("no more files can be opened: {error}")))?;
        let limit = match purpose {
            Purpose::Reads => READ_LIMIT,
            Purpose::Commits => COMMIT_LIMIT,
        };
        let connecting = async { tokio::time::timeout(limit, config.connect(tls.clone())).await };
        let (client, connection) =
            runtime.block_on(connecting).map_err(|_| Trouble::Lost("it does not answer".into()))??;
        let connection: Option<Pin<Box<Driven>>> = Some(Box::pin(connection));
        let mut wire = Wire { client, connection, runtime, limit, prepared: HashMap::new(), guarded: false };
        wire.set_up(if purpose == Purpose::Reads { READS } else { COMMITS })?;
        Ok(wire)
    }

    fn set_up(&mut self, special: &[&str]) -> Result<(), Trouble> {
        let settings = || EVERY.iter().chain(special);
        let said = self.drive(async |client| {
            let waiting = settings().map(|setting| Box::pin(client.batch_execute(setting)) as Answer<'_>);
            Ok(all_at_once(waiting.collect()).await)
        })?;
        for (setting, said) in settings().zip(said) {
            match said.map_err(Trouble::from) {
                Ok(()) => self.guarded |= *setting == GUARD,
                // Servers that only speak the protocol do not know all of them.
                Err(Trouble::Said { code, message, last: false }) => {
                    tracing::debug!("the metadata engine does not take '{setting}': {message} ({code})");
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Runs what speaks to the server until it is done, the connection has ended and it knows, or the time is over.
    pub(super) fn drive<T>(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        let Wire { client, connection, runtime, limit, .. } = self;
        let mut ended = None;
        let result = runtime.block_on(async {
            let mut work = pin!(work(client));
            let mut late = pin!(tokio::time::sleep(*limit));
            poll_fn(|cx| {
                // Before, for what came; after, for what is to be sent.
                for round in 0..2 {
                    if let Some(Poll::Ready(end)) = connection.as_mut().map(|it| it.as_mut().poll(cx)) {
                        *connection = None;
                        ended = end.err();
                    }
                    if round == 0
                        && let Poll::Ready(result) = work.as_mut().poll(cx)
                    {
                        return Poll::Ready(Some(result));
                    }
                }
                late.as_mut().poll(cx).map(|()| None)
            })
            .await
        });
        match (result, ended) {
            (Some(Ok(done)), _) => Ok(done),
            (Some(Err(error)), Some(why)) if error.is_closed() => Err(why.into()),
            (Some(Err(error)), _) => Err(error.into()),
            (None, _) => {
                self.connection = None;
                Err(Trouble::Lost(format!("there was no answer in {} s", self.limit.as_secs())))
            }
        }
    }

    /// Whether it can still be used, as far as has been heard: a server that went away while nobody asked has said so.
    pub(super) fn is_alive(&mut self) -> bool {
        let heard = self.drive(async |_| {
            tokio::task::yield_now().await;
            Ok(())
        });
        heard.is_ok() && self.connection.is_some() && !self.client.is_closed()
    }

    /// The statement, prepared once.
    pub(super) fn prepare(&mut self, table: Table, query: Query) -> Result<Statement, Trouble> {
        if let Some(statement) = self.prepared.get(&(table, query)) {
            return Ok(statement.clone());
        }
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        let text = query.text(table);
        let statement = self.drive(async |client| client.prepare(&text).await)?;
        self.prepared.insert((table, query), statement.clone());
        Ok(statement)
    }

    /// Sends a transaction in one go and returns what was said to BEGIN, to each step and to COMMIT. An error means that nothing is known.
    pub(super) fn transact(&mut self, steps: &[Step<'_>]) -> Result<Vec<Result<(), Trouble>>, Trouble> {
        if !self.guarded {
            match self.drive(async |client| client.batch_execute(BEGIN).await) {
                Ok(()) => {}
                Err(trouble @ Trouble::Said { last: false, .. }) => {
                    return Ok(vec![Err(trouble), Ok(())]);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let guarded = self.guarded;
        let answers = self.drive(async |client| {
            let mut waiting: Vec<Answer<'_>> = Vec::with_capacity(steps.len() + 2);
            match guarded {
                true => waiting.push(Box::pin(client.batch_execute(BEGIN))),
                false => waiting.push(Box::pin(async { Ok(()) })),
            }
            for step in steps {
                let parameters = step.parameters.iter().map(|one| one.as_ref() as &(dyn ToSql + Sync));
                let answer = client.execute_raw(&step.statement, parameters);
                waiting.push(Box::pin(async move { answer.await.map(drop) }));
            }
            waiting.push(Box::pin(client.batch_execute("COMMIT")));
            Ok(all_at_once(waiting).await)
        })?;
        Ok(answers.into_iter().map(|answer| answer.map_err(Trouble::from)).collect())
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// Waits for all requests. A request is sent when it is polled first: all of them before the first answer, in this order.
async fn all_at_once(mut waiting: Vec<Answer<'_>>) -> Vec<Result<(), Error>> {
    let mut answers: Vec<Option<Result<(), Error>>> = waiting.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (one, answer) in waiting.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match one.as_mut().poll(cx) {
                    Poll::Ready(result) => *answer = Some(result),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
