//! Three processes elect a leader; the leader is killed, and another process leads.
//!
//! `cargo run --example leader`

use std::env;
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Election, Leader};
use lockson_harness::ExampleServer;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    if let (Ok(url), Ok(text)) = (env::var(SERVER), env::var(CANDIDATE)) {
        return candidate(&url, &text);
    }
    let server = ExampleServer::open()?;
    let election = Client::connect(server.url())?.get_election(NAME);
    let mut processes = Processes::default();
    for number in 1..=3 {
        let mut command = Command::new(env::current_exe()?);
        command.env(SERVER, server.url()).env(CANDIDATE, format!("process {number}")).stdin(Stdio::piped());
        processes.0.push((format!("process {number}"), command.spawn()?));
    }

    let first = next_leader(&election, None)?;
    println!("{} leads, with token {}", first.candidate(), first.token());
    processes.kill(first.candidate())?;
    let killed = Instant::now();
    println!("killed {}; nobody else leads before its term has expired", first.candidate());

    let second = next_leader(&election, Some(&first))?;
    println!("{} leads {:.1?} later, with token {}", second.candidate(), killed.elapsed(), second.token());
    if second.candidate() == first.candidate() || second.token() <= first.token() {
        return Err("a dead process leads".into());
    }
    Ok(())
}

/// Each of the three processes leads when it wins, and ends with the process that started it.
fn candidate(url: &str, text: &str) -> Outcome<()> {
    thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    // The defaults are 30 and 10 seconds.
    let client = Client::builder(url).watchdog(Duration::from_secs(2), Duration::from_millis(500)).connect()?;
    client.get_election(NAME).candidate(text).lead(|leadership| {
        while leadership.is_held() {
            // One round of the work that one process at a time may do. A store gets `leadership.token()` with each write.
            thread::sleep(Duration::from_millis(100));
        }
    })?; // after a loss it campaigns again
    Ok(())
}

/// Waits for a leader of a later term than `last`.
fn next_leader(election: &Election, last: Option<&Leader>) -> Outcome<Leader> {
    let mut seen = last.cloned();
    loop {
        let now = election.wait_change(seen.as_ref(), Duration::from_secs(20))?;
        match now {
            Some(leader) if last.is_none_or(|last| leader.token() > last.token()) => return Ok(leader),
            now if now == seen => return Err("no leader within 20 seconds".into()),
            now => seen = now,
        }
    }
}

#[derive(Default)]
struct Processes(Vec<(String, Child)>);

impl Processes {
    fn kill(&mut self, text: &str) -> Outcome<()> {
        let (_, child) = self.0.iter_mut().find(|(of, _)| of == text).ok_or("no such process")?;
        child.kill()?; // SIGKILL: the process cannot resign
        child.wait()?;
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill(); // an error means that the process has ended
            let _ = child.wait();
        }
    }
}

const NAME: &str = "lockson:example:leader";
const SERVER: &str = "LOCKSON_EXAMPLE_SERVER";
const CANDIDATE: &str = "LOCKSON_EXAMPLE_CANDIDATE";
