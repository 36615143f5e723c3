//! Crowds of threads and processes that come, give up and die at random: nobody is ever overtaken.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::{RedisServer, eventually};

use super::{Queue, hasty_client};
use crate::other_process::{OtherProcess, crowd};
use crate::support::{SOON, ms};

#[test]
fn nobody_is_overtaken_in_a_crowd_that_gives_up_and_dies_at_random() {
    nobody_is_overtaken(3_000);
}

/// Sees so many grants in a crowd, and that each went to the one who was first.
pub(crate) fn nobody_is_overtaken(wanted: u64) {
    let server = RedisServer::start();
    let witness = Witness::of(&server, "job");
    let ended = AtomicBool::new(false);
    let mut processes = vec![OtherProcess::start(&server), OtherProcess::start(&server)];
    let mut killed = HashSet::new();
    let start = |process: &mut OtherProcess| (0..3).for_each(|lane| process.send(lane, "crowd fair job"));
    processes.iter_mut().for_each(start);
    thread::scope(|scope| {
        for number in 1..=8 {
            let client = hasty_client(&server);
            let ended = &ended;
            scope.spawn(move || crowd(&client.fair_lock("job"), number, || ended.load(Ordering::Acquire)));
        }
        // One dies in each quarter; a dead head costs all others up to 2 s.
        let mut deaths = (1..4).map(|quarter| wanted * quarter / 4);
        let mut next_death = deaths.next();
        let mut seen = (0, Instant::now());
        loop {
            let grants = witness.grants.load(Ordering::Acquire);
            if grants > seen.0 {
                seen = (grants, Instant::now());
            }
            assert!(seen.1.elapsed() < 2 * SOON, "nobody gets in any more after {grants} grants");
            if grants >= wanted {
                break;
            }
            if next_death.is_some_and(|at| grants >= at) {
                next_death = deaths.next();
                let mut victim = processes.remove(0);
                victim.kill();
                killed.insert(victim.client_id().to_owned());
                let mut successor = OtherProcess::start(&server);
                start(&mut successor);
                processes.push(successor);
            }
            thread::sleep(ms(5));
        }
        ended.store(true, Ordering::Release);
        processes.iter_mut().for_each(OtherProcess::end_crowds);
    });
    for process in &mut processes {
        (0..3).for_each(|lane| assert_eq!(process.answer(lane), "ended"));
    }
    Queue { server: &server, name: "job" }.assert_gone();
    let story = witness.end(&server);
    let of_the_dead = |owner: &String| killed.iter().any(|client| owner.starts_with(client));
    let alive: Vec<_> = story.purged.iter().filter(|owner| !of_the_dead(owner)).collect();
    assert_eq!(story.inversions, Vec::<String>::new(), "{} grants", story.grants);
    assert_eq!(alive, Vec::<&String>::new(), "live waiters lost their places");
    assert!(story.grants >= wanted && story.given_up > 0 && story.queued > wanted / 4, "{story:?}");
}

/// Sees every command on the lock and its queue, in the order in which Redis carried them out.
struct Witness {
    grants: Arc<AtomicU64>,
    watching: thread::JoinHandle<Story>,
}

/// What it saw.
#[derive(Debug, Default)]
struct Story {
    queue: VecDeque<String>,
    joined: HashSet<String>,
    granted: Option<String>,
    grants: u64,
    queued: u64,
    given_up: u64,
    purged: Vec<String>,
    inversions: Vec<String>,
}

impl Witness {
    fn of(server: &RedisServer, name: &str) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let (hash, list) = (name.to_owned(), format!("redisson_lock_queue:{{{name}}}"));
        let grants = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&grants);
        let watching = thread::spawn(move || {
            let mut story = Story::default();
            for line in BufReader::new(stream).lines() {
                let line = line.expect("the server tells what it does");
                let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
                match words[..] {
                    ["ECHO", END] => break,
                    // Commands of scripts alone; what the test itself asks changes nothing.
                    [command, key, ref rest @ ..] if key == hash || key == list => story.see(command, rest),
                    _ => {}
                }
                counter.store(story.grants, Ordering::Release);
            }
            story
        });
        eventually(SOON, "it watches", || server.clients().iter().any(|client| client["cmd"] == "monitor"));
        Self { grants, watching }
    }

    fn end(self, server: &RedisServer) -> Story {
        server.run(&["ECHO", END]);
        self.watching.join().unwrap()
    }
}

impl Story {
    fn see(&mut self, command: &str, rest: &[&str]) {
        match (command, rest) {
            ("rpush", [owner]) => {
                self.queued += 1;
                if !self.joined.insert((*owner).to_owned()) {
                    self.inversions.push(format!("{owner} had to join again"));
                }
                self.queue.push_back((*owner).to_owned());
            }
            ("hset", [owner, "1"]) => {
                self.grants += 1;
                if self.queue.front().is_some_and(|first| first != owner) {
                    self.inversions.push(format!("{owner} got in before {:?}", self.queue));
                }
                self.granted = Some((*owner).to_owned());
            }
            ("lpop", []) => {
                let first = self.queue.pop_front();
                // After a grant it is the granted one that leaves the queue; otherwise one that counts as gone.
                if first.is_some() && first != self.granted {
                    self.purged.extend(first);
                }
            }
            ("lrem", [_, owner]) => {
                let before = self.queue.len();
                self.queue.retain(|other| other != owner);
                self.given_up += u64::from(self.queue.len() < before);
            }
            _ => {}
        }
    }
}

const END: &str = "the end";
