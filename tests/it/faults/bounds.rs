//! Every call keeps its bound, whatever the server and the network do.

use std::io::Write;
use std::net::TcpListener;

use lockson_harness::proxy::HUGE_BULK_HEADER;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::support::prelude::*;
use crate::support::stranger;

#[test]
fn no_call_overruns_its_bound_and_nothing_stays_behind() {
    for some in FAULTS.chunks(AT_ONCE) {
        thread::scope(|scope| {
            for (name, fault, kinds) in some {
                // A panic shows the name.
                let thread = thread::Builder::new().name((*name).to_owned());
                thread.spawn_scoped(scope, || calls_keep_their_bounds(*fault, kinds)).unwrap();
            }
        });
    }
}

fn calls_keep_their_bounds(fault: Fault, kinds: &[ErrorKind]) {
    let (rig, client) = Rig::start().and(|rig| rig.impatient().connect().unwrap());
    let [unlocked, dropped] = ["unlocked", "dropped"].map(|name| client.get_lock(name).lock().unwrap());
    fault(&rig);
    let check = |what: &str, bound: Duration, call: &mut dyn FnMut() -> Result<(), Error>| {
        let (took, answer) = timed(call);
        assert!(took < bound + SCHEDULING, "{what} took {took:?}");
        let error = answer.expect_err(what);
        assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
    };
    let lock = client.get_lock("wanted");
    let wait = ms(400);
    check("try_lock", PATIENCE, &mut || lock.try_lock().map(drop));
    check("try_lock_for", wait + PATIENCE, &mut || lock.try_lock_for(wait).map(drop));
    check("owned try_lock", PATIENCE, &mut || lock.owned().try_lock().map(drop));
    check("lock", PATIENCE * 3, &mut || lock.lock().map(drop));
    check("force_unlock", PATIENCE, &mut || lock.force_unlock().map(drop));
    check("extend", PATIENCE, &mut || dropped.extend(SOON));
    let (took, _) = timed(|| (lock.is_locked(), lock.holder(), lock.remaining_time_to_live()));
    assert!(took < PATIENCE * 3 + SCHEDULING, "three questions took {took:?}");
    let mut unlocked = Some(unlocked);
    check("unlock", PATIENCE, &mut || unlocked.take().unwrap().unlock());
    let (took, ()) = timed(|| drop(dropped));
    assert!(took < PATIENCE / 2 + SCHEDULING, "drop took {took:?}");
    rig.proxy.heal();
    rig.server.resume();
    rig.eventually_no_keys(SOON);
    lock.try_lock_for(SOON).unwrap().expect("everything works again").unlock().unwrap();
}

type Fault = fn(&Rig);

/// How many faults are tested side by side, each with a separate server.
const AT_ONCE: usize = 6;

/// The faults, and the permitted errors: `Connection` where no request can have had an effect, `Unknown` where every
/// request may have had an effect.
const FAULTS: &[(&str, Fault, &[ErrorKind])] = &[
    ("mute", |rig| rig.proxy.mute(Scope::All, Direction::Both), EITHER),
    ("requests lost", |rig| rig.proxy.mute(Scope::All, Direction::Requests), EITHER),
    ("replies lost", |rig| rig.proxy.mute(Scope::All, Direction::Replies), EITHER),
    ("server stopped", |rig| rig.server.pause(), EITHER),
    ("byte by byte", |rig| always(rig, When::any(), Then::SlowReply(ms(150))), EITHER),
    ("refused", |rig| gone(rig, NewConnections::Refuse), CONNECTION),
    ("ignored", |rig| gone(rig, NewConnections::Ignore), CONNECTION),
    ("closed at once", |rig| gone(rig, NewConnections::CloseAtOnce), CONNECTION),
    ("unanswered", |rig| always(rig, When::script(), Then::SwallowReply), UNKNOWN),
    ("cut before each answer", |rig| always(rig, When::script(), Then::CutReplyAfter(0)), UNKNOWN),
    ("garbage", |rig| replaced(rig, b"\0\xff garbage\r\n"), UNKNOWN),
    ("an answer to something else", |rig| replaced(rig, b"+OK\r\n"), UNKNOWN),
    ("a push before the answer", |rig| always(rig, When::script(), Then::InsertIntoReply(0, PUSH.to_vec())), UNKNOWN),
    ("a huge string", |rig| replaced(rig, HUGE_BULK_HEADER), UNKNOWN),
    ("a huge array", |rig| replaced(rig, b"*2147483647\r\n:1\r\n"), UNKNOWN),
    ("deep nesting", |rig| replaced(rig, &b"*1\r\n".repeat(1_000)), UNKNOWN),
    ("a line without end", |rig| replaced(rig, &[b'+'; 200_000]), UNKNOWN),
];

const EITHER: &[ErrorKind] = &[ErrorKind::Connection, ErrorKind::Unknown];
const CONNECTION: &[ErrorKind] = &[ErrorKind::Connection];
const UNKNOWN: &[ErrorKind] = &[ErrorKind::Unknown];
const PUSH: &[u8] = b">2\r\n+invalidate\r\n*1\r\n$1\r\nx\r\n";

fn gone(rig: &Rig, how: NewConnections) {
    rig.proxy.new_connections(how);
    rig.proxy.cut(Scope::All);
}

fn always(rig: &Rig, when: When, then: Then) {
    rig.proxy.rule(when.always(), then);
}

/// Redis executes scripts, but the replies are replaced by these bytes.
fn replaced(rig: &Rig, bytes: &[u8]) {
    always(rig, When::script(), Then::ReplaceReply(bytes.to_vec()));
}

#[test]
fn a_call_of_two_requests_has_the_bound_of_one() {
    at_once([true, false], |inspects| {
        let (rig, held) = Rig::start().and(|rig| rig.direct().get_lock("held").lock().unwrap());
        let limit = ms(4_000);
        let client = rig.builder().command_timeout(limit).connect().unwrap();
        // The first request has its answer after a third of the limit or more, the second one has none.
        rig.proxy.rule(When::any(), Then::SwallowReply);
        let second = if inspects { When::command("CLIENT").containing("LIST") } else { When::script() };
        rig.proxy.rule(second.always(), Then::SwallowReply);
        let (took, is_told) = timed(|| {
            if inspects {
                client.inspect("held").is_ok()
            } else {
                client.get_lock("held").force_unlock_owner(held.owner()).is_err()
            }
        });
        assert!(is_told && took > limit / 2 && took < limit + SCHEDULING, "{took:?}");
    });
}

#[test]
fn connect_takes_no_longer_than_the_command_timeout() {
    let faults: [Fault; 4] = [
        |rig| rig.proxy.mute(Scope::All, Direction::Both),
        |rig| rig.proxy.new_connections(NewConnections::Ignore),
        |rig| always(rig, When::any(), Then::SlowReply(ms(150))),
        |rig| always(rig, When::command("PING"), Then::SwallowReply),
    ];
    at_once(faults, |fault| {
        let rig = Rig::start();
        fault(&rig);
        let (took, answer) = timed(|| rig.impatient().connect());
        let error = answer.unwrap_err();
        assert!(EITHER.contains(&error.kind()), "{error:?}");
        assert!(took < PATIENCE + SCHEDULING, "{took:?}: {error}");
    });
}

#[test]
fn a_server_that_reads_nothing_costs_connect_its_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // More bytes than the 4 MiB that the system takes for a server that does not read. Before the bound begins, the
    // password is read out of the URL, which takes a busy machine a second for so many bytes.
    set_socket_recv_buffer_size(&listener, 1 << 16).unwrap();
    let url = format!("redis://:{}@{}", "x".repeat(5 << 20), listener.local_addr().unwrap());
    let (took, answer) = timed(|| Client::builder(&url).command_timeout(PATIENCE).connect());
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection);
    assert!(took < PATIENCE + SCHEDULING * 3, "{took:?}");
}

#[test]
fn a_try_without_a_server_fails_at_once() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().command_timeout(SOON).connect().unwrap());
    gone(&rig, NewConnections::Refuse);
    let (took, answer) = timed(|| client.get_lock("wanted").try_lock().map(drop));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection);
    assert!(took < SOON / 2, "{took:?}");
}

#[test]
fn the_outage_before_a_call_does_not_count() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock("wanted"));
    gone(&rig, NewConnections::Refuse);
    for attempt in 0..2 {
        let (took, answer) = timed(|| lock.lock().map(drop));
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection);
        // A call gives up when too little of the outage limit is left for another attempt.
        assert!(took > PATIENCE * 3 / 2 && took < PATIENCE * 3 + SCHEDULING, "call {attempt} took {took:?}");
    }
}

#[test]
fn an_unresolvable_host_is_a_connection_error_in_time() {
    let builder = Client::builder("redis://no-such-host.invalid").command_timeout(PATIENCE).outage_limit(PATIENCE);
    let check = |what: &str, call: &dyn Fn() -> Result<(), Error>| {
        let (took, answer) = timed(call);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection, "{what}");
        assert!(took < PATIENCE * 2 + SCHEDULING, "{what} took {took:?}");
    };
    check("connect", &|| builder.clone().connect().map(drop));
    let lock = builder.clone().connect_lazily().unwrap().get_lock("wanted");
    check("try_lock", &|| lock.try_lock().map(drop));
    check("try_lock_for", &|| lock.try_lock_for(PATIENCE).map(drop));
    check("lock", &|| lock.lock().map(drop));
    check("force_unlock", &|| lock.force_unlock().map(drop));
}

#[test]
fn a_server_that_answers_without_end_is_hung_up_on() {
    for start in [&b"+"[..], HUGE_BULK_HEADER, b"*2147483647\r\n", b"*100\r\n$65000\r\n"] {
        let (flood, port) = stranger(move |stream| {
            stream.write_all(start).unwrap();
            let mut taken = 0;
            while stream.write_all(&[b'x'; 64 * 1024]).is_ok() {
                taken += 64 * 1024;
                assert!(taken < 64 << 20, "the client reads without a limit");
            }
        });
        let url = format!("redis://127.0.0.1:{port}");
        let (took, answer) = timed(|| Client::builder(&url).command_timeout(SOON).connect());
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Connection);
        assert!(took < SOON / 2, "{took:?}");
        flood.join().unwrap();
    }
}

#[test]
fn a_busy_lock_is_no_outage() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock("busy"));
    let holder = rig.direct();
    // Twice as long as an outage may be.
    let held = holder.get_lock("busy").with_lease(PATIENCE * 4).lock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
    drop(held);
}

#[test]
fn an_outage_ends_the_wait_of_every_thread_in_line() {
    let (rig, client) = Rig::start().and(|rig| rig.impatient().connect().unwrap());
    let held = rig.direct().get_lock("busy").lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| client.get_lock("busy").lock().map(drop))).collect();
        rig.proxy.wait_for(&rig.script("acquire").nth(2), SOON);
        rig.proxy.mute(Scope::All, Direction::Both);
        let started = Instant::now();
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(EITHER.contains(&error.kind()), "{error}");
        }
        // A sleeping waiter asks within a second; then the outage limit counts.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(1) + PATIENCE * 3 + SCHEDULING, "{took:?}");
    });
    drop(held);
}

#[test]
fn a_full_pool_blocks_a_caller_within_its_bound() {
    let rig = Rig::start();
    let client = rig.builder().max_connections(1).command_timeout(Duration::from_secs(1)).connect().unwrap();
    thread::scope(|scope| {
        let holding = rig.proxy.rule(rig.script("acquire").containing("slow"), Then::HoldReply);
        let slow = scope.spawn(|| client.get_lock("slow").try_lock_for(SOON).map(drop));
        holding.wait_hit(SOON);
        let (took, answer) = timed(|| client.get_lock("other").try_lock().map(drop));
        assert!(took < Duration::from_secs(1) + SCHEDULING, "{took:?}");
        // The slow caller may have lost the connection by then, and left room in the pool.
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
        }
        slow.join().unwrap().unwrap();
    });
    assert_eq!(rig.server.clients_named("lockson"), 1);
}

#[test]
fn a_full_server_is_used_as_soon_as_it_has_room() {
    // Alone, or as the only node of a set, whose master is looked for.
    at_once(["redis", "redis+replicated"], used_as_soon_as_it_has_room);
}

fn used_as_soon_as_it_has_room(scheme: &str) {
    let rig = Rig::start();
    let mut admin = rig.server.connection();
    let mut limit = |most: usize| {
        let () = redis::cmd("CONFIG").arg(&["SET", "maxclients", &most.to_string()]).query(&mut admin).unwrap();
    };
    let url = rig.proxy.url().replacen("redis", scheme, 1);
    let client = Client::builder(&url).command_timeout(PATIENCE).connect_lazily().unwrap();
    let lock = client.get_lock("wanted");
    limit(1);
    for call in [&|| lock.try_lock().map(drop), &|| lock.try_lock_for(PATIENCE).map(drop)] as [&dyn Fn() -> _; 2] {
        let (took, answer) = timed(call);
        let error: Error = answer.unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("MAXCLIENTS")), "{error}");
        assert!(took < PATIENCE * 2 + SCHEDULING, "{took:?}");
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
        let refused = When::any();
        rig.proxy.wait_for_since(rig.proxy.mark(), &refused, SOON);
        limit(100);
        assert!(waiter.join().unwrap());
    });
    eventually(SOON, "the lock was released", || rig.server.keys().is_empty());
}
