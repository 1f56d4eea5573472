//! Repeats, sessions and slots over a transport that does as it is told.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_cluster::{Grant, Lease, Moment, SessionId, Stamp};
use forebay_protocol::{
    Answer, Hello, Operation, Reclaim, Reclaimed, Refusal, Request, Response, Return, Rights, VolumeInfo,
    Welcome,
};
use forebay_types::{Compression, Epoch, Ino, Timespec, VolumeId};
use parking_lot::{Condvar, Mutex};

use super::*;
use crate::ticks::SystemTicks;

const NEVER: Duration = Duration::from_secs(60);

/// What becomes of the next request.
enum Fate {
    Lost,
    Refused(Refusal),
    /// It has no answer until the test says so.
    Held,
}

#[derive(Default)]
struct Said {
    fates: VecDeque<Fate>,
    asked: Vec<Request>,
    hellos: Vec<(SessionId, bool)>,
    went: Vec<Option<String>>,
    reclaims: usize,
    epoch: u64,
    greetings: VecDeque<Refusal>,
    released: bool,
    /// A session's term; a minute where none is given.
    term: Option<Duration>,
    /// Whether every greeting is refused.
    refuses: bool,
}

#[derive(Default)]
struct Fake {
    listener: Mutex<Option<Weak<dyn Listener>>>,
    said: Mutex<Said>,
    changed: Condvar,
}

impl Fake {
    fn until(&self, holds: impl Fn(&Said) -> bool) {
        let mut said = self.said.lock();
        while !holds(&said) {
            assert!(!self.changed.wait_for(&mut said, NEVER).timed_out(), "it never came");
        }
    }

    fn push(&self, push: Push) {
        let listener = self.listener.lock().as_ref().and_then(Weak::upgrade);
        listener.unwrap().pushed(push);
    }

    fn release(&self) {
        self.said.lock().released = true;
        self.changed.notify_all();
    }
}

impl Transport for Fake {
    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock() = Some(listener);
    }

    fn hello(&self, hello: &Hello, _: Duration) -> Result<Welcome, Trouble> {
        let mut said = self.said.lock();
        said.hellos.push((hello.session, hello.resumes));
        self.changed.notify_all();
        if said.refuses {
            return Err(Trouble::Refused(Refusal::Denied("revoked".to_owned())));
        }
        if let Some(refusal) = said.greetings.pop_front() {
            return Err(Trouble::Refused(refusal));
        }
        let volume = VolumeInfo {
            name: "v".to_owned(),
            id: VolumeId([1; 16]),
            store: String::new(),
            endpoint: None,
            region: None,
            block_size: 1 << 20,
            compression: Compression::None,
            created: Timespec { secs: 0, nanos: 0 },
            limit: None,
            generation: 1,
        };
        let epoch = Epoch(said.epoch);
        let term_ms = said.term.map_or(60_000, |term| term.as_millis() as u64);
        Ok(Welcome { epoch, term_ms, begun: !hello.resumes, volume, rights: Rights::ALL })
    }

    fn ask(
        &self,
        request: &Request,
        _: bool,
        patience: Duration,
        _: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble> {
        let mut said = self.said.lock();
        said.asked.push(request.clone());
        self.changed.notify_all();
        match said.fates.pop_front() {
            Some(Fate::Lost) => return Err(Trouble::Lost("so it was told".to_owned())),
            Some(Fate::Refused(refusal)) => return Err(Trouble::Refused(refusal)),
            Some(Fate::Held) => {
                let until = std::time::Instant::now() + patience;
                while !said.released {
                    if self.changed.wait_until(&mut said, until).timed_out() {
                        return Err(Trouble::Lost("no answer".to_owned()));
                    }
                }
            }
            None => {}
        }
        Ok(Response { answer: Answer::Done, grants: Vec::new() })
    }

    fn renew(&self, _: SessionId, _: Duration) -> Result<(), Trouble> {
        Ok(())
    }

    fn reclaim(&self, reclaim: &Reclaim, _: Duration) -> Result<Reclaimed, Trouble> {
        let mut said = self.said.lock();
        assert_eq!(reclaim.epoch, Epoch(said.epoch), "it is said to this owner and to no other one");
        said.reclaims += 1;
        if said.reclaims == 1 {
            return Err(Trouble::Refused(Refusal::MustReclaim { epoch: Epoch(said.epoch) }));
        }
        Ok(Reclaimed { epoch: Epoch(said.epoch), grants: Vec::new() })
    }

    fn give_back(&self, _: &[Return], _: Duration) -> Result<(), Trouble> {
        Ok(())
    }

    fn end(&self, _: SessionId, _: Duration) -> Result<(), Trouble> {
        Ok(())
    }

    fn elsewhere(&self, address: Option<&str>) {
        self.said.lock().went.push(address.map(str::to_owned));
    }

    fn close(&self) {
        self.release();
    }
}

#[derive(Default)]
struct Heard {
    begun: Mutex<Vec<u64>>,
    over: Mutex<usize>,
    epoch: Mutex<u64>,
    reclaiming: Mutex<bool>,
    /// Whether the session was renewed before its leases were given again.
    renewed_early: Mutex<bool>,
}

impl Events for Heard {
    fn begun(&self, number: u64, welcome: &Welcome, _: Moment) {
        self.begun.lock().push(number);
        *self.epoch.lock() = welcome.epoch.0;
    }

    fn over(&self) {
        *self.over.lock() += 1;
    }

    fn heard(&self, _: u64, _: Moment) {
        *self.renewed_early.lock() |= *self.reclaiming.lock();
    }

    fn epoch(&self) -> Epoch {
        Epoch(*self.epoch.lock())
    }

    fn to_reclaim(&self, _: Epoch) -> Vec<(Ino, Lease)> {
        *self.reclaiming.lock() = true;
        Vec::new()
    }

    fn reclaimed(&self, epoch: Epoch, _: &[Grant]) {
        *self.epoch.lock() = epoch.0;
        *self.reclaiming.lock() = false;
    }

    fn recalled(&self, _: Ino, _: Option<Lease>, _: Stamp) {}

    fn lock_free(&self, _: Ino) {}

    fn greeted(&self) {}
}

struct Bed {
    fake: Arc<Fake>,
    heard: Arc<Heard>,
    link: Arc<Link>,
}

fn bed(timeout: Option<Duration>, fates: Vec<Fate>) -> Bed {
    bed_of(timeout, Said { fates: fates.into(), ..Said::default() })
}

/// One whose session has begun by a request without a slot, and what becomes of those that follow.
fn begun(fates: Vec<Fate>) -> Bed {
    let bed = bed(None, Vec::new());
    bed.ask(Operation::Inode(Ino::ROOT)).unwrap();
    bed.fake.said.lock().fates.extend(fates);
    bed
}

fn bed_of(timeout: Option<Duration>, said: Said) -> Bed {
    let fake = Arc::new(Fake { said: Mutex::new(Said { epoch: 1, ..said }), ..Fake::default() });
    let heard = Arc::new(Heard::default());
    let events: Arc<dyn Events> = Arc::clone(&heard) as _;
    let config = LinkConfig { volume: "v".to_owned(), token: None, client: "a test".to_owned(), timeout };
    let link = Link::start(Arc::clone(&fake) as _, config, Arc::downgrade(&events), Arc::new(SystemTicks));
    Bed { fake, heard, link: Arc::new(link.unwrap()) }
}

impl Bed {
    fn ask(&self, operation: Operation) -> Result<Answer, ClientError> {
        let answered = self.link.ask(operation, None, None, (), &self.link.patience())?;
        Ok(answered.response.answer)
    }

    fn slots(&self) -> Vec<Option<(u16, u64)>> {
        let said = self.fake.said.lock();
        said.asked.iter().map(|request| request.slot.map(|(slot, number)| (slot.0, number))).collect()
    }
}

fn change() -> Operation {
    Operation::Rmdir(Ino::ROOT, b"a".to_vec(), Vec::new())
}

#[test]
fn a_request_without_an_answer_is_repeated_with_its_number() {
    let address = Some("b:1".to_owned());
    let bed = bed(None, vec![Fate::Lost, Fate::Refused(Refusal::NotOwner { address: address.clone() })]);
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!(bed.slots(), [Some((0, 1)); 3]);
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!(bed.ask(Operation::Inode(Ino::ROOT)), Ok(Answer::Done));
    assert_eq!(bed.slots()[3..], [Some((0, 2)), None]);
    let said = bed.fake.said.lock();
    assert_eq!(said.went, [address]);
    assert_eq!(said.hellos.iter().map(|hello| hello.1).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(bed.link.number(), 1);
}

#[test]
fn an_owner_of_a_later_term_is_told_the_leases_first() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    {
        let mut said = bed.fake.said.lock();
        said.epoch = 2;
        said.fates.push_back(Fate::Refused(Refusal::MustReclaim { epoch: Epoch(2) }));
    }
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!(bed.fake.said.lock().reclaims, 2, "until it was answered");
    assert!(*bed.heard.renewed_early.lock(), "the owner has heard of it although it is to say so again");
    assert_eq!(*bed.heard.epoch.lock(), 2);
    assert_eq!(bed.slots(), [Some((0, 1)), Some((0, 2)), Some((0, 2))]);
}

#[test]
fn what_may_have_been_done_in_a_session_that_ended_is_not_done_in_the_next() {
    let bed = bed(None, vec![Fate::Lost, Fate::Refused(Refusal::SessionEnded)]);
    assert_eq!(bed.ask(change()), Err(ClientError::SessionEnded));
    bed.fake.said.lock().fates.push_back(Fate::Refused(Refusal::SessionEnded));
    assert_eq!(bed.ask(change()), Ok(Answer::Done), "it certainly was not");
    bed.fake.said.lock().fates.push_back(Fate::Refused(Refusal::SessionEnded));
    assert_eq!(bed.ask(Operation::Inode(Ino::ROOT)), Ok(Answer::Done));
    assert_eq!(*bed.heard.over.lock(), 3);
    assert_eq!(*bed.heard.begun.lock(), [1, 2, 3, 4]);
    let patience = bed.link.patience();
    let bound = bed.link.ask(change(), None, Some(3), (), &patience);
    assert_eq!(bound.map(drop), Err(ClientError::SessionEnded), "it is of an earlier one");
    let hellos = bed.fake.said.lock().hellos.clone();
    let mut sessions: Vec<_> = hellos.iter().map(|hello| hello.0).collect();
    sessions.dedup();
    assert_eq!(sessions.len(), 4, "each has a number of its own");
}

#[test]
fn a_session_that_is_not_there_any_more_is_not_begun_again() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    {
        let mut said = bed.fake.said.lock();
        said.greetings.push_back(Refusal::SessionEnded);
        said.fates.push_back(Fate::Lost);
    }
    assert_eq!(bed.ask(change()), Err(ClientError::SessionEnded));
    let hellos = bed.fake.said.lock().hellos.clone();
    let [first, resumed, next] = hellos[..] else { panic!("{hellos:?}") };
    assert_eq!((first.0, resumed, next.1), (resumed.0, (first.0, true), false));
    assert_ne!(first.0, next.0);
}

/// Else what is kept back in the next session would be lost with one that has nothing any more.
#[test]
fn the_end_of_an_earlier_session_ends_no_later_one() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    let first = bed.fake.said.lock().hellos[0].0;
    bed.fake.push(Push::Ended { session: first });
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!((bed.link.number(), *bed.heard.over.lock()), (2, 1));
    bed.fake.push(Push::Ended { session: first });
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!((bed.link.number(), *bed.heard.over.lock()), (2, 1));
}

/// Says when it is dropped.
struct Kept(Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_change_that_nobody_waits_for_keeps_its_slot_until_it_is_known() {
    let bed = begun(vec![Fate::Held, Fate::Held]);
    let dropped = Arc::new(AtomicBool::new(false));
    let kept = Kept(Arc::clone(&dropped));
    let patience = Patience::new(Some(Duration::from_millis(300)), None);
    let gave_up = bed.link.ask(change(), None, None, kept, &patience);
    assert!(matches!(gave_up.map(drop), Err(ClientError::TimedOut(_))));
    bed.fake.until(|said| said.asked.len() == 3);
    assert!(!dropped.load(SeqCst), "it may be carried out at any time");
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
    assert_eq!(bed.slots()[3], Some((1, 1)), "another slot");
    bed.fake.release();
    let deadline = std::time::Instant::now() + NEVER;
    while !dropped.load(SeqCst) {
        assert!(std::time::Instant::now() < deadline, "nobody finished it");
        std::thread::sleep(Duration::from_millis(1));
    }
    bed.ask(change()).unwrap();
    assert_eq!(bed.slots()[4], Some((0, 2)), "the slot is free again");
}

#[test]
fn what_is_to_be_known_is_asked_to_its_end_when_its_caller_gives_up() {
    let bed = begun(vec![Fate::Held, Fate::Held]);
    let (to, from) = std::sync::mpsc::channel();
    let then = move |asked: Result<(Response, Operation), ClientError>| to.send(asked).unwrap();
    let patience = Patience::new(Some(Duration::from_millis(300)), None);
    let asked = bed.link.ask_to_end(change(), None, 1, &patience, then);
    assert!(matches!(asked, Err(ClientError::TimedOut(_))), "{asked:?}");
    bed.fake.until(|said| said.asked.len() == 3);
    assert!(from.try_recv().is_err(), "nobody knows yet");
    bed.fake.release();
    let (response, operation) = from.recv_timeout(NEVER).unwrap().unwrap();
    assert!(response.answer == Answer::Done && matches!(operation, Operation::Rmdir(..)));
    assert_eq!(bed.slots()[1..], [Some((0, 1)); 2], "the same request");
}

/// It would end with the connection, which others use.
#[test]
fn what_has_no_time_left_is_not_sent() {
    let bed = bed(Some(Duration::ZERO), Vec::new());
    assert_eq!(bed.ask(change()), Err(ClientError::TimedOut(Duration::ZERO)));
    assert!(bed.fake.said.lock().asked.is_empty());
}

#[test]
fn what_is_refused_unsent_leaves_its_slot_to_others() {
    let refused = || Fate::Refused(Refusal::NoVolume("v".to_owned()));
    let wait = Some(Duration::from_secs(10));
    let bed = bed(wait, (0..2 * forebay_cluster::SLOTS).map(|_| refused()).collect());
    let patience = Patience::new(wait, None);
    for _ in 0..forebay_cluster::SLOTS {
        assert_eq!(bed.ask(change()), Err(ClientError::NoVolume("v".to_owned())));
        let then = |asked: Result<(Response, Operation), ClientError>| {
            assert_eq!(asked.map(drop), Err(ClientError::NoVolume("v".to_owned())));
        };
        bed.link.ask_to_end(change(), None, 1, &patience, then).unwrap();
    }
    assert_eq!(bed.ask(change()), Ok(Answer::Done));
}

#[test]
fn what_others_wait_for_has_a_slot_though_all_others_wait() {
    let waiting = usize::from(forebay_cluster::SLOTS) - slots::RESERVED;
    let bed = bed(None, (0..waiting).map(|_| Fate::Held).collect());
    std::thread::scope(|scope| {
        for _ in 0..=waiting {
            scope.spawn(|| bed.ask(change()).unwrap());
        }
        bed.fake.until(|said| said.asked.len() == waiting);
        assert_eq!(bed.ask(Operation::Commit(Box::default())), Ok(Answer::Done));
        assert_eq!(bed.ask(Operation::Numbers(1, 1)), Ok(Answer::Done));
        assert_eq!(bed.fake.said.lock().asked.len(), waiting + 2, "the last one waits for a slot");
        bed.fake.release();
    });
    assert_eq!(bed.fake.said.lock().asked.len(), waiting + 3);
}

#[test]
fn a_caller_can_give_up_while_nobody_answers() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    bed.fake.said.lock().greetings.extend((0..1000).map(|_| Refusal::NotOwner { address: None }));
    bed.fake.said.lock().fates.push_back(Fate::Refused(Refusal::NotOwner { address: None }));
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let patience = Patience::new(None, Some(&stopped));
            bed.link.ask(Operation::Inode(Ino::ROOT), None, None, (), &patience).map(drop)
        });
        bed.fake.until(|said| said.hellos.len() > 2);
        stopped.store(true, SeqCst);
        assert_eq!(asking.join().unwrap(), Err(ClientError::Interrupted));
    });
    let soft = Patience::new(Some(Duration::from_millis(50)), None);
    let late = bed.link.ask(Operation::Inode(Ino::ROOT), None, None, (), &soft).map(drop);
    assert_eq!(late, Err(ClientError::TimedOut(Duration::from_millis(50))));
    bed.link.close();
    assert_eq!(bed.ask(change()), Err(ClientError::Closed));
}

#[test]
fn who_is_refused_is_told_why() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    bed.fake.said.lock().greetings.push_back(Refusal::Denied("the token was revoked".to_owned()));
    bed.fake.said.lock().fates.push_back(Fate::Lost);
    assert_eq!(bed.ask(change()), Err(ClientError::Denied("the token was revoked".to_owned())));
}

/// What was sent may be carried out as long as the session lives.
#[test]
fn what_may_be_carried_out_is_asked_again_after_a_refusal() {
    let bed = bed(None, Vec::new());
    bed.ask(change()).unwrap();
    {
        let mut said = bed.fake.said.lock();
        said.greetings.push_back(Refusal::Denied("the token is not known yet".to_owned()));
        said.fates.push_back(Fate::Lost);
    }
    let patience = bed.link.patience();
    let again = bed.link.ask(change(), None, Some(1), (), &patience);
    assert_eq!(again.map(|answered| answered.number), Ok(1));
    assert_eq!(bed.slots(), [Some((0, 1)), Some((0, 2)), Some((0, 2))]);
    assert_eq!(*bed.heard.over.lock(), 0, "nothing is lost");
}

#[test]
fn what_was_done_ahead_is_lost_only_with_its_session() {
    let bed = bed_of(None, Said { term: Some(Duration::from_secs(1)), ..Said::default() });
    bed.ask(change()).unwrap();
    {
        let mut said = bed.fake.said.lock();
        said.refuses = true;
        said.fates.push_back(Fate::Lost);
    }
    let patience = bed.link.patience();
    let lost = bed.link.ask(Operation::Ahead(Vec::new()), None, Some(1), (), &patience);
    assert_eq!(lost.map(drop), Err(ClientError::SessionEnded));
    assert_eq!(*bed.heard.over.lock(), 1, "what is kept of it is given up");
}
