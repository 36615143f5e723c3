//! A release hands the lock to a thread of the same process that waits for it, and nothing comes of it twice.

use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender};
use lockson::{Observer, WaitLasts};

use super::exactly_once::at_every_byte;
use crate::support::prelude::*;

const NAME: &str = "handed";

/// Waits for the lock in a thread of its own, which is asleep when this returns. It gives its owner and gives the lock
/// back.
fn waiter<'scope>(
    scope: &'scope Scope<'scope, '_>,
    client: &Client,
    lock: Lock,
) -> ScopedJoinHandle<'scope, Result<String, ErrorKind>> {
    let before = client.waiting().len();
    let (tell, told) = std::sync::mpsc::channel();
    let handle = scope.spawn(move || {
        tell.send(std::fs::read_link("/proc/thread-self")).unwrap();
        let guard = lock.lock().map_err(|error| error.kind())?;
        assert!(guard.is_held());
        let owner = guard.owner().to_owned();
        guard.unlock().map_err(|error| error.kind())?;
        Ok(owner)
    });
    let thread = told.recv().unwrap();
    // The list has the thread right before the thread sleeps.
    let sleeps = || {
        let stat = thread.as_ref().map(|thread| std::fs::read_to_string(format!("/proc/{}/stat", thread.display())));
        client.waiting().len() > before && !matches!(stat, Ok(Ok(stat)) if !stat.contains(") S "))
    };
    eventually(SOON, "the thread sleeps", sleeps);
    handle
}

/// Lets this client hear the channel, so that a waiter asks once and sleeps.
fn hears(rig: &Rig, client: &Client) {
    let lock = client.get_lock(NAME);
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting = waiter(scope, client, lock.clone());
        // It asks before the subscription, during it, and once more when the client knows the subscription.
        eventually(SOON, "the channel is heard", || rig.proxy.count(&rig.script("acquire")) == 4);
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// A server behind a proxy, a client that hears the channel, and its lock.
fn hearing(make: fn(&Rig) -> Client) -> (Rig, Client, Lock) {
    let (rig, client) = Rig::start().and(make);
    hears(&rig, &client);
    let lock = client.get_lock(NAME);
    (rig, client, lock)
}

#[test]
fn a_release_hands_the_lock_on_with_an_owner_of_its_own() {
    let (rig, client, lock) = hearing(Rig::client);
    let guard = lock.owned().lock().unwrap();
    let first = guard.owner().to_owned();
    let leased = lock.with_lease(Duration::from_secs(60));
    thread::scope(|scope| {
        let handed = rig.proxy.rule(rig.script("hand_on"), Then::HoldReply);
        let waiting = waiter(scope, &client, leased);
        let mark = rig.proxy.mark();
        let releasing = scope.spawn(|| guard.unlock());
        handed.wait_hit(SOON);
        eventually(SOON, "another owner has the lock", || !rig.fields(NAME).contains_key(&first));
        let fields = rig.fields(NAME);
        assert!((59_000..=60_000).contains(&rig.time_to_live(NAME)));
        assert_eq!(client.held().len(), 0, "nobody believes before the answer");
        handed.release();
        joined(releasing).unwrap();
        let second = waiting.join().unwrap().unwrap();
        assert_eq!(fields.into_iter().collect::<Vec<_>>(), [(second, "1".to_owned())]);
        assert_eq!(rig.proxy.fitting_since(mark, &rig.script("acquire")).len(), 0, "no thread asked");
        assert_eq!(rig.proxy.fitting_since(mark, &rig.script("release")).len(), 1, "the last one released");
    });
    rig.assert_no_keys();
}

#[test]
fn a_hand_on_cut_at_any_byte_has_one_holder() {
    let (rig, client, lock) = hearing(Rig::client);
    thread::scope(|scope| {
        at_every_byte(
            &rig,
            &rig.script("hand_on"),
            || (lock.lock().unwrap(), waiter(scope, &client, lock.clone())),
            |(guard, waiting)| {
                let first = guard.owner().to_owned();
                guard.unlock().unwrap();
                assert_ne!(waiting.join().unwrap().unwrap(), first);
                rig.assert_no_keys();
            },
        );
    });
}

#[test]
fn a_thread_that_leaves_while_it_is_chosen_leaves_nothing() {
    for answered in [true, false] {
        let (rig, client, lock) = hearing(|rig| rig.impatient().connect().unwrap());
        let cancel = lockson::Cancel::new();
        let guard = lock.owned().lock().unwrap();
        thread::scope(|scope| {
            let waiting = waiter(scope, &client, lock.with_cancel(&cancel));
            let then = if answered { Then::HoldRequest } else { Then::SwallowReply };
            let handing = rig.proxy.rule(rig.script("hand_on").always(), then);
            let releasing = scope.spawn(|| guard.unlock().map_err(|error| error.kind()));
            handing.wait_hit(SOON);
            let (took, left) = timed(|| {
                cancel.cancel();
                waiting.join().unwrap()
            });
            assert_eq!(left, Err(ErrorKind::Cancelled));
            assert!(took < PATIENCE / 2, "the wait ends at once: {took:?}");
            handing.remove();
            handing.release();
            let _ = joined(releasing);
        });
        rig.eventually_no_keys(SOON);
        assert!(lock.try_lock().unwrap().is_some());
    }
}

#[test]
fn a_hand_on_without_an_answer_leaves_the_lock_to_its_waiter() {
    let (rig, client, lock) = hearing(|rig| rig.impatient().connect().unwrap());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting = waiter(scope, &client, lock.clone());
        let mute = rig.proxy.rule(rig.script("hand_on").always(), Then::SwallowReply);
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Unknown);
        let (took, served) = timed(|| waiting.join().unwrap());
        served.unwrap();
        assert!(took < SOON, "{took:?}");
        assert!(mute.hits() > 0);
    });
    rig.eventually_no_keys(SOON);
}

#[test]
fn a_lock_that_was_lost_is_not_handed_on() {
    for taken in [false, true] {
        let (rig, client, lock) = hearing(Rig::client);
        let guard = lock.owned().lock().unwrap();
        thread::scope(|scope| {
            let waiting = waiter(scope, &client, lock.clone());
            let held = rig.proxy.rule(rig.script("hand_on"), Then::HoldRequest);
            let releasing = scope.spawn(|| guard.unlock());
            held.wait_hit(SOON);
            rig.server.run(&["DEL", NAME]);
            if taken {
                rig.server.run(&["HSET", NAME, "11111111-2222-3333-4444-555555555555:1", "1"]);
                rig.server.run(&["PEXPIRE", NAME, "300"]);
            }
            held.release();
            let lost = joined(releasing).unwrap_err();
            assert_eq!(lost.loss(), Some(if taken { Loss::Taken } else { Loss::Gone }));
            waiting.join().unwrap().unwrap();
        });
        rig.assert_no_keys();
    }
}

#[test]
fn a_refused_hand_on_becomes_a_release() {
    let (rig, client, lock) = hearing(Rig::client);
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting = waiter(scope, &client, lock.clone());
        let text = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n".to_vec();
        let refused = rig.proxy.rule(rig.script("hand_on"), Then::AnswerInstead(text));
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
        assert_eq!(refused.hits(), 1);
    });
    rig.assert_no_keys();
}

/// A chosen thread asks by itself when its sleep ends, also while the release that has chosen it hangs, which later
/// clears away the owner that it would have handed the lock to.
#[test]
fn a_chosen_thread_is_not_tied_to_a_release_that_hangs() {
    let (rig, client, lock) = hearing(Rig::client);
    let guard = lock.with_lease(ms(200)).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiting = waiter(scope, &client, lock.clone());
        let hangs = rig.proxy.rule(rig.script("hand_on"), Then::HoldRequest);
        let releasing = scope.spawn(|| guard.unlock());
        let handed = hangs.wait_hit(SOON);
        let (took, served) = timed(|| waiting.join().unwrap());
        assert!(!handed.contains(served.unwrap()), "an owner of its own");
        assert!(took < ms(700), "the lock was free after 200 ms: {took:?}");
        hangs.release();
        assert_eq!(joined(releasing).unwrap_err().loss(), Some(Loss::Expired));
    });
    rig.eventually_no_keys(SOON);
}

/// The first thread asks before it joins the queue, and the others come while its answer is on its way.
#[test]
fn a_thread_that_asked_ahead_is_served_first() {
    let rig = Rig::start();
    let (guard, client) = (rig.direct().get_lock(NAME).owned().lock().unwrap(), rig.client());
    let (lock, (tell, told)) = (client.get_lock(NAME), unbounded());
    let first = rig.proxy.rule(rig.script("acquire"), Then::HoldReply);
    thread::scope(|scope| {
        for number in 0..3 {
            let (lock, tell) = (lock.clone(), tell.clone());
            scope.spawn(move || {
                let _guard = lock.lock().unwrap();
                tell.send(number).unwrap();
            });
            if number == 0 {
                first.wait_hit(SOON);
            } else {
                eventually(SOON, "the next one waits", || client.waiting().len() == number);
            }
        }
        first.release();
        eventually(SOON, "all wait", || client.waiting().len() == 3);
        guard.unlock().unwrap();
    });
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

/// The thread that asked ahead hears "busy" while the lock is handed to the first in line, and comes in front of it.
#[test]
fn a_lock_is_handed_to_a_thread_that_another_came_before() {
    let (rig, client) = Rig::start().and(Rig::client);
    let lock = client.get_lock(NAME);
    let guard = lock.owned().lock().unwrap();
    let ahead = rig.proxy.rule(rig.script("acquire"), Then::HoldReply);
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().unwrap().unlock());
        ahead.wait_hit(SOON);
        // As in `hears`, by a thread that gives up. The holder and the thread ahead have asked, too.
        let cancel = Cancel::new();
        let gives_up = waiter(scope, &client, lock.with_cancel(&cancel));
        eventually(SOON, "the channel is heard", || rig.proxy.count(&rig.script("acquire")) == 5);
        cancel.cancel();
        assert_eq!(gives_up.join().unwrap(), Err(ErrorKind::Cancelled));
        let second = waiter(scope, &client, lock.clone());
        let handed = rig.proxy.rule(rig.script("hand_on"), Then::HoldReply);
        let releasing = scope.spawn(|| guard.unlock());
        handed.wait_hit(SOON);
        ahead.release();
        eventually(SOON, "both wait", || client.waiting().len() == 2);
        handed.release();
        let (took, served) = timed(|| second.join().unwrap());
        served.unwrap();
        assert!(took < ms(700), "the lock was handed to it: {took:?}");
        joined(releasing).unwrap();
        joined(first).unwrap();
    });
    rig.assert_no_keys();
}

/// The first thread in line sleeps on, so that the lock can be handed to it.
#[test]
fn threads_that_give_up_wake_nobody() {
    let (rig, client, lock) = hearing(Rig::client);
    let guard = lock.owned().lock().unwrap();
    thread::scope(|scope| {
        let waiting = waiter(scope, &client, lock.clone());
        let mark = rig.proxy.mark();
        for _ in 0..20 {
            assert!(lock.try_lock_for(ms(1)).unwrap().is_none());
        }
        // The first one asks by itself once a second.
        let asked = rig.proxy.fitting_since(mark, &rig.script("acquire")).len();
        assert!(asked <= 25, "{asked} questions");
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Threads of one process that hand the lock on and on do not keep it: another client hears a message.
#[test]
fn another_client_is_served_beside_a_lock_that_is_handed_on() {
    for (threads, section) in [(8, ms(0)), (2, ms(1)), (3, ms(10))] {
        let server = RedisServer::start();
        let [busy, other] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
        let (lock, done) = (busy.get_lock(NAME), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        thread::sleep(section);
                        guard.unlock().unwrap();
                    }
                });
            }
            eventually(SOON, "the lock is handed on", || server.calls_of("hexists") > 20);
            for _ in 0..10 {
                let (took, guard) = timed(|| other.get_lock(NAME).lock().unwrap());
                assert!(took < ms(700), "beside {threads} threads of {section:?}: {took:?}");
                guard.unlock().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// A lock of another kind and a member of several locks are taken by a request of their own.
#[test]
fn other_waits_for_the_name_are_not_handed_the_lock() {
    for what in ["spin", "fenced", "several"] {
        let (rig, client) = Rig::start().and(Rig::client);
        hears(&rig, &client);
        let (guard, mark) = (client.get_lock(NAME).lock().unwrap(), rig.proxy.mark());
        thread::scope(|scope| {
            let wanted = match what {
                "spin" => client.get_spin_lock(NAME),
                "fenced" => client.get_fenced_lock(NAME).into(),
                _ => Lock::multi([client.get_lock(NAME), client.get_lock(fresh("other"))]),
            };
            let waiting = waiter(scope, &client, wanted);
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap_or_else(|error| panic!("{what}: {error:?}"));
        });
        assert_eq!(rig.proxy.fitting_since(mark, &rig.script("hand_on")).len(), 0, "{what}");
    }
}

/// Holds up each thread that tells of its long wait, from the time on that it is told to.
#[derive(Debug)]
struct Talks(Arc<AtomicBool>, Sender<String>, Receiver<()>);

impl Observer for Talks {
    fn still_waiting(&self, event: &WaitLasts) {
        if self.0.load(Ordering::Acquire) {
            self.1.send(event.owner().to_owned()).unwrap();
            self.2.recv_timeout(SOON).unwrap();
        }
    }
}

#[test]
fn a_thread_that_tells_of_its_wait_is_not_handed_the_lock() {
    let rig = Rig::start();
    let ((tell, told), (go, goes), talks) = (unbounded(), unbounded(), Arc::new(AtomicBool::new(false)));
    let observer = Talks(Arc::clone(&talks), tell, goes);
    let client = rig.builder().watchdog(ms(1_000), ms(100)).observer(observer).connect().unwrap();
    hears(&rig, &client);
    talks.store(true, Ordering::Release);
    let lock = client.get_lock(NAME);
    let guard = lock.owned().lock().unwrap();
    let mark = rig.proxy.mark();
    thread::scope(|scope| {
        let waiting = waiter(scope, &client, lock);
        let owner = told.recv_timeout(SOON).unwrap();
        guard.unlock().unwrap();
        go.send(()).unwrap();
        assert_eq!(joined(waiting), Ok(owner));
    });
    assert_eq!(
        rig.proxy.fitting_since(mark, &rig.script("hand_on")).len(),
        0,
        "a thread was chosen that did not sleep"
    );
    assert!(told.is_empty(), "it is told once");
    rig.assert_no_keys();
}
