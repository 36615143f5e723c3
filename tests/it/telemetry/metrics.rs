//! The counters, histograms and gauges of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};
use lockson::MetricsObserver;
use parking_lot::Mutex;

use super::scene;
use crate::support::{client, elsewhere, fresh};

/// The values of each metric, by its name and labels.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

/// One metric.
struct Series(Values, String);

impl Series {
    fn of(values: &Values, key: &Key) -> Arc<Self> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        Arc::new(Self(values.clone(), labels.fold(key.name().to_owned(), |name, label| name + &label)))
    }

    fn push(&self, value: f64) {
        self.0.0.lock().entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.push(f64::from(u32::try_from(value).unwrap()));
    }

    fn absolute(&self, _: u64) {
        panic!("counters of several clients add up");
    }
}

impl GaugeFn for Series {
    fn increment(&self, _: f64) {
        panic!("a lost event would falsify the gauge for ever");
    }

    fn decrement(&self, _: f64) {
        panic!("a lost event would falsify the gauge for ever");
    }

    fn set(&self, value: f64) {
        self.push(value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Recorder for Values {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().insert(format!("described {}", name.as_str()), vec![]);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe_counter(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe_counter(name, unit, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(self, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(self, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::of(self, key))
    }
}

#[test]
fn events_count_by_kind_and_outcome_and_never_by_name() {
    let values = Values::default();
    set_global_recorder(values.clone()).map_err(|_| "another recorder is there").unwrap();
    let observer = MetricsObserver::new();
    let name = scene(observer);
    let all = values.0.lock().clone();
    let [counts, sums] = [|values: &Vec<f64>| values.len() as f64, |values: &Vec<f64>| values.iter().sum()];
    let of = |key: &str, take: fn(&Vec<f64>) -> f64| all.get(key).map(take);
    for (key, count) in [
        ("lockson_acquisitions_total kind=plain outcome=busy", 1.0),
        ("lockson_acquisitions_total kind=plain outcome=acquired", 3.0),
        ("lockson_lost_total kind=plain loss=gone", 1.0),
        ("lockson_lost_total kind=plain loss=closed", 1.0),
        ("lockson_abandoned_total kind=plain", 1.0),
        ("lockson_losses_told_late_total", 0.0),
        ("lockson_durability_missing_total", 0.0),
    ] {
        assert_eq!(of(key, sums), Some(count), "{key}: {all:#?}");
    }
    for (key, count) in [
        ("lockson_wait_seconds kind=plain outcome=busy", 1.0),
        ("lockson_wait_seconds kind=plain outcome=acquired", 3.0),
        ("lockson_hold_seconds kind=plain", 1.0),
    ] {
        assert_eq!(of(key, counts), Some(count), "{key}: {all:#?}");
    }
    for key in [
        "lockson_renewals_total",
        "lockson_renewals_failed_total",
        "lockson_renewals_recovered_total",
        "lockson_listening_failed_total",
        "lockson_listening_recovered_total",
    ] {
        assert!(of(key, sums) >= Some(1.0), "{key}: {all:#?}");
    }
    assert_eq!(all.get("lockson_releases_failed_total kind=plain"), None, "a loss is counted once");
    assert!(all.keys().all(|key| !key.contains(&name)), "{all:#?}");

    let (client, name) = (client(), fresh("sampled"));
    let guard = client.get_lock(&name).lock().unwrap();
    elsewhere(|| observer.sample([&client]));
    guard.unlock().unwrap();
    observer.sample([&client]);
    let all = values.0.lock().clone();
    assert_eq!(all["lockson_held"], [1.0, 0.0]);
    assert_eq!(all["lockson_waiting"], [0.0, 0.0]);
    assert!(all["lockson_longest_hold_seconds"][0] > 0.0 && all["lockson_longest_wait_seconds"][0] == 0.0);
    let (described, counted): (Vec<_>, Vec<_>) = all.keys().partition(|key| key.starts_with("described "));
    for key in counted {
        let name = key.split(' ').next().unwrap();
        assert!(described.iter().any(|described| described.ends_with(name)), "{name} has no description");
    }
}
