//! A far-away network between a client and a server: a TCP relay that delivers late, holds what is sent, or cuts.
//!
//! Late by a fixed time each way, whatever the amount: the round trip of two machines without their bandwidth. Bytes arrive in order and unchanged.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// What the network does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Delivers.
    Fair,
    /// Takes everything and delivers nothing, as a switch does that lost its way: nobody is told.
    Held,
    /// Ends connections and takes no new ones.
    Cut,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    /// Each way.
    delay: Duration,
    /// Raised by each cut: connections of before end.
    cuts: u64,
    open: Vec<TcpStream>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// The relay. It goes on until the process ends.
#[derive(Clone, Debug)]
pub struct FarLink {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// What was read, and when it is to be delivered.
type Late = (Instant, Vec<u8>);

impl FarLink {
    /// Listens on `listen` for connections to `server`; what either end says arrives `delay` later.
    ///
    /// # Errors
    /// The system's.
    pub fn new(listen: impl ToSocketAddrs, server: SocketAddr, delay: Duration) -> io::Result<FarLink> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let state = State { weather: Weather::Fair, delay, cuts: 0, open: Vec::new() };
        let shared = Arc::new(Shared { server, state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::Builder::new().name("far-accept".to_owned()).spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that cannot be reached is one that refuses: the client is told by the end of its connection.
                let _ = accepting.connect(&client);
            }
        })?;
        Ok(FarLink { shared, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is said from now on arrives so much later, each way.
    pub fn delay(&self, delay: Duration) {
        self.shared.state.lock().delay = delay;
    }

    /// Delivers nothing until [`FarLink::heal`]; no connection ends.
    pub fn hold(&self) {
        self.change(Weather::Held);
    }

    /// Ends all connections, with what is under way on them, and takes no new ones until [`FarLink::heal`].
    pub fn cut(&self) {
        self.change(Weather::Cut);
        let mut state = self.shared.state.lock();
        state.cuts += 1;
        for end in state.open.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }

    /// Delivers again.
    pub fn heal(&self) {
        self.change(Weather::Fair);
    }

    fn change(&self, weather: Weather) {
        self.shared.state.lock().weather = weather;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn connect(self: &Arc<Shared>, client: &TcpStream) -> io::Result<()> {
        if self.state.lock().weather == Weather::Cut {
            return Ok(());
        }
        let server = TcpStream::connect(self.server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let cut = {
            let mut state = self.state.lock();
            state.open.extend([client.try_clone()?, server.try_clone()?]);
            state.cuts
        };
        self.pump(cut, client.try_clone()?, server.try_clone()?)?;
        self.pump(cut, server, client.try_clone()?)
    }

    /// Carries one direction: one thread takes, one delivers late.
    fn pump(self: &Arc<Shared>, cut: u64, mut from: TcpStream, to: TcpStream) -> io::Result<()> {
        let (taken, late) = mpsc::channel::<Late>();
        let taking = Arc::clone(self);
        thread::Builder::new().name("far-take".to_owned()).spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            while let Ok(len) = from.read(&mut buffer) {
                let due = Instant::now() + taking.state.lock().delay;
                if len == 0 || taken.send((due, buffer[..len].to_vec())).is_err() {
                    break;
                }
            }
        })?;
        let delivering = Arc::clone(self);
        thread::Builder::new().name("far-deliver".to_owned()).spawn(move || {
            delivering.deliver(cut, &late, to);
        })?;
        Ok(())
    }

    fn deliver(&self, cut: u64, late: &mpsc::Receiver<Late>, mut to: TcpStream) {
        for (due, bytes) in late {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut state = self.state.lock();
            while state.weather == Weather::Held && state.cuts == cut {
                self.changed.wait(&mut state);
            }
            if state.cuts != cut {
                break;
            }
            drop(state);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]
mod tests {
    use super::*;

    /// A server that says again whatever it hears.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut peer in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut buffer = [0; 1000];
                    while let Ok(len @ 1..) = peer.read(&mut buffer) {
                        peer.write_all(&buffer[..len]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn hears(peer: &mut TcpStream, what: &[u8]) -> bool {
        let mut heard = vec![0; what.len()];
        peer.read_exact(&mut heard).is_ok() && heard == what
    }

    #[test]
    fn what_is_said_arrives_late_held_or_not_at_all() {
        let link = FarLink::new("127.0.0.1:0", echo(), Duration::from_millis(30)).unwrap();
        let mut peer = TcpStream::connect(link.address()).unwrap();
        let began = Instant::now();
        peer.write_all(b"one").unwrap();
        assert!(hears(&mut peer, b"one"));
        assert!(
            began.elapsed() >= Duration::from_millis(60),
            "nothing is faster than the way there and back"
        );

        link.hold();
        peer.write_all(b"two").unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(peer.read(&mut [0; 3]).is_err(), "held, and heard all the same");
        peer.set_read_timeout(None).unwrap();
        link.heal();
        assert!(hears(&mut peer, b"two"));

        link.cut();
        assert_eq!(peer.read(&mut [0; 3]).unwrap_or(0), 0, "cut, and still there");
        let mut refused = TcpStream::connect(link.address()).unwrap();
        assert_eq!(refused.read(&mut [0; 3]).unwrap_or(0), 0, "cut, and connected");
        link.heal();
        let mut again = TcpStream::connect(link.address()).unwrap();
        again.write_all(b"three").unwrap();
        assert!(hears(&mut again, b"three"));
    }
}
