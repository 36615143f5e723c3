//! Events as metrics of the crate `metrics`.

use std::time::Duration;

use ::metrics::{counter, gauge, histogram};

use lockson::{
    Client, HeldLock, LockAbandoned, LockLost, LockReleased, LockWaiter, LocksRenewed, Observer, ReleaseFailed,
    RenewalFailed, ServerRecovered, ServerTrouble, TakeEnded, WaitLasts,
};

/// Hands the events of a client to the recorder of the crate [`metrics`](::metrics), as counters and histograms by kind
/// and outcome. Feature `metrics`.
///
/// No label has the name of a lock. The README of this crate has the table of names, labels and units; the repository has
/// a file of alarms for Prometheus, and a dashboard for Grafana.
///
/// ```
/// use lockson::Client;
/// use lockson_telemetry::MetricsObserver;
///
/// // Install a recorder first, for instance that of the crate `metrics-exporter-prometheus`.
/// let observer = MetricsObserver::new();
/// let client = Client::builder("redis://localhost").observer(observer.clone()).connect_lazily()?;
/// observer.sample([&client]); // at each scrape
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetricsObserver;

/// Declares the names of metrics, and a function that describes them to the recorder.
macro_rules! metrics {
    ($($name:ident = $text:literal $describe:ident $unit:ident $help:literal;)*) => {
        $(const $name: &str = $text;)*

        fn describe() {
            $(::metrics::$describe!($name, ::metrics::Unit::$unit, $help);)*
        }
    };
}

metrics! {
    ACQUISITIONS = "lockson_acquisitions_total" describe_counter Count "calls that take locks or permits";
    WAIT = "lockson_wait_seconds" describe_histogram Seconds "durations of calls that take locks or permits";
    LONG_WAITS = "lockson_long_waits_total" describe_counter Count "waits beyond the time to live of a dead holder";
    HOLD = "lockson_hold_seconds" describe_histogram Seconds "durations of released holds";
    LOST = "lockson_lost_total" describe_counter Count "lost holds";
    ABANDONED = "lockson_abandoned_total" describe_counter Count "holds whose thread ended";
    RELEASES_FAILED = "lockson_releases_failed_total" describe_counter Count "dropped guards that released nothing";
    RENEWALS = "lockson_renewals_total" describe_counter Count "renewals of holds";
    RENEWALS_FAILED = "lockson_renewals_failed_total" describe_counter Count "failed renewals of holds";
    RENEWALS_RECOVERED = "lockson_renewals_recovered_total" describe_counter Count "ends of failures to renew";
    TOLD_LATE = "lockson_losses_told_late_total" describe_counter Count "servers that report no changes of keys";
    DURABILITY_MISSING = "lockson_durability_missing_total" describe_counter Count "servers that cannot wait for replicas";
    LISTENING_FAILED = "lockson_listening_failed_total" describe_counter Count "failures of a listening connection";
    LISTENING_RECOVERED = "lockson_listening_recovered_total" describe_counter Count "ends of failures to listen";
    HELD = "lockson_held" describe_gauge Count "holds";
    WAITING = "lockson_waiting" describe_gauge Count "waiting threads";
    LONGEST_HOLD = "lockson_longest_hold_seconds" describe_gauge Seconds "age of the oldest hold";
    LONGEST_WAIT = "lockson_longest_wait_seconds" describe_gauge Seconds "age of the oldest wait";
}

/// The counters without labels. They begin at zero, so that a first increase is seen as one.
const WITHOUT_LABELS: [&str; 7] = [
    RENEWALS,
    RENEWALS_FAILED,
    RENEWALS_RECOVERED,
    TOLD_LATE,
    DURABILITY_MISSING,
    LISTENING_FAILED,
    LISTENING_RECOVERED,
];

impl MetricsObserver {
    /// Returns an observer, and describes its metrics to the recorder, which must be installed before.
    #[allow(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        describe();
        for name in WITHOUT_LABELS {
            counter!(name).increment(0);
        }
        Self
    }

    /// Sets the gauges to the holds and the waiting threads of all these clients, from [`Client::held`] and
    /// [`Client::waiting`]. Call it at each scrape, or every few seconds: ages grow without an event.
    pub fn sample<'a>(&self, clients: impl IntoIterator<Item = &'a Client>) {
        let (mut held, mut waiting): (Vec<Duration>, Vec<Duration>) = (vec![], vec![]);
        for client in clients {
            held.extend(client.held().iter().map(HeldLock::held_for));
            waiting.extend(client.waiting().iter().map(LockWaiter::waited));
        }
        for (number, longest, durations) in [(HELD, LONGEST_HOLD, held), (WAITING, LONGEST_WAIT, waiting)] {
            gauge!(number).set(u32::try_from(durations.len()).unwrap_or(u32::MAX));
            gauge!(longest).set(durations.into_iter().max().unwrap_or_default());
        }
    }
}

impl Observer for MetricsObserver {
    fn still_waiting(&self, event: &WaitLasts) {
        counter!(LONG_WAITS, "kind" => event.kind().as_str()).increment(1);
    }

    fn take_ended(&self, event: &TakeEnded) {
        let (kind, outcome) = (event.kind().as_str(), event.outcome());
        counter!(ACQUISITIONS, "kind" => kind, "outcome" => outcome).increment(1);
        histogram!(WAIT, "kind" => kind, "outcome" => outcome).record(event.waited());
    }

    fn released(&self, event: &LockReleased) {
        histogram!(HOLD, "kind" => event.kind().as_str()).record(event.held());
    }

    fn lost(&self, event: &LockLost) {
        counter!(LOST, "kind" => event.kind().as_str(), "loss" => event.loss().as_str()).increment(1);
    }

    fn release_failed(&self, event: &ReleaseFailed) {
        // A loss was counted before.
        if !event.error().is_lost() {
            counter!(RELEASES_FAILED, "kind" => event.kind().as_str()).increment(1);
        }
    }

    fn renewed(&self, event: &LocksRenewed) {
        counter!(RENEWALS).increment(count(event.locks()));
    }

    fn renewal_failed(&self, event: &RenewalFailed) {
        counter!(RENEWALS_FAILED).increment(count(event.locks()));
    }

    fn recovered(&self, _: &ServerRecovered) {
        counter!(RENEWALS_RECOVERED).increment(1);
    }

    fn abandoned(&self, event: &LockAbandoned) {
        counter!(ABANDONED, "kind" => event.kind().as_str()).increment(1);
    }

    fn losses_told_late(&self, _: &ServerTrouble) {
        counter!(TOLD_LATE).increment(1);
    }

    fn durability_missing(&self, _: &ServerTrouble) {
        counter!(DURABILITY_MISSING).increment(1);
    }

    fn listening_failed(&self, _: &ServerTrouble) {
        counter!(LISTENING_FAILED).increment(1);
    }

    fn listening_recovered(&self, _: &ServerRecovered) {
        counter!(LISTENING_RECOVERED).increment(1);
    }
}

fn count(locks: usize) -> u64 {
    u64::try_from(locks).unwrap_or(u64::MAX)
}
