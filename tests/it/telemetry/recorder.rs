//! A recorder of the crate `metrics` that keeps all values.

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::support::prelude::*;

/// The values of each metric, by its name and labels.
#[derive(Clone, Default)]
pub(super) struct Values(pub(super) Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

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
