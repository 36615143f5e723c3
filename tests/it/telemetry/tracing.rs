//! The spans and events of the crate `tracing`.

use std::fmt::{Debug, Write};
use std::sync::OnceLock;

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::subscriber::set_global_default;
use ::tracing::{Event, Metadata, Subscriber};
use lockson::{LockAcquired, Observer};
use lockson_telemetry::TracingObserver;

use super::scene;
use crate::support::prelude::*;

/// Every event and every closed span of Lockson, as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Seen>>);

impl Lines {
    /// The one subscriber of the process.
    fn shared() -> &'static Self {
        static LINES: OnceLock<Lines> = OnceLock::new();
        LINES.get_or_init(|| {
            let lines = Self::default();
            set_global_default(lines.clone()).unwrap();
            lines
        })
    }

    /// The lines about a lock, and the number of its open spans.
    fn of(&self, name: &str) -> (Vec<String>, usize) {
        let (seen, lock) = (self.0.lock(), format!("lock={name:?} "));
        let open = seen.open.values().filter(|Words(words)| words.contains(&lock)).count();
        (seen.lines.iter().filter(|line| line.contains(&lock)).cloned().collect(), open)
    }

    /// The outcomes of the ended holds of a lock, where none is open.
    #[track_caller]
    fn ends_of(&self, name: &str) -> Vec<String> {
        let (lines, open) = self.of(name);
        assert_eq!(open, 0, "{name}: {lines:#?}");
        let holds = lines.iter().filter(|line| line.contains(" span hold "));
        holds.filter_map(|line| Some(line.split_once("outcome=")?.1.trim_matches('"').to_owned())).collect()
    }
}

#[derive(Default)]
struct Seen {
    open: BTreeMap<u64, Words>,
    lines: Vec<String>,
    spans: u64,
}

/// The fields as text; of owners, servers, durations and errors only the names.
#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let has_value = matches!(field.name(), "message" | "lock" | "kind" | "outcome" | "locks");
        let value = if has_value { format!("={value:?}") } else { String::new() };
        write!(self.0, " {field}{value}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "lockson"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut words = Words(format!("{} span {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut words);
        assert!(span.is_contextual(), "a child of the span of the caller");
        let mut seen = self.0.lock();
        seen.spans += 1;
        let id = seen.spans;
        seen.open.insert(id, words);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(self.0.lock().open.get_mut(&span.into_u64()).unwrap());
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(event.metadata().level().to_string());
        event.record(&mut words);
        self.0.lock().lines.push(words.0);
    }

    fn try_close(&self, span: Id) -> bool {
        let mut seen = self.0.lock();
        let Words(line) = seen.open.remove(&span.into_u64()).unwrap();
        seen.lines.push(line);
        true
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_wait_is_a_span_and_the_rest_are_events() {
    let lines = Lines::shared();
    let name = scene(TracingObserver::new());
    let (of_lock, open) = lines.of(&name);
    assert_eq!(open, 0, "no span is left open");
    let lock = format!("lock={name:?} kind=\"plain\"");
    let ended = |outcome: &str| {
        format!("DEBUG message=a call for a lock ended {lock} owner outcome={outcome:?} waited_seconds")
    };
    let hold = |outcome: &str| format!("DEBUG span hold {lock} owner outcome={outcome:?}");
    let lost = |loss: &str| format!("ERROR message=a lock was lost {lock} owner outcome={loss:?}");
    let expected = [
        ended("busy"),
        format!("DEBUG span wait {lock} owner outcome=\"acquired\""),
        ended("acquired"),
        format!("DEBUG message=a lock was released {lock} owner held_seconds"),
        hold("released"),
        ended("acquired"),
        lost("gone"),
        hold("gone"),
        ended("acquired"),
        format!("ERROR message=a thread ended without releasing its lock {lock} owner"),
        hold("abandoned"),
        lost("closed"),
    ];
    assert_eq!(of_lock, expected);
    let seen = lines.0.lock();
    for of_server in [
        "WARN message=the listening connection failed server error",
        "INFO message=messages are heard again server outage_seconds",
        "WARN message=locks were not renewed server locks=1 remaining_seconds error",
        "INFO message=renewals work again server outage_seconds",
        "TRACE message=locks were renewed server locks=1",
    ] {
        assert!(seen.lines.iter().any(|line| line == of_server), "{of_server}: {:#?}", seen.lines);
    }
}

#[test]
fn each_hold_is_a_span_that_ends_with_its_outcome() {
    let (lines, rig, observer) = (Lines::shared(), Rig::start(), TracingObserver::new());
    let client = rig.impatient().observer(observer.clone()).connect().unwrap();
    let check = |outcomes: &[&str], hold: &dyn Fn(&str)| {
        let name = fresh("span");
        hold(&name);
        eventually(SOON, "the hold has ended", || lines.of(&name).1 == 0);
        assert_eq!(lines.ends_of(&name), outcomes);
    };
    let leased = |name: &str| client.get_lock(name).with_lease(ms(400));
    check(&["released"], &|name| {
        let lock = client.get_lock(name);
        let (_outer, _inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    });
    check(&["released"], &|name| {
        let guard = client.get_lock(name).owned().lock().unwrap();
        thread::scope(|scope| scope.spawn(|| guard.unlock()).join().unwrap()).unwrap();
    });
    check(&["kept"], &|name| leased(name).lock().unwrap().keep_until_expiry());
    check(&["kept"], &|name| {
        let (outer, inner) = (leased(name).lock().unwrap(), leased(name).lock().unwrap());
        inner.keep_until_expiry();
        outer.unlock().unwrap();
    });
    check(&["expired"], &|name| std::mem::forget(leased(name).lock().unwrap()));
    check(&["expired"], &|name| leased(name).lock().unwrap().leave_to_unlock());
    check(&["expired"], &|name| {
        let guard = leased(name).lock().unwrap();
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        guard.unlock().unwrap_err();
    });
    check(&["gone"], &|name| {
        let guard = client.get_lock(name).lock().unwrap();
        rig.server.run(&["DEL", name]);
        guard.unlock().unwrap_err();
    });
    check(&["unknown"], &|name| {
        let guard = client.get_lock(name).lock().unwrap();
        let cut = rig.proxy.rule(rig.release(false).always(), Then::CutBeforeRequest);
        guard.unlock().unwrap_err();
        cut.remove();
    });
    check(&["released", "released"], &|name| {
        let names = [name.to_owned(), fresh("span")];
        drop(Lock::multi(names.map(|name| client.get_lock(name))).lock().unwrap());
        drop(client.get_fenced_lock(name).lock().unwrap());
    });
    check(&["released"], &|name| {
        let permits = client.get_permit_expirable_semaphore(name);
        permits.set_permits_once(2).unwrap();
        drop(permits.acquire(1).unwrap());
    });
    check(&[], &|name| {
        let permits = client.get_semaphore(name);
        permits.set_permits_once(2).unwrap();
        permits.acquire(1).unwrap().leave_to_release();
    });
    check(&["closed"], &|name| {
        let other = rig.builder().observer(observer.clone()).connect().unwrap();
        let _guard = other.get_lock(name).lock().unwrap();
        other.close();
    });
    assert_eq!(format!("{observer:?}"), format!("{:?}", TracingObserver::new()), "nothing is remembered");
}

/// Closes the client at the first grant, before the observer behind hears of the grant.
#[derive(Clone, Debug, Default)]
struct Closing(Arc<OnceLock<Client>>);

impl Observer for Closing {
    fn acquired(&self, _: &LockAcquired) {
        self.0.get().unwrap().close();
    }
}

#[test]
fn a_hold_that_ends_before_its_grant_is_told_is_a_span() {
    let (lines, name) = (Lines::shared(), fresh("span"));
    let (closing, observer) = (Closing::default(), TracingObserver::new());
    let builder = Client::builder(&RedisServer::shared().url()).observer((closing.clone(), observer.clone()));
    let client = closing.0.get_or_init(|| builder.connect().unwrap());
    drop(client.get_lock(&name).lock());
    assert_eq!(lines.ends_of(&name), ["closed"]);
    assert_eq!(format!("{observer:?}"), format!("{:?}", TracingObserver::new()));
}
