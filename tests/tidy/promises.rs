//! The rule about promises: each promise to users names tests that hold it.

use std::collections::BTreeMap;
use std::fs;

use super::{files_below, root};

#[test]
fn each_promise_names_tests_that_exist() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (promises, rows) = (promises(&read("docs/guarantees.md")), rows(&read("docs/promises.md")));
    assert!(promises.len() > 10 && promises.values().sum::<usize>() > 80, "{promises:?}");
    let folders = ["src", "tests"].map(|folder| files_below(&root().join(folder), "rs"));
    let sources: String = folders.into_iter().flatten().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut faults = vec![];
    for (section, count) in &promises {
        let named = rows.get(section).map_or(0, Vec::len);
        if named != *count {
            faults.push(format!("{section}: {count} promises, {named} rows"));
        }
    }
    faults.extend(rows.keys().filter(|section| !promises.contains_key(*section)).map(|name| format!("{name}: none")));
    for row in rows.values().flatten() {
        let (_, tests) = row.rsplit_once(": ").unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            faults.push(format!("no test: {row}"));
        }
        let missing = names.into_iter().filter(|name| !sources.contains(&format!("fn {name}(")));
        faults.extend(missing.map(|name| format!("{name} does not exist")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn promises_are_points_and_rows_or_else_paragraphs() {
    let page = "## What is promised\n### A\n\nText.\n\n* one\n* two\n\n| x |\n|---|\n| three |\n\n\
                ### B\n\nText.\n\nMore.\n\n### C\n1. one\n\n## What not\n### D\n* one\n";
    assert_eq!(promises(page), [("A", 3), ("B", 2), ("C", 1)].map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!(rows("## A\n\n1. one: `t`\n2. two: `u`\n\nText")["A"], ["one: `t`", "two: `u`"]);
}

/// The number of promises of each section.
fn promises(page: &str) -> BTreeMap<String, usize> {
    let page = page.split_once("\n## What is promised\n").map_or(page, |(_, rest)| rest);
    let page = page.strip_prefix("## What is promised\n").unwrap_or(page);
    let page = page.split("\n## ").next().unwrap_or_default();
    let sections = format!("\n{page}");
    let sections = sections.split("\n### ").skip(1).filter_map(|section| section.split_once('\n'));
    let count = |text: &str| {
        let points = text.lines().filter(|line| line.starts_with("* ") || point(line).is_some()).count();
        let cells = text.lines().filter(|line| line.starts_with("| ")).count();
        let heads = text.lines().filter(|line| line.starts_with("|---")).count();
        match points + cells - heads {
            0 => text.lines().filter(|line| !line.is_empty()).count(),
            count => count,
        }
    };
    sections.map(|(name, text)| (name.to_owned(), count(text))).collect()
}

/// The rows of each section, without their numbers.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let page = format!("\n{page}");
    let sections = page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    sections
        .map(|(name, text)| (name.to_owned(), text.lines().filter_map(point).map(str::to_owned).collect()))
        .collect()
}

/// What follows the number of a numbered line.
fn point(line: &str) -> Option<&str> {
    let (number, rest) = line.split_once(". ")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)
}
