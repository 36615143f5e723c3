//! A long mixed run with kills: two JVMs and two Rust processes on the same names, watched from outside Redis.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::{Peer, Ticket, Witness};

use super::moves::while_slots_move;
use super::{Loaded, Totals, open};
use crate::kind::{Family, Kind, Shape};
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::verdict::{Score, Verdict, caught};
use lockson_harness::percent::{encode, encode_all};

/// One process of the four, with a loop on each thread.
struct Player {
    seat: Seat,
    peer: Peer,
    loops: Vec<Ticket>,
}

/// The results of the run except the sums of each language.
#[derive(Debug, Default)]
struct Outcome {
    totals: [Totals; 2],
    kills: [u32; 2],
    /// Of each kind, in milliseconds.
    longest_waits: Vec<f64>,
    /// Threads without an answer, by their place in the process.
    stuck: Vec<(Seat, usize)>,
    /// What is wrong with names after the end of all loops, and the overlaps that the processes saw.
    ends: Vec<String>,
}

struct Soak<'s> {
    site: Site<'s>,
    cast: &'s Cast,
    kinds: &'s [&'static Kind],
    folder: &'s Path,
    end: Instant,
    started: u32,
}

/// Runs for this time, kills each language in turn and replaces the killed process; the kinds share the threads of each
/// process. Kinds with permits need a run of their own.
pub(crate) fn soak(site: Site<'_>, cast: &Cast, kinds: &[&'static Kind], duration: Duration, score: &Score) -> Loaded {
    let names: Vec<String> = kinds.iter().flat_map(|kind| names(kinds, kind)).collect();
    let run = || match site {
        Site::One(_) => run(site, cast, kinds, duration),
        Site::Cluster(cluster) => while_slots_move(cluster, &names, || run(site, cast, kinds, duration)),
    };
    let verdict = match caught(run) {
        Ok(outcome) => judge(&outcome, kinds, site),
        Err(story) => Verdict::Failed(story),
    };
    let titles: Vec<&str> = kinds.iter().map(|kind| kind.title).collect();
    let kills = if survive_kills(kinds) { ", kills and replacements" } else { "" };
    let limit = match places(kinds) {
        1 => "no overlap".to_owned(),
        places => format!("never more than {places} inside, no permit lost"),
    };
    let (moves, whose) = if site.is_cluster() { (", slots that move", "Rust ") } else { ("", "") };
    let claim = format!("2 processes of each with 4 threads{kills}{moves}: {limit}, no {whose}thread stuck");
    Loaded::new(format!("{}: {claim}", titles.join(", ")), verdict, score)
}

fn run(site: Site<'_>, cast: &Cast, kinds: &[&'static Kind], duration: Duration) -> Outcome {
    let folder = tempfile::tempdir().expect("the folder for temporary files can be written");
    let mut soak =
        Soak { site, cast, kinds, folder: folder.path(), end: Instant::now() + duration + STARTING, started: 0 };
    let mut players: Vec<Player> = [Seat::Rust, Seat::Java, Seat::Rust, Seat::Java].map(|seat| soak.start(seat)).into();
    soak.prepare(&mut players[0].peer);
    soak.end = Instant::now() + duration;
    let mut outcome = Outcome { longest_waits: vec![0.0; kinds.len()], ..Outcome::default() };
    players.iter_mut().for_each(|player| soak.set_going(player));
    let mut turn = 0;
    while survive_kills(kinds) && soak.end.saturating_duration_since(Instant::now()) > BETWEEN_KILLS + CALM_END {
        thread::sleep(BETWEEN_KILLS);
        let seat = players[turn % 4].seat;
        players[turn % 4].peer.kill();
        outcome.kills[index(seat)] += 1;
        players[turn % 4] = soak.start(seat);
        soak.set_going(&mut players[turn % 4]);
        turn += 1;
    }
    for player in &mut players {
        player.collect(soak.end + GRACE, &mut outcome);
    }
    outcome.ends = soak.check_ends(&mut players);
    outcome.ends.extend(Witness::at(folder.path().join("witness")).recorded().lines().map(str::to_owned));
    outcome
}

impl Soak<'_> {
    fn start(&self, seat: Seat) -> Player {
        let brief = format!(" watchdog_ms={} fair_wait_ms={}", WATCHDOG.as_millis(), FAIR_WAIT.as_millis());
        Player { seat, peer: open(self.site, self.cast, seat, &brief), loops: vec![] }
    }

    /// Gives each semaphore its permits.
    fn prepare(&self, peer: &mut Peer) {
        for kind in self.kinds.iter().filter(|kind| kind.family != Family::Lock) {
            for name in self.names(kind) {
                let set = peer.ask(&format!("try_set_permits kind={} name={name} permits={PERMITS}", kind.word));
                assert!(set.expect_ok().flag("set"), "the name was in use");
            }
        }
    }

    fn set_going(&mut self, player: &mut Player) {
        let left = self.end.saturating_duration_since(Instant::now()).as_millis();
        let witness = encode(&self.folder.join("witness").display().to_string());
        for thread in 0..THREADS {
            let kind = self.kinds[thread % self.kinds.len()];
            self.started += 1;
            let words = self.share(kind, player.seat, thread);
            player.loops.push(player.peer.send(&format!(
                "cycle thread={thread} {words} order=random seed={} duration_ms={left} hold_us={HOLD_MICROS} \
                 pause_us={PAUSE_MICROS} witness_dir={witness} places={}",
                self.started,
                places(self.kinds),
            )));
        }
    }

    fn names(&self, kind: &Kind) -> Vec<String> {
        names(self.kinds, kind)
    }

    /// What a thread takes. Of a kind of several names, each thread has another set of names, and the last thread takes
    /// single names. Lockson's threads name them in any order. Redisson's wait while they hold, so they have one order,
    /// as Redisson's users must.
    fn share(&self, kind: &'static Kind, seat: Seat, thread: usize) -> String {
        let mut names = self.names(kind);
        if kind.family == Family::Permits && (seat == Seat::Java || self.cast.is_rehearsal()) {
            // Redisson does not renew permits: those of a killed process would be lost without a lease.
            return format!("{} lease_ms={}", words(kind, &names), WATCHDOG.as_millis());
        }
        if kind.shape == Shape::Single {
            return words(kind, &names);
        }
        names.truncate(OVERLAPPING_NAMES);
        let count = names.len();
        names.rotate_left(self.started as usize % count);
        if thread == THREADS - 1 {
            return single(kind, &names);
        }
        names.truncate(NAMES_OF_A_SET);
        if seat == Seat::Java || self.cast.is_rehearsal() {
            names.sort_unstable();
        } else if self.started.is_multiple_of(2) {
            names.reverse();
        }
        words(kind, &names)
    }

    /// Every name can be taken after the end of all loops, and a semaphore has all of its permits. Where slots moved,
    /// Redisson is not asked: it would sleep behind a waiter that left without its place in the queue.
    fn check_ends(&self, players: &mut [Player]) -> Vec<String> {
        let mut wrong = vec![];
        let mut asked: Vec<&mut Player> =
            players.iter_mut().filter(|player| !self.site.is_cluster() || player.seat == Seat::Rust).collect();
        for kind in self.kinds {
            for (number, name) in self.names(kind).into_iter().enumerate() {
                let place = number % asked.len();
                let peer = &mut asked[place].peer;
                let words = match kind.shape {
                    Shape::Single => format!("kind={} name={name}", kind.word),
                    Shape::Several => format!("kind=plain name={name}"),
                    Shape::Group => words(kind, std::slice::from_ref(&name)),
                };
                let words = format!("thread=9 {words}");
                let verb = match kind.family {
                    Family::Lock => "try_lock".to_owned(),
                    _ => format!("try_acquire permits={PERMITS}"),
                };
                let taken = peer.ask(&format!("{verb} wait_ms={} {words}", 2 * WATCHDOG.as_millis()));
                if !(taken.is_ok() && taken.acquired()) {
                    wrong.push(format!("cannot be taken any more: {name}: {taken:?}"));
                    continue;
                }
                if kind.family != Family::Lock {
                    let left = peer.ask(&format!("available {words}")).expect_ok().number("permits");
                    if left != 0 {
                        wrong.push(format!("{name}: {left} permits too many"));
                    }
                }
                let end = match kind.family {
                    Family::Lock => "unlock".to_owned(),
                    Family::Permits => format!("release ids={}", taken.text("ids")),
                    _ => format!("release permits={PERMITS}"),
                };
                peer.ask(&format!("{end} {words}")).expect_ok();
            }
        }
        wrong
    }
}

impl Player {
    /// Collects the answers of the loops; a loop without an end is stuck.
    fn collect(&mut self, by: Instant, outcome: &mut Outcome) {
        for (thread, ticket) in self.loops.drain(..).enumerate() {
            match self.peer.answer_if_any(ticket, by.saturating_duration_since(Instant::now())) {
                Some(answer) => {
                    if let Some(error) = answer.optional_text("first_error") {
                        println!("soak: {} thread {thread}: {error}", self.seat.name());
                    }
                    let total = Totals::of(&answer.expect_ok());
                    let kind = thread % outcome.longest_waits.len();
                    outcome.longest_waits[kind] = outcome.longest_waits[kind].max(total.longest_wait_ms);
                    outcome.totals[index(self.seat)] += total;
                }
                None => outcome.stuck.push((self.seat, thread)),
            }
        }
    }
}

/// Each kind has its share of the names: two kinds on one name are undefined.
fn names(kinds: &[&'static Kind], kind: &Kind) -> Vec<String> {
    let count = if kind.family == Family::Lock { NAMES / kinds.len() } else { SEMAPHORES };
    (0..count).map(|number| format!("soak-{}-{number}", kind.word)).collect()
}

/// The words of a command about these names.
fn words(kind: &Kind, names: &[String]) -> String {
    let group = if kind.shape == Shape::Group { format!(" name=soak-{}", kind.word) } else { String::new() };
    format!("kind={}{group} names={}", kind.word, encode_all(names))
}

/// The words of a command about single names of a kind of several names: one of the locks at a time, or one value.
fn single(kind: &Kind, names: &[String]) -> String {
    match kind.shape {
        Shape::Several => format!("kind=plain names={}", encode_all(names)),
        Shape::Single | Shape::Group => words(kind, &names[..1]),
    }
}

/// How many may be inside a name of these kinds at once.
fn places(kinds: &[&'static Kind]) -> usize {
    if kinds.iter().all(|kind| kind.family == Family::Lock) { 1 } else { PERMITS }
}

/// The permits of a plain semaphore are lost with their process.
fn survive_kills(kinds: &[&'static Kind]) -> bool {
    kinds.iter().all(|kind| kind.family != Family::Semaphore)
}

fn judge(outcome: &Outcome, kinds: &[&'static Kind], site: Site<'_>) -> Verdict {
    let Outcome { totals, kills, longest_waits, stuck, ends } = outcome;
    let mut wrong = vec![];
    // Redisson's subscriptions do not follow their slots: its waiters time out, or sleep until the time to live ends, in
    // the queue of a fair lock for minutes.
    let moves = site.is_cluster();
    for seat in Seat::BOTH {
        let total = &totals[index(seat)];
        println!(
            "soak: {}: {} grants of those who lived on, longest wait {:.0} ms, {} processes killed, {} places of killed processes taken over",
            seat.name(),
            total.grants,
            total.longest_wait_ms,
            kills[index(seat)],
            total.takeovers
        );
        if total.violations > 0 {
            wrong.push(format!("{} saw {} violations", seat.name(), total.violations));
        }
        if total.errors + total.lost > 0 && !(moves && seat == Seat::Java) {
            wrong.push(format!("{}: {} errors, {} lost", seat.name(), total.errors, total.lost));
        }
        if total.grants == 0 {
            wrong.push(format!("{} got nothing", seat.name()));
        }
    }
    for (kind, mut longest) in kinds.iter().zip(longest_waits) {
        println!("soak: {}: longest wait {longest:.0} ms", kind.title);
        if moves {
            longest = &totals[index(Seat::Rust)].longest_wait_ms;
        }
        let most = if kind.shape == Shape::Group { 2 * LONGEST_WAIT } else { LONGEST_WAIT };
        if *longest > most.as_secs_f64() * 1e3 {
            wrong.push(format!("{}: a thread waited {longest:.0} ms", kind.title));
        }
    }
    println!("soak: {} threads stuck", stuck.len());
    let judged = stuck.iter().filter(|(seat, _)| !(moves && *seat == Seat::Java));
    wrong.extend(judged.map(|(seat, thread)| format!("stuck: {} thread {thread}", seat.name())));
    wrong.extend(ends.iter().cloned());
    Verdict::unless(wrong)
}

fn index(seat: Seat) -> usize {
    usize::from(seat == Seat::Java)
}

const THREADS: usize = 4;
const NAMES: usize = 20;
/// So few that threads wait for permits all the time.
const SEMAPHORES: usize = 3;
const PERMITS: usize = 2;
/// So few that sets of three overlap all the time.
const OVERLAPPING_NAMES: usize = 6;
const NAMES_OF_A_SET: usize = 3;
/// Short, so that the locks of a killed holder are soon free; long against the delays of a busy machine.
const WATCHDOG: Duration = Duration::from_secs(3);
/// After this time a fair waiter counts as gone. Kills are rarer, so dead waiters do not pile up in a queue.
const FAIR_WAIT: Duration = Duration::from_secs(2);
const HOLD_MICROS: u32 = 4_000;
const PAUSE_MICROS: u32 = 500;
const BETWEEN_KILLS: Duration = Duration::from_secs(4);
/// The last part has no kills, so that waiters behind a killed holder are served by the end.
const CALM_END: Duration = Duration::from_secs(4);
const STARTING: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(15);
/// Twice as long for values of a group: a message wakes one waiter of a Java process, which may want other values.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
