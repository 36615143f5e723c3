//! Hot locks between two processes: each process must get its share by threads, and no thread may wait for long.

use std::time::Duration;

use lockson_harness::RedisServer;

use super::{Totals, open};
use crate::kind::Kind;
use crate::peer::{Cast, Peer, Seat, Ticket};
use crate::site::Site;
use crate::verdict::{Score, Verdict, caught};

/// The results of all fights, as a table.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    /// The pairs of processes and kinds: the columns.
    pub(crate) contests: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// One hold time and one distribution of threads.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) title: String,
    /// One cell for each contest: the verdict and the figures, `None` where the two sides did not meet.
    pub(crate) cells: Vec<Option<(Verdict, String)>>,
}

/// Two processes and the kind of the contested lock.
#[derive(Debug)]
struct Contest {
    kind: &'static str,
    sides: [Side; 2],
    /// In microseconds.
    holds: &'static [u64],
}

/// The peers, by their place in [`SEATS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Rust = 0,
    Java = 1,
    OtherRust = 2,
    OtherJava = 3,
}

/// One meeting at one lock.
#[derive(Clone, Copy, Debug)]
struct Fight {
    contest: &'static Contest,
    hold_us: u64,
    threads: [usize; 2],
    /// The factor on the usual duration.
    times: u32,
}

/// The threads of two processes take one lock again and again, in every combination of the table.
pub(crate) fn fairness(server: &RedisServer, cast: &Cast, kinds: &[&'static Kind], score: &Score) -> Fairness {
    let contests: Vec<&Contest> =
        CONTESTS.iter().filter(|contest| kinds.iter().any(|kind| kind.word == contest.kind)).collect();
    let mut peers: Vec<Peer> = SEATS.iter().map(|seat| open(Site::One(server), cast, *seat, "")).collect();
    let mut fairness = Fairness { contests: contests.iter().map(|contest| contest.title()).collect(), rows: vec![] };
    for kind in kinds {
        warm_up(&mut peers, kind);
    }
    for hold_us in HOLDS {
        let fights_of = |threads: [usize; 2]| {
            let meets = |contest: &&&'static Contest| contest.holds.contains(hold_us);
            contests.iter().filter(meets).map(move |contest| Fight { contest, hold_us: *hold_us, threads, times: 1 })
        };
        let all: Vec<Fight> = THREADS.iter().flat_map(|threads| fights_of(*threads)).collect();
        // Long holds leave the processors idle: all of these fights can run at the same time.
        let at_once = if *hold_us >= LONG_HOLD_MICROS { all.len().max(1) } else { 1 };
        let outcomes: Vec<_> = all
            .chunks(at_once)
            .flat_map(|some| meet(&mut peers, some))
            .zip(&all)
            .map(|(met, fight)| (fight, met))
            .collect();
        for threads in THREADS {
            let of_row: Vec<_> = outcomes.iter().filter(|(fight, _)| fight.threads == *threads).collect();
            let yardstick = of_row.iter().find(|(fight, _)| fight.contest.is_yardstick());
            let mut yard_ms = yardstick.and_then(|(_, met)| met.as_ref().ok()).map(longest_wait);
            let mut cell = |contest: &&Contest| {
                let (fight, met) = of_row.iter().find(|(fight, _)| std::ptr::eq(fight.contest, *contest))?;
                let (mut judged, mut shown) = fight.judge(met, yard_ms);
                println!("fairness: {}: {shown}", fight.title());
                if judged.misses && !contest.is_yardstick() {
                    // A short fight has few grants and may be decided by chance: the result is a longer fight, beside
                    // two Redissons again.
                    let longer = Fight { times: LONGER, ..**fight };
                    if let Some((yardstick, _)) = yardstick {
                        let met = meet(&mut peers, &[Fight { times: LONGER, ..**yardstick }]).remove(0);
                        let again_ms = met.as_ref().map_or(0.0, longest_wait);
                        yard_ms = yard_ms.map(|first_ms| first_ms.max(again_ms));
                    }
                    (judged, shown) = longer.judge(&meet(&mut peers, &[longer]).remove(0), yard_ms);
                    println!("fairness: {}, {LONGER} times as long: {shown}", fight.title());
                }
                let verdict = judged.verdict;
                if !contest.is_yardstick() {
                    score.count(&fight.title(), &verdict);
                }
                Some((verdict, shown))
            };
            let title = format!("{}, {}+{}", shown_hold(*hold_us), threads[0], threads[1]);
            fairness.rows.push(Row { title, cells: contests.iter().map(&mut cell).collect() });
        }
    }
    fairness
}

/// Alone, so that no JVM is still loading code when the fights begin.
fn warm_up(peers: &mut [Peer], kind: &Kind) {
    for (place, peer) in peers.iter_mut().enumerate() {
        let duration = WARMING_UP.as_millis();
        let command = format!("cycle kind={} names=warm-{}-{place} duration_ms={duration}", kind.word, kind.word);
        let tickets: Vec<Ticket> = (0..4).map(|thread| peer.send(&format!("{command} thread={thread}"))).collect();
        for ticket in tickets {
            peer.answer(ticket, WARMING_UP + GRACE).expect_ok();
        }
    }
}

/// Runs these fights at the same time; each thread of a peer takes part in one fight.
fn meet(peers: &mut [Peer], fights: &[Fight]) -> Vec<Result<[Totals; 2], String>> {
    let mut next_thread = [0; SEATS.len()];
    let tickets: Vec<[Vec<Ticket>; 2]> = fights
        .iter()
        .map(|fight| {
            [0, 1].map(|side| {
                let place = fight.contest.sides[side] as usize;
                let mut start = || {
                    next_thread[place] += 1;
                    peers[place].send(&format!("{} thread={}", fight.command(), next_thread[place] - 1))
                };
                (0..fight.threads[side]).map(|_| start()).collect()
            })
        })
        .collect();
    let mut outcomes = vec![];
    for (fight, tickets) in fights.iter().zip(tickets) {
        outcomes.push(caught(|| {
            let mut totals = [Totals::default(); 2];
            for ((total, tickets), side) in totals.iter_mut().zip(tickets).zip(fight.contest.sides) {
                for ticket in tickets {
                    let answer = peers[side as usize].answer(ticket, fight.duration() + GRACE);
                    *total += Totals::of(&answer.expect_ok());
                }
            }
            totals
        }));
    }
    outcomes
}

fn longest_wait(totals: &[Totals; 2]) -> f64 {
    totals[0].longest_wait_ms.max(totals[1].longest_wait_ms)
}

fn shown_hold(hold_us: u64) -> String {
    format!("{} ms", hold_us / 1_000)
}

/// The result of one fight.
struct Judged {
    verdict: Verdict,
    /// A figure to be reached was missed, if only by a little.
    misses: bool,
}

impl Contest {
    /// Two Redissons: the standard for the length of waits.
    fn is_yardstick(&self) -> bool {
        self.sides == [Side::Java, Side::OtherJava]
    }

    fn title(&self) -> String {
        let title = Kind::named(self.kind).map_or(self.kind, |kind| kind.title);
        let [one, other] = self.sides.map(|side| SEATS[side as usize].name());
        format!("{title}, {one} + {other}")
    }
}

impl Fight {
    fn title(&self) -> String {
        let [one, other] = self.threads;
        format!("{}, hold of {}, {one} + {other} threads", self.contest.title(), shown_hold(self.hold_us))
    }

    fn command(&self) -> String {
        let [one, other] = self.contest.sides.map(|side| side as usize);
        let Self { contest: Contest { kind, .. }, hold_us, threads, times } = self;
        let name = format!("hot-{kind}-{one}{other}-{hold_us}-{}-{}-{times}", threads[0], threads[1]);
        format!("cycle kind={kind} names={name} duration_ms={} hold_us={hold_us}", self.duration().as_millis())
    }

    fn duration(&self) -> Duration {
        self.times * if self.hold_us >= LONG_HOLD_MICROS { LONG_FIGHT } else { FIGHT }
    }

    /// The verdict and the figures: the share of the side that got less of its part, and the longest wait of any
    /// thread.
    fn judge(&self, met: &Result<[Totals; 2], String>, yard_ms: Option<f64>) -> (Judged, String) {
        let totals = match met {
            Ok(totals) => totals,
            Err(story) => {
                let judged = Judged { verdict: Verdict::Failed(story.clone()), misses: true };
                return (judged, "no figures".to_owned());
            }
        };
        let all: i64 = totals.iter().map(|total| total.grants).sum();
        let threads: usize = self.threads.iter().sum();
        let mut wrong = vec![];
        let mut least = f64::INFINITY;
        for (side, total) in totals.iter().enumerate() {
            let part = all as f64 * self.threads[side] as f64 / threads as f64;
            let share = total.grants as f64 / part.max(1.0);
            least = least.min(share);
            let name = SEATS[self.contest.sides[side] as usize].name();
            if share < STARVED {
                wrong.push(format!("{name} got {share:.2} of its part: {} of {all} grants", total.grants));
            }
            if total.errors + total.lost > 0 {
                wrong.push(format!("{name}: {} errors, {} lost", total.errors, total.lost));
            }
        }
        let longest = longest_wait(totals);
        let bound_ms = yard_ms.map(|yard_ms| 2.0 * yard_ms + GRACE_MS);
        if let Some(bound_ms) = bound_ms.filter(|bound_ms| longest > 2.0 * bound_ms) {
            wrong.push(format!("a wait of {longest:.0} ms, where two Redissons allow {bound_ms:.0} ms"));
        }
        let (little, long) = (least < LEAST_SHARE, bound_ms.is_some_and(|bound_ms| longest > bound_ms));
        let mut shown = format!("{least:.2}, {longest:.0} ms");
        if little || long {
            shown += " (missed)";
        }
        let misses = little || long || !wrong.is_empty();
        (Judged { verdict: Verdict::unless(wrong), misses }, shown)
    }
}

const CONTESTS: &[Contest] = &[
    Contest { kind: "plain", sides: [Side::Rust, Side::Java], holds: HOLDS },
    Contest { kind: "plain", sides: [Side::Rust, Side::OtherRust], holds: HOLDS },
    Contest { kind: "plain", sides: [Side::Java, Side::OtherJava], holds: HOLDS },
    Contest { kind: "non_reentrant", sides: [Side::Rust, Side::Java], holds: LONG_HOLDS },
    Contest { kind: "write", sides: [Side::Rust, Side::Java], holds: LONG_HOLDS },
    Contest { kind: "fair", sides: [Side::Rust, Side::Java], holds: LONG_HOLDS },
];
const SEATS: [Seat; 4] = [Seat::Rust, Seat::Java, Seat::Rust, Seat::Java];
/// In microseconds, in the order of the rows.
const HOLDS: &[u64] = &[0, 1_000, 10_000, LONG_HOLD_MICROS];
const LONG_HOLDS: &[u64] = &[10_000, LONG_HOLD_MICROS];
const LONG_HOLD_MICROS: u64 = 100_000;
const THREADS: &[[usize; 2]] = &[[1, 1], [4, 4], [4, 1], [1, 4]];
/// The share of the grants that a process must get, relative to its share of the threads.
pub(crate) const LEAST_SHARE: f64 = 0.8;
/// A smaller share fails the check.
pub(crate) const STARVED: f64 = 0.6;
/// How much longer a fight lasts the second time.
const LONGER: u32 = 3;
/// The permitted excess of a wait over twice the longest wait of two Redissons: on a busy machine a thread wakes late.
pub(crate) const GRACE_MS: f64 = 50.0;
const FIGHT: Duration = Duration::from_secs(2);
const LONG_FIGHT: Duration = Duration::from_secs(12);
const WARMING_UP: Duration = Duration::from_millis(1_000);
/// The permitted delay of an answer; a starved thread answers late.
const GRACE: Duration = Duration::from_secs(40);
