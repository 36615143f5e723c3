//! At most three calls of a paid API at a time, over all processes; a killed process blocks its permits only for a
//! while.
//!
//! `cargo run --example paid_api`

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, PermitExpirableSemaphore};
use lockson_harness::ExampleServer;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    if let Ok(url) = env::var(SERVER) {
        return caller(&url);
    }
    let server = ExampleServer::open()?;
    let calls = semaphore(server.url())?;
    calls.delete()?; // of an earlier run
    calls.set_permits_once(CALLS_AT_A_TIME)?;

    let mut callers = Callers::default();
    for _ in 0..2 {
        callers.start(server.url())?;
    }
    let other = calls.acquire(1)?;
    println!("two processes and this one call: {} of {} permits are free", calls.available()?, calls.permits()?);
    if calls.try_acquire(1)?.is_some() {
        return Err("four calls at a time".into());
    }
    other.release()?;

    callers.0[0].kill()?; // SIGKILL: the process gives nothing back
    println!("one process was killed in the middle of its call: {} free", calls.available()?);
    let began = Instant::now();
    let two = calls.try_acquire_for(2, Duration::from_secs(20))?.ok_or("the permit of the dead process is gone")?;
    println!("its permit returned {:.1?} later; the other process still has its own", began.elapsed());
    two.release()?;
    if (calls.available()?, calls.permits()?) != (2, 3) {
        return Err("a permit was lost or invented".into());
    }
    Ok(())
}

/// Each of the two processes makes one call, which takes longer than a permit lives without a renewal.
fn caller(url: &str) -> Outcome<()> {
    let permit = semaphore(url)?.acquire(1)?;
    println!("calls");
    // The end of the input is the end of the process that started this one.
    thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    while permit.is_held() {
        thread::sleep(Duration::from_millis(50)); // the call
    }
    permit.release()?; // the error says why the permit ended before the call
    Ok(())
}

fn semaphore(url: &str) -> lockson::Result<PermitExpirableSemaphore> {
    // The defaults are 30 and 10 seconds.
    let client = Client::builder(url).watchdog(Duration::from_secs(2), Duration::from_millis(500)).connect()?;
    Ok(client.get_permit_expirable_semaphore("lockson:example:paid-api"))
}

#[derive(Default)]
struct Callers(Vec<Child>);

impl Callers {
    /// Starts a process and waits until it calls.
    fn start(&mut self, url: &str) -> Outcome<()> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.env(SERVER, url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take();
        self.0.push(child);
        let said = BufReader::new(output.ok_or("no output")?).lines().next().ok_or("no call")??;
        if said == "calls" { Ok(()) } else { Err(said.into()) }
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // an error means that the process has ended
            let _ = child.wait();
        }
    }
}

const CALLS_AT_A_TIME: u32 = 3;
const SERVER: &str = "LOCKSON_EXAMPLE_SERVER";
