//! Hand-overs from one language to the other, each with its time.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use lockson_harness::{Peer, RedisServer};

use super::{Loaded, open};
use crate::actor::{Actor, Object};
use crate::kind::Kind;
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::starved::Starved;
use crate::subscribed::until_subscribed;
use crate::verdict::{Score, Verdict, caught};

/// The hand-overs of one direction.
#[derive(Debug, Default)]
struct Way {
    delays_ms: Vec<f64>,
    /// Hand-overs that the machine made slow.
    not_counted: u32,
}

/// One side holds and the other waits; after each release the sides change places. One result for each direction.
pub(crate) fn handover(server: &RedisServer, cast: &Cast, kind: &'static Kind, score: &Score) -> Vec<Loaded> {
    let names = [format!("{}, Rust to Java", kind.title), format!("{}, Java to Rust", kind.title)];
    let verdicts = match caught(|| play(server, cast, kind)) {
        Ok(ways) => names.iter().zip(ways).map(|(name, way)| judge(name, way)).collect(),
        Err(story) => vec![Verdict::Failed(story.clone()), Verdict::Failed(story)],
    };
    let claim = format!("{ROUNDS} hand-overs: in 99 % the waiter holds within {BOUND_MS} ms of the release");
    let loaded = |(name, verdict)| Loaded::new(format!("{name}: {claim}"), verdict, score);
    names.iter().zip(verdicts).map(loaded).collect()
}

fn play(server: &RedisServer, cast: &Cast, kind: &'static Kind) -> [Way; 2] {
    let peers: [RefCell<Peer>; 2] = Seat::BOTH.map(|seat| open(Site::One(server), cast, seat, "").into());
    let object = Object::new(kind, &format!("handover-{}", kind.word));
    let [rust, java] = [0, 1].map(|place| Actor::new(&peers[place], Seat::BOTH[place], object.clone()));
    let mut redis = server.connection();
    let pids: Vec<u32> = peers.iter().map(|peer| peer.borrow().pid()).chain([server.pid()]).collect();
    let mut ways = [Way::default(), Way::default()];
    rust.take();
    for round in 0..2 * (WARMING_UP + ROUNDS) {
        for (way, (holder, waiter)) in ways.iter_mut().zip([(&rust, &java), (&java, &rust)]) {
            let starved = Starved::watch(pids.clone());
            let Some(delay_ms) = hand_over(holder, waiter, &mut redis) else { continue };
            if delay_ms > BOUND_MS && starved.millis() > TOO_BUSY_MS {
                way.not_counted += 1;
            } else if round >= WARMING_UP && way.delays_ms.len() < ROUNDS {
                way.delays_ms.push(delay_ms);
            }
        }
        if ways.iter().all(|way| way.delays_ms.len() == ROUNDS) {
            rust.give_back().expect_ok();
            return ways;
        }
    }
    panic!("the machine is too busy to tell");
}

/// From before the release to after the grant, in milliseconds; `None` if the waiter had not asked by then.
fn hand_over(holder: &Actor<'_>, waiter: &Actor<'_>, redis: &mut redis::Connection) -> Option<f64> {
    let waiting = waiter.start_waiting(PATIENCE);
    let question = redis::cmd("PUBSUB").arg("CHANNELS").clone();
    until_subscribed(std::slice::from_mut(redis), &question, &waiter.object.name, SUBSCRIBING);
    thread::sleep(ASKING_AGAIN);
    let released = holder.give_back().expect_ok();
    let granted = waiting.finish();
    assert!(granted.acquired(), "{} did not get in within {PATIENCE:?}", waiter.seat.name());
    (granted.started() < released.started()).then(|| granted.millis_after(released.started()))
}

fn judge(name: &str, way: Way) -> Verdict {
    let Way { delays_ms: mut delays, not_counted } = way;
    delays.sort_by(f64::total_cmp);
    let in_time = delays.iter().filter(|delay| **delay <= BOUND_MS).count();
    let nth = |percent: usize| delays[(delays.len() * percent).div_ceil(100) - 1];
    println!(
        "hand-over: {name}: {in_time} of {} within {BOUND_MS} ms; p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms; \
         {not_counted} slow ones while the machine was busy not counted",
        delays.len(),
        nth(50),
        nth(99),
        nth(100)
    );
    if in_time * 100 >= delays.len() * 99 {
        return Verdict::Passed;
    }
    Verdict::Failed(format!("only {in_time} of {} within {BOUND_MS} ms", delays.len()))
}

/// Hand-overs each way.
const ROUNDS: usize = 100;
/// Uncounted rounds: in the first rounds a JVM also loads and compiles its code.
const WARMING_UP: usize = 15;
const BOUND_MS: f64 = 50.0;
/// A slow hand-over is not counted if its threads waited this long for processors, added up.
const TOO_BUSY_MS: f64 = BOUND_MS / 2.0;
const PATIENCE: Duration = Duration::from_secs(20);
const SUBSCRIBING: Duration = Duration::from_millis(100);
/// From a subscription to the end of the request that follows.
const ASKING_AGAIN: Duration = Duration::from_millis(10);
