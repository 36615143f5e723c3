//! The rule about metrics: the page of operations lists those that there are.

use std::collections::BTreeSet;
use std::fs;

use super::super::code::is_name_char;
use super::super::root;

const OBSERVER: &str = "src/telemetry/metrics.rs";

#[test]
fn the_page_of_operations_lists_each_metric() {
    let page = read("docs/operations.md");
    let rows: BTreeSet<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    assert_eq!(rows, metrics(&read(OBSERVER)));
}

/// The words of a text that are names of metrics.
fn metrics(text: &str) -> BTreeSet<String> {
    text.split(|c| !is_name_char(c)).filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

const PREFIX: &str = "lockson_";
