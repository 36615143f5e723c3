//! The state in Redis after each operation: Lockson's state is compared with Redisson's.

mod intended;
mod messages;
mod normal;
mod play;
mod record;
mod scenario;
mod scenarios;

use std::thread;
use std::time::Instant;

use crate::kind::Kind;
use crate::program::{Cast, Seat};
use crate::stage::{PLAYED_AGAIN, TOO_BUSY_MS};
use crate::starved::Starved;
use crate::verdict::{Score, Verdict, caught};

use play::{Player, Seen};
pub(crate) use record::Record;
use scenario::Scenario;

/// One operation of a kind, and the states after the operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) label: &'static str,
    pub(crate) rust: Record,
    pub(crate) java: Record,
    /// The reason for an intended difference.
    pub(crate) reason: Option<String>,
    pub(crate) verdict: Verdict,
}

/// One kind and all its operations.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) kind: &'static Kind,
    pub(crate) operations: Vec<Operation>,
}

/// Plays the scenarios of each kind.
pub(crate) fn compare(cast: &Cast, kinds: &[&'static Kind], score: &Score) -> Vec<Compared> {
    let mut players = players(cast);
    let mut compared = vec![];
    for kind in kinds {
        let started = Instant::now();
        let operations = match compare_kind(&mut players, kind, cast.is_rehearsal()) {
            Ok(operations) => operations,
            Err(story) => {
                score.count(&format!("state, {}", kind.title), &Verdict::Failed(story));
                players = self::players(cast);
                continue;
            }
        };
        for operation in &operations {
            score.count(&format!("state, {}, {}", kind.title, operation.label), &operation.verdict);
        }
        let same = operations.iter().filter(|operation| operation.rust == operation.java).count();
        println!(
            "state: {:<25} {} operations, {same} leave the same, {} differ  {:>5.1} s",
            kind.title,
            operations.len(),
            operations.len() - same,
            started.elapsed().as_secs_f64()
        );
        compared.push(Compared { kind, operations });
    }
    compared
}

fn players(cast: &Cast) -> [Player; 2] {
    Seat::BOTH.map(|seat| Player::new(cast.of(seat)))
}

fn compare_kind(players: &mut [Player; 2], kind: &'static Kind, is_rehearsal: bool) -> Result<Vec<Operation>, String> {
    let mut operations = vec![];
    for scenario in scenarios::of(kind) {
        operations.extend(compare_scenario(players, kind, scenario, is_rehearsal)?);
    }
    Ok(operations)
}

/// Plays a scenario in both languages; again, if the states differ and the machine kept the processes waiting.
fn compare_scenario(
    players: &mut [Player; 2],
    kind: &'static Kind,
    scenario: Scenario,
    is_rehearsal: bool,
) -> Result<Vec<Operation>, String> {
    let mut again = 0;
    loop {
        let starved = Starved::watch(players.iter().flat_map(Player::pids).collect());
        let [rust, java] = play_both(players, kind, scenario);
        let differences = if is_rehearsal { vec![] } else { intended::of(kind) };
        let operation = |((label, rust), (_, java))| {
            let listed = intended::find(&differences, label);
            let verdict = judge(&rust, &java, listed);
            let passed = verdict == Verdict::Passed;
            let reason = listed.filter(|_| passed).map(|listed| listed.reason.clone());
            Operation { label, rust, java, reason, verdict }
        };
        let operations: Vec<Operation> = rust?.into_iter().zip(java?).map(operation).collect();
        let waited = starved.millis();
        again += 1;
        let passed = operations.iter().all(|operation| operation.verdict == Verdict::Passed);
        if passed || waited < TOO_BUSY_MS || again > PLAYED_AGAIN {
            return Ok(operations);
        }
        println!("again   state, {}: the processes waited {waited:.0} ms for a processor", kind.title);
    }
}

fn play_both(players: &mut [Player; 2], kind: &'static Kind, scenario: Scenario) -> [Result<Seen, String>; 2] {
    let [rust, java] = players;
    thread::scope(|scope| {
        let rust = scope.spawn(|| caught(|| rust.play(kind, scenario)));
        let java = caught(|| java.play(kind, scenario));
        [rust.join().expect("panics of the scenario are caught"), java]
    })
}

/// Equal states pass; different states pass if listed with exactly these two outcomes.
fn judge(rust: &Record, java: &Record, listed: Option<&intended::Difference>) -> Verdict {
    let wrong = match listed {
        None if rust == java => return Verdict::Passed,
        Some(listed) if rust != java && listed.is(rust, java) => return Verdict::Passed,
        None => "the states differ, without an intended difference",
        Some(_) if rust == java => "the states are equal, despite an intended difference",
        Some(_) => "the states differ, but not as the intended difference says",
    };
    Verdict::Failed(format!("{wrong}\n        Rust {rust}\n        Java {java}"))
}
