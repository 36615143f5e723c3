//! The counters, histograms and gauges of the crate `metrics`.

use ::metrics::set_global_recorder;
use lockson_telemetry::MetricsObserver;

use super::recorder::Values;
use super::scene;
use crate::support::prelude::*;

#[test]
fn events_count_by_kind_and_outcome_and_never_by_name() {
    let values = Values::default();
    set_global_recorder(values.clone()).map_err(|_| "another recorder is there").unwrap();
    let observer = MetricsObserver::new();
    let name = scene(observer.clone());
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
