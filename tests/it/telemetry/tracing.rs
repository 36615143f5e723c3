//! The spans and events of the crate `tracing`.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::Arc;

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::subscriber::set_global_default;
use ::tracing::{Event, Metadata, Subscriber};
use lockson::TracingObserver;
use parking_lot::Mutex;

use super::scene;

/// Every event and every closed span of Lockson, as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Seen>>);

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
    let lines = Lines::default();
    set_global_default(lines.clone()).unwrap();
    let name = scene(TracingObserver::new());
    let seen = lines.0.lock();
    let of_lock: Vec<_> = seen.lines.iter().filter(|line| line.contains(&name)).collect();
    let lock = format!("lock={name:?} kind=\"plain\"");
    let ended = |outcome: &str| {
        format!("DEBUG message=a call for a lock ended {lock} owner outcome={outcome:?} waited_seconds")
    };
    let lost = |loss: &str| format!("ERROR message=a lock was lost {lock} owner outcome={loss:?}");
    let expected = [
        ended("busy"),
        format!("DEBUG span wait {lock} owner outcome=\"acquired\""),
        ended("acquired"),
        format!("DEBUG message=a lock was released {lock} owner held_seconds"),
        ended("acquired"),
        lost("gone"),
        ended("acquired"),
        format!("ERROR message=a thread ended without releasing its lock {lock} owner"),
        lost("closed"),
    ];
    assert_eq!(of_lock, expected.each_ref());
    for of_server in [
        "WARN message=the listening connection failed server error",
        "INFO message=messages are heard again server outage_seconds",
        "WARN message=locks were not renewed server locks=1 remaining_seconds error",
        "INFO message=renewals work again server outage_seconds",
        "TRACE message=locks were renewed server locks=1",
    ] {
        assert!(seen.lines.iter().any(|line| line == of_server), "{of_server}: {:#?}", seen.lines);
    }
    assert!(seen.open.is_empty(), "no span is left open");
}
