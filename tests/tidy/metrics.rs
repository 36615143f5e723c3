//! The rule about metrics: the alarms, the dashboard and the page of the crate name those that there are.

use std::collections::BTreeSet;
use std::fs;

use super::super::code::is_name_char;
use super::super::root;

const OBSERVER: &str = "telemetry/src/metrics.rs";

#[test]
fn alarms_and_dashboard_name_metrics_that_there_are() {
    let there: BTreeSet<String> = read(OBSERVER).lines().flat_map(|line| series_of(line).into_iter()).collect();
    for file in ["docs/alarms.yml", "docs/dashboard.json"] {
        let used = metrics(&read(file));
        let unknown: Vec<_> = used.iter().filter(|name| !there.contains(*name)).collect();
        assert!(used.len() >= 8 && unknown.is_empty(), "{file} has no metric {unknown:?}");
    }
}

#[test]
fn the_page_of_the_crate_lists_each_metric() {
    let page = read("telemetry/README.md");
    let rows: BTreeSet<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    let declared: BTreeSet<String> =
        read(OBSERVER).lines().filter(|line| line.contains(" describe_")).flat_map(metrics).collect();
    assert_eq!(rows, declared);
}

#[test]
fn series_of_a_histogram_are_its_sum_and_count() {
    let series = |line: &str| series_of(line).into_iter().collect::<Vec<_>>();
    assert_eq!(series("WAIT = \"lockson_x\" describe_histogram Seconds"), ["lockson_x_count", "lockson_x_sum"]);
    assert_eq!(series("LOST = \"lockson_y\" describe_counter Count"), ["lockson_y"]);
    assert_eq!(metrics("rate(lockson_z_total{a=\"b\"}) + xlockson_a").len(), 1);
}

/// The names of the series of a metric that this line declares. Only these two of a histogram are there whatever the
/// recorder makes of it.
fn series_of(line: &str) -> BTreeSet<String> {
    let names = metrics(line);
    if !line.contains("describe_histogram") {
        return names;
    }
    names.iter().flat_map(|name| ["sum", "count"].map(|end| format!("{name}_{end}"))).collect()
}

/// The words of a text that are names of metrics.
fn metrics(text: &str) -> BTreeSet<String> {
    text.split(|c| !is_name_char(c)).filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

const PREFIX: &str = "lockson_";
