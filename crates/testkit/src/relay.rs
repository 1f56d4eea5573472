//! A TCP relay between a client and a server that cuts connections after chosen bytes, or keeps what was sent from arriving until told to.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use parking_lot::{Condvar, Mutex};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// To the client.
    ToClient,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    Pass,
    /// New connections are closed at once.
    Refuse,
    /// After so many more bytes both ends are cut off.
    Cut(Direction, u64),
    /// The client is cut off by the next thing it says; what it said reaches the server later.
    Strand,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    /// Bytes that were carried to the server and to the client.
    carried: [u64; 2],
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
    ended: AtomicBool,
}

/// The relay. New connections are refused once it is dropped; open ones end with either end.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Relay {
    /// Listens on a port of its own for connections to `server`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(server: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Mutex::new(State { plan: Plan::Pass, carried: [0; 2] });
        let shared =
            Arc::new(Shared { server, state, changed: Condvar::new(), ended: AtomicBool::new(false) });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.ended.load(Ordering::Acquire) {
                    break;
                }
                let server = match accepting.state.lock().plan {
                    Plan::Refuse => continue,
                    _ => TcpStream::connect(accepting.server),
                };
                let Ok(server) = server else { continue };
                let ends = (client.try_clone(), server.try_clone());
                let (Ok(client_too), Ok(server_too)) = ends else { continue };
                let (there, back) = (Arc::clone(&accepting), Arc::clone(&accepting));
                thread::spawn(move || there.carry(Direction::ToServer, client, server));
                thread::spawn(move || back.carry(Direction::ToClient, server_too, client_too));
            }
        });
        Ok(Relay { shared, address })
    }

    /// The port that it listens on, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Bytes that were carried so far.
    #[must_use]
    pub fn carried(&self, direction: Direction) -> u64 {
        self.shared.state.lock().carried[direction as usize]
    }

    /// Lets everything through from now on; what was stranded arrives.
    pub fn pass(&self) {
        self.plan(Plan::Pass);
    }

    /// Closes new connections at once.
    pub fn refuse(&self) {
        self.plan(Plan::Refuse);
    }

    /// Carries `bytes` more in one direction, over all connections together, and cuts that connection then.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.plan(Plan::Cut(direction, bytes));
    }

    /// Whether the cut that was planned last was made.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        matches!(self.shared.state.lock().plan, Plan::Pass)
    }

    /// Cuts a client off by the next thing it says, and keeps that from the server until [`Relay::pass`].
    pub fn strand(&self) {
        self.plan(Plan::Strand);
    }

    fn plan(&self, plan: Plan) {
        self.shared.state.lock().plan = plan;
        self.shared.changed.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.pass();
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn carry(&self, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 64 << 10];
        let mut stranded = false;
        while let Ok(len) = from.read(&mut buffer) {
            if len == 0 {
                break;
            }
            let mut state = self.state.lock();
            if state.plan == Plan::Strand && direction == Direction::ToServer {
                stranded = true;
                let _ = from.shutdown(Shutdown::Both);
                self.changed.wait_while(&mut state, |state| state.plan == Plan::Strand);
            }
            let mut allowed = len;
            let mut cut = false;
            if let Plan::Cut(way, left) = &mut state.plan
                && *way == direction
            {
                allowed = len.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= allowed as u64;
                cut = allowed < len || *left == 0;
            }
            if cut {
                state.plan = Plan::Pass;
            }
            state.carried[direction as usize] += allowed as u64;
            drop(state);
            if to.write_all(&buffer[..allowed]).is_err() || cut {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                return;
            }
        }
        // A client that was cut off leaves the server to what it said.
        let end = if stranded { Shutdown::Write } else { Shutdown::Both };
        let _ = to.shutdown(end);
    }
}
