//! A holder learns of every loss, in time and once; no other event is reported as a loss.

use crossbeam_channel::bounded;
use lockson_harness::Stalls;

use crate::support::prelude::*;

/// Long enough for a margin of 200 ms: the test compares the order of two moments, while other tests run.
const LEASE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_secs(1);

#[test]
fn every_holder_is_told_before_the_server_forgets_its_lock() {
    thread::scope(|scope| {
        for (name, fault, server_answers) in FAULTS {
            let thread = thread::Builder::new().name(name.to_owned());
            let trials = Trials { locks: 40, leased: true, lease: LEASE, tick: TICK, before: Duration::ZERO };
            let run = move || {
                let excused = told_in_time(fault, server_answers, &trials);
                assert!(excused <= trials.locks / 2, "this machine stood still too often for a verdict: {excused}");
            };
            thread.spawn_scoped(scope, run).unwrap();
            // The ends are spread: many ends at once would test the machine.
            thread::sleep(TICK / 4);
        }
    });
}

/// The holds that one fault ends.
#[derive(Debug)]
pub(crate) struct Trials {
    pub(crate) locks: usize,
    /// Whether half of the locks have a lease; all others are renewed.
    pub(crate) leased: bool,
    pub(crate) lease: Duration,
    pub(crate) tick: Duration,
    /// How long after the first renewal the fault comes.
    pub(crate) before: Duration,
}

/// The faults, and whether the test can ask the server meanwhile.
pub(crate) const FAULTS: [(&str, Fault, bool); 5] = [
    ("out of reach", |rig| gone(rig, NewConnections::Refuse), true),
    ("dialled in vain", |rig| gone(rig, NewConnections::Ignore), true),
    ("mute", |rig| rig.proxy.mute(Scope::All, Direction::Both), true),
    ("refuses to write", |rig| rig.server.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]), true),
    ("stopped", |rig| rig.server.pause(), false),
];

pub(crate) type Fault = fn(&Rig);

fn gone(rig: &Rig, how: NewConnections) {
    rig.proxy.new_connections(how);
    rig.proxy.cut(Scope::All);
}

/// Checks that every holder learns of the loss before the key ends on the server. Returns the number of late reports
/// that are excused, because this process stood still for at least the delay.
pub(crate) fn told_in_time(fault: Fault, server_answers: bool, trials: &Trials) -> usize {
    let Trials { locks, lease, tick, .. } = *trials;
    let (rig, stalls) = (Rig::start(), Stalls::watch(ms(2), ms(5)));
    let client = rig.builder().watchdog(lease, tick).connect().unwrap();
    let guards: Vec<_> = (0..locks).map(|trial| take(&client, trial, trials)).collect();
    let (tell, told) = unbounded();
    for (trial, guard) in guards.iter().enumerate() {
        let tell = tell.clone();
        guard.on_lost(move |loss| tell.send((trial, *loss, Instant::now())).unwrap());
    }
    let renewal = rig.proxy.wait_for(&rig.script("renew"), SOON);
    rig.proxy.wait_fate(&renewal, SOON);
    thread::sleep(trials.before); // another point of the interval each time
    fault(&rig);
    let ends = server_answers.then(|| (0..locks).map(|trial| end_by_server(&rig, trial)).collect::<Vec<_>>());
    let told: Vec<_> = thread::scope(|scope| {
        // The threads end after the last moment that counts: for the end of a thread the system takes the memory of
        // the process, and hundreds of ends delay all other threads by some ten milliseconds.
        let (_stay, stay) = bounded::<()>(0);
        for (trial, guard) in guards.iter().enumerate() {
            let (tell, stay) = (tell.clone(), stay.clone());
            scope.spawn(move || {
                let loss = guard.wait_lost(lease * 2).expect("the hold is lost");
                tell.send((trial, loss, Instant::now())).unwrap();
                assert!(!guard.is_held());
                let _ = stay.recv();
            });
        }
        (0..locks * 2).map(|_| told.recv_timeout(SOON + lease).expect("each is told twice")).collect()
    });
    let ends = ends.unwrap_or_else(|| (0..locks).map(|trial| end_by_requests(&rig, trial, lease)).collect());
    // By so much a holder stops believing earlier than the server.
    let margin = (lease / 100).max(ms(50)).min(lease / 10);
    let mut excused = BTreeSet::new();
    for (trial, loss, at) in told {
        assert_eq!(loss, Loss::Expired);
        let late = at.saturating_duration_since(ends[trial]);
        if !late.is_zero() {
            let stalled = stalls.between(ends[trial] - margin, at);
            assert!(
                late <= stalled,
                "the loss of lock {trial} was reported {late:?} after the end, stalled for {stalled:?} before"
            );
            excused.insert(trial);
        }
    }
    for guard in guards {
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost(Loss::Expired));
    }
    rig.server.resume();
    excused.len()
}

fn take(client: &Client, trial: usize, trials: &Trials) -> OwnedGuard {
    let lock = client.get_lock(name(trial));
    let lock = if trials.leased && trial % 2 == 1 { lock.with_lease(trials.lease) } else { lock };
    lock.owned().lock().unwrap()
}

fn name(trial: usize) -> String {
    format!("trial-{trial}.")
}

/// The earliest moment at which the key ends, according to the server.
fn end_by_server(rig: &Rig, trial: usize) -> Instant {
    let asked = Instant::now();
    let left = u64::try_from(rig.time_to_live(&name(trial))).expect("it lives");
    asked + ms(left.saturating_sub(1))
}

/// The same for a server that cannot be asked: counted from the last answered request.
fn end_by_requests(rig: &Rig, trial: usize, lease: Duration) -> Instant {
    let answered = |request: &Request| matches!(rig.proxy.fate(request), Fate::Answered(_));
    let mut raising = rig.proxy.fitting(&rig.script("renew").containing(name(trial)));
    raising.extend(rig.proxy.fitting(&rig.script("acquire").containing(name(trial))));
    let last = raising.iter().filter(|request| answered(request)).map(|request| request.at).max();
    last.expect("the lock was acquired") + lease
}

#[test]
fn no_client_believes_in_a_lock_the_server_has_dropped() {
    const LOCKS: usize = 100;
    let (rig, client) = Rig::start().and(|rig| rig.impatient().connect().unwrap());
    let names: Vec<_> = (0..LOCKS).map(|number| format!("short {number}")).collect();
    let lease = |number: usize| ms(400 + 5 * number as u64);
    let take = |number: usize| client.get_lock(&names[number]).with_lease(lease(number)).owned().lock().unwrap();
    let guards: Vec<_> = (0..LOCKS).map(take).collect();
    assert!(guards[LOCKS - 1].is_held());
    rig.proxy.mute(Scope::All, Direction::Both);
    let mut server = rig.server.connection();
    let mut alive = LOCKS;
    while alive > 0 {
        alive = 0;
        for (name, guard) in names.iter().zip(&guards) {
            // In this order: once the server has removed the key, the holder must no longer believe in the hold.
            let there: bool = redis::cmd("EXISTS").arg(name).query(&mut server).unwrap();
            assert!(there || !guard.is_held(), "{name} is believed in");
            alive += usize::from(there);
        }
    }
    assert!(guards.iter().all(|guard| guard.lost() == Some(Loss::Expired)));
}

#[test]
fn the_time_of_a_slow_answer_is_not_believed_in() {
    const SLOW: Duration = Duration::from_millis(400);
    let (rig, client) = Rig::start().and(Rig::client);
    let lock = client.get_lock("slow").with_lease(Duration::from_secs(2));
    let delayed = |verb| rig.proxy.rule(rig.script(verb), Then::DelayReply(SLOW));
    let check = |guard: &lockson::Guard, what: &str| {
        let left = ms(u64::try_from(rig.time_to_live("slow")).unwrap());
        let believed = guard.remaining();
        assert!(believed <= left, "{what}: believed for {believed:?}, but the key ends in {left:?}");
    };
    delayed("acquire");
    let outer = lock.lock().unwrap();
    check(&outer, "acquire");
    delayed("reenter");
    let inner = lock.with_lease(Duration::from_secs(3)).lock().unwrap();
    check(&outer, "re-enter");
    delayed("renew");
    inner.extend(Duration::from_secs(4)).unwrap();
    check(&outer, "extend");
    delayed("release");
    inner.unlock().unwrap();
    check(&outer, "release of one");
    outer.unlock().unwrap();
    let watched = rig.builder().watchdog(Duration::from_secs(4), ms(1_000)).connect().unwrap();
    let guard = watched.get_lock("slow").lock().unwrap();
    rig.proxy.rule(rig.script("renew"), Then::DelayReply(ms(1_000)));
    eventually(SOON, "the renewal is under way", || guard.remaining() < ms(2_700));
    eventually(SOON, "the renewal is believed in", || guard.remaining() > ms(2_700));
    check(&guard, "renew");
}

#[test]
fn a_lost_lock_does_not_disturb_the_next_hold_of_the_same_name() {
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(2), ms(200)).connect().unwrap();
    let lock = client.get_lock("again");
    thread::scope(|scope| {
        let deep: Vec<_> = (0..4).map(|_| lock.lock().unwrap()).collect();
        rig.server.run(&["DEL", "again"]);
        // The lost guards stay alive while another thread takes the lock and needs renewals.
        let next = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            assert_eq!(guard.wait_lost(ms(2_300)), None);
            rig.assert_held_by("again", guard.owner(), 1);
            guard.unlock().unwrap();
        });
        joined(next);
        deep.into_iter().rev().for_each(|guard| assert!(guard.unlock().is_err()));
    });
}

#[test]
fn a_force_unlock_reaches_a_listening_holder_in_a_tenth_second() {
    let rig = Rig::start();
    let (holder, other) = (rig.client(), rig.direct());
    for leased in [false, true] {
        let usual = median(9, |_| time_to_tell(&rig, &holder, &other, leased));
        assert!(usual < ms(100), "leased: {leased}, {usual:?}");
    }
}

#[test]
fn a_message_is_verified_at_once_without_a_grant_here() {
    let rig = Rig::start();
    let client = rig.client(); // the next renewal is ten seconds away
    let stranger = "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], 'stranger:1', 1)
        redis.call('pexpire', KEYS[1], 30000) redis.call('publish', ARGV[1], '0')";
    for leased in [false, true] {
        let name = if leased { "leased" } else { "watched" };
        let lock = if leased { client.get_lock(name).with_lease(LEASE) } else { client.get_lock(name) };
        let (guard, cancel) = (lock.lock().unwrap(), Cancel::new());
        let channel = format!("redisson_lock__channel:{{{name}}}");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.with_cancel(&cancel).lock().map(drop));
            eventually(SOON, "somebody listens", || rig.server.subscribers(&channel) == 1);
            rig.server.run(&["EVAL", stranger, "1", name, &channel]);
            let (took, loss) = timed(|| guard.wait_lost(SOON / 2));
            cancel.cancel();
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(loss, Some(Loss::Taken), "{name}: told only after {took:?}");
        });
    }
}

/// How long until a holder learns of a foreign `force_unlock`, with a waiter in the holder's process.
fn time_to_tell(rig: &Rig, holder: &Client, other: &Client, leased: bool) -> Duration {
    let lock = holder.get_lock("forced");
    let guard = if leased { lock.with_lease(LEASE).lock().unwrap() } else { lock.lock().unwrap() };
    let (tell, told) = unbounded();
    guard.on_lost(move |loss| tell.send((*loss, Instant::now())).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        eventually(SOON, "somebody listens", || rig.server.subscribers("redisson_lock__channel:{forced}") == 1);
        let forced = Instant::now();
        assert!(other.get_lock("forced").force_unlock().unwrap());
        let (loss, at) = told.recv_timeout(SOON).expect("the loss is reported");
        assert!(matches!(loss, Loss::Gone | Loss::Taken), "told only after {:?}: {loss:?}", at - forced);
        joined(waiter);
        at - forced
    })
}

#[test]
fn a_holder_cut_off_for_too_long_spares_the_next_holder() {
    let rig = Rig::start();
    let client = rig.impatient().watchdog(Duration::from_secs(1), ms(100)).connect().unwrap();
    let lock = client.get_lock("mine");
    let guard = lock.lock().unwrap();
    rig.proxy.mute(Scope::All, Direction::Both);
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
    let next = rig.direct().get_lock("mine").lock().unwrap();
    rig.proxy.heal();
    let mark = rig.proxy.mark();
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Lost(Loss::Expired), "no silent second hold");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost(Loss::Expired));
    // The background cleans up the lost hold, not the next hold.
    let cleared = rig.proxy.wait_for_since(mark, &rig.release(false), SOON);
    rig.proxy.wait_fate(&cleared, SOON);
    rig.assert_held_by("mine", next.owner(), 1);
    assert!(lock.try_lock().unwrap().is_none());
    next.unlock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
}
