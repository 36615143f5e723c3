//! The measurements. In each round all candidates take turns, beginning with another one each time.

mod held;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::RedisServer;

use crate::peer::{Answer, CANDIDATES, Candidate, PATIENCE, Peer, figure};
use crate::table::{Table, jain, part_of};

/// The size of a run.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    rounds: usize,
    pair_ms: u64,
    hand_over: Duration,
    hot_rounds: usize,
    hot_ms: u64,
    crowd: usize,
    many: usize,
    starts: usize,
    warm_up_ms: u64,
}

pub(crate) const FULL: Plan = Plan {
    name: "full",
    rounds: 8,
    pair_ms: 150,
    hand_over: Duration::from_millis(600),
    hot_rounds: 2,
    hot_ms: 1_200,
    crowd: 1_000,
    many: 100_000,
    starts: 5,
    warm_up_ms: 3_000,
};

pub(crate) const QUICK: Plan = Plan {
    name: "quick",
    rounds: 3,
    pair_ms: 100,
    hand_over: Duration::from_millis(400),
    hot_rounds: 1,
    hot_ms: 500,
    crowd: 1_000,
    many: 10_000,
    starts: 2,
    warm_up_ms: 1_500,
};

/// The peers of a run that started: four processes of each candidate.
type Team = (&'static Candidate, Vec<Peer>);

struct Run<'a> {
    plan: &'a Plan,
    table: Table,
    servers: Vec<RedisServer>,
    begun: Instant,
}

pub(crate) fn run(plan: &Plan) -> Table {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let mut run = Run { plan, table: Table::default(), servers, begun: Instant::now() };
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let redis = run.servers[0].info("redis_version").unwrap_or_default();
    run.table.conditions = format!("{processors} processors, Redis {redis}");
    run.starts();
    let mut teams = run.teams();
    run.pairs(&mut teams);
    run.hand_over(&mut teams);
    run.hot(&mut teams);
    drop(teams);
    run.crowds();
    run.many();
    run.losses();
    run.table
}

impl Run<'_> {
    fn step(&self, what: &str) {
        println!("compare: {:4.0} s: {what}", self.begun.elapsed().as_secs_f64());
    }

    fn url(&self) -> String {
        url_of(self.servers[0].port())
    }

    /// All servers.
    fn urls(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(|server| url_of(server.port())).collect();
        urls.join(",")
    }

    /// Starts a new process of a candidate; without one, all cells of these rows say why.
    fn start(&mut self, candidate: &'static Candidate, url: &str, keys: &[&str]) -> Option<Peer> {
        let started = Peer::start(candidate, url);
        let told = started.map_err(|reason| {
            for key in keys {
                self.table.add(key, candidate.name, Err(reason.clone()));
            }
        });
        told.ok().map(|(peer, _)| peer)
    }

    /// Each candidate in turn, beginning with another one in each round.
    fn in_turns(
        &self,
        rounds: usize,
        teams: &mut [Team],
        mut turn: impl FnMut(usize, &'static Candidate, &mut [Peer]),
    ) {
        for round in 0..rounds {
            for place in 0..teams.len() {
                let place = (place + round) % teams.len();
                let (candidate, peers) = &mut teams[place];
                turn(round, candidate, peers);
            }
        }
    }

    fn starts(&mut self) {
        self.step("starts");
        let url = self.url();
        for candidate in (0..self.plan.starts).flat_map(|_| CANDIDATES) {
            let started = Peer::start(candidate, &url);
            if let Ok((peer, _)) = &started {
                self.table.versions.insert(candidate.name, peer.version.clone());
            }
            self.table.add("start", candidate.name, started.map(|(_, micros)| micros / 1e3));
        }
    }

    fn teams(&mut self) -> Vec<Team> {
        self.step("warming up");
        let urls = self.urls();
        let mut teams: Vec<Team> = vec![];
        for candidate in CANDIDATES {
            match (0..4).map(|_| Peer::start(candidate, &urls).map(|(peer, _)| peer)).collect() {
                Ok(peers) => teams.push((candidate, peers)),
                Err(reason) => {
                    println!("compare: without {}: {reason}", candidate.name);
                    for row in crate::table::ROWS {
                        self.table.add(row.key, candidate.name, Err(reason.clone()));
                    }
                }
            }
        }
        for (candidate, peers) in &mut teams {
            for (number, peer) in peers.iter_mut().enumerate() {
                peer.send(&format!("pair lock {} warm:{}:{number}", self.plan.warm_up_ms, candidate.name));
            }
            peers.iter_mut().for_each(|peer| drop(peer.answer(PATIENCE)));
        }
        teams
    }

    fn pairs(&mut self, teams: &mut [Team]) {
        for kind in ["lock", "reentry", "multi", "semaphore", "red"] {
            self.step(&format!("pairs: {kind}"));
            let key = if kind == "lock" { "pair" } else { kind };
            let (millis, mut values) = (self.plan.pair_ms, vec![]);
            // The first round warms up the code of this kind.
            self.in_turns(self.plan.rounds + 1, teams, |round, Candidate { name, .. }, peers| {
                let answer = peers[0].ask(&format!("pair {kind} {millis} {kind}:{name}"));
                let micros = figure(&answer, "p50");
                if round > 0 || micros.is_err() {
                    values.push((*name, micros));
                }
            });
            values.into_iter().for_each(|(name, value)| self.table.add(key, name, value));
        }
    }

    /// From a process to another one.
    fn hand_over(&mut self, teams: &mut [Team]) {
        self.step("hand-over");
        let mut all: BTreeMap<&'static str, Result<Vec<f64>, String>> = BTreeMap::new();
        let time = self.plan.hand_over;
        self.in_turns(self.plan.rounds, teams, |_, Candidate { name, .. }, peers| {
            let [holder, waiter, ..] = peers else { unreachable!("four peers") };
            let values = all.entry(name).or_insert_with(|| Ok(vec![]));
            let begun = Instant::now();
            while begun.elapsed() < time {
                match (hand_over_once(holder, waiter, &format!("hand-over:{name}"), SETTLING), &mut *values) {
                    (Ok(micros), Ok(values)) => values.push(micros),
                    (Err(reason), values) => return *values = Err(reason),
                    _ => return,
                }
            }
        });
        for (name, values) in all {
            for (key, part) in [("hand-over", 0.5), ("hand-over-p99", 0.99)] {
                self.table.add(key, name, values.clone().map(|values| part_of(&values, part)));
            }
        }
    }

    fn hot(&mut self, teams: &mut [Team]) {
        let urls = self.urls();
        for (shape, processes, workers) in [("1x8", 1, 8), ("4x2", 4, 2)] {
            for hold in [0, 1, 10] {
                self.step(&format!("hot lock: {shape}, holds of {hold} ms"));
                let (millis, mut values) = (self.plan.hot_ms, vec![]);
                self.in_turns(self.plan.hot_rounds, teams, |round, candidate, peers| {
                    let name = candidate.name;
                    let command = format!("hot hot:{shape}:{hold}:{round}:{name} {workers} {millis} {}", hold * 1_000);
                    peers[..processes].iter_mut().for_each(|peer| peer.send(&command));
                    let end = Instant::now() + HOT_PATIENCE;
                    let rest = || end.saturating_duration_since(Instant::now());
                    let answers = peers[..processes].iter_mut().map(|peer| peer.answer(rest()));
                    values.push((name, push(answers.collect())));
                    // What hangs on this lock may do well with the next one.
                    for peer in peers.iter_mut().filter(|peer| peer.is_dead()) {
                        if let Ok((new, _)) = Peer::start(candidate, &urls) {
                            *peer = new;
                        }
                    }
                });
                for (name, value) in values {
                    let mut add = |what: &str, place: usize, scale: f64| {
                        let value = value.clone().map(|value| value[place] * scale);
                        self.table.add(&format!("{what}-{shape}-{hold}"), name, value);
                    };
                    add("hot", 0, 1e3 / millis as f64);
                    add("jain", 1, 1.0);
                    add("longest", 2, 1e-3);
                }
            }
        }
    }
}

fn url_of(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Microseconds from before the release to after the grant.
fn hand_over_once(holder: &mut Peer, waiter: &mut Peer, name: &str, settling: Duration) -> Result<f64, String> {
    holder.ask(&format!("hold {name}"))?;
    waiter.send(&format!("wait {name}"));
    // Leaves the waiter time to ask, to subscribe and to sleep.
    thread::sleep(settling);
    let given = figure(&holder.ask(&format!("give {name}")), "at")?;
    let granted = figure(&waiter.answer(LOSS_PATIENCE), "at")?;
    Ok((granted - given).max(0.0))
}

/// All grants, the fairness of the workers, and the longest wait in microseconds.
fn push(answers: Vec<Answer>) -> Result<[f64; 3], String> {
    let (mut grants, mut longest) = (vec![], 0.0_f64);
    for answer in &answers {
        longest = longest.max(figure(answer, "longest")?);
        let list = &answer.as_ref().map_err(Clone::clone)?["grants"];
        grants.extend(list.split(',').filter_map(|grants| grants.parse::<f64>().ok()));
    }
    Ok([grants.iter().sum(), jain(&grants), longest])
}

const SETTLING: Duration = Duration::from_millis(5);
/// Much longer than any push.
const HOT_PATIENCE: Duration = Duration::from_secs(15);
/// Longer than a lease.
const LOSS_PATIENCE: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_of_several_processes_are_put_together() {
        let answer = |grants: &str, longest: &str| {
            let words =
                [("grants", grants), ("longest", longest)].map(|(key, value)| (key.to_owned(), value.to_owned()));
            Ok(words.into_iter().collect())
        };
        assert_eq!(push(vec![answer("4,0", "7"), answer("0,4", "9")]), Ok([8.0, 0.5, 9.0]));
        assert_eq!(push(vec![answer("4,0", "7"), Err("gone".to_owned())]), Err("gone".to_owned()));
    }
}
