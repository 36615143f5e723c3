//! The queue of the fair locks.

use std::thread;
use std::time::{Duration, Instant};

use crate::actor::{Actor, Object};
use crate::checks::PATIENCE;
use crate::kind::Kind;
use crate::program::Seat;
use crate::stage::{BRISK, Stage};

/// A mixed queue keeps its order, behind a short hold and behind a hold longer than any patience.
pub(crate) fn order(stage: &Stage<'_>, kind: &'static Kind) {
    in_order(stage, kind, &[Seat::Java, Seat::Rust, Seat::Java, Seat::Rust, Seat::Java, Seat::Rust], Duration::ZERO);
    in_order(stage, kind, &[Seat::Java, Seat::Rust, Seat::Java], LONG);
}

/// Waiters are granted in the order of arrival; a waiter that gives up is passed over.
fn in_order(stage: &Stage<'_>, kind: &'static Kind, seats: &[Seat], held: Duration) {
    let object = Object::new(kind, &stage.fresh(kind.word));
    let holder = stage.actor(Seat::Rust, &object).by_client(BRISK);
    holder.take();
    let waiters: Vec<Actor<'_>> =
        seats.iter().zip(10..).map(|(seat, thread)| stage.actor(*seat, &object).on_thread(thread)).collect();
    let mut waiting = vec![];
    for (turn, waiter) in waiters.iter().enumerate() {
        waiting.push(waiter.start_waiting(held + PATIENCE));
        until_queued(stage, &object.name, turn + 1);
    }
    let quitter = stage.actor(Seat::Java, &object).on_thread(20);
    assert!(!quitter.wait(Duration::from_millis(100)), "the last of the queue was granted a held lock");
    until_queued(stage, &object.name, waiters.len());
    thread::sleep(held);
    let mut released = holder.give_back().expect_ok();
    for (turn, (waiter, waiting)) in waiters.iter().zip(waiting).enumerate() {
        let granted = waiting.finish();
        assert!(granted.acquired(), "number {turn} of the queue did not get in");
        let delay = granted.millis_after(released.started());
        assert!(
            (0.0..1_000.0).contains(&delay),
            "number {turn} of the queue was granted {delay:.1} ms after its turn came"
        );
        released = waiter.give_back().expect_ok();
    }
    assert!(holder.attempt(), "the queue is not empty");
    holder.give_back().expect_ok();
}

fn until_queued(stage: &Stage<'_>, name: &str, wanted: usize) {
    let end = Instant::now() + PATIENCE;
    let length = || -> usize { stage.redis(&format!("redisson_lock_queue:{{{name}}}"), "LLEN") };
    while length() != wanted {
        assert!(Instant::now() < end, "{} wait in the queue instead of {wanted}", length());
        thread::sleep(Duration::from_millis(2));
    }
    // A fair waiter subscribes to a channel of its own after joining.
    thread::sleep(Duration::from_millis(40));
}

/// More than the time to live of the hold, and more than the 5 s after which a waiter of Lockson may count as gone.
const LONG: Duration = Duration::from_millis(7_000);
