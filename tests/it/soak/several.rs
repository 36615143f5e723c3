//! Groups of locks in opposite orders, and over hot members: no deadlock, short waits, fair shares.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use lockson::{Client, Lock};
use lockson_harness::{HelperProcess, RedisServer, Witness, helper};

use crate::campaign::Campaign;
use crate::support::{SCHEDULING, SOON, fresh, ms, timed};

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

#[test]
#[ignore = "make soak"]
fn groups_over_hot_members() {
    const WAITERS: usize = 16;
    let mut campaign = Campaign::start("takes of a group over hot members", 200, 2);
    let server = RedisServer::shared();
    let (singles, ours) = ([(); 4].map(|()| Client::connect(&server.url()).unwrap()), Client::connect(&server.url()));
    let (names, ours, ended) = ([fresh("hot"), fresh("hot")], ours.unwrap(), AtomicBool::new(false));
    let longest = thread::scope(|scope| {
        for number in 0..WAITERS {
            let (client, name, ended) = (&singles[number % 4], &names[number % 2], &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let guard = client.get_lock(name).lock().unwrap();
                    thread::sleep(ms(2));
                    guard.unlock().unwrap();
                }
            });
        }
        let multi = Lock::multi(names.each_ref().map(|name| ours.get_lock(name)));
        let mut longest = Duration::ZERO;
        while campaign.goes_on() {
            let (took, guard) = timed(|| multi.lock().unwrap());
            guard.unlock().unwrap();
            longest = longest.max(took);
            campaign.passed(1);
        }
        ended.store(true, Ordering::Relaxed);
        longest
    });
    campaign.end(format!("the longest waited {longest:?} beside {WAITERS} threads"));
    assert!(longest <= SOON, "{longest:?}");
}

const SERVER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_AT";
const NUMBER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_NUMBER";
const FOLDER: &str = "LOCKSON_TEST_ONE_OF_EIGHT_FOLDER";
