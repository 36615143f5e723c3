//! Several locks in opposite orders, over hot members, and beside long queues: no deadlock, short waits, fair shares.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lockson::{Client, Lock};
use lockson_harness::{HelperProcess, RedisServer, Witness, helper};

use crate::campaign::Campaign;
use crate::support::{Busy, SCHEDULING, SOON, client, fresh, joined, ms, timed};

const PROCESSES: usize = 8;
const ROUNDS: usize = 1_000;
const NAMES: [&str; 3] = ["red", "green", "blue"];

/// The work of one process.
struct Told {
    longest: Duration,
    /// The end of each round, in ns since 1970.
    ends: Vec<u64>,
}

#[test]
#[ignore = "make soak"]
fn opposite_orders_of_eight_processes() {
    let mut campaign = Campaign::start("rounds of groups in opposite orders", 80_000, 3);
    let (mut longest, mut least_fair, mut slowest) = (Duration::ZERO, 1.0_f64, Duration::ZERO);
    while campaign.goes_on() {
        let (took, told) = timed(opposite_orders);
        longest = told.iter().map(|told| told.longest).fold(longest, Duration::max);
        (least_fair, slowest) = (least_fair.min(fairness(&told)), slowest.max(took));
        campaign.passed((PROCESSES * ROUNDS) as u64);
    }
    campaign.end(format!("longest wait {longest:?}, Jain {least_fair:.3}, {slowest:.1?} for 8,000"));
    assert!(longest <= SCHEDULING, "a wait of {longest:?}");
    assert!(least_fair >= 0.9, "shares of {least_fair:.3} by Jain");
}

/// Runs all processes at once, each with an order of its own.
fn opposite_orders() -> Vec<Told> {
    let server = RedisServer::start();
    let witness = Witness::at(server.data_folder().join("witness"));
    let start = |number: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "soak::several::one_of_eight_processes", "--nocapture"]);
        command.env(SERVER, server.url()).env(NUMBER, number.to_string()).env(FOLDER, witness.folder());
        HelperProcess::spawn_command(command)
    };
    let mut processes: Vec<HelperProcess> = (0..PROCESSES).map(start).collect();
    processes.iter().for_each(|process| drop(line_after("ready", process)));
    processes.iter_mut().for_each(|process| process.send("go"));
    let told = processes.iter().map(|process| {
        let numbers = line_after("ended ", process);
        let mut numbers = numbers.split(' ').map(|word| word.parse().unwrap());
        Told { longest: Duration::from_nanos(numbers.next().unwrap()), ends: numbers.collect() }
    });
    let told = told.collect();
    witness.assert_no_violation();
    assert_eq!(server.keys(), Vec::<String>::new());
    told
}

/// The rest of the next line with this start; the test runner of the process prints lines of its own.
fn line_after(start: &str, process: &HelperProcess) -> String {
    loop {
        let line = process.next_line(SOON * 12);
        if let Some(rest) = line.strip_prefix(start) {
            break rest.to_owned();
        }
    }
}

/// Jain's index of the rounds of each process until the first process had done all its rounds.
fn fairness(told: &[Told]) -> f64 {
    let first_end = told.iter().filter_map(|told| told.ends.last()).min().copied().unwrap_or(0);
    let shares = told.iter().map(|told| told.ends.iter().filter(|end| **end <= first_end).count() as f64);
    let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    sum * sum / (told.len() as f64 * squares)
}

/// This process is one of eight if the variable is set; otherwise it has nothing to test here.
#[test]
fn one_of_eight_processes() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let number: usize = std::env::var(NUMBER).unwrap().parse().unwrap();
    let witness = Witness::at(std::env::var(FOLDER).unwrap());
    let client = Client::connect(&url).unwrap();
    let mut order = NAMES;
    order.rotate_left(number % NAMES.len());
    if number % 2 == 1 {
        order.reverse();
    }
    let multi = Lock::multi(order.map(|name| client.get_lock(name)));
    let requests = helper::requests();
    helper::say("");
    helper::say("ready");
    assert_eq!(requests.recv().unwrap(), "go");
    let (mut longest, mut ends) = (Duration::ZERO, vec![]);
    for _ in 0..ROUNDS {
        let (took, guard) = timed(|| multi.lock().unwrap());
        NAMES.map(|name| witness.enter(name)).into_iter().for_each(|inside| inside.leave());
        guard.unlock().unwrap();
        longest = longest.max(took);
        ends.push(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_string());
    }
    helper::say(&format!("ended {} {}", longest.as_nanos(), ends.join(" ")));
}

/// What keeps the second of two locks busy: so many threads with so long holds.
struct Queue {
    what: &'static str,
    lock: fn(&Client, &str) -> Lock,
    threads: u32,
    hold: Duration,
    /// Whether the thread that takes both locks is of the same client.
    is_own: bool,
}

const QUEUES: [Queue; 3] = [
    Queue {
        what: "a fair queue",
        lock: |client, name| client.get_fair_lock(name),
        threads: 5,
        hold: ms(250),
        is_own: false,
    },
    Queue {
        what: "a local queue",
        lock: |client, name| client.get_lock(name),
        threads: 8,
        hold: ms(300),
        is_own: true,
    },
    Queue {
        what: "one long job",
        lock: |client, name| client.get_lock(name),
        threads: 1,
        hold: ms(3_000),
        is_own: false,
    },
];

/// What a thread that takes both locks over and over gets, and what others lose.
#[derive(Clone, Copy, Debug)]
struct Took {
    takes: u64,
    /// The most grants of the second lock to others before one take.
    turns: u32,
    /// The grants of the first lock to others, where 1 is as many as without the thread.
    first: f64,
}

#[test]
#[ignore = "make soak"]
fn takes_of_two_locks_beside_long_queues() {
    let mut campaign = Campaign::start("takes of two locks beside long queues", 200, 8);
    while campaign.goes_on() {
        // All at once: they only sleep.
        let took: Vec<(&Queue, bool, Took)> = thread::scope(|scope| {
            let scenes = QUEUES.iter().flat_map(|queue| [(queue, true), (queue, false)]);
            let scenes: Vec<_> = scenes
                .map(|(queue, is_first)| (queue, is_first, scope.spawn(move || beside(queue, is_first))))
                .collect();
            scenes.into_iter().map(|(queue, is_first, scene)| (queue, is_first, joined(scene))).collect()
        });
        for (queue, is_first, took) in took {
            let order = if is_first { "its name is the second" } else { "its name is the first" };
            println!("soak: beside {}, {order}: {took:?}", queue.what);
            assert!(
                took.turns <= 3 * (queue.threads + 1),
                "{}: {} grants to others before a take",
                queue.what,
                took.turns
            );
            assert!(took.first >= 0.8, "{}, {order}: the others kept {:.2} of the first lock", queue.what, took.first);
            campaign.passed(took.takes);
        }
    }
    campaign.end("each within three times the queue, others kept four fifths of the first lock");
}

/// Takes a hot lock and one with a queue together, over and over.
fn beside(queue: &Queue, is_first: bool) -> Took {
    let theirs = client();
    let ours = if queue.is_own { theirs.clone() } else { client() };
    // Later names sort behind earlier ones.
    let mut names = [fresh("beside"), fresh("beside")];
    if !is_first {
        names.reverse();
    }
    let [hot, long] = names;
    let both = Lock::multi([ours.get_lock(&hot), (queue.lock)(&ours, &long)]);
    let (hot, long) = (Busy::new(theirs.get_lock(&hot)), Busy::new((queue.lock)(&theirs, &long)));
    thread::scope(|scope| {
        hot.start(scope, (3, ms(30)));
        long.start(scope, (queue.threads, queue.hold));
        let rate_until = |ended: &mut dyn FnMut() -> bool| {
            let (start, before) = (Instant::now(), hot.grants());
            while !ended() {}
            f64::from(hot.grants() - before) / start.elapsed().as_secs_f64()
        };
        let quiet = rate_until(&mut || {
            thread::sleep(PHASE);
            true
        });
        let (start, mut took) = (Instant::now(), Took { takes: 0, turns: 0, first: 0.0 });
        let beside = rate_until(&mut || {
            let before = long.grants();
            let guard = both.lock().unwrap();
            took.turns = took.turns.max(long.grants() - before);
            guard.unlock().unwrap();
            took.takes += 1;
            start.elapsed() >= PHASE
        });
        [&hot, &long].into_iter().for_each(Busy::end);
        Took { first: beside / quiet, ..took }
    })
}

/// How long grants are counted, without and with the thread that takes both locks.
const PHASE: Duration = Duration::from_secs(6);

const SERVER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_AT";
const NUMBER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_NUMBER";
const FOLDER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_FOLDER";
