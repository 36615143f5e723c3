//! Closing and dropping are bounded whatever the server does, and no text shows a secret.

use std::error::Error as _;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

use lockson::{LockLost, Observer, ReleaseFailed, RenewalFailed, ServerTrouble};

use crate::support::prelude::*;

/// The default limit of dropping and closing.
const DROP_LIMIT: Duration = Duration::from_secs(1);

#[test]
fn close_ends_blocked_callers_in_time_on_a_mute_server() {
    close_is_bounded(DROP_LIMIT * 4 / 5, |rig| rig.proxy.mute(Scope::All, Direction::Both));
}

#[test]
fn close_ends_blocked_callers_in_time_without_a_server() {
    // A sleeping waiter sends a request, because its listener broke.
    close_is_bounded(DROP_LIMIT + SCHEDULING, |rig| {
        rig.proxy.new_connections(NewConnections::Ignore);
        rig.proxy.cut(Scope::All);
    });
}

/// `soon` bounds the end of sleeping callers, which wait for no server.
fn close_is_bounded(soon: Duration, fault: fn(&Rig)) {
    const WANTING: usize = 6;
    let rig = Rig::start();
    // Two connections, so that some callers wait for a connection.
    let client = rig.builder().max_connections(2).connect().unwrap();
    let holder = Client::builder(&rig.server.url()).client_name("holder").connect().unwrap();
    let busy = holder.get_lock("busy").lock().unwrap();
    let held = client.get_lock("held").owned().lock().unwrap();
    let unlocked = client.get_lock("unlocked").owned().lock().unwrap();
    let started = &Barrier::new(WANTING + 2);
    thread::scope(|scope| {
        // These callers are asleep at the fault, the first on its channel and the others in the local queue.
        let sleep = || (client.get_lock("busy").lock().map(drop), Instant::now());
        let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(sleep)).collect();
        eventually(SOON, "the first waiter listens", || rig.server.channels().len() == 1);
        rig.has_asked_after_its_second(&rig.script("acquire"));
        fault(&rig);
        let mut callers = vec![];
        for number in 0..WANTING {
            let lock = client.get_lock(format!("wanted {number}"));
            callers.push(scope.spawn(move || {
                started.wait();
                if number == 0 { lock.owned().try_lock_for(Duration::MAX).map(drop) } else { lock.lock().map(drop) }
            }));
        }
        let giving_back = scope.spawn(move || {
            started.wait();
            unlocked.unlock()
        });
        let watching = scope.spawn(|| held.wait_lost(SOON * 2));
        started.wait();

        let closing = Instant::now();
        let (took, ()) = timed(|| client.close());
        assert!(took < DROP_LIMIT + SCHEDULING, "{took:?}");
        for sleeper in sleepers {
            let (answer, at) = joined(sleeper);
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
            assert!(at - closing < soon, "{:?}", at - closing);
        }
        for caller in callers {
            let error = joined(caller).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
        }
        assert!(joined(giving_back).is_err());
        assert_eq!(joined(watching), Some(Loss::Closed));
        assert!(closing.elapsed() < DROP_LIMIT + SCHEDULING, "{:?}", closing.elapsed());
    });
    rig.proxy.heal();
    eventually(SOON, "all connections are closed", || rig.server.clients_named("lockson") == 0);
    let _last = rig.builder().client_name("last").connect().unwrap(); // let in after all who stood at the door
    let connections = rig.proxy.connections_made();
    // Long enough for any retry: a broken listener reconnects after a twentieth of a second.
    thread::sleep(ms(500));
    assert_eq!(rig.proxy.connections_made(), connections, "a closed client connects");
    drop(busy);
}

#[test]
fn close_gives_all_holds_back_at_once() {
    const HOLDS: usize = 50;
    let (rig, client) = Rig::start().and(|rig| rig.builder().drop_timeout(SOON).connect().unwrap());
    let guards: Vec<_> = (0..HOLDS).map(|number| client.get_lock(format!("held:{number}")).lock().unwrap()).collect();
    let release = rig.script("release");
    let replies = rig.proxy.rule(release.clone().always(), Then::HoldReply);
    thread::scope(|scope| {
        let closing = scope.spawn(|| client.close());
        eventually(SOON, "no release waits for the reply of another", || rig.proxy.count(&release) >= HOLDS);
        replies.release();
        joined(closing);
    });
    rig.assert_no_keys();
    assert!(guards.iter().all(|guard| guard.lost() == Some(Loss::Closed)));
}

#[test]
fn dropping_a_guard_is_bounded_and_made_up_for_later() {
    let faults: [fn(&Rig); 4] = [
        |rig| rig.proxy.mute(Scope::All, Direction::Both),
        |rig| rig.server.pause(),
        |rig| {
            rig.proxy.new_connections(NewConnections::Refuse);
            rig.proxy.cut(Scope::All);
        },
        |rig| drop(rig.proxy.rule(rig.release(false).always(), Then::SwallowReply)),
    ];
    at_once(faults, |fault| {
        let rig = Rig::start();
        let notes = Sheet::default();
        let client = rig.builder().command_timeout(PATIENCE * 2).drop_timeout(PATIENCE).observer(notes.clone());
        let client = client.connect().unwrap();
        let guard = client.get_lock("dropped").lock().unwrap();
        fault(&rig);
        let (took, ()) = timed(|| drop(guard));
        assert!(took < PATIENCE + SCHEDULING, "{took:?}");
        assert!(!client.get_lock("dropped").is_held_by_current_thread());
        assert!(notes.text().contains("ReleaseFailed"), "the observer is told");
        rig.proxy.heal();
        rig.server.resume();
        rig.eventually_no_keys(SOON);
    });
}

#[test]
fn a_panic_drops_its_guard_once_and_in_time_on_a_mute_server() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().drop_timeout(PATIENCE).connect().unwrap());
    let (took, outcome) = timed(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let _outer = client.get_lock("panicked").lock().unwrap();
            let _inner = client.get_lock("panicked").lock().unwrap();
            rig.proxy.mute(Scope::All, Direction::Both);
            resume_unwind(Box::new("a panic that prints nothing: that takes its own time"));
        }))
    });
    assert!(outcome.is_err());
    assert!(took < PATIENCE * 2 + SCHEDULING, "{took:?}");
    rig.proxy.heal();
    rig.eventually_no_keys(SOON);
    client.get_lock("panicked").lock().unwrap().unlock().unwrap();
}

#[test]
fn the_last_handle_goes_in_time_though_the_server_is_mute() {
    let (rig, client) = Rig::start().and(Rig::client);
    client.get_lock("used").lock().unwrap().unlock().unwrap();
    rig.proxy.mute(Scope::All, Direction::Both);
    let (took, ()) = timed(|| drop(client));
    assert!(took < DROP_LIMIT + SCHEDULING, "{took:?}");
    rig.proxy.heal();
    eventually(SOON, "all connections are closed", || rig.server.clients().is_empty());
}

#[test]
fn a_password_appears_in_no_text() {
    for protocol in ["", "/?protocol=resp3"] {
        let rig = Rig::around(RedisServer::builder().password(CANARY).start());
        let sheet = Sheet::default();
        let url = format!("redis://:{CANARY}@127.0.0.1:{}{protocol}", rig.proxy.port());
        let builder = Client::builder(&url)
            .command_timeout(PATIENCE)
            .drop_timeout(PATIENCE)
            .watchdog(Duration::from_secs(1), ms(100))
            .observer(sheet.clone());
        sheet.add(&builder);
        let client = builder.clone().connect().unwrap();
        let lock = client.get_lock("secret");
        let guard = lock.lock().unwrap();
        sheet.add(&(&client, &lock, &lock.owned(), &guard, client.held(), lock.holder().unwrap()));
        let faults: [fn(&Rig); 4] = [
            |rig| rig.proxy.mute(Scope::All, Direction::Both),
            |rig| rig.proxy.new_connections(NewConnections::Refuse),
            |rig| drop(rig.proxy.rule(When::any().always(), Then::ReplaceReply(b"\xff?\r\n".to_vec()))),
            |rig| drop(rig.proxy.rule(When::any().always(), Then::SwallowReply)),
        ];
        for fault in faults {
            fault(&rig);
            rig.proxy.cut(Scope::All);
            let errors = [
                lock.owned().try_lock().map(drop).unwrap_err(),
                lock.force_unlock().map(drop).unwrap_err(),
                lock.holder().map(drop).unwrap_err(),
                builder.clone().connect().map(drop).unwrap_err(),
            ];
            errors.iter().for_each(|error| sheet.add_error(error));
            rig.proxy.heal();
        }
        if let Err(error) = guard.unlock() {
            sheet.add_error(&error);
        }
        let wrong = Client::connect(&url.replace(CANARY, &format!("{CANARY}x"))).unwrap_err();
        sheet.add_error(&wrong);
        assert!(sheet.text().contains("RenewalFailed") && sheet.text().contains("LockLost"));
        sheet.assert_no_canary();
    }
}

#[test]
fn a_password_echoed_in_a_refusal_is_hidden() {
    // Servers quote unknown commands: this server knows neither AUTH nor HELLO.
    for (renamed, protocol) in [("AUTH", ""), ("HELLO", "?protocol=resp3")] {
        let server = RedisServer::builder().config(format!("rename-command {renamed} \"\"")).start();
        for user in ["", "somebody"] {
            let url = format!("redis://{user}:{CANARY}@127.0.0.1:{}/{protocol}", server.port());
            let error = Client::connect(&url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            let sheet = Sheet::default();
            sheet.add_error(&error);
            sheet.assert_no_canary();
        }
    }
}

const CANARY: &str = "canary-7Qz";

/// Records every text that a user could see.
#[derive(Clone, Debug, Default)]
struct Sheet(Arc<Mutex<String>>);

impl Sheet {
    fn add(&self, shown: &dyn Debug) {
        *self.0.lock() += &format!("{shown:?}\n{shown:#?}\n");
    }

    fn add_error(&self, error: &Error) {
        self.add(error);
        *self.0.lock() += &format!("{error}\n{:?}\n", error.redis_word());
        let mut source = error.source();
        while let Some(error) = source {
            *self.0.lock() += &format!("{error}\n{error:?}\n");
            source = error.source();
        }
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }

    #[track_caller]
    fn assert_no_canary(&self) {
        let text = self.text();
        let shown = text.lines().find(|line| line.contains(CANARY));
        assert!(shown.is_none(), "{shown:?}");
    }
}

impl Observer for Sheet {
    fn lost(&self, event: &LockLost) {
        self.add(event);
    }

    fn release_failed(&self, event: &ReleaseFailed) {
        self.add(event);
        self.add_error(event.error());
    }

    fn renewal_failed(&self, event: &RenewalFailed) {
        self.add(event);
        self.add_error(event.error());
    }

    fn listening_failed(&self, event: &ServerTrouble) {
        self.add(event);
        self.add_error(event.error());
    }
}
