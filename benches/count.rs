//! Counts what the calling thread does in one operation on a free lock: instructions in user space, allocations, system
//! calls. Fails above a budget: `make count`.
//!
//! The counts are those of valgrind, so they do not depend on the load of the machine. Neither the work of the system is
//! counted, nor that of threads in the background.

use std::collections::HashMap;
use std::process::{Command, ExitCode};
use std::time::Duration;

use lockson::{Client, Lock, Result};
use lockson_harness::RedisServer;

/// An operation, and the most that it may need. Instructions have some room, because each compiler makes its own.
struct Budget {
    name: &'static str,
    instructions: u64,
    allocations: u64,
    system_calls: u64,
}

const fn budget(name: &'static str, instructions: u64, allocations: u64, system_calls: u64) -> Budget {
    Budget { name, instructions, allocations, system_calls }
}

const BUDGETS: &[Budget] = &[
    budget("pair", 10_100, 1, 8),
    budget("re-entry", 9_500, 0, 8),
    budget("fair-pair", 12_600, 1, 8),
    budget("read-pair", 11_850, 3, 8),
    budget("semaphore-pair", 10_950, 2, 8),
    budget("permits-pair", 15_300, 7, 8),
    budget("permits-beside-5000", 18_700, 10, 8),
    budget("multi-lock-of-10", 138_000, 111, 17),
];

fn operation(url: &str, name: &str, client: &Client) -> Result<Box<dyn FnMut() -> Result<()>>> {
    let lock = client.get_lock(name);
    Ok(match name {
        "pair" => Box::new(move || lock.lock()?.unlock()),
        "re-entry" => {
            lock.lock()?.leave_to_unlock();
            Box::new(move || lock.lock()?.unlock())
        }
        "fair-pair" => {
            let lock = client.get_fair_lock(name);
            Box::new(move || lock.lock()?.unlock())
        }
        "read-pair" => {
            let lock = client.get_read_write_lock(name).read();
            Box::new(move || lock.lock()?.unlock())
        }
        "permits-pair" => {
            let permits = client.get_permit_expirable_semaphore(name);
            permits.set_permits_once(5)?;
            Box::new(move || permits.acquire(1)?.release())
        }
        "permits-beside-5000" => {
            let permits = client.get_permit_expirable_semaphore(name);
            permits.set_permits_once(5_002)?;
            let first = permits.acquire(1)?;
            // A client that watches takes in another way, so all others are taken in that way.
            while subscribers(url, "__redis__:invalidate") == 0 {
                // System calls and allocations of this look are in the counts of the start.
                std::thread::sleep(Duration::from_millis(200));
            }
            let others: Vec<_> = (0..5_000).map(|_| permits.acquire(1)).collect::<Result<_>>()?;
            Box::new(move || {
                std::hint::black_box((&first, &others));
                permits.acquire(1)?.release()
            })
        }
        "multi-lock-of-10" => {
            let locks = Lock::multi((0..10).map(|number| client.get_lock(format!("{name}:{number}"))));
            Box::new(move || locks.lock()?.unlock())
        }
        "semaphore-pair" => {
            let semaphore = client.get_semaphore(name);
            semaphore.set_permits_once(5)?;
            Box::new(move || semaphore.acquire(1)?.release())
        }
        _ => panic!("no such operation: {name}"),
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [CHILD, url, name, rounds] => {
            child(url, name, rounds.parse().expect("a number of rounds")).expect("redis answers");
            ExitCode::SUCCESS
        }
        ["--bench"] => count(),
        // `cargo test --all-targets` starts this program without `--bench`: nothing is counted then.
        _ => ExitCode::SUCCESS,
    }
}

fn subscribers(url: &str, channel: &str) -> u64 {
    let mut connection = redis::Client::open(url).and_then(|client| client.get_connection()).expect("redis answers");
    let (_, number): (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(&mut connection).expect("redis counts");
    number
}

fn child(url: &str, name: &str, rounds: u64) -> Result<()> {
    let client = Client::connect(url)?;
    let mut operation = operation(url, name, &client)?;
    for _ in 0..WARM_UP {
        operation()?;
    }
    counted_rounds(rounds, &mut operation)
}

/// Valgrind counts inside this function, which it knows by its name.
#[inline(never)]
fn counted_rounds(rounds: u64, operation: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    (0..rounds).try_for_each(|_| operation())
}

fn count() -> ExitCode {
    let server = RedisServer::start();
    println!("| of one operation | instructions | allocations | system calls |\n|---|---|---|---|");
    let mut is_within = true;
    for Budget { name, instructions, allocations, system_calls } in BUDGETS {
        let counted = of_one(|rounds| {
            let [instructions, allocations] = instructions_and_allocations(&server, name, rounds);
            [instructions, allocations, system_calls_of(&server, name, rounds)]
        });
        let mut cells = String::new();
        for (counted, most) in counted.iter().zip([instructions, allocations, system_calls]) {
            let verdict = match () {
                () if counted > most => ": TOO MANY",
                // A count that does not see the operation would be within any budget.
                () if counted * 5 < most * 4 => ": so few? lower the budget",
                () => "",
            };
            is_within &= verdict.is_empty();
            cells += &format!(" {counted} of {most}{verdict} |");
        }
        println!("| `{name}` |{cells}");
    }
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("The budgets are those of x86-64 and Linux, so these counts decide nothing.");
        return ExitCode::SUCCESS;
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The counts of one operation, without those of the start, which are in each run.
fn of_one(count: impl Fn(u64) -> [u64; 3]) -> [u64; 3] {
    let (few, many) = (count(ROUNDS), count(2 * ROUNDS));
    // A thread in the background may do a little more in one of the runs.
    [0, 1, 2].map(|place| (many[place].saturating_sub(few[place]) + ROUNDS / 2) / ROUNDS)
}

fn instructions_and_allocations(server: &RedisServer, name: &str, rounds: u64) -> [u64; 2] {
    let folder = std::env::temp_dir().join(format!("lockson-count-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("there is room for the profiles of the threads");
    let to_file = format!("--callgrind-out-file={}/profile", folder.display());
    let of_the_rounds = "--toggle-collect=*counted_rounds*";
    run(server, name, rounds, &["--tool=callgrind", "--separate-threads=yes", of_the_rounds, &to_file]);
    let text = std::fs::read_to_string(folder.join("profile-01")).expect("valgrind wrote its counts");
    std::fs::remove_dir_all(&folder).expect("the profiles were there");
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")).expect("valgrind counted");
    [totals.trim().parse().expect("a number of instructions"), calls_of_malloc(&text)]
}

/// The number of calls of `malloc` and the like in a profile, which names a function in full only once.
fn calls_of_malloc(profile: &str) -> u64 {
    let (mut names, mut called, mut calls) = (HashMap::new(), "", 0);
    for line in profile.lines() {
        let function = ["fn=", "cfn="].iter().find_map(|prefix| line.strip_prefix(prefix));
        if let Some((number, name)) = function.and_then(|function| function.split_once(')')) {
            if !name.is_empty() {
                names.insert(number, name.trim());
            }
            called = names[number];
        } else if let Some(count) = line.strip_prefix("calls=")
            && ["malloc", "calloc", "realloc", "posix_memalign"].contains(&called)
        {
            calls += count.split(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number of calls");
        }
    }
    calls
}

/// The system calls of the first thread. Readings of the clock are none outside of valgrind.
fn system_calls_of(server: &RedisServer, name: &str, rounds: u64) -> u64 {
    let said = run(server, name, rounds, &["--tool=none", "--trace-syscalls=yes"]);
    let begins = |line: &&str| line.starts_with("SYSCALL[") && line.contains(",1](") && line.contains(" sys_");
    said.lines().filter(begins).filter(|line| !line.contains(" sys_clock_gettime")).count() as u64
}

/// Runs the operation in this program under valgrind. Returns what valgrind says.
fn run(server: &RedisServer, name: &str, rounds: u64, options: &[&str]) -> String {
    server.run(&["FLUSHALL"]);
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(options)
        .arg(program)
        .args([CHILD, &server.url(), name, &rounds.to_string()])
        .output()
        .expect("valgrind is missing; `make count` installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name} failed: {said}");
    said
}

const CHILD: &str = "--child";
const WARM_UP: u64 = 100;
const ROUNDS: u64 = 1_000;
