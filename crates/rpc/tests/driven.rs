//! Server and client over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bed::{BULK, Bed, ECHO, NEVER, PANIC, PATIENCE, PUSH_BACK, WHO, request_of, until};
use bytes::Bytes;
use forebay_rpc::{
    ASKED_EVERY, Address, BindError, Client, ClientConfig, Security, ServerConfig,
    connection::{CallError, Connection, Limits, Outgoing, Role, Terms, Timeouts},
    wire::{Class, Code, Refusal},
};

#[test]
fn requests_are_answered_over_tcp_and_unix_sockets_from_threads_and_tasks() {
    let bed = Bed::new();
    for address in [bed.tcp(), bed.unix()] {
        let client = bed.client_of(address, Security::Insecure);
        let reply = client.call_blocking(request_of(ECHO, b"thread")).unwrap();
        assert_eq!(&reply.body[..], b"thread");
        let reply = bed.runtime.block_on(client.call(request_of(ECHO, b"task"))).unwrap();
        assert_eq!(&reply.body[..], b"task");
        let reply = client.call_blocking(request_of(PUSH_BACK, b"pushed")).unwrap();
        assert_eq!(&reply.body[..], b"pushed");
    }
    let client = bed.client_of(bed.unix(), Security::Insecure);
    let who = client.call_blocking(request_of(WHO, b"")).unwrap();
    let own = format!("process {} of user", std::process::id());
    assert!(who.body.starts_with(own.as_bytes()), "{:?}", who.body);
}

#[test]
fn many_threads_and_tasks_share_a_connection() {
    let bed = Bed::new();
    let client = bed.client();
    let many = |name: u8| {
        for number in 0_u32..300 {
            let body = [&[name][..], &number.to_le_bytes()].concat();
            let kind = if number % 16 == 3 { PUSH_BACK } else { ECHO };
            assert_eq!(client.call_blocking(request_of(kind, &body)).unwrap().body, body);
        }
    };
    std::thread::scope(|scope| {
        for name in 0..8 {
            scope.spawn(move || many(name));
        }
        let tasks = (100..108_u8).map(|name| {
            let client = client.clone();
            bed.runtime.spawn(async move {
                for number in 0_u32..300 {
                    let body = [&[name][..], &number.to_le_bytes()].concat();
                    assert_eq!(client.call(request_of(ECHO, &body)).await.unwrap().body, body);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            bed.runtime.block_on(task).unwrap();
        }
    });
    assert_eq!(bed.echo.opened.load(Ordering::SeqCst), 1);
}

#[test]
fn large_payloads_arrive_whole() {
    let bed = Bed::new();
    let client = bed.client();
    let bulk: Bytes = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let request = Outgoing { bulk: bulk.clone(), ..request_of(ECHO, &[5; 100_000]) };
    for _ in 0..20 {
        let reply = client.call_blocking(request.clone()).unwrap();
        assert_eq!((reply.body.len(), reply.bulk == bulk), (100_000, true));
    }
    let large = Outgoing { bulk: vec![0; 9 << 20].into(), ..request_of(ECHO, b"") };
    assert_eq!(client.call_blocking(large).unwrap_err().class(), Class::Never);
}

#[test]
fn a_deadline_ends_the_wait_and_the_handler() {
    let bed = Bed::new();
    let client = bed.client();
    // It is connected from here on: what has a deadline is sent at once.
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let never = || Outgoing { deadline_ms: 500, ..request_of(NEVER, b"") };
    assert_eq!(client.call_blocking(never()).unwrap_err().class(), Class::Unknown);
    assert_eq!(bed.runtime.block_on(client.call(never())).unwrap_err().class(), Class::Unknown);
    until("both handlers have begun", || bed.echo.begun.load(Ordering::SeqCst) == 3);
    // The echo's has ended, too.
    until("both handlers are dropped", || bed.echo.dropped.load(Ordering::SeqCst) == 3);
    client.call_blocking(request_of(ECHO, b"")).unwrap();
}

#[test]
fn a_future_that_is_dropped_cancels_its_request() {
    let bed = Bed::new();
    let client = bed.client();
    let (begun, dropped) = (&bed.echo.begun, &bed.echo.dropped);
    bed.runtime.block_on(async {
        let mut call = Box::pin(client.call(request_of(NEVER, b"")));
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::select! {
                _ = &mut call => panic!("it is never answered"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    });
    until("the handler is dropped", || dropped.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_thread_that_gives_up_cancels_its_request_and_leaves_the_others() {
    let bed = Bed::new();
    let client = bed.client();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let never = || Outgoing { deadline_ms: 60_000, ..request_of(NEVER, b"") };
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        // It reads for everybody by then.
        let gives_up = scope.spawn(|| {
            client
                .call_blocking_while(never(), ASKED_EVERY, Some(&|| goes_on.load(Ordering::SeqCst)))
                .unwrap_err()
        });
        until("the handler", || bed.echo.begun.load(Ordering::SeqCst) == 2);
        let stays = scope.spawn(|| client.call_blocking_while(never(), ASKED_EVERY, Some(&|| true)));
        until("the handler", || bed.echo.begun.load(Ordering::SeqCst) == 3);
        goes_on.store(false, Ordering::SeqCst);
        let error = gives_up.join().unwrap();
        assert_eq!((&error, error.class()), (&CallError::GivenUp, Class::Unknown));
        // The first echo's has ended, too.
        until("the end of the handler", || bed.echo.dropped.load(Ordering::SeqCst) == 2);
        assert_eq!(&client.call_blocking(request_of(ECHO, b"x")).unwrap().body[..], b"x");
        assert!(!stays.is_finished());
        client.close();
        stays.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_handler_that_panics_fails_its_request_alone() {
    let bed = Bed::new();
    let client = bed.client();
    let error = client.call_blocking(request_of(PANIC, b"")).unwrap_err();
    assert!(matches!(error, CallError::Refused(Refusal { code: Code::FAILED, .. })), "{error}");
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    assert_eq!(bed.echo.closed.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_comes_back_and_repeats_only_what_was_never_sent() {
    let mut bed = Bed::new();
    let client = bed.client();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || client.call_blocking(request_of(NEVER, b""))
    });
    until("the request is there", || bed.echo.begun.load(Ordering::SeqCst) == 2);
    let address = bed.tcp();
    let guard = bed.runtime.enter();
    drop(bed.server.take());
    assert_eq!(waiting.join().unwrap().unwrap_err().class(), Class::Unknown);
    let later = std::thread::spawn({
        let client = client.clone();
        move || client.call_blocking(request_of(ECHO, b"later"))
    });
    until("the client says why", || client.down().is_some_and(|why| why.contains("refused")));
    let config = ServerConfig::new(Security::Insecure);
    until("the port is free again", || {
        let again =
            forebay_rpc::Server::bind(std::slice::from_ref(&address), config.clone(), bed.echo.clone());
        bed.server = again.ok();
        bed.server.is_some()
    });
    drop(guard);
    assert_eq!(&later.join().unwrap().unwrap().body[..], b"later");
}

#[test]
fn an_orderly_end_answers_what_was_taken_and_sends_the_rest_elsewhere() {
    let (mut first, second) = (Bed::new(), Bed::new());
    let client = first.client();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let server = first.server.take().unwrap();
    let busy = std::thread::spawn({
        let client = client.clone();
        move || client.call_blocking(Outgoing { deadline_ms: 300, ..request_of(NEVER, b"") })
    });
    until("the request is there", || first.echo.begun.load(Ordering::SeqCst) == 2);
    let refusal = Refusal::new(Code::GOING_AWAY, "restart").redirected(second.tcp().to_string());
    let shutdown = first.runtime.spawn(async move { server.shutdown(&refusal, PATIENCE).await });
    until("requests go elsewhere", || {
        client.call_blocking(request_of(ECHO, b"")).unwrap();
        second.echo.begun.load(Ordering::SeqCst) > 0
    });
    assert_eq!(busy.join().unwrap().unwrap_err().class(), Class::Unknown, "it was taken, and had its time");
    first.runtime.block_on(shutdown).unwrap();
}

#[test]
fn nobody_there_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    for (address, says) in [
        (Address::Unix(dir.path().join("none")), "No such file"),
        ("127.0.0.1:1".parse().unwrap(), "refused"),
        ("192.0.2.1".parse().unwrap(), "without TLS only loopback"),
    ] {
        let config = ClientConfig::new(vec![address.clone()], Security::Insecure);
        let client = Client::start(config, None).unwrap();
        until("it is known", || client.down().is_some_and(|why| why.contains(says)));
        let request = Outgoing { deadline_ms: 200, ..request_of(ECHO, b"") };
        let error = client.call_blocking(request).unwrap_err();
        assert!(error.not_done() && error.to_string().contains(says), "{address}: {error}");
    }
}

#[test]
fn without_tls_a_server_listens_on_this_machine_only() {
    let bed = Bed::new();
    let config = ServerConfig::new(Security::Insecure);
    let guard = bed.runtime.enter();
    let bind = |at: &str| forebay_rpc::Server::bind(&[at.parse().unwrap()], config.clone(), bed.echo.clone());
    assert!(matches!(bind("0.0.0.0:0"), Err(BindError::Insecure { .. })));
    assert!(matches!(bind("[::]:0"), Err(BindError::Insecure { .. })));
    let error = bind(&bed.unix().to_string()).unwrap_err();
    assert!(error.to_string().contains("in use"), "a socket in use is not taken away: {error}");
    drop(guard);
    bed.client_of(bed.unix(), Security::Insecure).call_blocking(request_of(ECHO, b"")).unwrap();
}

/// Limits small enough that a test sees them, and that a client whose thread has to wait for a processor keeps all the same.
fn strict() -> ServerConfig {
    let timeouts = Timeouts { preface_ms: 200, stall_ms: 300, ..Timeouts::default() };
    let terms = Terms { timeouts, ..Terms::default() };
    ServerConfig { terms, connections_max: 2, handshakes_max: 4, ..ServerConfig::new(Security::Insecure) }
}

fn raw(bed: &Bed) -> TcpStream {
    TcpStream::connect(bed.tcp().to_string()).unwrap()
}

/// What a peer hears until the server ends the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it was not cut off"),
        _ => heard,
    }
}

/// What a client would send: its preface, and requests.
fn spoken(requests: &[Outgoing]) -> Vec<u8> {
    let now = forebay_rpc::Time(0);
    let mut left = Connection::new(Role::Initiator, Terms::default(), now);
    let mut right = Connection::new(Role::Acceptor, Terms::default(), now);
    let mut all = Vec::new();
    let mut carry = |from: &mut Connection, to: &mut Connection, keep: bool| {
        while from.unwritten() > 0 {
            let mut slices = [std::io::IoSlice::new(&[])];
            from.slices(&mut slices);
            let space = to.space();
            let len = space.len().min(slices[0].len());
            space[..len].copy_from_slice(&slices[0][..len]);
            if keep {
                all.extend_from_slice(&slices[0][..len]);
            }
            from.written(len);
            to.received(len, now).unwrap();
        }
    };
    carry(&mut left, &mut right, true);
    carry(&mut right, &mut left, false);
    for request in requests {
        left.call(request.clone(), now);
    }
    carry(&mut left, &mut right, true);
    all
}

#[test]
fn peers_that_stay_silent_or_speak_nonsense_are_cut_off_and_others_are_served() {
    let bed = Bed::with(strict());
    let client = bed.client();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let half = raw(&bed);
    let mut part = raw(&bed);
    part.write_all(&spoken(&[])[..20]).unwrap();
    let mut other = raw(&bed);
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rest(other), b"", "nothing is said to another protocol");
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    for quiet in [half, part] {
        assert!(rest(quiet).starts_with(&forebay_rpc::wire::MAGIC), "it is told why");
    }
    until("only the client is left", || bed.server().connections() == (1, 0));
}

#[test]
fn a_peer_that_falls_silent_is_cut_off() {
    let mut config = strict();
    config.terms.timeouts =
        Timeouts { preface_ms: 10_000, ping_ms: 50, silent_ms: 100, ..config.terms.timeouts };
    let bed = Bed::with(config);
    let mut mute = raw(&bed);
    mute.write_all(&spoken(&[])).unwrap();
    assert!(rest(mute).len() > 36, "it was asked, and told why");
    until("nothing is left of it", || bed.server().connections() == (0, 0));
    assert_eq!(bed.echo.closed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_peer_that_never_reads_is_cut_off_and_costs_no_more_than_its_credit() {
    let mut config = strict();
    // It is not cut off before it has asked for all that it asks for.
    config.terms.timeouts = Timeouts { preface_ms: 10_000, stall_ms: 2_000, ..config.terms.timeouts };
    let bed = Bed::with(config);
    let client = bed.client();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let mut greedy = raw(&bed);
    let ask = Outgoing { reply_max: (1 << 20) + 100, ..request_of(BULK, b"1048576") };
    let (first, all) = (spoken(&vec![ask.clone(); 30]), spoken(&vec![ask; 60]));
    greedy.write_all(&first).unwrap();
    until("its first requests are there", || bed.echo.begun.load(Ordering::SeqCst) >= 31);
    greedy.write_all(&all[first.len()..]).unwrap();
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    until("it is cut off", || bed.server().connections() == (1, 0));
    assert_eq!(bed.echo.begun.load(Ordering::SeqCst), 32, "no more of it is read while it does not read");
    drop(greedy);
}

#[test]
fn a_flood_of_handshakes_ends_the_oldest_and_lets_others_in() {
    let mut config = strict();
    config.terms.timeouts.preface_ms = 60_000;
    let bed = Bed::with(config);
    let mut flood: Vec<_> = (0..4).map(|_| raw(&bed)).collect();
    until("they are under way", || bed.server().connections() == (4, 4));
    flood.extend((0..40).map(|_| raw(&bed)));
    bed.client().call_blocking(request_of(ECHO, b"")).unwrap();
    rest(flood.swap_remove(0));
    assert!(bed.server().connections().1 <= 4);
}

#[test]
fn too_many_connections_are_refused_with_a_reason() {
    let bed = Bed::with(strict());
    let clients = [bed.client(), bed.client()];
    for client in &clients {
        client.call_blocking(request_of(ECHO, b"")).unwrap();
    }
    let third = bed.client();
    until("it is told why", || {
        let request = Outgoing { deadline_ms: 200, ..request_of(ECHO, b"") };
        let error = third.call_blocking(request).unwrap_err();
        assert!(error.not_done(), "{error}");
        error.to_string().contains("too many connections")
    });
    drop(clients);
    third.call_blocking(request_of(ECHO, b"")).unwrap();
}

#[test]
fn a_stopped_server_is_noticed_by_silence() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string().parse().unwrap();
    let mut config = ClientConfig::new(vec![address], Security::Insecure);
    config.terms.timeouts = strict().terms.timeouts;
    let client = Client::start(config, None).unwrap();
    let error = client.call_blocking(Outgoing { deadline_ms: 1500, ..request_of(ECHO, b"") }).unwrap_err();
    assert!(error.not_done(), "{error}");
    until("the client says why", || client.down().is_some_and(|why| why.contains("said nothing")));
}

#[test]
fn without_credit_callers_wait_for_each_other() {
    let mut config = ServerConfig::new(Security::Insecure);
    config.terms.limits = Limits { requests: 2, ..Limits::default() };
    let bed = Bed::with(config);
    let client = bed.client();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.call_blocking(request_of(ECHO, b"x")).unwrap();
                }
            });
        }
    });
}

#[test]
fn tiny_requests_by_the_hundred_thousand_leave_nothing_behind() {
    let bed = Bed::new();
    let client = bed.client_of(bed.unix(), Security::Insecure);
    bed.runtime.block_on(async {
        for _ in 0..400 {
            let calls = (0..250).map(|_| client.call(request_of(ECHO, b"")));
            for result in futures::future::join_all(calls).await {
                result.unwrap();
            }
        }
    });
    assert_eq!(bed.echo.begun.load(Ordering::SeqCst), 100_000);
    assert_eq!(bed.server().connections(), (1, 0));
}

/// Carries a connection to `to` and cuts it after `up` bytes of the client, or `down` bytes of the server.
fn relay(to: &Address, up: usize, down: usize) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let to = to.to_string();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        drop(listener);
        let server = TcpStream::connect(to).unwrap();
        let pipe = |mut from: TcpStream, mut to: TcpStream, mut left: usize| {
            let mut bytes = [0; 4096];
            while left > 0 {
                let max = left.min(bytes.len());
                match from.read(&mut bytes[..max]) {
                    Ok(len) if len > 0 && to.write_all(&bytes[..len]).is_ok() => left -= len,
                    _ => break,
                }
            }
            let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
        };
        let (c, s) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let other = std::thread::spawn(move || pipe(c, s, up));
        pipe(server, client, down);
        other.join().unwrap();
    });
    address
}

#[test]
fn a_connection_cut_at_any_byte_tells_the_truth() {
    let bed = Bed::new();
    let mut kinds = [0_usize; 3];
    for at in 0..220 {
        for (up, down) in [(at, usize::MAX), (usize::MAX, at)] {
            let before = bed.echo.begun.load(Ordering::SeqCst);
            let mut config = ClientConfig::new(vec![relay(&bed.tcp(), up, down)], Security::Insecure);
            config.backoff_ms = 1;
            let client = Client::start(config, None).unwrap();
            let request = Outgoing { deadline_ms: 60_000, ..request_of(ECHO, &[1; 40]) };
            let call = std::thread::spawn({
                let client = client.clone();
                move || client.call_blocking(request)
            });
            // The relay serves one connection: a request that was not sent waits for another.
            until("it ends, or waits for another connection", || {
                call.is_finished() || client.down().is_some_and(|why| why.contains("refused"))
            });
            client.close();
            let (slot, done) = match call.join().unwrap() {
                Ok(_) => (0, Some(true)),
                Err(error) if error.not_done() => (1, Some(false)),
                Err(_) => (2, None),
            };
            kinds[slot] += 1;
            let handled = bed.echo.begun.load(Ordering::SeqCst) > before;
            assert!(done.is_none_or(|done| done == handled), "{up} {down}: {done:?}, but handled: {handled}");
        }
    }
    assert!(kinds.iter().all(|count| *count > 10), "all three ends were seen: {kinds:?}");
}
