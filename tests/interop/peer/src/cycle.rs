//! The load loop: enter a lock, hold the lock, leave the lock, again until the time is over.
//!
//! In addition to the protocol, the loop takes `counter`, a file with a number: inside the lock, the loop reads the
//! number and writes the number plus one, so that two overlapping holders lose an update.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use lockson::{Cancel, ErrorKind, ExpiringPermits, Guard, Lock, PermitExpirableSemaphore, Permits, Semaphore};

use crate::answer::{Answer, Failure};
use crate::clients::{Clients, SEVERAL};
use crate::request::Request;
use crate::{locks, permits};
use lockson_harness::percent::encode;
use lockson_harness::{Witness, clock};

/// Reads the settings of the loop, runs the loop, and returns the outcome.
pub(crate) fn run(clients: &Clients, request: &Request, answer: &mut Answer, cancel: &Cancel) -> Result<(), Failure> {
    let kind = request.text("kind")?;
    if WITHOUT_A_LOOP.contains(&kind.as_str()) {
        return Err(Failure::unsupported(format!("this peer has no loop for a {kind}")));
    }
    let mut cycle = Cycle::new(clients, request, cancel)?;
    let (hold, pause) = (micros(request, "hold_us")?, micros(request, "pause_us")?);
    let duration = Duration::from_millis(request.number("duration_ms")?);
    answer.time(|| cycle.run(duration, hold, pause)).map_err(Failure::other)?;
    cycle.put(answer);
    Ok(())
}

struct Cycle<'a> {
    targets: Vec<Target>,
    order: Order,
    wait: Option<Duration>,
    cancel: &'a Cancel,
    witness: Option<Witness>,
    grants: Option<File>,
    counter: Option<PathBuf>,
    granted: u64,
    longest_wait: u64,
    lost: u64,
    errors: u64,
    first_error: Option<String>,
}

/// A lock to enter, and the names that its holder has alone.
struct Target {
    names: Vec<String>,
    source: Source,
}

/// What a loop takes: a lock, or one permit.
enum Source {
    Lock(Lock),
    Semaphore(Semaphore),
    Permits(PermitExpirableSemaphore),
}

/// What a loop holds.
enum Held {
    Lock(Guard),
    Permit(Permits),
    ExpiringPermit(ExpiringPermits),
}

impl Source {
    fn take(&self, wait: Option<Duration>) -> lockson::Result<Option<Held>> {
        match (self, wait) {
            (Self::Lock(lock), Some(wait)) => Ok(lock.try_lock_for(wait)?.map(Held::Lock)),
            (Self::Lock(lock), None) => lock.lock().map(Held::Lock).map(Some),
            (Self::Semaphore(semaphore), Some(wait)) => Ok(semaphore.try_acquire_for(1, wait)?.map(Held::Permit)),
            (Self::Semaphore(semaphore), None) => semaphore.acquire(1).map(Held::Permit).map(Some),
            (Self::Permits(permits), Some(wait)) => Ok(permits.try_acquire_for(1, wait)?.map(Held::ExpiringPermit)),
            (Self::Permits(permits), None) => permits.acquire(1).map(Held::ExpiringPermit).map(Some),
        }
    }
}

impl Held {
    fn give_back(self) -> lockson::Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock(),
            Self::Permit(permit) => permit.release(),
            Self::ExpiringPermit(permit) => permit.release(),
        }
    }
}

enum Order {
    RoundRobin(usize),
    Random(u64),
}

impl<'a> Cycle<'a> {
    fn new(clients: &Clients, request: &Request, cancel: &'a Cancel) -> Result<Self, Failure> {
        let names = request.texts("names")?;
        let prepared = |names: Vec<String>, lock: Lock| {
            locks::prepared(request, lock, Some(cancel)).map(|lock| Target { names, source: Source::Lock(lock) })
        };
        let targets = match request.text("kind")?.as_str() {
            kind if SEVERAL.contains(&kind) => {
                let lock = clients.several(request, &names)?;
                let group = if kind == "faster_multi" { request.text("name")? + ":" } else { String::new() };
                vec![prepared(names.into_iter().map(|name| format!("{group}{name}")).collect(), lock)?]
            }
            "semaphore" => {
                let client = clients.find(request)?;
                let one = |name: String| {
                    let source = Source::Semaphore(client.get_semaphore(name.as_str()).with_cancel(cancel));
                    Target { names: vec![name], source }
                };
                names.into_iter().map(one).collect()
            }
            "permits" => {
                let one = |name: String| {
                    let source = Source::Permits(permits::prepared(clients, request, &name, cancel)?);
                    Ok::<_, Failure>(Target { names: vec![name], source })
                };
                names.into_iter().map(one).collect::<Result<_, _>>()?
            }
            _ => {
                let one = |name: String| prepared(vec![name.clone()], clients.lock(request, &name)?);
                names.into_iter().map(one).collect::<Result<_, _>>()?
            }
        };
        let places = request.optional_number("places")?.unwrap_or(1);
        let witness = request.optional_text("witness_dir")?.map(|directory| Witness::with_places(directory, places));
        let grants = request.optional_text("path")?.map(File::create);
        Ok(Self {
            targets,
            order: Order::of(request)?,
            wait: request.optional_number("wait_ms")?.map(Duration::from_millis),
            cancel,
            witness,
            grants: grants.transpose().map_err(Failure::other)?,
            counter: request.optional_text("counter")?.map(PathBuf::from),
            granted: 0,
            longest_wait: 0,
            lost: 0,
            errors: 0,
            first_error: None,
        })
    }

    fn run(&mut self, duration: Duration, hold: Duration, pause: Duration) -> std::io::Result<()> {
        let end = clock::nanos() + nanos(duration);
        while !self.cancel.is_cancelled() && clock::nanos() < end {
            let choice = self.order.next(self.targets.len());
            let asked = clock::nanos();
            match self.enter(choice) {
                Ok(Some(held)) => {
                    let acquired = clock::nanos();
                    self.granted += 1;
                    self.longest_wait = self.longest_wait.max(acquired - asked);
                    self.hold(choice, held, acquired, nanos(hold))?;
                }
                Ok(None) => {}
                Err(error) => self.note(&error),
            }
            idle_until(clock::nanos() + nanos(pause), self.cancel);
        }
        Ok(())
    }

    fn enter(&self, choice: usize) -> lockson::Result<Option<Held>> {
        self.targets[choice].source.take(self.wait)
    }

    fn hold(&mut self, choice: usize, held: Held, acquired: u64, hold: u64) -> std::io::Result<()> {
        let names = &self.targets[choice].names;
        let mut seen = vec![];
        if let Some(witness) = &self.witness {
            seen.extend(names.iter().map(|name| witness.enter(name)));
        }
        let counted = self.counter.as_deref().map(read_counter).transpose()?;
        idle_until(acquired + hold, self.cancel);
        if let (Some(counter), Some(counted)) = (&self.counter, counted) {
            write_counter(counter, counted + 1)?;
        }
        drop(seen);
        let released = clock::nanos();
        let left = held.give_back();
        if let Some(grants) = &mut self.grants {
            for name in names {
                writeln!(grants, "{},{acquired},{released}", encode(name))?;
            }
        }
        if let Err(error) = left {
            self.note(&error);
        }
        Ok(())
    }

    fn note(&mut self, error: &lockson::Error) {
        match error.kind() {
            ErrorKind::Lost(_) | ErrorKind::NotHeld => self.lost += 1,
            ErrorKind::Cancelled => {}
            _ => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
                idle_until(clock::nanos() + nanos(REST_AFTER_ERROR), self.cancel);
            }
        }
    }

    fn put(&self, answer: &mut Answer) {
        answer.put("grants", self.granted);
        answer.put("lost", self.lost);
        answer.put("errors", self.errors);
        answer.put("interrupted", self.cancel.is_cancelled());
        answer.put("longest_wait_ns", self.longest_wait);
        if let Some(error) = &self.first_error {
            answer.put("first_error", error);
        }
        answer.put("violations", self.witness.as_ref().map_or(0, Witness::violations));
        answer.put("takeovers", self.witness.as_ref().map_or(0, Witness::takeovers));
    }
}

impl Order {
    fn of(request: &Request) -> Result<Self, Failure> {
        match request.optional_text("order")?.as_deref() {
            Some("round_robin") | None => Ok(Self::RoundRobin(0)),
            Some("random") => {
                let seed = request.optional_number("seed")?;
                Ok(Self::Random(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())))
            }
            Some(_) => Err(Failure::bad_input("order is neither round_robin nor random")),
        }
    }

    fn next(&mut self, size: usize) -> usize {
        match self {
            Self::RoundRobin(next) => {
                *next += 1;
                (*next - 1) % size
            }
            // SplitMix64.
            Self::Random(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((mixed ^ (mixed >> 31)) % size as u64) as usize
            }
        }
    }
}

fn read_counter(path: &Path) -> std::io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(std::io::Error::other)
}

/// In one step, so that a killed process leaves either the old number or the new number.
fn write_counter(path: &Path, count: u64) -> std::io::Result<()> {
    let draft = path.with_extension(format!("{}.draft", process::id()));
    fs::write(&draft, count.to_string())?;
    fs::rename(draft, path)
}

/// Short rests spin, because a sleeping thread wakes too late.
fn idle_until(deadline: u64, cancel: &Cancel) {
    loop {
        let left = deadline.saturating_sub(clock::nanos());
        if left == 0 || cancel.is_cancelled() {
            return;
        }
        if left < SHORTEST_SLEEP_NANOS {
            std::hint::spin_loop();
        } else {
            thread::sleep(Duration::from_nanos(left).min(LONGEST_SLEEP));
        }
    }
}

fn micros(request: &Request, key: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_micros(request.optional_number(key)?.unwrap_or(0)))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

const REST_AFTER_ERROR: Duration = Duration::from_millis(20);
const SHORTEST_SLEEP_NANOS: u64 = 100_000;
/// An interrupt takes effect within this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
const WITHOUT_A_LOOP: &[&str] = &["latch"];
