//! Every event of a client, in words.

use std::fmt;

use lockson::{
    LockAbandoned, LockAcquired, LockLost, LockReleased, LocksRenewed, Observer, ReleaseFailed, RenewalFailed,
    ServerRecovered, ServerTrouble, TakeEnded, WaitGivenUp, WaitStarted,
};

use crate::support::prelude::*;

/// Records all events, in the order of arrival, and may act at each.
#[derive(Clone, Default)]
pub(crate) struct Events {
    seen: Arc<Mutex<Seen>>,
    act: Option<Act>,
}

/// Gets the event and the name of the lock.
type Act = Arc<dyn Fn(&str, &str) + Send + Sync>;

#[derive(Debug, Default)]
struct Seen {
    told: Vec<Told>,
    times_left: Vec<Duration>,
    outages: Vec<Duration>,
    ends: Vec<String>,
}

#[derive(Clone, Debug)]
struct Told {
    /// The name of the lock, or an empty name for events about a server.
    name: String,
    what: String,
    group: Option<String>,
    error: Option<Error>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen.fmt(f)
    }
}

impl Events {
    /// Also calls `act` at each event, on the thread that reports the event.
    pub(crate) fn acting(act: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self { act: Some(Arc::new(act)), ..Self::default() }
    }

    /// A client with these settings, and its events.
    pub(crate) fn of_client(settings: ClientBuilder) -> (Self, Client) {
        let events = Self::default();
        let client = settings.observer(events.clone()).connect().unwrap();
        (events, client)
    }

    /// Every event of one lock so far.
    pub(crate) fn of(&self, name: &str) -> Vec<String> {
        self.seen.lock().told.iter().filter(|told| told.name == name).map(|told| told.what.clone()).collect()
    }

    /// How often the loss of this lock was reported.
    pub(crate) fn losses_of(&self, name: &str) -> usize {
        self.of(name).iter().filter(|what| what.starts_with("lost")).count()
    }

    /// How many events have this start.
    pub(crate) fn count_of(&self, start: &str) -> usize {
        self.seen.lock().told.iter().filter(|told| told.what.starts_with(start)).count()
    }

    /// The errors in the events with this start.
    pub(crate) fn errors_of(&self, start: &str) -> Vec<Error> {
        let seen = self.seen.lock();
        seen.told.iter().filter(|told| told.what.starts_with(start)).filter_map(|told| told.error.clone()).collect()
    }

    /// The events about locks since the last call, sorted: each with its lock, and with its group.
    pub(crate) fn take_with_groups(&self) -> Vec<(String, Option<String>)> {
        let told = std::mem::take(&mut self.seen.lock().told).into_iter().filter(|told| !told.name.is_empty());
        let mut told: Vec<_> = told.map(|told| (format!("{} {}", told.what, told.name), told.group)).collect();
        told.sort();
        told
    }

    /// The remaining time in each failed renewal.
    pub(crate) fn times_left(&self) -> Vec<Duration> {
        self.seen.lock().times_left.clone()
    }

    /// The length of each ended outage.
    pub(crate) fn outages(&self) -> Vec<Duration> {
        self.seen.lock().outages.clone()
    }

    /// The ends of calls since the last call, each with kind, name and outcome, behind `waited` where a grant did.
    pub(crate) fn take_ends(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().ends)
    }

    fn note(&self, name: &str, what: impl Into<String>, group: Option<&str>, error: Option<&Error>) {
        let (name, what) = (name.to_owned(), what.into());
        let told = Told { name, what, group: group.map(str::to_owned), error: error.cloned() };
        self.seen.lock().told.push(told.clone());
        self.act.iter().for_each(|act| act(&told.what, &told.name));
    }
}

impl Observer for Events {
    fn waiting(&self, event: &WaitStarted) {
        self.note(event.name(), "waiting", event.group(), None);
    }

    fn gave_up(&self, event: &WaitGivenUp) {
        let why = event.error().map_or_else(String::new, |error| format!(": {:?}", error.kind()));
        self.note(event.name(), format!("gave up{why}"), event.group(), event.error());
    }

    fn acquired(&self, event: &LockAcquired) {
        if event.has_waited() {
            self.seen.lock().ends.push(format!("waited {}", event.name()));
        }
        self.note(event.name(), "acquired", event.group(), None);
    }

    fn take_ended(&self, event: &TakeEnded) {
        assert_eq!(event.is_acquired(), event.outcome() == "acquired");
        self.seen.lock().ends.push(format!("{} {} {}", event.kind().as_str(), event.name(), event.outcome()));
    }

    fn released(&self, event: &LockReleased) {
        self.note(event.name(), "released", event.group(), None);
    }

    fn lost(&self, event: &LockLost) {
        let stood = event.stood_still().map_or("", |_| ", stood still");
        self.note(event.name(), format!("lost: {:?}{stood}", event.loss()), event.group(), None);
    }

    fn release_failed(&self, event: &ReleaseFailed) {
        self.note(event.name(), "release failed", None, Some(event.error()));
    }

    fn renewed(&self, event: &LocksRenewed) {
        self.note("", format!("renewed {} of {}", event.locks(), event.server()), None, None);
    }

    fn renewal_failed(&self, event: &RenewalFailed) {
        self.seen.lock().times_left.push(event.remaining());
        self.note("", "not renewed", None, Some(event.error()));
    }

    fn recovered(&self, event: &ServerRecovered) {
        self.seen.lock().outages.push(event.outage());
    }

    fn abandoned(&self, event: &LockAbandoned) {
        self.note(event.name(), "abandoned", None, None);
    }

    fn losses_told_late(&self, event: &ServerTrouble) {
        self.note("", format!("told late of {}", event.server()), None, Some(event.error()));
    }

    fn durability_missing(&self, event: &ServerTrouble) {
        self.note("", format!("not durable at {}", event.server()), None, Some(event.error()));
    }

    fn listening_failed(&self, event: &ServerTrouble) {
        self.note("", "not heard", None, Some(event.error()));
    }

    fn listening_recovered(&self, event: &ServerRecovered) {
        self.note("", format!("heard again from {}", event.server()), None, None);
    }
}
