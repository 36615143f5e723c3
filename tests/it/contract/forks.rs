//! A forked child: every call refuses at once and nothing hangs, whatever the parent's threads were doing, and a client
//! of its own works.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fork::Fork;
use lockson::{CountDownLatch, Hold, Permits, Semaphore};
use lockson_harness::{HelperProcess, helper};
use rustix::process::{Pid, Signal, kill_process};

use super::{Kind, kinds_and_group};
use crate::faults::other_process::crowd;
use crate::support::prelude::*;

#[test]
fn a_forked_child_of_a_busy_parent_never_hangs() {
    let server = RedisServer::start();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "contract::forks::a_busy_parent_forks", "--nocapture"]).env(SERVER, server.url());
    let mut parent = HelperProcess::spawn_command(command);
    let mut clients = HashSet::new();
    for round in 0..40 {
        let line = loop {
            let line = parent.next_line(SOON * 3);
            if let Some(client) = line.strip_prefix("client ") {
                assert!(clients.insert(client.to_owned()), "two children took one id: {client}");
            }
            if let Some(line) = line.strip_prefix("child ") {
                break line.to_owned();
            }
        };
        assert_eq!(line, "0", "round {round}");
    }
    parent.send("end");
    let wanted = "the parent still holds its locks";
    while parent.next_line(SOON) != wanted {}
    assert_eq!(server.query::<String>(&["GET", PERMITS]), "10", "no child gave the parent's permits back");
}

/// This process is the parent if the variable is unset; the parent has nothing to test here.
#[test]
fn a_busy_parent_forks() {
    let Ok(url) = std::env::var(SERVER) else { return };
    helper::say("");
    // More than thirty threads share the connections, so a busy machine keeps some waiting for seconds.
    let builder = Client::builder(&url).watchdog(ms(30_000), ms(100)).command_timeout(SOON);
    let client = builder.max_connections(6).connect().unwrap();
    let stop = Cancel::new();
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        // The threads hold, wait in the local queue and in the queue of Redis, re-enter, give up and release.
        for (seed, kind) in kinds_and_group().flat_map(|kind| [kind; 3]).enumerate() {
            let lock = kind.get_lock(&client, &format!("busy {}", kind.label)).with_cancel(&stop);
            scope.spawn(move || crowd(&lock, seed as u64 + 1, || ended.load(Ordering::Acquire)));
        }
        let (semaphore, latch) = (client.get_semaphore(PERMITS), client.get_count_down_latch("latch"));
        semaphore.set_permits_once(10).unwrap();
        for wish in [1, 2, 3, 7] {
            let semaphore = semaphore.clone();
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    drop(semaphore.try_acquire_for(wish, ms(50)).unwrap());
                }
            });
        }
        let permits = semaphore.acquire(2).unwrap();
        let inherited: Vec<_> = kinds_and_group().map(|kind| Inherited::take(&client, kind, &stop)).collect();
        for round in 0..40 {
            // Each round forks at another moment of the threads' work.
            thread::sleep(Duration::from_micros(Random(round + 1).below(5_000)));
            let child = match fork::fork().unwrap() {
                Fork::Parent(child) => child,
                Fork::Child => {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        let no_permit = in_child_of_permits(&semaphore, &latch, permits);
                        let refused = if no_permit { in_child(client, inherited, stop) } else { 91 };
                        if refused == 0 && !works_in_child(&url) { 92 } else { refused }
                    }));
                    std::process::exit(outcome.unwrap_or(90));
                }
            };
            helper::say(&format!("child {}", status_of(child)));
        }
        assert_eq!(helper::requests().recv().unwrap(), "end");
        ended.store(true, Ordering::Release);
        for what in inherited {
            assert!(what.guards.iter().all(|guard| guard.is_held()) && what.owned.is_held());
            what.guards.into_iter().for_each(|guard| guard.unlock().unwrap());
            what.owned.unlock().unwrap();
            what.manual.unlock().unwrap();
        }
        permits.release().unwrap();
    });
    helper::say("the parent still holds its locks");
}

/// The exit status of a child, which is killed after a time limit.
fn status_of(child: i32) -> i32 {
    let forked = Instant::now();
    loop {
        if let Some(status) = fork::waitpid_nohang(child).unwrap() {
            return status;
        }
        if forked.elapsed() > SOON * 2 {
            kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
            return fork::waitpid(child).unwrap();
        }
        thread::sleep(ms(1));
    }
}

/// The forking thread's locks of one kind.
struct Inherited {
    label: &'static str,
    is_group: bool,
    /// The lock that other threads use all the time.
    busy: Lock,
    /// The lock that this thread holds by a guard.
    held: Lock,
    guards: [Guard; 4],
    owned: OwnedGuard,
    /// The lock that is left to `unlock()`.
    manual: Lock,
}

impl Inherited {
    fn take(client: &Client, kind: &Kind, stop: &Cancel) -> Self {
        let lock = |what: &str| kind.get_lock(client, &format!("{what} {}", kind.label));
        let manual = lock("manual");
        manual.lock().unwrap().leave_to_unlock();
        Self {
            label: kind.label,
            is_group: kind.member.is_some(),
            busy: lock("busy").with_cancel(stop),
            held: lock("held 0"),
            guards: [0, 1, 2, 3].map(|number| lock(&format!("held {number}")).lock().unwrap()),
            owned: lock("owned").owned().lock().unwrap(),
            manual,
        }
    }
}

/// Calls every method in a forked child; returns 0 if each call refused at once, else the number of the first call that
/// did not.
fn in_child(client: Client, inherited: Vec<Inherited>, stop: Cancel) -> i32 {
    let begun = Instant::now();
    let refused = |outcome: lockson::Result<()>| outcome.is_err_and(|error| error.kind() == ErrorKind::Closed);
    let mut checks = vec![client.held().is_empty(), !format!("{client:?}").is_empty()];
    for what in inherited {
        let is_label = !what.label.is_empty() && !format!("{:?} {:?}", what.busy, what.guards).is_empty();
        checks.push(is_label);
        for lock in [&what.busy, &what.held, &what.manual] {
            checks.extend([
                refused(lock.lock().map(drop)),
                refused(lock.try_lock().map(drop)),
                refused(lock.try_lock_for(SOON).map(drop)),
                refused(lock.owned().lock().map(drop)),
                refused(lock.owned().try_lock().map(drop)),
                refused(lock.with_lease(SOON).try_lock_for(SOON).map(drop)),
                what.label == "read" || refused(lock.once_per(SOON).map(drop)),
                refused(lock.unlock()),
                refused(lock.force_unlock().map(drop)),
                refused(lock.is_locked().map(drop)),
                what.is_group || refused(lock.holder().map(drop)),
                what.is_group || refused(lock.remaining_time_to_live().map(drop)),
                !lock.is_held_by_current_thread() && lock.hold_count() == 0,
            ]);
        }
        let [unlocked, kept, manual, dropped] = what.guards;
        checks.extend([unlocked.hold(), what.owned.hold()].map(is_lost));
        checks.push(refused(unlocked.unlock()));
        kept.keep_until_expiry();
        manual.leave_to_unlock();
        drop(dropped);
        drop(what.owned);
    }
    checks.push(!stop.is_cancelled());
    stop.cancel();
    client.close();
    drop((client, stop));
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    checks.push(threads == 1);
    checks.push(begun.elapsed() < Duration::from_secs(3));
    checks.iter().position(|good| !good).map_or(0, |index| i32::try_from(index).unwrap() % 80 + 1)
}

/// Whether each call about permits and latches refuses at once in a forked child.
fn in_child_of_permits(semaphore: &Semaphore, latch: &CountDownLatch, permits: Permits) -> bool {
    let kinds = [
        kind_of(semaphore.acquire(1)),
        kind_of(semaphore.try_acquire(1)),
        kind_of(semaphore.release(1)),
        kind_of(semaphore.available()),
        kind_of(latch.count_down()),
        kind_of(latch.wait()),
        kind_of(permits.release()),
    ];
    kinds.iter().all(|kind| *kind == ErrorKind::Closed)
}

/// Whether clients that a forked child opens exclude each other's threads, and wake them.
fn works_in_child(url: &str) -> bool {
    let clients = [(); 2].map(|()| Client::builder(url).command_timeout(SOON).connect().unwrap());
    helper::say(&format!("client {}", clients[0].id()));
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        let (clients, inside) = (&clients, &inside);
        let section = move |number: usize| {
            (0..5).all(|_| {
                let guard = clients[number].get_lock("of a child").lock().unwrap();
                let is_alone = !inside.swap(true, Ordering::AcqRel);
                inside.store(false, Ordering::Release);
                guard.unlock().unwrap();
                is_alone
            })
        };
        let threads: Vec<_> = [0, 1, 0, 1, 0, 1].map(|number| scope.spawn(move || section(number))).into();
        threads.into_iter().all(|thread| thread.join().unwrap())
    })
}

fn is_lost(hold: &Hold) -> bool {
    let told = Arc::new(AtomicBool::new(false));
    let callback = Arc::clone(&told);
    hold.on_lost(move |loss| callback.store(*loss == Loss::Closed, Ordering::Release));
    !hold.is_held()
        && hold.remaining().is_zero()
        && hold.lost() == Some(Loss::Closed)
        && hold.wait_lost(SOON) == Some(Loss::Closed)
        && hold.extend(SOON).is_err_and(|error| error.kind() == ErrorKind::Closed)
        && !format!("{hold:?} {:?}", hold.clone()).is_empty()
        && told.load(Ordering::Acquire)
}

const PERMITS: &str = "permits";
const SERVER: &str = "LOCKSON_TEST_BUSY_PARENT_OF";
