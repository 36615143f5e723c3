//! What an observer may do in the middle of a call: close the client, take locks, fork.

use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::unbounded;
use fork::Fork;
use lockson::{Client, Lock, LockAcquired, LockLost, LockReleased, Observer};
use lockson_harness::proxy::{Direction, Scope};
use lockson_harness::{HelperProcess, RedisServer, helper};

use super::forks::status_of;
use crate::support::faults::Rig;
use crate::support::{SOON, client, fresh};

/// Does something at each event.
struct Acting<F>(F);

impl<F> fmt::Debug for Acting<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acting")
    }
}

impl<F: Fn(&'static str, &str) + Send + Sync + 'static> Observer for Acting<F> {
    fn acquired(&self, event: &LockAcquired) {
        (self.0)("acquired", event.name());
    }

    fn released(&self, event: &LockReleased) {
        (self.0)("released", event.name());
    }

    fn lost(&self, event: &LockLost) {
        (self.0)("lost", event.name());
    }
}

#[test]
fn an_observer_that_closes_the_client_loses_no_permit() {
    let (name, slot) = (fresh("permits"), Arc::new(OnceLock::<Client>::new()));
    let closes = Arc::clone(&slot);
    let observer = Acting(move |_, _: &str| closes.get().into_iter().for_each(Client::close));
    let ours = Client::builder(&RedisServer::shared().url()).observer(observer).connect().unwrap();
    slot.set(ours.clone()).unwrap();
    let theirs = client().get_semaphore(&name);
    assert!(theirs.set_permits_once(3).unwrap());
    drop(ours.get_semaphore(&name).acquire(1));
    assert_eq!(theirs.available().unwrap(), 3);
}

#[test]
fn an_observer_may_reenter_what_a_release_of_several_leaves() {
    let ([stays, goes], slot) = ([fresh("several"), fresh("several")], Arc::new(OnceLock::<Lock>::new()));
    let (told, heard) = unbounded();
    let (reenters, last) = (Arc::clone(&slot), goes.clone());
    let observer = Acting(move |event, name: &str| {
        if (event, name) == ("released", &*last) {
            let inner = reenters.get().unwrap().try_lock();
            told.send(inner.map(|inner| inner.is_some_and(|inner| inner.unlock().is_ok()))).unwrap();
        }
    });
    let client = Client::builder(&RedisServer::shared().url()).observer(observer).connect().unwrap();
    slot.set(client.get_lock(&stays)).unwrap();
    let outer = client.get_lock(&stays).lock().unwrap();
    Lock::multi([client.get_lock(&stays), client.get_lock(&goes)]).lock().unwrap().unlock().unwrap();
    assert!(heard.recv_timeout(SOON).unwrap().unwrap(), "taken again and given back");
    outer.unlock().unwrap();
    client.close();
}

#[test]
fn a_child_forked_by_an_observer_of_a_close_goes_on() {
    let rig = Rig::start();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "contract::observers::an_observer_forks_during_the_close";
    command.args(["--exact", test, "--nocapture"]).env(SERVER, rig.proxy.url());
    let mut parent = HelperProcess::spawn_command(command);
    while parent.next_line(SOON) != READY {}
    // The permits are on their way back when the observer hears of the loss.
    rig.proxy.mute(Scope::All, Direction::Both);
    parent.send("close");
    parent.expect_line("child 0", SOON * 3);
}

/// This process is the parent if the variable is set; otherwise there is nothing to test here.
#[test]
fn an_observer_forks_during_the_close() {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    let Ok(url) = std::env::var(SERVER) else { return };
    helper::say("");
    let parent = std::process::id();
    let observer = Acting(|event, _: &str| {
        if event == "lost"
            && let Fork::Parent(child) = fork::fork().unwrap()
        {
            CHILD.store(child, Ordering::Release);
        }
    });
    let client = Client::builder(&url).observer(observer).connect().unwrap();
    let semaphore = client.get_semaphore("forked");
    semaphore.set_permits_once(3).unwrap();
    let (permits, guard) = (semaphore.acquire(1).unwrap(), client.get_lock("held").lock().unwrap());
    helper::say(READY);
    assert_eq!(helper::requests().recv().unwrap(), "close");
    client.close();
    if std::process::id() != parent {
        std::process::exit(0);
    }
    helper::say(&format!("child {}", status_of(CHILD.load(Ordering::Acquire))));
    drop((permits, guard));
}

const SERVER: &str = "LOCKSON_TEST_OBSERVED_CLOSE";
const READY: &str = "the client holds a permit and a lock";
