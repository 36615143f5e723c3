//! The peer's side of the line protocol: one command a line on standard input, one answer a line on standard output.
//!
//! | command | answer |
//! |---|---|
//! | (at the start) | `ready version=V renews=0|1` |
//! | `open URL,..` | `us=`: connecting to the first server, and one take and release |
//! | `pair KIND MS NAME` | `p50=` `p99=` of takes and releases in microseconds; KIND is `lock`, `reentry`, `multi`, `semaphore`, `red` |
//! | `hold NAME`, `give NAME`, `wait NAME` | `at=`: after the take, before the release, after the take of a take and release; microseconds of the day's clock |
//! | `believes NAME` | `told=1` until the library has told the holder, without a request, that the hold is over |
//! | `hot NAME WORKERS MS HOLD_US` | `grants=N,..` of each worker, `longest=`: the longest wait in microseconds |
//! | `crowd NAME N` | `waiting=N`, and when all were served `at=` |
//! | `many N` | `bytes=` of memory for each of N locks, which stay held |
//!
//! A command that a library cannot do is answered with `no REASON`. The peers in Go and Java speak the same.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

/// A lock library. Blocking libraries are ready at the first poll.
pub(crate) trait Locks: Send + Sync + Sized + 'static {
    type World: World;
    type Lock;
    type Hold;
    const RENEWS: bool;

    async fn open(urls: Vec<String>) -> Self;
    async fn lock(&self, name: &str) -> Self::Lock;
    async fn take(lock: &Self::Lock) -> Self::Hold;
    async fn give(hold: Self::Hold);
    /// What the holder knows without a request.
    fn believes(hold: &Self::Hold) -> bool;
    /// Pairs of another kind, for as long as the clock runs.
    async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String>;
    /// The reason why this library does not take part.
    fn refuses(_command: &str) -> Option<&'static str> {
        None
    }
}

/// How a peer runs things at the same time.
pub(crate) trait World: 'static {
    async fn line() -> Option<String>;
    async fn sleep(time: Duration);
    async fn all<T: Send + 'static, F: Future<Output = T> + 'static>(
        count: usize,
        job: impl Fn() -> F + Send + Sync + 'static,
    ) -> Vec<T>;
}

/// Takes the time of each round.
pub(crate) struct Clock {
    end: Instant,
    begun: Option<Instant>,
    nanos: Vec<u64>,
}

impl Clock {
    /// Ends a round, and says whether another one begins.
    pub(crate) fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        self.nanos.extend(self.begun.map(|begun| u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX)));
        self.begun = (now < self.end).then(Instant::now);
        self.begun.is_some()
    }

    fn answer(mut self) -> String {
        self.nanos.sort_unstable();
        let part = |part: f64| self.nanos[((self.nanos.len() - 1) as f64 * part).round() as usize] as f64 / 1e3;
        format!("p50={:.1} p99={:.1} n={}", part(0.5), part(0.99), self.nanos.len())
    }
}

pub(crate) fn unknown() -> Result<(), String> {
    Err(NOTHING.to_owned())
}

pub(crate) const NOTHING: &str = "the library has no such thing";

/// Serves until standard input ends.
pub(crate) async fn serve<L: Locks>(version: &str) {
    say(&format!("ready version={version} renews={}", u8::from(L::RENEWS)));
    let mut opened: Option<Arc<L>> = None;
    let mut holds: HashMap<String, L::Hold> = HashMap::new();
    while let Some(line) = L::World::line().await {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(reason) = L::refuses(words[0]) {
            say(&format!("no {reason}"));
            continue;
        }
        if let ["open", urls] = words[..] {
            let begun = Instant::now();
            let locks = L::open(urls.split(',').map(str::to_owned).collect()).await;
            let lock = locks.lock("start").await;
            L::give(L::take(&lock).await).await;
            say(&format!("us={:.1}", begun.elapsed().as_secs_f64() * 1e6));
            opened = Some(Arc::new(locks));
            continue;
        }
        let locks = opened.as_ref().expect("`open` comes first");
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let answer = match words[0] {
            "pair" => {
                let end = Instant::now() + Duration::from_millis(number(2));
                let mut clock = Clock { end, begun: None, nanos: vec![] };
                let done = match words[1] {
                    "lock" => {
                        let lock = locks.lock(words[3]).await;
                        while clock.goes_on() {
                            L::give(L::take(&lock).await).await;
                        }
                        Ok(())
                    }
                    kind => locks.pairs(kind, words[3], &mut clock).await,
                };
                done.map_or_else(|reason| format!("no {reason}"), |()| clock.answer())
            }
            "hold" => {
                let hold = L::take(&locks.lock(words[1]).await).await;
                let at = now();
                holds.insert(words[1].to_owned(), hold);
                format!("at={at}")
            }
            "give" => {
                let hold = holds.remove(words[1]).expect("it is held");
                let at = now();
                L::give(hold).await;
                format!("at={at}")
            }
            "wait" => format!("at={}", take_and_give(locks, words[1]).await),
            "believes" => format!("told={}", u8::from(L::believes(&holds[words[1]]))),
            "hot" => hot(locks, words[1], number(2), number(3), Duration::from_micros(number(4))).await,
            "crowd" => {
                say(&format!("waiting={}", words[2]));
                let (locks, name) = (Arc::clone(locks), words[1].to_owned());
                let job = move || {
                    let (locks, name) = (Arc::clone(&locks), name.clone());
                    async move { take_and_give(&locks, &name).await }
                };
                let served = L::World::all(words[2].parse().expect("a number"), job).await;
                format!("at={}", served.into_iter().max().unwrap_or_default())
            }
            "many" => {
                let before = resident();
                for each in 0..number(1) {
                    let name = format!("many:{}:{each}", std::process::id());
                    let hold = L::take(&locks.lock(&name).await).await;
                    holds.insert(name, hold);
                }
                // The table of this program is no part of a lock.
                let own = number(1) * (size_of::<(String, L::Hold)>() as u64 + 24) * 3 / 2;
                format!("bytes={}", (resident() - before).saturating_sub(own) / number(1))
            }
            word => format!("no such command: {word}"),
        };
        say(&answer);
    }
}

async fn take_and_give<L: Locks>(locks: &Arc<L>, name: &str) -> u64 {
    let hold = L::take(&locks.lock(name).await).await;
    let at = now();
    L::give(hold).await;
    at
}

async fn hot<L: Locks>(locks: &Arc<L>, name: &str, workers: u64, millis: u64, hold: Duration) -> String {
    let end = Instant::now() + Duration::from_millis(millis);
    let (locks, name) = (Arc::clone(locks), name.to_owned());
    let job = move || {
        let (locks, name) = (Arc::clone(&locks), name.clone());
        async move {
            let lock = locks.lock(&name).await;
            let (mut grants, mut longest) = (0_u64, Duration::ZERO);
            while Instant::now() < end {
                let asked = Instant::now();
                let held = L::take(&lock).await;
                longest = longest.max(asked.elapsed());
                grants += u64::from(Instant::now() < end);
                if !hold.is_zero() {
                    L::World::sleep(hold).await;
                }
                L::give(held).await;
            }
            (grants, longest)
        }
    };
    let all = L::World::all(usize::try_from(workers).expect("a small number"), job).await;
    let grants: Vec<String> = all.iter().map(|(grants, _)| grants.to_string()).collect();
    let longest = all.iter().map(|(_, longest)| longest.as_micros()).max().unwrap_or_default();
    format!("grants={} longest={longest}", grants.join(","))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Who closed the pipe reads no answer.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Microseconds by the clock of the day, which all languages read.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The result of a future that never waits.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("blocking code is ready at once"),
    }
}

/// The world of blocking libraries: a thread for each worker.
pub(crate) struct Threads;

impl World for Threads {
    async fn line() -> Option<String> {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    async fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    async fn all<T: Send + 'static, F: Future<Output = T> + 'static>(
        count: usize,
        job: impl Fn() -> F + Send + Sync + 'static,
    ) -> Vec<T> {
        let job = Arc::new(job);
        let start = |_| {
            let job = Arc::clone(&job);
            let thread = std::thread::Builder::new().stack_size(256 * 1024);
            thread.spawn(move || at_once(job())).expect("a thread can be started")
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    }
}
