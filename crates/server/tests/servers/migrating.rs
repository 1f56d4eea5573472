//! Volumes that move to other engines while clients change them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use forebay_cluster::{SessionId, SlotNumber};
use forebay_engine::{DirectoryHost, EngineHost};
use forebay_protocol::{
    Answer, Failure, Kind, MigratePhase, MigrateRequest, MigrateStatus, Operation, Reclaim, Reclaimed,
    Refusal, Request, Response,
};
use forebay_server::{MetaServer, MigrationStep};
use forebay_types::Ino;
use parking_lot::Mutex;

use crate::bed::{Asks, Bed, Not, database, make, until};

const STEPS: [MigrationStep; 7] = [
    MigrationStep::Begun,
    MigrationStep::Copied,
    MigrationStep::Compared,
    MigrationStep::Paused,
    MigrationStep::Sealed,
    MigrationStep::Activated,
    MigrationStep::Entered,
];

fn ask(asks: &Asks, to: Option<&str>) -> Result<MigrateStatus, Not> {
    let request = MigrateRequest { volume: "v".to_owned(), to: to.map(str::to_owned) };
    asks.call(Kind::Migrate, &request)
}

/// Moves the volume, from whichever of the servers owns it, and begins anew where the owner went.
fn migrate(servers: &[&MetaServer], to: &str) -> MigrateStatus {
    let all: Vec<Asks> = servers.iter().map(|server| Asks::of(server).impatient()).collect();
    until("the move", || {
        let asked = all.iter().find_map(|asks| ask(asks, Some(to)).ok())?;
        assert_eq!(asked.failed, None);
        (asked.phase == MigratePhase::Done).then_some(asked)
    })
}

/// Where clients find a server.
#[derive(Clone, Default)]
struct At(Arc<Mutex<Vec<String>>>);

impl At {
    fn of(servers: &[&MetaServer]) -> At {
        let at = At::default();
        at.are(servers);
        at
    }

    fn are(&self, servers: &[&MetaServer]) {
        *self.0.lock() = servers.iter().map(|server| server.advertised().to_owned()).collect();
    }
}

/// A client that makes and removes names of its own, and remembers which there are.
struct Writer {
    id: u128,
    at: At,
    asks: Option<Asks>,
    next: u64,
    names: BTreeSet<String>,
    /// How often a request had to be repeated.
    repeated: u64,
    /// Whether it waits for its server, which does not die.
    patient: bool,
}

impl Writer {
    fn new(id: u128, at: &At, patient: bool) -> Writer {
        Writer { id, at: at.clone(), asks: None, next: 1, names: BTreeSet::new(), repeated: 0, patient }
    }

    /// Goes on with its session at whoever owns the volume.
    fn connect(&self) -> Option<Asks> {
        let all = self.at.0.lock().clone();
        all.iter().find_map(|at| {
            let asks = if self.patient { Asks::at(at) } else { Asks::at(at).impatient() };
            let begun =
                if self.next == 1 { asks.hello("v", self.id, None) } else { asks.resume("v", self.id) };
            let epoch = begun.ok()?.epoch;
            let reclaim = Reclaim { session: SessionId(self.id), epoch, leases: Vec::new() };
            asks.call::<Reclaimed>(Kind::Reclaim, &reclaim).ok()?;
            Some(asks)
        })
    }

    /// Asks until it is answered, under one number.
    fn change(&mut self, operation: Operation) -> Answer {
        let slot = Some((SlotNumber(0), self.next));
        let request = Request { session: SessionId(self.id), slot, operation, wish: None };
        let mut tries = 0;
        let answer = until("an answer", || {
            if self.asks.is_none() {
                self.asks = self.connect();
            }
            let response: Result<Response, Not> = self.asks.as_ref()?.call(Kind::Ask, &request);
            tries += 1;
            match response {
                Ok(response) => Some(response.answer),
                Err(Not::Refused(Refusal::SessionEnded)) => panic!("the session has ended"),
                Err(_) => {
                    self.asks = None;
                    None
                }
            }
        });
        self.repeated += tries - 1;
        self.next += 1;
        answer
    }

    /// One more name, or one fewer. Whatever was carried out twice would fail.
    fn step(&mut self) {
        let (number, old) = (self.next, self.names.first().cloned());
        match old.filter(|_| number.is_multiple_of(3)) {
            Some(old) => {
                let gone = self.change(Operation::Unlink(Ino::ROOT, old.clone().into(), Vec::new()));
                assert!(!matches!(gone, Answer::Failed(_)), "{old} goes once: {gone:?}");
                self.names.remove(&old);
            }
            None => {
                let name = format!("{}-{number}", self.id);
                let made = self.change(make(&name));
                assert!(matches!(made, Answer::Inode(_)), "{name} is made once: {made:?}");
                self.names.insert(name);
            }
        }
    }

    /// Looks for every name that it ever used.
    fn check(&mut self) {
        for number in 1..self.next {
            let name = format!("{}-{number}", self.id);
            let found = self.look(&name);
            assert_eq!(found, self.names.contains(&name), "{name}");
        }
    }

    fn look(&mut self, name: &str) -> bool {
        let operation = Operation::Lookup(Ino::ROOT, name.into());
        let request = Request { session: SessionId(self.id), slot: None, operation, wish: None };
        until("a look", || {
            if self.asks.is_none() {
                self.asks = self.connect();
            }
            match self.asks.as_ref()?.call::<Response>(Kind::Ask, &request) {
                Ok(response) => Some(match response.answer {
                    Answer::Failed(Failure::NotFound) => false,
                    Answer::Failed(failure) => panic!("{failure:?}"),
                    _ => true,
                }),
                Err(_) => {
                    self.asks = None;
                    None
                }
            }
        })
    }
}

/// Has three clients at work while `work` is done, and then looks at what they have.
fn under_writers<T>(at: &At, first: u128, patient: bool, work: impl FnOnce() -> T) -> (T, u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let writers: Vec<_> = (first..first + 3)
            .map(|id| {
                let mut writer = Writer::new(id, at, patient);
                scope.spawn(move || {
                    while !over.load(SeqCst) || writer.next < 30 {
                        writer.step();
                    }
                    writer
                })
            })
            .collect();
        let done = work();
        over.store(true, SeqCst);
        let mut repeated = 0;
        for writer in writers {
            let mut writer = writer.join().unwrap();
            writer.check();
            repeated += writer.repeated;
        }
        (done, repeated)
    })
}

fn databases(dir: &std::path::Path) -> usize {
    DirectoryHost::open(dir).unwrap().list().unwrap().len()
}

#[test]
fn a_volume_moves_through_every_engine_while_clients_change_it() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.join("v", 1).make("kept");
    let at = At::of(&[&server]);
    let second = bed.dir.path().join("second");
    let places = [
        format!("dir:{}", second.display()),
        database(),
        format!("slate:file://{}/third", bed.dir.path().display()),
        bed.engine.clone(),
    ];
    for (round, to) in places.iter().enumerate() {
        let first = 100 * (round as u128 + 1);
        let (moved, repeated) = under_writers(&at, first, true, || migrate(&[&server], to));
        assert_eq!(repeated, 0, "clients notice nothing but a pause");
        assert_eq!(moved.place, moved.to);
        assert!(moved.rows > 10 && moved.compared > 10, "{moved:?}");
    }
    assert_eq!(databases(&second), 0, "what was left is removed");
    assert_eq!(databases(&bed.dir.path().join("engine")), 1, "what was made first, too");
    assert_eq!(migrate(&[&server], &bed.engine).phase, MigratePhase::Done, "it is there already");
    drop(server);
    let server = bed.server();
    let asks = Asks::of(&server);
    assert!(asks.join("v", 9).sees("kept"));
}

/// Where a volume is after its server has died at a step.
fn is_over_there(step: MigrationStep) -> bool {
    step >= MigrationStep::Sealed
}

/// Whichever of the servers comes to the step first dies there.
fn dies_at(servers: &[MetaServer], step: MigrationStep) -> mpsc::Receiver<usize> {
    let (tell, told) = mpsc::channel();
    let dead = Arc::new(AtomicBool::new(false));
    for (index, server) in servers.iter().enumerate() {
        let (tell, dead) = (Mutex::new(tell.clone()), Arc::clone(&dead));
        server.watch_migrations(Arc::new(move |over| {
            let dies = over == step && !dead.swap(true, SeqCst);
            if dies {
                let _ = tell.lock().send(index);
            }
            !dies
        }));
    }
    told
}

/// The server that moves the volume dies at a step, and another one goes on: one that stood by, or one that is started then.
fn dies_at_step(bed: &Bed, count: usize, to: &str, step: MigrationStep) -> MetaServer {
    let mut servers: Vec<MetaServer> = (0..count).map(|_| bed.server()).collect();
    Asks::of(&servers[0]).create(bed, "v");
    let at = At::of(&servers.iter().collect::<Vec<_>>());
    let told = dies_at(&servers, step);
    let (server, _) = under_writers(&at, 100, false, || {
        let begun = until("a begin", || {
            servers.iter().find_map(|server| ask(&Asks::of(server).impatient(), Some(to)).ok())
        });
        assert_eq!(begun.failed, None);
        let dead = told.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(servers.remove(dead));
        let server = servers.pop().unwrap_or_else(|| bed.server());
        at.are(&[&server]);
        let status = until("an owner", || ask(&Asks::of(&server).impatient(), None).ok());
        assert_eq!(status.place == status_place(to), is_over_there(step), "{step:?}: {status:?}");
        assert_eq!(migrate(&[&server], to).place, status_place(to), "{step:?}");
        server
    });
    server
}

/// A place as it is shown.
fn status_place(to: &str) -> String {
    to.parse::<forebay_server::DatabasePlace>().unwrap().open().unwrap().place()
}

#[test]
fn a_server_that_dies_at_any_step_loses_nothing() {
    std::thread::scope(|scope| {
        for step in STEPS {
            scope.spawn(move || {
                let bed = Bed::directory();
                let (source, target) = (bed.dir.path().join("engine"), bed.dir.path().join("second"));
                let server = dies_at_step(&bed, 1, &format!("dir:{}", target.display()), step);
                until("what was left to be removed", || (databases(&source) == 0).then_some(()));
                assert_eq!(databases(&target), 1, "{step:?}: what the first try left is gone");
                drop(server);
            });
        }
    });
}

#[test]
fn another_server_takes_over_in_the_middle_of_a_move() {
    std::thread::scope(|scope| {
        for step in
            [MigrationStep::Copied, MigrationStep::Paused, MigrationStep::Sealed, MigrationStep::Activated]
        {
            scope.spawn(move || drop(dies_at_step(&Bed::postgres(), 2, &database(), step)));
        }
        let slate = || {
            let bed = Bed::postgres();
            let to = format!("slate:file://{}/place", bed.dir.path().display());
            dies_at_step(&bed, 2, &to, MigrationStep::Sealed);
        };
        scope.spawn(slate);
    });
}

/// Why the volume is not moved there, as whoever owns it says. That may be another server than a moment ago: it is given up for the one with which it should be.
fn refused(all: &[Asks], to: &str) -> String {
    until("a refusal", || {
        all.iter().find_map(|asks| match ask(asks, Some(to)) {
            Err(Not::Refused(Refusal::Invalid(why))) => Some(why),
            Err(Not::Elsewhere(_)) => None,
            other => panic!("{to}: {other:?}"),
        })
    })
}

#[test]
fn what_cannot_be_moved_is_refused_in_a_line() {
    let bed = Bed::postgres();
    let (one, two) = (bed.server(), bed.server());
    Asks::of(&one).create(&bed, "v");
    let all = [Asks::of(&one), Asks::of(&two)];
    let here = format!("dir:{}/here", bed.dir.path().display());
    let sees_both = |asks: &Asks| asks.status().members.iter().filter(|member| member.alive).count() == 2;
    until("both to be seen by both", || all.iter().all(sees_both).then_some(()));
    let directory = refused(&all, &here);
    assert!(directory.contains("one machine, and 2 servers"), "{directory}");
    assert!(refused(&all, "mysql://me:secret@h/d").contains("is no engine"));
    let away = refused(&all, "postgres://me:secret@127.0.0.1:1/none");
    assert!(away.contains("cannot be reached") && !away.contains("secret"), "{away}");
    let newer = database();
    drop(newer.parse::<forebay_engine::EngineUrl>().unwrap().open().unwrap());
    let name = newer.rsplit_once('/').unwrap().1;
    crate::bed::POSTGRES.sql(name, "UPDATE forebay.schema SET version = 99").unwrap();
    assert!(refused(&all, &newer).contains("version 99"));
    let unknown = MigrateRequest { volume: "none".to_owned(), to: None };
    for asks in &all {
        let unknown = asks.call::<MigrateStatus>(Kind::Migrate, &unknown).unwrap_err();
        assert!(matches!(unknown, Not::Refused(Refusal::NoVolume(_))), "{unknown:?}");
    }
    let status = until("an owner", || all.iter().find_map(|asks| ask(asks, None).ok()));
    assert_eq!(status.phase, MigratePhase::Idle);
}

#[test]
fn one_move_at_a_time_and_whoever_asks_again_watches_it() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.join("v", 1).make("a");
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    server.watch_migrations(Arc::new(move |step| {
        if step == MigrationStep::Begun {
            let _ = wait.lock().recv();
        }
        true
    }));
    let (to, other) =
        (format!("dir:{}/to", bed.dir.path().display()), format!("dir:{}/other", bed.dir.path().display()));
    ask(&asks, Some(&to)).unwrap();
    assert!(refused(std::slice::from_ref(&asks), &other).contains("being moved to"));
    assert_eq!(ask(&asks, Some(&to)).unwrap().phase, MigratePhase::Copying);
    drop(go);
    assert_eq!(migrate(&[&server], &to).place, to);
    assert!(asks.join("v", 1).sees("a"));
}
