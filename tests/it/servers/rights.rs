//! The least rights of a user of the plain lock: the line in `docs/operations.md` is enough, and least.

use std::collections::BTreeMap;
use std::thread;

use parking_lot::Mutex;

use super::deeds::{ADDITIONS, DEEDS, Stage};
use super::table::{Row, Table};
use super::{Version, document, versions};
use crate::support::joined;

#[test]
fn the_line_of_rights_in_the_operations_guide_is_enough_and_least() {
    let line = documented_line();
    let versions = versions();
    for version in &versions {
        let failed = what_fails(version, &line, &line);
        assert!(failed.is_empty(), "{}: with the whole line: {failed:?}", version.label);
    }
    let rights: Vec<&String> = line.iter().filter(|word| is_right(word)).collect();
    assert!(rights.len() > 10, "{line:?}");
    let seen = Mutex::new(BTreeMap::<&str, BTreeMap<String, Vec<String>>>::new());
    let jobs = rights.iter().flat_map(|right| versions.iter().map(move |version| (right.as_str(), version)));
    let jobs: Mutex<Vec<_>> = Mutex::new(jobs.rev().collect());
    let next = || jobs.lock().pop();
    let work = || {
        while let Some((right, version)) = next() {
            eprintln!("{}: without {right}", version.label); // tells where it broke off
            let without: Vec<String> = line.iter().filter(|word| *word != right).cloned().collect();
            let failed = what_fails(version, &line, &without);
            assert!(!failed.is_empty(), "{}: nothing fails without {right}", version.label);
            seen.lock().entry(right).or_default().insert(version.label.clone(), vec![in_words(&failed)]);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(joined);
    });
    let seen = seen.into_inner();
    let mut table = Table::new(&["right", "what fails without it", "what it is for"]);
    for right in rights {
        let title = format!("`{right}`");
        table.add(Row { title, seen: seen[right.as_str()].clone(), advice: use_of(right).to_owned() });
    }
    if document::is_to_be_written() {
        document::replace_part("rights", &table.in_markdown());
    }
    let differences = table.differences_from(&document::part("rights"));
    assert!(differences.is_empty(), "docs/operations.md, rights:\n{differences}{}", table.in_markdown());
}

#[test]
fn each_addition_is_enough_and_least_for_what_it_is_listed_for() {
    let line = documented_line();
    for version in versions() {
        for (what, deed) in ADDITIONS {
            let words = documented_addition(what);
            let outcome = |rights: &[String]| {
                let stage = Stage::set(&version, rights);
                deed(&stage)
            };
            assert_eq!(outcome(&[&line[..], &words].concat()), Ok(()), "{}: {what}", version.label);
            for left_out in &words {
                let rest: Vec<String> = words.iter().filter(|word| *word != left_out).cloned().collect();
                assert!(outcome(&[&line[..], &rest].concat()).is_err(), "{}: {what} without {left_out}", version.label);
            }
        }
    }
}

#[test]
fn the_recommended_rights_are_optional_and_let_a_lost_answer_be_fenced() {
    let line = documented_line();
    let recommended = documented_addition("everything below, recommended");
    for version in versions() {
        // That nothing fails without them is shown with the line itself.
        let fences = |rights: &[String]| Stage::set(&version, rights).fences_a_lost_answer();
        assert!(fences(&[&line[..], &recommended].concat()), "{}", version.label);
        assert!(!fences(&line), "{}", version.label);
    }
}

/// What a user who had all of the line so far gets for each deed with these rights alone; deeds that
/// succeed are left out.
fn what_fails(version: &Version, line: &[String], rights: &[String]) -> Vec<(&'static str, String)> {
    let stage = Stage::set(version, line);
    let acts: Vec<_> = DEEDS.iter().map(|(deed, prepare)| (*deed, prepare(&stage))).collect();
    stage.give(rights);
    acts.into_iter().filter_map(|(deed, act)| Some((deed, act().err()?))).collect()
}

/// The words of the line after the name of the user.
fn documented_line() -> Vec<String> {
    let text = document::text();
    let line = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER locker ")).expect("the line of rights");
    line.split(' ').map(|word| word.replace("PASSWORD", super::deeds::PASSWORD)).collect()
}

/// What the table of additions says to add for this.
fn documented_addition(what: &str) -> Vec<String> {
    let text = document::text();
    let start = format!("| {what} | `");
    let row = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no row for {what}"));
    let words = row.trim_end_matches("` |").replace("\\|", "|");
    words.split(' ').map(str::to_owned).collect()
}

/// Whether this word gives something.
fn is_right(word: &str) -> bool {
    word.starts_with(['+', '~', '&', '%'])
}

fn in_words(failed: &[(&str, String)]) -> String {
    let plain = |why: &str| why == "`NOPERM`";
    let each = failed.iter().map(|(deed, why)| if plain(why) { (*deed).to_owned() } else { format!("{deed} ({why})") });
    each.collect::<Vec<_>>().join(", ")
}

fn use_of(right: &str) -> &'static str {
    match right {
        "+evalsha" => "scripts, by their hash",
        "+eval" => "scripts that the server has not got yet",
        "+subscribe" => "hearing of releases",
        "+unsubscribe" => "leaving a channel that nobody waits for any more",
        "+ping" => "`connect()`; asking whether the listening connection is alive",
        "+publish" => "telling of releases",
        "+time" => "dating the answers to renewals",
        _ if right.starts_with('~') => "the locks",
        _ if right.starts_with('&') => "their channels",
        _ => "in the scripts",
    }
}

const WORKERS: usize = 8;
