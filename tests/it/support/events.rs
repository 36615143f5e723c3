//! Every event of a client, in words.

use std::sync::Arc;
use std::time::Duration;

use lockson::{
    LockAcquired, LockLost, LockReleased, LocksRenewed, Observer, RenewalFailed, RenewalRecovered, WaitGivenUp,
    WaitStarted,
};
use parking_lot::Mutex;

/// Records all events, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The name of the lock, or an empty name for events about a server, and the event.
    told: Vec<(String, String)>,
    times_left: Vec<Duration>,
    outages: Vec<Duration>,
}

impl Events {
    /// Every event of one lock so far.
    pub(crate) fn of(&self, name: &str) -> Vec<String> {
        self.0.lock().told.iter().filter(|(of, _)| of == name).map(|(_, what)| what.clone()).collect()
    }

    /// How many events have this start.
    pub(crate) fn count_of(&self, start: &str) -> usize {
        self.0.lock().told.iter().filter(|(_, told)| told.starts_with(start)).count()
    }

    /// The remaining time in each failed renewal.
    pub(crate) fn times_left(&self) -> Vec<Duration> {
        self.0.lock().times_left.clone()
    }

    /// The length of each ended outage.
    pub(crate) fn outages(&self) -> Vec<Duration> {
        self.0.lock().outages.clone()
    }

    fn note(&self, name: &str, what: String) {
        self.0.lock().told.push((name.to_owned(), what));
    }
}

impl Observer for Events {
    fn waiting(&self, event: &WaitStarted) {
        self.note(event.name(), "waiting".into());
    }

    fn gave_up(&self, event: &WaitGivenUp) {
        let why = event.error().map_or_else(String::new, |error| format!(": {:?}", error.kind()));
        self.note(event.name(), format!("gave up{why}"));
    }

    fn acquired(&self, event: &LockAcquired) {
        self.note(event.name(), "acquired".into());
    }

    fn released(&self, event: &LockReleased) {
        self.note(event.name(), "released".into());
    }

    fn lost(&self, event: &LockLost) {
        let stood = event.stood_still().map_or("", |_| ", stood still");
        self.note(event.name(), format!("lost: {:?}{stood}", event.loss()));
    }

    fn renewed(&self, event: &LocksRenewed) {
        self.note("", format!("renewed {} of {}", event.locks(), event.server()));
    }

    fn renewal_failed(&self, event: &RenewalFailed) {
        self.0.lock().times_left.push(event.remaining());
    }

    fn recovered(&self, event: &RenewalRecovered) {
        self.0.lock().outages.push(event.outage());
    }
}
