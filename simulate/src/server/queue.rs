//! The queue of the fair lock: waiters are served in the order of their first questions.

use std::collections::BTreeMap;

use lockson_world::{Nanos, World};

use super::State;

/// The waiters of the fair lock that asked lately.
#[derive(Debug, Default)]
pub struct Queue(BTreeMap<String, Waiter>);

#[derive(Clone, Copy, Debug)]
struct Waiter {
    first: Nanos,
    last: Nanos,
}

impl State {
    /// The owner of the fair lock, and its waiters.
    pub(super) fn queued(&self) -> (Vec<String>, Vec<String>) {
        let data = self.scripts.data().lock();
        (data.owners(b"fair"), data.listed(QUEUE))
    }

    /// A grant goes to the waiter that came first, of those that asked lately.
    pub(super) fn is_served_in_order(
        &mut self,
        world: &World,
        before: &(Vec<String>, Vec<String>),
        request: &[Vec<u8>],
    ) {
        let (owners, waiting) = self.queued();
        let now = world.now();
        let is_named = |owner: &str| request.iter().any(|word| word == owner.as_bytes());
        // Java's own rules decide about its waiters; their owners have no dot.
        let granted = owners.iter().find(|owner| owner.contains('.') && !before.0.contains(owner));
        if let Some(granted) = granted {
            let came = self.queue.0.get(granted).map_or(now, |waiter| waiter.first);
            // A waiter of Java keeps its place for its own waiting time only; its owner has no dot.
            let is_earlier = |(owner, waiter): &(&String, &Waiter)| {
                owner.contains('.') && waiter.first < came && now < waiter.last + PATIENCE
            };
            if let Some((owner, _)) = self.queue.0.iter().find(is_earlier) {
                world.fail(format_args!("{granted} is served before {owner}, which waits"));
            }
        }
        // Nobody but a waiter itself takes it out of the queue.
        self.queue.0.retain(|owner, waiter| {
            let leaves = is_named(owner) && !waiting.contains(owner);
            !leaves && (waiting.contains(owner) || now < waiter.last + PATIENCE)
        });
        // The memory of a full server may not take what a waiter says.
        if self.faults.full == 0 {
            for owner in waiting.into_iter().filter(|owner| is_named(owner)) {
                let waiter = self.queue.0.entry(owner).or_insert(Waiter { first: now, last: now });
                // After a silence it may have lost its place to those who came meanwhile.
                if now >= waiter.last + PATIENCE {
                    waiter.first = now;
                }
                waiter.last = now;
            }
        }
    }
}

const QUEUE: &[u8] = b"redisson_lock_queue:{fair}";
/// Less than the patience by a clock that runs fast.
const PATIENCE: Nanos = 4_900_000_000;
