//! A lost wake-up costs a waiter at most a second, and listening always recovers.

use std::thread::JoinHandle;

use crate::support::prelude::*;

const NAME: &str = "wake";

/// A second after any loss of a message, plus the time of a request; the locks live for much longer.
const WORST: Duration = ms(1_000);
/// Too soon for a waiter that has just asked and asks again a second later.
const AT_ONCE: Duration = Duration::from_millis(700);

#[test]
fn a_message_that_is_lost_costs_at_most_a_second() {
    let rig = Rig::start();
    let waiter = Waiter::start(&rig);
    let lost = rig.proxy.rule(When::message(), Then::SwallowReply);
    let late = waiter.serve();
    assert!(late < WORST + SCHEDULING, "{late:?}");
    assert_eq!(lost.hits(), 1, "there was a message to lose");
}

#[test]
fn a_waiter_asks_at_once_after_its_listener_was_cut() {
    for subscribes_again in [true, false] {
        let rig = Rig::start();
        let waiter = Waiter::start(&rig);
        waiter.has_just_asked(&rig);
        let cut = rig.proxy.rule(When::message(), Then::CutReplyAfter(0));
        if !subscribes_again {
            rig.proxy.rule(When::command("SUBSCRIBE"), Then::HoldRequest);
        }
        let late = waiter.serve();
        assert!(late < AT_ONCE, "subscribes again: {subscribes_again}; {late:?}");
        assert_eq!(cut.hits(), 1, "there was a message to cut");
    }
}

#[test]
fn a_release_between_two_subscriptions_is_noticed_at_once() {
    let rig = Rig::start();
    let waiter = Waiter::start(&rig);
    let subscribing = rig.proxy.rule(When::command("SUBSCRIBE"), Then::HoldRequest);
    let mark = rig.proxy.mark();
    rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    rig.proxy.wait_for_since(mark, &rig.script("acquire"), SOON); // asked, because nothing is heard now
    subscribing.wait_hit(SOON);
    let Waiter { held, thread } = waiter;
    held.unlock().unwrap();
    let stands = Instant::now();
    subscribing.release();
    let late = thread.join().unwrap() - stands;
    assert!(late < AT_ONCE, "{late:?}");
}

#[test]
fn a_half_open_listener_is_replaced_within_three_seconds() {
    let rig = Rig::start();
    let waiter = Waiter::start(&rig);
    let mark = rig.proxy.mark();
    let listeners = rig.proxy.connections().into_iter().filter(|connection| connection.subscriber);
    for listener in listeners {
        rig.proxy.mute(Scope::Connection(listener.index), Direction::Both);
    }
    let (took, _) = timed(|| rig.proxy.wait_for_since(mark, &When::command("SUBSCRIBE"), SOON));
    assert!(took < Duration::from_secs(3) + SCHEDULING, "{took:?}");
    waiter.has_just_asked(&rig);
    let late = waiter.serve();
    assert!(late < AT_ONCE, "{late:?}");
}

#[test]
fn listening_again_is_told_once() {
    let (rig, events, [name, other]) = (Rig::start(), Events::default(), ["one", "other"].map(fresh));
    let client = rig.builder().observer(events.clone()).connect().unwrap();
    let held = [&name, &other].map(|name| rig.direct().get_lock(name).owned().lock().unwrap());
    thread::scope(|scope| {
        let waits = |name| {
            let lock = client.get_lock(name);
            scope.spawn(move || drop(lock.lock().unwrap()))
        };
        let waiter = waits(&name);
        for outages in 1..=2 {
            eventually(SOON, "the channel is subscribed", || rig.server.subscribers(&channel(&name)) == 1);
            assert_eq!(events.count_of("heard again"), outages - 1, "only after a failure");
            rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            eventually(SOON, "the end of the outage is told", || events.count_of("heard again") == outages);
            assert!(events.count_of("not heard") >= outages);
        }
        let next = waits(&other);
        eventually(SOON, "it is subscribed", || rig.server.subscribers(&channel(&other)) == 1);
        held.into_iter().for_each(|held| held.unlock().unwrap());
        [waiter, next].into_iter().for_each(joined);
    });
    assert_eq!(events.count_of("heard again"), 2);
}

#[test]
fn a_restarted_server_serves_its_waiters_and_holders_are_told() {
    let rig = Rig::start();
    let holder = rig.builder().watchdog(Duration::from_secs(5), ms(200)).connect().unwrap();
    let kept = holder.get_lock("kept").lock().unwrap();
    let waiter = Waiter::start(&rig);
    rig.server.restart();
    let (took, loss) = timed(|| kept.wait_lost(SOON));
    assert_eq!(loss, Some(Loss::Gone));
    assert!(took < Duration::from_secs(2), "not before the deadline but at the next renewal: {took:?}");
    let late = waiter.granted();
    assert!(late < WORST + SCHEDULING, "{late:?}");
    assert_eq!(kept.unlock().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    // Listening works as before.
    let waiter = Waiter::start(&rig);
    waiter.has_just_asked(&rig);
    let late = waiter.serve();
    assert!(late < AT_ONCE, "{late:?}");
}

#[test]
fn a_server_back_after_seconds_serves_its_waiters() {
    let rig = Rig::start();
    let waiter = Waiter::start(&rig);
    let mark = rig.proxy.mark();
    rig.server.kill();
    rig.proxy.cut(Scope::All);
    let lasting = Instant::now() + Duration::from_secs(2);
    eventually(SOON, "the outage is long", || Instant::now() > lasting);
    assert!(!waiter.thread.is_finished());
    rig.server.start_again();
    let late = waiter.granted();
    assert!(late < WORST + SCHEDULING, "{late:?}");
    let dials = rig.proxy.fitting_since(mark, &When::any()).len();
    assert!(dials < 1_000, "no storm: {dials} requests");
}

#[test]
fn a_user_without_subscribe_gets_an_error_not_a_blind_wait() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"]);
    let rig = Rig::around(server);
    let client = Client::connect(&format!("redis://deaf:secret@127.0.0.1:{}", rig.proxy.port())).unwrap();
    let lock = client.get_lock(NAME);
    lock.lock().unwrap().unlock().unwrap(); // a free lock needs no subscription
    let held = rig.direct().get_lock(NAME).lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    for wait in [Duration::from_secs(20), Duration::MAX] {
        let (took, answer) = timed(|| lock.try_lock_for(wait));
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("NOPERM")), "{error}");
        assert_eq!(error.lock_name(), Some(NAME));
        assert!(took < WORST + SCHEDULING, "{took:?}");
    }
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Refused);
    held.unlock().unwrap();
}

#[test]
fn a_refused_or_garbled_subscription_is_repeated() {
    let answers: [&[u8]; 4] =
        [b"-BUSY Redis is busy running a script.\r\n", b"-LOADING Redis is loading\r\n", b"*0\r\n", b"*1\r\n:1\r\n"];
    for answer in answers {
        let rig = Rig::start();
        let odd = rig.proxy.rule(When::command("SUBSCRIBE"), Then::AnswerInstead(answer.to_vec()));
        let waiter = Waiter::start(&rig);
        assert_eq!(odd.hits(), 1);
        waiter.has_just_asked(&rig);
        let late = waiter.serve();
        assert!(late < AT_ONCE, "{}: {late:?}", answer.escape_ascii());
    }
}

#[test]
fn refused_subscriptions_are_repeated_at_growing_intervals() {
    let rig = Rig::start();
    let busy = rig.proxy.rule(
        When::command("SUBSCRIBE").always(),
        Then::AnswerInstead(b"-BUSY Redis is busy running a script.\r\n".to_vec()),
    );
    let client = rig.client();
    let held = rig.direct().get_lock(NAME).lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get_lock(NAME).lock().unwrap().unlock().unwrap());
        // After 50 ms, 100, 200 and 400.
        let asked = busy.wait_hits(5, SOON);
        let within = asked[4].at - asked[0].at;
        assert!(within >= ms(700), "{within:?}");
        busy.remove();
        eventually(SOON, "it listens", || rig.server.subscribers(CHANNEL) == 1);
        held.unlock().unwrap();
        joined(waiter);
    });
}

#[test]
fn a_subscription_that_is_never_confirmed_blocks_no_other_name() {
    let (rig, client) = Rig::start().and(Rig::client);
    let holder = rig.direct();
    let unconfirmed = holder.get_lock("n1").owned().lock().unwrap();
    let rule = rig.proxy.rule(When::command("SUBSCRIBE").containing("{n1}"), Then::SwallowReply);
    let lock = client.get_lock("n1");
    let first = thread::spawn(move || timed(|| lock.try_lock_for(ms(2_500)).map(|guard| guard.is_some())));
    rule.wait_hit(SOON);
    for name in ["n2", "n3"] {
        let (took, waiter) = timed(|| Waiter::start_on(&rig, &client, name));
        assert!(took < ms(1_500) + STANDSTILLS, "{name} is subscribed only after {took:?}");
        waiter.has_just_asked_for(&rig, name);
        let late = waiter.serve();
        assert!(late < AT_ONCE, "{name}: {late:?}");
    }
    let (took, answer) = first.join().unwrap();
    assert!(!answer.unwrap(), "the lock was busy all the time");
    assert!(took < ms(2_500) + SCHEDULING, "the call keeps its own limit: {took:?}");
    unconfirmed.unlock().unwrap();
    // The name is not lost for ever.
    let waiter = Waiter::start_on(&rig, &client, "n1");
    let late = waiter.serve();
    assert!(late < WORST + SCHEDULING, "{late:?}");
}

/// A thread that waits for a lock which another client holds past the proxy.
struct Waiter {
    held: OwnedGuard,
    thread: JoinHandle<Instant>,
}

impl Waiter {
    fn start(rig: &Rig) -> Waiter {
        Waiter::start_on(rig, &rig.client(), NAME)
    }

    /// Waits until the waiter is subscribed.
    fn start_on(rig: &Rig, client: &Client, name: &str) -> Waiter {
        let held = rig.direct().get_lock(name).with_lease(Duration::from_secs(60)).owned().lock().unwrap();
        let lock = client.get_lock(name);
        let thread = thread::spawn(move || {
            let guard = lock.lock().unwrap();
            let granted = Instant::now();
            guard.unlock().unwrap();
            granted
        });
        let channel = format!("redisson_lock__channel:{{{name}}}");
        eventually(SOON, "the channel is subscribed", || rig.server.subscribers(&channel) == 1);
        Waiter { held, thread }
    }

    fn has_just_asked(&self, rig: &Rig) {
        self.has_just_asked_for(rig, NAME);
    }

    /// Waits for a request whose successor is due a second later.
    fn has_just_asked_for(&self, rig: &Rig, name: &str) {
        rig.has_asked_after_its_second(&rig.script("acquire").containing(name));
    }

    /// Releases the lock; returns how long the waiter took to get the lock.
    fn serve(self) -> Duration {
        let released = Instant::now();
        self.held.unlock().unwrap();
        self.thread.join().unwrap() - released
    }

    /// The lock is free already; says how long the waiter takes from now.
    fn granted(self) -> Duration {
        let now = Instant::now();
        let granted = self.thread.join().unwrap();
        self.held.keep_until_expiry();
        granted.saturating_duration_since(now)
    }
}

const CHANNEL: &str = "redisson_lock__channel:{wake}";
