//! The time from one client's call of `unlock` to the grant of the waiter in another client.

use std::time::Duration;

use lockson::{Guard, Lock};
use lockson_harness::RedisServer;

use crate::bare::Bare;
use crate::child;
use crate::figure::{Samples, Spread, in_short_turns};
use crate::placement::in_each;
use crate::plan::Plan;
use crate::remote::{BareWaiter, InProcess, InThread, LocksonWaiter, Remote, now};
use crate::report::Report;
use crate::wire;

pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let mut all: [Vec<Samples>; 2] = [vec![], vec![]];
    in_each(server, report, "hand-over", |placement, report| {
        let values = measure(&server.url(), plan);
        let [ours_threads, bare_threads, ours_process, bare_process] = &values[..] else {
            unreachable!("four candidates")
        };
        let ratios = vec![
            compare(report, &format!("hand-over-threads{}", placement.suffix()), ours_threads, bare_threads),
            compare(report, &format!("hand-over-processes{}", placement.suffix()), ours_process, bare_process),
        ];
        all[0].extend_from_slice(&[&ours_threads[..], ours_process].concat());
        all[1].extend_from_slice(&[&bare_threads[..], bare_process].concat());
        ratios
    });
    // A single round has too few samples for a p99, so the p99 is taken over all rounds together.
    let p99 = |samples: &Samples| samples.quantile(0.99);
    let [ours, floor] = [&all[0], &all[1]].map(|rounds| p99(&Samples::pooled(rounds)));
    report.figure("p99 of all rounds, lockson and bare", format!("{ours:.1} and {floor:.1}"), "us");
    report.ratio_of("hand-over-p99", ours / floor, Spread::ratio(&all[0], &all[1], p99));
}

/// As [`run`], over TLS.
#[cfg(feature = "tls")]
pub(crate) fn over_tls(_: &RedisServer, plan: &Plan, report: &mut Report) {
    let (server, target, _authority) = crate::placement::secured();
    in_each(&server, report, "hand-over-tls", |placement, report| {
        let values = measure(&target, plan);
        let suffix = placement.suffix();
        vec![
            compare(report, &format!("hand-over-tls-threads{suffix}"), &values[0], &values[1]),
            compare(report, &format!("hand-over-tls-processes{suffix}"), &values[2], &values[3]),
        ]
    });
}

/// Measures two clients in one process, lockson and bare, and then both again with the waiter in another process.
fn measure(url: &str, plan: &Plan) -> Vec<Vec<Samples>> {
    let names =
        ["ours-threads", "bare-threads", "ours-process", "bare-process"].map(|name| format!("hand-over:{name}"));
    let (waiter_url, waiter_name) = (url.to_owned(), names[0].clone());
    let in_thread = InThread::start(move || LocksonWaiter::new(&waiter_url, &waiter_name));
    let mut ours_threads = HandOver::new(LocksonHolder::new(url, &names[0]), in_thread);
    let (waiter_url, waiter_name) = (url.to_owned(), names[1].clone());
    let in_thread = InThread::start(move || BareWaiter::new(&waiter_url, &waiter_name));
    let mut bare_threads = HandOver::new(Bare::new(url, &names[1]), in_thread);
    let in_process = InProcess::start(child::LOCKSON_WAITER, url, &names[2]);
    let mut ours_process = HandOver::new(LocksonHolder::new(url, &names[2]), in_process);
    let in_process = InProcess::start(child::BARE_WAITER, url, &names[3]);
    let mut bare_process = HandOver::new(Bare::new(url, &names[3]), in_process);

    in_short_turns(
        plan.hand_over_rounds,
        plan.hand_over_batch,
        &mut [&mut || ours_threads.once(), &mut || bare_threads.once(), &mut || ours_process.once(), &mut || {
            bare_process.once()
        }],
    )
}

fn compare(report: &mut Report, name: &str, ours: &[Samples], floor: &[Samples]) -> Spread {
    let p50 = |samples: &Samples| samples.quantile(0.5);
    report.figure("lockson, p50", Spread::of(ours.iter().map(p50)), "us");
    report.figure("bare, p50", Spread::of(floor.iter().map(p50)), "us");
    let ratio = Spread::ratio(ours, floor, p50);
    report.ratio(name, ratio);
    ratio
}

/// The holder before the hand-over.
trait Holder {
    fn take(&mut self);
    fn give_back(&mut self);
}

struct LocksonHolder {
    lock: Lock,
    guard: Option<Guard>,
}

impl LocksonHolder {
    fn new(url: &str, name: &str) -> Self {
        Self { lock: wire::client(url).get_lock(name), guard: None }
    }
}

impl Holder for LocksonHolder {
    fn take(&mut self) {
        self.guard = Some(self.lock.lock().expect("the waiter has released the lock"));
    }

    fn give_back(&mut self) {
        self.guard.take().expect("the guard was stored").unlock().expect("the lock was held");
    }
}

impl Holder for Bare {
    fn take(&mut self) {
        assert!(self.acquire(), "the waiter has released the lock");
    }

    fn give_back(&mut self) {
        self.release();
    }
}

struct HandOver<H, R> {
    holder: H,
    remote: R,
}

impl<H: Holder, R: Remote> HandOver<H, R> {
    fn new(holder: H, remote: R) -> Self {
        Self { holder, remote }
    }

    fn once(&mut self) -> u64 {
        self.holder.take();
        self.remote.go();
        // Leaves the waiter time to ask, to subscribe and to sleep.
        std::thread::sleep(SETTLING);
        let released = now();
        self.holder.give_back();
        self.remote.granted_at().saturating_sub(released)
    }
}

const SETTLING: Duration = Duration::from_millis(2);
