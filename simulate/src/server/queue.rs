//! The queue of the fair lock: waiters are served in the order of their first questions.

use std::collections::BTreeMap;

use lockson_world::{Nanos, World};

use super::commands::keys_of;
use super::{State, clock};

/// The waiters of the fair lock.
#[derive(Clone, Debug, Default)]
pub struct Queue(BTreeMap<String, Waiter>);

#[derive(Clone, Copy, Debug)]
struct Waiter {
    first: Nanos,
    last: Nanos,
}

/// What Redis knows of the fair lock: its owners, its waiters in their order, their deadlines.
pub(super) struct Line {
    owners: Vec<String>,
    waiting: Vec<String>,
    deadlines: BTreeMap<String, f64>,
}

impl Line {
    fn place(&self, owner: &str) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting == owner)
    }
}

impl State {
    /// The fair lock before or after a request that concerns it.
    pub(super) fn line(&self, request: &[Vec<u8>]) -> Option<Line> {
        let concerns = keys_of(request).iter().any(|key| key == b"fair" || key == QUEUE);
        concerns.then(|| {
            let data = self.scripts.data().lock();
            Line { owners: data.owners(b"fair"), waiting: data.listed(QUEUE), deadlines: data.scores(DEADLINES) }
        })
    }

    /// A grant goes to the waiter that came first: of ours, among those that asked lately; of Java, among those in the
    /// queue.
    pub(super) fn is_served_in_order(&mut self, world: &World, before: &Line, request: &[Vec<u8>]) {
        let Some(after) = self.line(request) else { return };
        let now = world.now();
        let is_named = |owner: &str| request.iter().any(|word| word == owner.as_bytes());
        if let Some(granted) = after.owners.iter().find(|owner| !before.owners.contains(owner)) {
            let came = self.queue.0.get(granted).map_or(now, |waiter| waiter.first);
            let waits = |owner: &str, waiter: &Waiter| {
                if is_java(owner) {
                    after.waiting.iter().any(|waiting| waiting == owner)
                } else {
                    !waiter.is_silent(now)
                }
            };
            let is_earlier = |(owner, waiter): &(&String, &Waiter)| waiter.first < came && waits(owner, waiter);
            if let Some((owner, _)) = self.queue.0.iter().find(is_earlier) {
                world.fail(format_args!("{granted} is served before {owner}, which waits"));
            }
        }
        self.keeps_those_of_java(world, before, &after, request);
        // Nobody but a waiter itself takes it out of the queue, and Java those whose time is over.
        self.queue.0.retain(|owner, waiter| {
            let is_there = after.waiting.contains(owner);
            let leaves = is_named(owner) && !is_there;
            !leaves && (is_there || !is_java(owner) && !waiter.is_silent(now))
        });
        // Releases and requests of other keys name holders that lost the lock, of whose first question a late copy may
        // stand in the queue. The memory of a full server may not take what a waiter says.
        let asks = request.len() != WORDS_OF_RELEASE && keys_of(request).iter().any(|key| key == QUEUE);
        for owner in after.waiting.iter().filter(|owner| asks && self.faults.full == 0 && is_named(owner)) {
            let waiter = self.queue.0.entry(owner.clone()).or_insert(Waiter { first: now, last: now });
            // Whoever was silent for longer than the patience, or one of Java whose time is over, may have lost its place,
            // and begins anew behind the others.
            let begins_anew = before.place(owner).is_none_or(|place| Some(place) < before.place(&after.waiting[0]));
            if begins_anew && (is_java(owner) || waiter.is_silent(now)) {
                waiter.first = now;
            }
            waiter.last = now;
        }
    }

    /// A waiter of Java keeps its place until its deadline, which no request of ours brings nearer than the patience.
    fn keeps_those_of_java(&self, world: &World, before: &Line, after: &Line, request: &[Vec<u8>]) {
        #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact")]
        let now = (clock(world, self.faults) / 1_000) as f64;
        let is_named = |owner: &str| request.iter().any(|word| word == owner.as_bytes());
        let is_of_ours = keys_of(request).len() == KEYS_OF_OURS;
        for owner in before.waiting.iter().filter(|owner| is_java(owner) && !is_named(owner)) {
            let [ends, ends_now] = [before, after].map(|line| line.deadlines.get(owner).copied().unwrap_or(0.0));
            if after.place(owner).is_none() && ends > now {
                world.fail(format_args!("{owner} has lost its place {} ms before its deadline", ends - now));
            }
            if after.place(owner).is_some() && is_of_ours && ends_now < ends.min(now + PATIENCE_MS) {
                world.fail(format_args!("{owner} has {} ms left, and had {}", ends_now - now, ends - now));
            }
        }
    }
}

impl Waiter {
    /// Whether a waiter of ours may have lost its place.
    fn is_silent(&self, now: Nanos) -> bool {
        now >= self.last + PATIENCE
    }
}

/// The numbers of our owners have a dot.
fn is_java(owner: &str) -> bool {
    !owner.contains('.')
}

const QUEUE: &[u8] = b"redisson_lock_queue:{fair}";
const DEADLINES: &[u8] = b"redisson_lock_timeout:{fair}";
/// Redisson's scripts have fewer, or a latch for the fifth one.
const KEYS_OF_OURS: usize = 4;
/// Those of our fair/release.lua, which has more than the other scripts.
const WORDS_OF_RELEASE: usize = 3 + KEYS_OF_OURS + 7;
/// Less than the patience by a clock that runs fast.
const PATIENCE: Nanos = 4_900_000_000;
const PATIENCE_MS: f64 = 4_900.0;
