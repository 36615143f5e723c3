//! One hot lock between the languages: neither may starve the other.

use std::time::Duration;

use lockson_harness::RedisServer;

use super::{Loaded, Totals, open};
use crate::kind::Kind;
use crate::peer::{Cast, Seat};
use crate::verdict::{Score, Verdict, caught};

/// Four threads of each language fight for one lock without a pause.
pub(crate) fn fairness(server: &RedisServer, cast: &Cast, kind: &'static Kind, score: &Score) -> Loaded {
    let verdict = match caught(|| fight(server, cast, kind)) {
        Ok(totals) => judge(kind, &totals),
        Err(story) => Verdict::Failed(story),
    };
    let claim = format!("{THREADS} threads of each on one hot lock: each language gets at least {LEAST_SHARE} %");
    Loaded::new(format!("{}: {claim}", kind.title), verdict, score)
}

fn fight(server: &RedisServer, cast: &Cast, kind: &'static Kind) -> [Totals; 2] {
    let mut peers = Seat::BOTH.map(|seat| open(server, cast, seat, ""));
    let cycle = |names: &str, duration: Duration| {
        format!("cycle kind={} names={names} duration_ms={} hold_us={HOLD_MICROS}", kind.word, duration.as_millis())
    };
    // Alone, so that no JVM is still loading code when the fight begins.
    for (peer, seat) in peers.iter_mut().zip(Seat::BOTH) {
        let alone = peer.send(&cycle(&format!("warm-{}-{}", kind.word, seat.name()), WARMING_UP));
        peer.answer(alone, WARMING_UP + GRACE).expect_ok();
    }
    let command = cycle(&format!("hot-{}", kind.word), DURATION);
    let started = peers
        .each_mut()
        .map(|peer| (0..THREADS).map(|thread| peer.send(&format!("{command} thread={thread}"))).collect::<Vec<_>>());
    let mut totals = [Totals::default(); 2];
    for ((peer, tickets), total) in peers.iter_mut().zip(started).zip(&mut totals) {
        for ticket in tickets {
            *total += Totals::of(&peer.answer(ticket, DURATION + GRACE).expect_ok());
        }
    }
    totals
}

fn judge(kind: &Kind, totals: &[Totals; 2]) -> Verdict {
    let all: i64 = totals.iter().map(|total| total.grants).sum();
    let mut wrong = vec![];
    let mut shown = vec![];
    for (total, seat) in totals.iter().zip(Seat::BOTH) {
        let share = total.grants * 1_000 / all.max(1);
        shown.push(format!(
            "{} {}.{} % of the grants, longest wait {:.0} ms",
            seat.name(),
            share / 10,
            share % 10,
            total.longest_wait_ms
        ));
        if share < LEAST_SHARE * 10 {
            wrong.push(format!("{} got {}.{} % of the grants", seat.name(), share / 10, share % 10));
        }
        if total.errors + total.lost > 0 {
            wrong.push(format!("{}: {} errors, {} lost", seat.name(), total.errors, total.lost));
        }
    }
    println!("fairness: {}: {all} grants; {}", kind.title, shown.join("; "));
    Verdict::unless(wrong)
}

/// What each language has to get at least, in percent.
const LEAST_SHARE: i64 = 25;
const THREADS: u32 = 4;
const DURATION: Duration = Duration::from_secs(8);
const WARMING_UP: Duration = Duration::from_millis(1_500);
const HOLD_MICROS: u32 = 100;
/// What an answer may be late; one who starves answers late too.
const GRACE: Duration = Duration::from_secs(40);
