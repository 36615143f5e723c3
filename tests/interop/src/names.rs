//! Names of every sort: each has to give the same keys and channels in both languages.

use std::time::Instant;

use crate::checks::{excludes, wakes};
use crate::kind::{Kind, Shape};
use crate::lanes::{self, Job};
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::stage::Stage;
use crate::verdict::{Score, Verdict};

/// The sorts of names, in the order of the table.
pub(crate) const SORTS: &[&str] = &["plain", "colon", "{tag}", "brace in the middle", "spaces", "UTF-8", "1 KB"];

/// One kind and the verdict on each sort of name.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) kind: &'static Kind,
    pub(crate) cells: Vec<Verdict>,
}

/// Tests all sorts of names with each kind that has a single name.
pub(crate) fn fill(site: Site<'_>, cast: &Cast, kinds: &[&'static Kind], score: &Score) -> Vec<Column> {
    let tried = kinds.iter().filter(|kind| kind.shape == Shape::Single);
    let job = |kind: &&'static Kind| -> Job<'_, Column> {
        let kind = *kind;
        Box::new(move |stage| column(stage, kind, score))
    };
    lanes::run(site, cast, tried.map(job).collect())
}

fn column(stage: &Stage<'_>, kind: &'static Kind, score: &Score) -> Column {
    let started = Instant::now();
    let cells: Vec<Verdict> = SORTS.iter().map(|sort| cell(stage, kind, sort, score)).collect();
    let passed = cells.iter().filter(|cell| **cell == Verdict::Passed).count();
    let seconds = started.elapsed().as_secs_f64();
    println!("names: {:<25} {passed:>2} of {:>2} cells passed  {seconds:>5.1} s", kind.title, cells.len());
    Column { kind, cells }
}

fn cell(stage: &Stage<'_>, kind: &'static Kind, sort: &str, score: &Score) -> Verdict {
    let what = format!("names, {}, {sort}", kind.title);
    let verdict = stage.judge(&what, || {
        // Another word than in the matrix: a semaphore stays under its name.
        let fresh = || name(sort, &stage.fresh(&format!("named-{}", kind.word)));
        for seat in Seat::BOTH {
            excludes(stage.pair_under(kind, seat, &fresh()));
            wakes(stage, stage.pair_under(kind, seat, &fresh()));
        }
    });
    score.count(&what, &verdict);
    verdict
}

fn name(sort: &str, fresh: &str) -> String {
    match sort {
        "plain" => fresh.to_owned(),
        "colon" => format!("orders:{fresh}"),
        "{tag}" => format!("{{tag}}:{fresh}"),
        "brace in the middle" => format!("a{{{fresh}}}c"),
        "spaces" => format!("two words {fresh}"),
        "UTF-8" => format!("schlüssel-鍵-🔑-{fresh}"),
        "1 KB" => format!("{fresh}:{}", "x".repeat(1_023 - fresh.len())),
        other => panic!("no such sort of names: {other}"),
    }
}
