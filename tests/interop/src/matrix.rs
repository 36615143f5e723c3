//! The conformance matrix: every kind against every column.

use std::time::Instant;

use crate::checks::check;
use crate::kind::{Column, Kind};
use crate::lanes::{self, Job};
use crate::program::Cast;
use crate::site::Site;
use crate::stage::Stage;
use crate::verdict::{Score, Verdict};

/// One kind and the verdicts of its checks, in the order of the columns.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: &'static Kind,
    pub(crate) cells: Vec<Verdict>,
}

/// Fills a row for each of these kinds.
pub(crate) fn fill(
    site: Site<'_>,
    cast: &Cast,
    kinds: &[&'static Kind],
    columns: &[Column],
    score: &Score,
    title: &str,
) -> Vec<Row> {
    let job = |kind: &&'static Kind| -> Job<'_, Row> {
        let kind = *kind;
        Box::new(move |stage| row(stage, kind, columns, score, title))
    };
    lanes::run(site, cast, kinds.iter().map(job).collect())
}

fn row(stage: &Stage<'_>, kind: &'static Kind, columns: &[Column], score: &Score, title: &str) -> Row {
    let started = Instant::now();
    let cells: Vec<Verdict> = columns.iter().map(|column| cell(stage, kind, *column, score, title)).collect();
    let passed = cells.iter().filter(|cell| **cell == Verdict::Passed).count();
    let checked = cells.iter().filter(|cell| matches!(cell, Verdict::Passed | Verdict::Failed(_))).count();
    let seconds = started.elapsed().as_secs_f64();
    println!("{title}: {:<24} {passed:>2} of {checked:>2} cells passed  {seconds:>5.1} s", kind.title);
    Row { kind, cells }
}

fn cell(stage: &Stage<'_>, kind: &'static Kind, column: Column, score: &Score, title: &str) -> Verdict {
    if !kind.has(column) {
        return Verdict::NotDefined;
    }
    let what = format!("{title}, {}, {}", kind.title, column.title());
    let verdict = stage.judge(&what, || check(column, stage, kind));
    score.count(&what, &verdict);
    verdict
}
