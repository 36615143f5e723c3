//! The table of refusals: the answer of each version to each call, as in `docs/operations.md`.

use super::scene::Way;
use super::table::{Row, Table};
use super::{Version, document, versions, ways, ways_cluster, ways_login};
use crate::faults::answers::{ACQUIRES, Answer, Answers, is_word_of};
use crate::support::prelude::*;
use crate::support::some_at_once;

#[test]
fn each_refusal_matches_the_table_of_the_operations_guide() {
    let versions = versions();
    let mut table = Table::new(HEAD);
    for (way, seen) in WAYS.iter().zip(everything_seen(&versions)) {
        let title = format!("`{}`: {}", way.word, way.when);
        table.add(Row { title, seen, advice: way.advice.to_owned() });
    }
    if document::is_to_be_written() {
        document::replace_part("refusals", &table.in_markdown());
    }
    let differences = table.differences_from(&document::part("refusals"));
    assert!(differences.is_empty(), "docs/operations.md, refusals:\n{differences}{}", table.in_markdown());
}

/// For each way, and each version by its label, the texts of the columns.
fn everything_seen(versions: &[Version]) -> Vec<BTreeMap<String, Vec<String>>> {
    let possible = |way: &Way| way.is_possible();
    // Diagonally, so that the versions do not all do the same work at the same time.
    let jobs: Vec<(usize, &Version)> = (0..WAYS.len())
        .flat_map(|turn| versions.iter().enumerate().map(move |(n, version)| ((turn + 3 * n) % WAYS.len(), version)))
        .filter(|(number, _)| possible(WAYS[*number]))
        .collect();
    let seen = Mutex::new(vec![BTreeMap::new(); WAYS.len()]);
    some_at_once(WORKERS, jobs, |(number, version)| {
        let way = WAYS[number];
        eprintln!("{}: {}, {}", version.label, way.word, way.when); // tells where it broke off
        let texts = columns(way, &way.answers(version));
        seen.lock()[number].insert(version.label.clone(), texts);
    });
    seen.into_inner()
}

fn columns(way: &Way, answers: &Answers) -> Vec<String> {
    let groups: [&[&str]; 8] = [
        &ACQUIRES,
        &["wait"],
        &["re-enter"],
        &["extend"],
        &["release of one", "release"],
        &["force_unlock"],
        &["is_locked"],
        &["connect"],
    ];
    let told =
        groups.into_iter().map(|calls| summary(calls.iter().map(|call| (*call, in_words(way, answers.of(call))))));
    let asked_on = |answer: &Answer| if answer.asked_on { "yes" } else { "no" }.to_owned();
    let refused = answers.0.iter().filter(|answer| is_refusal(way, answer));
    let (once, within): (Vec<&Answer>, Vec<&Answer>) = refused.partition(|answer| ASK_ONCE.contains(&answer.call));
    assert!(once.iter().all(|answer| !answer.asked_on), "{}: {once:?}", way.word);
    let asked_on = summary(within.iter().map(|answer| (answer.call, asked_on(answer))));
    told.chain([asked_on]).collect()
}

/// One word where all calls agree, else the most frequent word, and then the calls with other words.
fn summary<'a>(answers: impl Iterator<Item = (&'a str, String)>) -> String {
    let answers: Vec<(&str, String)> = answers.collect();
    let count = |word: &str| answers.iter().filter(|(_, other)| other == word).count();
    let Some((_, common)) = answers.iter().rev().max_by_key(|(_, word)| count(word)) else { return "–".to_owned() };
    let others = answers.iter().filter(|(_, word)| word != common);
    let others: Vec<String> = others.map(|(call, word)| format!("{call}: {word}")).collect();
    if others.is_empty() { common.clone() } else { format!("{common}, but {}", others.join(", ")) }
}

fn in_words(way: &Way, answer: &Answer) -> String {
    match &answer.refusal {
        None => "works".to_owned(),
        Some(_) if is_refusal(way, answer) => "refused".to_owned(),
        Some((ErrorKind::Refused, Some(word))) => format!("refused with `{word}`"),
        Some((kind, _)) => format!("`{kind:?}`"),
    }
}

/// Whether the caller sees the word of this row, or saw that word until the time limit.
fn is_refusal(way: &Way, answer: &Answer) -> bool {
    answer.cut_short || matches!(&answer.refusal, Some((ErrorKind::Refused, Some(word))) if is_word_of(word, way.word))
}

/// Calls without time for a second request.
const ASK_ONCE: [&str; 3] = ["try_lock", "re-enter", "connect"];

const HEAD: &[&str] = &[
    "`redis_word()`, and when",
    "acquire",
    "wait for a busy lock",
    "re-entry",
    "renewal, `extend`",
    "release",
    "`force_unlock`",
    "`is_locked`",
    "`connect`",
    "asked again",
    "what to do",
];

const WAYS: [&Way; 20] = [
    &ways::LOADING,
    &ways::BUSY,
    &ways::READONLY,
    &ways::MASTERDOWN,
    &ways_cluster::CLUSTERDOWN,
    &ways_login::MAXCLIENTS,
    &ways::OOM,
    &ways::MISCONF,
    &ways::NOREPLICAS,
    &ways::WRONGTYPE,
    &ways_login::NOAUTH,
    &ways_login::WRONGPASS,
    &ways_login::DENIED,
    &ways::NO_SCRIPTS,
    &ways::NO_TEXT,
    &ways::NO_COMMAND,
    &ways::NO_KEY,
    &ways::NO_CHANNEL,
    &ways::FLUSHED,
    &ways_cluster::MOVED,
];

const WORKERS: usize = 6;
