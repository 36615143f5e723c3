//! Hot locks between two processes: each process must get its share by threads, and no thread may wait for long.

use std::time::Duration;

use lockson_harness::{Peer, RedisServer, Ticket};

use super::{Totals, open};
use crate::actor::CLIENTS_OF_SERVERS;
use crate::kind::Kind;
use crate::options::Options;
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::verdict::{Score, Verdict, caught};

/// The results of all fights, as a table.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    pub(crate) rows: Vec<Row>,
}

/// One stake, one hold time and one pair of processes.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) title: String,
    /// One cell for each of [`THREADS`]: the verdict and the figures, `None` where the two sides did not meet.
    pub(crate) cells: Vec<Option<(Verdict, String)>>,
}

/// What two processes contend for.
#[derive(Debug, PartialEq, Eq)]
struct Stake {
    kind: &'static str,
    /// Zero for a lock.
    permits: u32,
}

/// Two processes, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    /// The standard for what a process gets, and for the length of waits.
    TwoJava,
    RustAndJava,
    TwoRust,
}

/// One meeting at one stake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fight {
    stake: &'static Stake,
    pair: Pair,
    hold_us: u64,
    threads: [usize; 2],
    /// The factor on the usual duration.
    times: u32,
}

/// The outcomes of fights: the sums of the two sides, or the story of a failure.
struct Met(Vec<(Fight, Result<[Totals; 2], String>)>);

/// The threads of two processes take one lock again and again: in every combination of the table, or in a sample.
pub(crate) fn fairness(
    server: &RedisServer,
    cast: &Cast,
    kinds: &[&'static Kind],
    options: &Options,
    score: &Score,
) -> Fairness {
    let fights: Vec<Fight> = fights(kinds).into_iter().filter(|fight| fight.is_wanted(options)).collect();
    let others: Vec<_> = CLIENTS_OF_SERVERS[1..].iter().map(|client| (client, RedisServer::start())).collect();
    let mut peers: Vec<Peer> = SEATS.iter().map(|seat| open(Site::One(server), cast, *seat, "")).collect();
    for peer in &mut peers {
        for (client, server) in &others {
            peer.ask(&format!("open client={client} {}", Site::One(server).options())).expect_ok();
        }
    }
    for stake in STAKES.iter().filter(|stake| fights.iter().any(|fight| fight.stake == *stake)) {
        warm_up(&mut peers, stake);
    }
    let mut met = Met(vec![]);
    met.run(&mut peers, &fights);
    // A short fight has few grants and may be decided by chance: the result of a miss is a longer fight, beside two
    // Redissons again.
    let missed = |fight: &Fight| fight.pair != Pair::TwoJava && met.judge(*fight).is_some_and(|judged| judged.misses);
    let again =
        |fight: &Fight| missed(fight) || fights.iter().any(|other| missed(other) && fight.is_yardstick_of(*other));
    let again: Vec<Fight> = fights.iter().filter(|fight| again(fight)).map(|fight| fight.longer()).collect();
    met.run(&mut peers, &again);
    let mut fairness = Fairness::default();
    for fight in &fights {
        let title = fight.row();
        if fairness.rows.last().is_none_or(|row| row.title != title) {
            fairness.rows.push(Row { title, cells: THREADS.iter().map(|_| None).collect() });
        }
        let judged = met.judge(fight.longer()).or_else(|| met.judge(*fight)).expect("each fight was fought");
        println!("fairness: {}: {}", fight.title(), judged.shown);
        if fight.pair != Pair::TwoJava {
            score.count(&fight.title(), &judged.verdict);
        }
        let place = THREADS.iter().position(|threads| *threads == fight.threads);
        if let (Some(row), Some(place)) = (fairness.rows.last_mut(), place) {
            row.cells[place] = Some((judged.verdict, judged.shown));
        }
    }
    fairness
}

/// All fights, row by row.
fn fights(kinds: &[&'static Kind]) -> Vec<Fight> {
    let mut fights = vec![];
    for stake in STAKES.iter().filter(|stake| kinds.iter().any(|kind| kind.word == stake.kind)) {
        for &hold_us in HOLDS {
            for pair in [Pair::TwoJava, Pair::RustAndJava, Pair::TwoRust] {
                fights.extend(THREADS.map(|threads| Fight { stake, pair, hold_us, threads, times: 1 }));
            }
        }
    }
    fights.retain(|fight| (fight.hold_us > 0 && fight.pair != Pair::TwoRust) || fight.stake == &STAKES[0]);
    fights
}

/// Each JVM alone, so that none is still loading code when the fights begin.
fn warm_up(peers: &mut [Peer], stake: &'static Stake) {
    for (place, peer) in peers.iter_mut().enumerate().filter(|(place, _)| SEATS[*place] == Seat::Java) {
        let duration = WARMING_UP.as_millis();
        let command = format!("cycle {} duration_ms={duration}", stake.words(peer, &format!("warm-{place}")));
        let tickets: Vec<Ticket> = (0..4).map(|thread| peer.send(&format!("{command} thread={thread}"))).collect();
        for ticket in tickets {
            peer.answer(ticket, WARMING_UP + GRACE).expect_ok();
        }
    }
}

impl Met {
    /// Runs fights. Long holds leave the processors idle: such fights run at the same time.
    fn run(&mut self, peers: &mut [Peer], fights: &[Fight]) {
        let (long, short): (Vec<Fight>, Vec<Fight>) = fights.iter().partition(|fight| fight.is_long());
        for threads in THREADS {
            let at_once: Vec<Fight> = long.iter().filter(|fight| fight.threads == threads).copied().collect();
            self.meet(peers, &at_once);
        }
        short.iter().for_each(|fight| self.meet(peers, &[*fight]));
    }

    /// Runs these fights at the same time; each thread of a peer takes part in one fight.
    fn meet(&mut self, peers: &mut [Peer], fights: &[Fight]) {
        let mut next_thread = [0; SEATS.len()];
        let mut started = vec![];
        // All objects come first, because the threads of a fight take no other commands.
        let words: Vec<String> = fights.iter().map(|fight| fight.stake.words(&mut peers[0], &fight.name())).collect();
        for (fight, words) in fights.iter().zip(words) {
            let duration = fight.duration().as_millis();
            let command = format!("cycle {words} duration_ms={duration} hold_us={}", fight.hold_us);
            let tickets: [Vec<Ticket>; 2] = [0, 1].map(|side| {
                let place = fight.pair.seats()[side];
                let mut start = || {
                    next_thread[place] += 1;
                    peers[place].send(&format!("{command} thread={}", next_thread[place] - 1))
                };
                (0..fight.threads[side]).map(|_| start()).collect()
            });
            started.push((fight, tickets));
        }
        for (fight, tickets) in started {
            let outcome = caught(|| {
                let mut totals = [Totals::default(); 2];
                for ((total, tickets), place) in totals.iter_mut().zip(tickets).zip(fight.pair.seats()) {
                    for ticket in tickets {
                        *total += Totals::of(&peers[place].answer(ticket, fight.duration() + GRACE).expect_ok());
                    }
                }
                totals
            });
            self.0.push((*fight, outcome));
        }
    }

    /// The smaller share, and the longest wait, that two Redissons have in this fight.
    fn yardstick(&self, fight: Fight) -> Option<(f64, f64)> {
        let of = |(yard, met): &(Fight, Result<[Totals; 2], String>)| {
            let totals = met.as_ref().ok().filter(|_| yard.is_yardstick_of(fight))?;
            Some((fight.shares(totals).into_iter().fold(f64::INFINITY, f64::min), longest_wait(totals)))
        };
        self.0.iter().filter_map(of).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// The verdict and the figures: the share of the side that got less of its part, and the longest wait of any
    /// thread.
    fn judge(&self, fight: Fight) -> Option<Judged> {
        let (_, met) = self.0.iter().find(|(other, _)| *other == fight)?;
        let totals = match met {
            Ok(totals) => totals,
            Err(story) => {
                let verdict = Verdict::Failed(story.clone());
                return Some(Judged { verdict, shown: "no figures".to_owned(), misses: true });
            }
        };
        let yardstick = self.yardstick(fight).filter(|_| fight.pair != Pair::TwoJava);
        let fair = yardstick.map_or(1.0, |(share, _)| share.min(1.0));
        let all: i64 = totals.iter().map(|total| total.grants).sum();
        let shares = fight.shares(totals);
        let polls = Kind::named(fight.stake.kind).is_some_and(|kind| kind.polls);
        let mut wrong = vec![];
        for ((place, total), share) in fight.pair.seats().into_iter().zip(totals).zip(shares) {
            let name = SEATS[place].name();
            if share < STARVED * fair && !polls {
                wrong.push(format!("{name} got {share:.2} of its part: {} of {all} grants", total.grants));
            }
            if total.errors + total.lost > 0 {
                wrong.push(format!("{name}: {} errors, {} lost", total.errors, total.lost));
            }
        }
        let longest = longest_wait(totals);
        let bound_ms = yardstick.map(|(_, yard_ms)| 2.0 * yard_ms + GRACE_MS);
        if let Some(bound_ms) = bound_ms.filter(|bound_ms| longest > 2.0 * bound_ms && !polls) {
            wrong.push(format!("a wait of {longest:.0} ms, where two Redissons allow {bound_ms:.0} ms"));
        }
        let least = usize::from(shares[1] < shares[0]);
        let misses = shares[least] < LEAST_SHARE * fair || bound_ms.is_some_and(|bound_ms| longest > bound_ms);
        let misses = misses || !wrong.is_empty();
        let side = if fight.pair == Pair::RustAndJava { SEATS[least].name().to_owned() + " " } else { String::new() };
        let missed = if misses { " (missed)" } else { "" };
        let shown = format!("{side}{:.2}, {longest:.0} ms{missed}", shares[least]);
        Some(Judged { verdict: Verdict::unless(wrong), shown, misses })
    }
}

fn longest_wait(totals: &[Totals; 2]) -> f64 {
    totals[0].longest_wait_ms.max(totals[1].longest_wait_ms)
}

/// The result of one fight.
struct Judged {
    verdict: Verdict,
    shown: String,
    /// A figure to be reached was missed, if only by a little.
    misses: bool,
}

impl Stake {
    fn title(&self) -> String {
        let title = Kind::named(self.kind).map_or(self.kind, |kind| kind.title);
        match self.permits {
            0 => title.to_owned(),
            1 => format!("{title}, 1 permit"),
            permits => format!("{title}, {permits} permits"),
        }
    }

    /// The words of a command about a new object.
    fn words(&self, peer: &mut Peer, name: &str) -> String {
        let Self { kind, permits } = self;
        let name = format!("hot-{kind}-{permits}-{name}");
        if *permits > 0 {
            let set = peer.ask(&format!("try_set_permits kind={kind} name={name} permits={permits}"));
            assert!(set.expect_ok().flag("set"), "the name was in use");
        }
        let several = || [1, 2, 3].map(|number| format!("{name}-{number}")).join(",");
        match *kind {
            "multi" => format!("kind=multi names={}", several()),
            "red" => {
                let clients = CLIENTS_OF_SERVERS.map(|client| client.to_string()).join(",");
                format!("kind=red names={} clients={clients}", several())
            }
            "faster_multi" => format!("kind=faster_multi name={name} names=one,two"),
            kind => format!("kind={kind} names={name}"),
        }
    }
}

impl Pair {
    /// The places of the two sides in [`SEATS`].
    fn seats(self) -> [usize; 2] {
        match self {
            Self::TwoJava => [1, 3],
            Self::RustAndJava => [0, 1],
            Self::TwoRust => [0, 2],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::TwoJava => "two Java",
            Self::RustAndJava => "Rust + Java",
            Self::TwoRust => "two Rust",
        }
    }
}

impl Fight {
    fn is_wanted(&self, options: &Options) -> bool {
        options.all_shares || (self.is_sampled() && !(options.brief && self.is_left_out()))
    }

    /// The cells that the sample of a gate leaves out: long holds, and the easier combinations of short ones.
    fn is_left_out(&self) -> bool {
        self.is_long() || (self.hold_us < 10_000 && self.threads != [4, 4])
    }

    /// The cells of a short run: the lock in every combination, the other kinds in the hardest.
    fn is_sampled(&self) -> bool {
        let is_hard = self.threads == [4, 4] && self.hold_us >= 10_000;
        is_hard || (self.stake == &STAKES[0] && (self.is_long() || self.pair != Pair::TwoRust))
    }

    fn is_long(&self) -> bool {
        self.hold_us >= LONG_HOLD_MICROS
    }

    fn longer(self) -> Self {
        Self { times: LONGER, ..self }
    }

    /// Whether this is the fight of two Redissons that is the standard for `fight`, of any duration.
    fn is_yardstick_of(self, fight: Self) -> bool {
        self == Self { pair: Pair::TwoJava, times: self.times, ..fight }
    }

    fn row(&self) -> String {
        format!("{}, {} ms, {}", self.stake.title(), self.hold_us / 1_000, self.pair.title())
    }

    fn title(&self) -> String {
        let [one, other] = self.threads;
        format!("{}, {one} + {other} threads", self.row())
    }

    fn name(&self) -> String {
        let Self { pair, hold_us, threads: [one, other], times, .. } = self;
        format!("{pair:?}-{hold_us}-{one}-{other}-{times}")
    }

    fn duration(&self) -> Duration {
        self.times * if self.is_long() { LONG_FIGHT } else { FIGHT }
    }

    /// What each side got of its part by threads.
    fn shares(&self, totals: &[Totals; 2]) -> [f64; 2] {
        let all: i64 = totals.iter().map(|total| total.grants).sum();
        let threads: usize = self.threads.iter().sum();
        [0, 1].map(|side| {
            let part = all as f64 * self.threads[side] as f64 / threads as f64;
            totals[side].grants as f64 / part.max(1.0)
        })
    }
}

/// The first is the lock, which is measured in most combinations.
const STAKES: &[Stake] = &[
    Stake { kind: "plain", permits: 0 },
    Stake { kind: "non_reentrant", permits: 0 },
    Stake { kind: "fenced", permits: 0 },
    Stake { kind: "write", permits: 0 },
    Stake { kind: "fair", permits: 0 },
    Stake { kind: "spin", permits: 0 },
    Stake { kind: "multi", permits: 0 },
    Stake { kind: "faster_multi", permits: 0 },
    Stake { kind: "red", permits: 0 },
    Stake { kind: "semaphore", permits: 1 },
    Stake { kind: "semaphore", permits: 4 },
    Stake { kind: "permits", permits: 1 },
    Stake { kind: "permits", permits: 4 },
];
const SEATS: [Seat; 4] = [Seat::Rust, Seat::Java, Seat::Rust, Seat::Java];
/// In microseconds, in the order of the rows.
const HOLDS: &[u64] = &[0, 1_000, 10_000, LONG_HOLD_MICROS];
const LONG_HOLD_MICROS: u64 = 100_000;
pub(crate) const THREADS: [[usize; 2]; 4] = [[1, 1], [4, 4], [4, 1], [1, 4]];
/// The share of the grants that a process must get, relative to its share of the threads.
pub(crate) const LEAST_SHARE: f64 = 0.8;
/// A smaller share fails the check, except where both sides poll: who asks at the moment of a release is chance.
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
