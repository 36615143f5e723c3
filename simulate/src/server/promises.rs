//! The promises that a server sees broken, and what the threads of a story ask it.

use std::sync::Arc;

use lockson_world::World;

use super::{COUNTERS, Free, LATCH, LOCKS, Shown, State, clock};

impl State {
    /// The owners of all locks that only their owners and users with force give back.
    pub(super) fn owners(&mut self, world: &World) -> Arc<Vec<String>> {
        let mut data = self.scripts.data().lock();
        data.set_clock(clock(world, self.faults));
        data.expire();
        if self.owners.0 != data.version {
            // The next request removes readers that have expired.
            let names = LOCKS.iter().filter(|name| **name != "shared");
            self.owners = (data.version, Arc::new(names.flat_map(|name| data.owners(name.as_bytes())).collect()));
        }
        Arc::clone(&self.owners.1)
    }

    /// No request ends a hold of an owner whom it does not name.
    pub(super) fn nobody_is_robbed(&mut self, world: &World, before: &[String], request: &[Vec<u8>]) {
        let after = self.owners(world);
        let is_named = |owner: &String| request.iter().any(|word| word == owner.as_bytes());
        if let Some(owner) = before.iter().find(|owner| !after.contains(owner) && !is_named(owner)) {
            world.fail(format_args!("a request of others ends the hold of {owner}: {}", Shown(request)));
        }
    }

    /// Nothing but counters is there for ever.
    pub(super) fn all_expire(&self, world: &World) {
        let data = self.scripts.data().lock();
        let is_counter = |name: &[u8]| COUNTERS.contains(&name) || name.starts_with(b"redisson_lock_token");
        let is_queue =
            |name: &[u8]| name.starts_with(b"redisson_lock_queue") || name.starts_with(b"redisson_lock_timeout");
        let is_counter = |name: &[u8]| is_counter(name) || self.has_lasting_queues && is_queue(name);
        if let Some(name) = data.lasting().find(|name| !is_counter(name)) {
            world.fail(format_args!("{:?} never expires", String::from_utf8_lossy(name)));
        }
    }

    /// Notes which locks are free by now.
    pub(super) fn look_at_locks(&mut self, world: &World) {
        let (mut data, now) = (self.scripts.data().lock(), world.now());
        if std::mem::replace(&mut self.looked_at, data.version) == data.version {
            return;
        }
        for (name, free) in &mut self.free {
            let is_by_time = data.ended.contains(name.as_bytes());
            match (data.has(name.as_bytes()), free.since) {
                (false, None) => *free = Free { since: Some(now), is_by_time, ..*free },
                (true, Some(since)) => *free = Free { since: None, last: (since, now), ..*free },
                _ => {}
            }
        }
        data.ended.clear();
    }

    /// A request counts the latch down by one at most, and opens it at zero.
    pub(super) fn look_at_latch(&mut self, world: &World, may_count: bool) {
        let now = self.scripts.data().lock().owners(LATCH.as_bytes()).first().and_then(|count| count.parse().ok());
        let (before, counted) = self.latch;
        let is_one_less = before.is_some_and(|before: i64| before - 1 == now.unwrap_or(0));
        if may_count && before.is_some() && before != now && !is_one_less {
            world.fail(format_args!("the count of the latch goes from {before:?} to {now:?}"));
        }
        self.latch = (now, counted + u64::from(may_count && is_one_less));
    }
}
