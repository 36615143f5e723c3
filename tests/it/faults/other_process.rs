//! A separate process with locks of every kind: this same test program, run again.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender};
use fork::Fork;
use lockson::Leadership;
use lockson_harness::{HelperProcess, helper};

use crate::support::prelude::*;

/// Another process with one client; each lane is a thread that follows one order after another.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    process: HelperProcess,
    client_id: String,
    /// Answers of lanes that no test has asked for so far.
    early: Vec<String>,
}

impl OtherProcess {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
        command.args(["--exact", "faults::other_process::a_child_does_what_it_is_told", "--nocapture"]);
        command.env(SERVER, server.url());
        let process = HelperProcess::spawn_command(command);
        let ready = loop {
            // Before this line, the child prints the test runner's own lines.
            let line = process.next_line(SOON);
            if let Some(client_id) = line.strip_prefix("ready ") {
                break client_id.to_owned();
            }
        };
        Self { process, client_id: ready, early: vec![] }
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Gives a lane an order: `lock <kind> <name>`, `unlock`, `tokens <kind> <name> <how many>`, `crowd <kind> <name>`,
    /// `fork <kind> <name>`, `permits <name> <how many>`, `campaign <name>`, `look`, `resign`.
    #[track_caller]
    pub(crate) fn send(&mut self, lane: usize, order: &str) {
        self.process.send(&format!("{lane} {order}"));
    }

    /// The next answer of a lane.
    #[track_caller]
    pub(crate) fn answer(&mut self, lane: usize) -> String {
        let start = format!("{lane} ");
        loop {
            if let Some(index) = self.early.iter().position(|line| line.starts_with(&start)) {
                return self.early.remove(index)[start.len()..].to_owned();
            }
            let line = self.process.next_line(SOON * 2);
            self.early.push(line);
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, lane: usize, order: &str) -> String {
        self.send(lane, order);
        self.answer(lane)
    }

    /// Ends every `crowd`.
    pub(crate) fn end_crowds(&mut self) {
        self.process.send("end");
    }

    /// Sends SIGKILL: no lock is released.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends SIGSTOP and waits until the process is stopped.
    pub(crate) fn stop(&self) {
        self.process.stop();
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }
}

/// The lock of the kind with this word.
pub(crate) fn lock_of(client: &Client, kind: &str, name: &str) -> Lock {
    match kind {
        "plain" => client.get_lock(name),
        "fair" => client.get_fair_lock(name),
        "fenced" => client.get_fenced_lock(name).into(),
        "read" => client.get_read_write_lock(name).read(),
        "write" => client.get_read_write_lock(name).write(),
        _ => panic!("no kind is called {kind:?}"),
    }
}

/// Takes and gives back in every way there is, at random, until told to stop.
pub(crate) fn crowd(lock: &Lock, seed: u64, ended: impl Fn() -> bool) {
    let mut random = Random(seed);
    while !ended() {
        let guard = match random.below(10) {
            0..6 => Some(lock.lock().unwrap()),
            6 => lock.try_lock().unwrap(),
            7 | 8 => lock.try_lock_for(Duration::from_micros(random.below(8_000))).unwrap(),
            _ => {
                let stop = Cancel::new();
                thread::scope(|scope| {
                    let pause = Duration::from_micros(random.below(6_000));
                    let stop = &stop;
                    scope.spawn(move || {
                        thread::sleep(pause);
                        stop.cancel();
                    });
                    lock.with_cancel(stop).lock().ok()
                })
            }
        };
        if let Some(guard) = guard {
            guard.unlock().unwrap();
        }
    }
}

/// The other process if the variable is set; otherwise nothing to test.
#[test]
fn a_child_does_what_it_is_told() {
    let Ok(url) = std::env::var(SERVER) else { return };
    // Ends the line that the test runner has begun.
    helper::say("");
    let client = Client::builder(&url).fair_patience(ms(2_000)).watchdog(ms(1_000), ms(100)).connect().unwrap();
    helper::say(&format!("ready {}", client.id()));
    let mut lanes: HashMap<String, Sender<Vec<String>>> = HashMap::new();
    for line in helper::requests() {
        if line == "end" {
            ENDED.store(true, Ordering::Release);
            continue;
        }
        let mut words = line.split(' ').map(str::to_owned);
        let lane = words.next().expect("a line is not empty");
        let orders = lanes.entry(lane.clone()).or_insert_with(|| {
            let (sender, orders) = unbounded();
            let client = client.clone();
            thread::spawn(move || work(&client, &lane, &orders));
            sender
        });
        orders.send(words.collect()).expect("a lane works as long as the process");
    }
}

fn work(client: &Client, lane: &str, orders: &Receiver<Vec<String>>) {
    let mut guards: Vec<Guard> = vec![];
    let mut permits = vec![];
    let mut leadership = None;
    for order in orders {
        let order: Vec<&str> = order.iter().map(String::as_str).collect();
        let answer = match order[..] {
            ["lock", kind, name] => taken(&mut guards, lock_of(client, kind, name).lock()),
            ["unlock"] => match guards.pop().map(Guard::unlock) {
                Some(Ok(())) => "unlocked".to_owned(),
                Some(Err(error)) => format!("failed {error}"),
                None => "holds nothing".to_owned(),
            },
            ["tokens", kind, name, many] => {
                let lock = lock_of(client, kind, name);
                let token = |_| lock.lock().unwrap().hold().token().unwrap().to_string();
                (0..many.parse().expect("a number")).map(token).collect::<Vec<_>>().join(" ")
            }
            ["permits", name, many] => {
                let calls = client.get_permit_expirable_semaphore(name);
                let taken = calls.acquire(many.parse().expect("a number")).unwrap();
                let held = format!("holds {}", taken.ids().len());
                permits.push(taken);
                held
            }
            ["campaign", name] => {
                let leads = client.get_election(name).candidate(lane).campaign().unwrap();
                let answer = format!("leads {}", leads.token());
                leadership = Some(leads);
                answer
            }
            ["look"] => {
                if leadership.as_ref().is_some_and(|leadership| leadership.is_held()) { "leads" } else { "lost" }
                    .to_owned()
            }
            ["resign"] => match leadership.take().map(Leadership::resign) {
                Some(Ok(())) => "resigned".to_owned(),
                _ => "failed".to_owned(),
            },
            ["crowd", kind, name] => {
                let seed = 1 + lane.parse::<u64>().expect("a number") + u64::from(std::process::id()) * 1_000;
                crowd(&lock_of(client, kind, name), seed, || ENDED.load(Ordering::Acquire));
                "ended".to_owned()
            }
            ["fork", kind, name] => forked(client, &mut guards, &lock_of(client, kind, name)),
            _ => panic!("no such order: {order:?}"),
        };
        helper::say(&format!("{lane} {answer}"));
    }
}

/// Forks; the child tries to take a lock, drops the parent's guards, closes the client, opens another client, and ends.
fn forked(client: &Client, guards: &mut Vec<Guard>, lock: &Lock) -> String {
    let stop = &Cancel::new();
    match fork::fork().expect("there is room for a process") {
        Fork::Parent(child) => {
            let status = fork::waitpid(child).expect("this thread holds the lock");
            format!("child {status}")
        }
        Fork::Child => {
            let refused = |outcome: lockson::Result<_>| outcome.is_err_and(|error| error.kind() == ErrorKind::Closed);
            let asked = refused(lock.try_lock()) && refused(lock.is_locked().map(|_| None));
            let is_lost = |guard: &Guard| !guard.is_held() && guard.wait_lost(SOON) == Some(lockson::Loss::Closed);
            let remains = guards.iter().any(|guard| !guard.remaining().is_zero());
            let holds_nothing = guards.iter().all(is_lost) && !remains && client.held().is_empty();
            guards.clear();
            client.close();
            let works = own_client_works(stop);
            std::process::exit(i32::from(!asked) + 2 * i32::from(!holds_nothing) + 4 * i32::from(!works));
        }
    }
}

/// A client opened by the child works like any other, also with an inherited `Cancel`.
fn own_client_works(stop: &Cancel) -> bool {
    let url = std::env::var(SERVER).expect("the variable exists in the parent too");
    let client = Client::builder(&url).client_name("child").connect().expect("redis is reached");
    let lock = client.get_lock("child's");
    let guard = lock.lock().expect("the lock is free");
    let cancelled = thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.with_cancel(stop).try_lock_for(SOON).is_err());
        thread::sleep(ms(20));
        stop.cancel();
        waiter.join().expect("the thread does not panic")
    });
    cancelled && guard.unlock().is_ok()
}

fn taken(guards: &mut Vec<Guard>, outcome: lockson::Result<Guard>) -> String {
    match outcome {
        Ok(guard) => {
            let answer = format!("holds {}", guard.owner());
            guards.push(guard);
            answer
        }
        Err(error) => format!("failed {error}"),
    }
}

static ENDED: AtomicBool = AtomicBool::new(false);
const SERVER: &str = "LOCKSON_TEST_CHILD_OF";
