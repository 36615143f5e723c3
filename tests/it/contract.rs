//! The promises of every exclusive kind of lock, written once and run for each kind.

mod asking;
mod closing;
mod closing_busy;
mod compiler;
mod doubt;
mod exclusion;
mod foreign;
mod forks;
mod keeping;
mod leases;
mod listing;
mod loss;
mod names;
mod observers;
mod persisted;
mod reentry;
mod requests;
mod rights;
mod scoped;
mod stopping;
mod telling;
mod threads;
mod waiting;

use std::thread::{Scope, ScopedJoinHandle};

use lockson::{Backoff, Hold};

use crate::support::kinds::{self, OfName};
use crate::support::prelude::*;
use crate::support::read_write_channel;

/// One kind, as the contract sees the kind.
#[derive(Debug)]
struct Kind {
    label: &'static str,
    lock: OfName,
    /// Whether the holder may take the lock again.
    reenters: bool,
    /// Whether the count stands in Redis.
    counted: bool,
    /// The prefix of the waiters' channels; `None` for kinds whose waiters do not listen.
    channel: Option<fn(&str) -> String>,
    /// For the group, the member with the name of the test.
    member: Option<OfName>,
}

/// What most kinds are.
const USUAL: Kind =
    Kind { label: "plain", lock: kinds::plain, reenters: true, counted: true, channel: Some(channel), member: None };

const KINDS: &[Kind] = &[
    USUAL,
    Kind { label: "fair", lock: kinds::fair, ..USUAL },
    Kind {
        label: "spin",
        lock: |client, name| client.get_spin_lock_with(name, noted_pauses(name)),
        channel: None,
        ..USUAL
    },
    Kind { label: "fenced", lock: kinds::fenced, ..USUAL },
    Kind { label: "write", lock: kinds::write, channel: Some(read_write_channel), ..USUAL },
    Kind { label: "non-reentrant", lock: kinds::non_reentrant, reenters: false, ..USUAL },
    Kind { label: "non-reentrant fair", lock: kinds::non_reentrant_fair, reenters: false, ..USUAL },
    Kind {
        label: "token",
        lock: |client, name| client.get_token_lock_with(name, TokenOptions::new().with_backoff(noted_pauses(name))),
        counted: false,
        channel: None,
        ..USUAL
    },
];

/// A group of locks. It has no holder and no time to live of its own, so tests of these answers leave it out.
///
/// The first in the canonical order is the one that waiters of a busy group wait for.
const GROUP: Kind = Kind {
    label: "multi of three",
    lock: |client, name| {
        let (second, third) = (format!("{name}:second"), format!("{name}:third"));
        Lock::multi([client.get_fair_lock(third), client.get_lock(name), client.get_lock(second)])
    },
    member: Some(kinds::plain),
    ..USUAL
};

fn kinds_and_group() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain([&GROUP])
}

/// Runs a case for every kind and the group at once; the thread's name shows the kind of a failure.
fn for_every_kind(case: impl Fn(&Kind) + Sync) {
    run(kinds_and_group(), case);
}

/// Runs a case for every kind, without the group.
fn for_every_single_kind(case: impl Fn(&Kind) + Sync) {
    run(KINDS.iter(), case);
}

/// Runs a case for every kind and the group with re-entry.
fn for_every_reentrant_kind(case: impl Fn(&Kind) + Sync) {
    run(kinds_and_group().filter(|kind| kind.reenters), case);
}

/// Three calls that wait for a busy lock, and their errors. The first asks Redis, the others wait behind the first.
fn three_waiters<'s>(scope: &'s Scope<'s, '_>, lock: &'s Lock) -> [ScopedJoinHandle<'s, ErrorKind>; 3] {
    [
        scope.spawn(|| kind_of(lock.lock())),
        scope.spawn(|| kind_of(lock.try_lock_for(SOON))),
        scope.spawn(|| kind_of(lock.owned().lock())),
    ]
}

/// Runs a case for a lock of every kind and the group, each with a client and a name of its own.
fn for_a_lock_of_every_kind(case: impl Fn(&Kind, Lock) + Sync) {
    for_every_kind(|kind| case(kind, kind.get_lock(&client(), &kind.fresh())));
}

/// The same for every kind and the group with re-entry.
fn for_a_lock_of_every_reentrant_kind(case: impl Fn(&Kind, Lock) + Sync) {
    for_every_reentrant_kind(|kind| case(kind, kind.get_lock(&client(), &kind.fresh())));
}

/// The key of a lock, or that of the member of the group that a test looks at.
fn key(name: &str) -> &str {
    members(name).map_or(name, |names| names.split(", ").min().unwrap_or(names))
}

/// Deletes the lock, or every member of the group.
#[track_caller]
fn delete(lock: &Lock) {
    let name = lock.name();
    let names: Vec<&str> = ["DEL"].into_iter().chain(members(name).unwrap_or(name).split(", ")).collect();
    RedisServer::shared().run(&names);
}

fn members(name: &str) -> Option<&str> {
    name.strip_prefix("multi(")?.strip_suffix(')')
}

/// The owner of a hold, or of the hold on the member of the group that a test looks at.
fn owner(hold: &Hold) -> &str {
    hold.members().iter().min_by_key(|member| member.name()).map_or("", Hold::owner)
}

fn run(kinds: impl Iterator<Item = &'static Kind>, case: impl Fn(&Kind) + Sync) {
    thread::scope(|scope| {
        let run_one = |kind: &'static Kind| {
            let case = &case;
            thread::Builder::new().name(kind.label.into()).spawn_scoped(scope, move || case(kind)).unwrap()
        };
        let runs: Vec<_> = kinds.map(run_one).collect();
        runs.into_iter().for_each(joined);
    });
}

impl Kind {
    fn get_lock(&self, client: &Client, name: &str) -> Lock {
        (self.lock)(client, name)
    }

    /// The lock that a test looks at: the lock itself, or a member of the group.
    fn member(&self, client: &Client, name: &str) -> Lock {
        self.member.unwrap_or(self.lock)(client, name)
    }

    /// The longest wake-up on an idle machine. A waiter without a channel sleeps for an eighth of a second.
    fn usual_wake(&self) -> Duration {
        Duration::from_millis(if self.channel.is_some() { 200 } else { 300 })
    }

    /// A name that no other case uses.
    fn fresh(&self) -> String {
        fresh(self.label)
    }

    /// Waits until a client waits for this name.
    fn await_waiter(&self, server: &RedisServer, name: &str) {
        let Some(channel) = self.channel else {
            PAUSED.lock().remove(name);
            return eventually(SOON, "somebody pauses", || PAUSED.lock().contains(name));
        };
        let start = channel(name);
        eventually(SOON, "somebody waits", || server.channels().iter().any(|other| other.starts_with(&start)));
        // The waiter asks once more after the subscription. The test is right before and after that question; after the
        // question, only a message wakes the waiter.
        thread::sleep(Duration::from_millis(20));
    }
}

/// The default pauses without their random part; each pause is recorded as proof of a waiter.
fn noted_pauses(name: &str) -> Backoff {
    let name = name.to_owned();
    Backoff::new(move |tries| {
        PAUSED.lock().insert(name.clone());
        Some(ms(1 << (tries - 1).min(7)))
    })
}

/// Names for which a waiter without a channel began a pause.
static PAUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
