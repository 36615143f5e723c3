//! What a user of the plain lock does, each with whatever rights it has by then.

use std::thread;
use std::time::{Duration, Instant};

use lockson::{Cancel, Client, ClientBuilder, Error, ErrorKind, Lock, Result as LockResult};
use lockson_harness::proxy::Then;

use super::Version;
use crate::fault_support::Rig;
use crate::support::{SOON, TICK, channel, ms};

/// A server with a user of few rights.
pub(crate) struct Stage {
    pub(crate) rig: Rig,
    /// A client that may do everything and is not seen by the proxy.
    bystander: Client,
}

/// What is left to do after the preparation; an error says what became of it instead.
type Act<'a> = Box<dyn FnOnce() -> Outcome + 'a>;
pub(crate) type Outcome = std::result::Result<(), String>;
type Deed = fn(&Stage) -> Outcome;
type Prepare = fn(&Stage) -> Act<'_>;

pub(crate) const DEEDS: [(&str, Prepare); 14] = [
    ("`connect`", connect),
    ("acquire", acquire),
    ("a busy lock", busy),
    ("re-entry", reenter),
    ("`extend`", extend),
    ("renewal", renewal),
    ("release of one", release_of_one),
    ("release", release),
    ("waking others", wake_others),
    ("being woken", be_woken),
    ("leaving a channel", leave_channel),
    ("`is_locked`", is_locked),
    ("`remaining_time_to_live`", remaining_time_to_live),
    ("after `SCRIPT FLUSH`", scripts_anew), // the last one: it concerns all others
];

/// What needs more than the line, by the words of the document.
pub(crate) const ADDITIONS: [(&str, Deed); 4] = [
    ("names with a `{`, like `app:{7}:x`", |stage| stage.wait_for("app:{7}:x")),
    ("a database other than 0", |stage| {
        let client = told(stage.builder("3").connect())?;
        told(client.lock("app:x").lock().and_then(lockson::Guard::unlock))
    }),
    ("`force_unlock()`", |stage| {
        let _held = stage.lock("app:x").lock().expect("nobody has it");
        let forced = told(stage.lock("app:x").force_unlock())?;
        if forced { Ok(()) } else { Err("not held".to_owned()) }
    }),
    ("`holder()`", |stage| {
        let held = stage.lock("app:x").lock().expect("nobody has it");
        let holder = told(stage.lock("app:x").holder())?.ok_or("nobody")?;
        if holder.owner() == held.owner() { Ok(()) } else { Err("somebody else".to_owned()) }
    }),
];

impl Stage {
    /// A server of this version, and the user with these words of an ACL line.
    pub(crate) fn set(version: &Version, words: &[String]) -> Stage {
        let rig = Rig::around(version.start());
        let bystander = rig.direct();
        let stage = Stage { rig, bystander };
        stage.give(words);
        stage
    }

    /// Makes these words the rights of the user, also on connections that stand.
    pub(crate) fn give(&self, words: &[String]) {
        let head = ["ACL", "SETUSER", "locker", "reset"];
        let words: Vec<&str> = head.into_iter().chain(words.iter().map(String::as_str)).collect();
        self.rig.server.run(&words);
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("redis://locker:{PASSWORD}@127.0.0.1:{}/{rest}", self.rig.proxy.port())
    }

    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.builder("").connect_lazily().expect("the URL is good").lock(name)
    }

    /// The settings of the user's client. Its locks outlive all deeds, renewed or not.
    pub(crate) fn builder(&self, rest: &str) -> ClientBuilder {
        Client::builder(&self.url(rest)).watchdog(SOON * 3, TICK).drop_timeout(ms(50))
    }

    /// Whether this lock has been asked for so often, renewals not counted.
    fn asked(&self, name: &str, times: usize) -> bool {
        self.rig.proxy.count(&self.rig.script("acquire").containing(name)) >= times
    }

    /// Whether the connection of a request without an answer is killed before it is sent again.
    pub(crate) fn fences_a_lost_answer(&self) -> bool {
        let lock = self.lock("app:lost");
        let mark = self.rig.proxy.mark();
        self.rig.proxy.rule(self.rig.script("acquire"), Then::CutReplyAfter(0));
        lock.lock().and_then(lockson::Guard::unlock).expect("it is sent again");
        let acquires = self.rig.proxy.fitting_since(mark, &self.rig.script("acquire"));
        let fence = self.rig.fence_of(&acquires[0]);
        fence.is_some_and(|fence| fence.number < acquires[1].number)
    }

    /// What becomes of a wait for a lock that the bystander gives back as soon as the waiter sleeps.
    pub(crate) fn wait_for(&self, name: &str) -> Outcome {
        let held = self.bystander.lock(name).owned().lock().expect("nobody has it");
        let lock = self.lock(name);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| told(lock.try_lock_for(SOON))?.map(drop).ok_or("never".to_owned()));
            // It asks, listens, asks again, and then only when it hears something or after a second.
            let sleeps = || self.rig.server.subscribers(&channel(name)) == 1 && self.asked(name, 2);
            within(SOON, || sleeps() || waiter.is_finished());
            held.unlock().expect("it is the bystander's");
            waiter.join().expect("a waiter does not panic")?;
            self.was_woken(name)
        })
    }

    /// Whether the question that was granted came sooner than an untold waiter's: that one sleeps for a second.
    fn was_woken(&self, name: &str) -> Outcome {
        let asked = self.rig.proxy.fitting(&self.rig.script("acquire").containing(name));
        let [.., before, granted] = &asked[..] else { return Err("it did not wait".to_owned()) };
        if granted.at - before.at < ms(950) { Ok(()) } else { Err("up to a second late".to_owned()) }
    }
}

fn connect(stage: &Stage) -> Act<'_> {
    Box::new(|| ["", "?protocol=resp3"].into_iter().try_for_each(|rest| told(stage.builder(rest).connect()).map(drop)))
}

fn acquire(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:free");
    Box::new(move || told(lock.try_lock()).and_then(|got| got.map(drop).ok_or("busy".to_owned())))
}

fn busy(stage: &Stage) -> Act<'_> {
    let held = stage.bystander.lock("app:busy").lock().expect("nobody has it");
    let lock = stage.lock("app:busy");
    Box::new(move || {
        let got = told(lock.try_lock())?;
        drop(held);
        got.map_or(Ok(()), |_| Err("taken".to_owned()))
    })
}

fn reenter(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:reentered");
    let outer = lock.lock().expect("nobody has it");
    Box::new(move || {
        let inner = told(lock.try_lock());
        drop(outer);
        inner.map(drop)
    })
}

fn extend(stage: &Stage) -> Act<'_> {
    let guard = stage.lock("app:extended").lock().expect("nobody has it");
    Box::new(move || told(guard.extend(Duration::from_secs(60))))
}

fn renewal(stage: &Stage) -> Act<'_> {
    let guard = stage.lock("app:watched").lock().expect("nobody has it");
    Box::new(move || {
        let left = || stage.rig.time_to_live("app:watched");
        let mut least = left();
        let rose = within(TICK * 20, || {
            let now = left();
            let rose = now > least;
            least = least.min(now);
            rose
        });
        drop(guard);
        if rose { Ok(()) } else { Err("not renewed".to_owned()) }
    })
}

fn release_of_one(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:twice");
    let (outer, inner) = (lock.lock().expect("nobody has it"), lock.lock().expect("it is ours"));
    Box::new(move || {
        let outcome = told(inner.unlock());
        drop(outer);
        outcome
    })
}

fn release(stage: &Stage) -> Act<'_> {
    let guard = stage.lock("app:released").lock().expect("nobody has it");
    Box::new(move || told(guard.unlock()))
}

fn wake_others(stage: &Stage) -> Act<'_> {
    let name = "app:handed over";
    let guard = stage.lock(name).lock().expect("nobody has it");
    let lock = stage.rig.client().lock(name);
    Box::new(move || {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(SOON).map(drop));
            let sleeps = || stage.rig.server.subscribers(&channel(name)) == 1 && stage.asked(name, 3);
            assert!(within(SOON, sleeps), "the bystander may do everything");
            let outcome = told(guard.unlock());
            waiter.join().expect("a waiter does not panic").expect("the bystander may do everything");
            outcome.and_then(|()| stage.was_woken(name))
        })
    })
}

fn be_woken(stage: &Stage) -> Act<'_> {
    Box::new(|| stage.wait_for("app:waited for"))
}

fn leave_channel(stage: &Stage) -> Act<'_> {
    let client = stage.builder("").connect_lazily().expect("the URL is good");
    let held = ["app:left", "app:awaited"].map(|name| stage.bystander.lock(name).lock().expect("nobody has it"));
    Box::new(move || {
        let subscribers = |name| stage.rig.server.subscribers(&channel(name));
        let enough = Cancel::new();
        let outcome = thread::scope(|scope| {
            // As long as somebody waits the connection stays, so that it is the channel that is left.
            let awaited = client.lock("app:awaited").cancelled_by(&enough);
            let other = scope.spawn(move || told(awaited.try_lock_for(SOON)).map(drop));
            told(client.lock("app:left").try_lock_for(ms(100)))?;
            let left = within(ms(2_500), || subscribers("app:left") == 0 && subscribers("app:awaited") == 1);
            enough.cancel();
            match other.join().expect("a waiter does not panic") {
                Err(why) if why != "`Cancelled`" => Err(why),
                _ if left => Ok(()),
                _ => Err("it stays".to_owned()),
            }
        });
        drop(held);
        outcome
    })
}

fn is_locked(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:asked");
    Box::new(move || told(lock.is_locked()).map(drop))
}

fn remaining_time_to_live(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:asked");
    Box::new(move || told(lock.remaining_time_to_live()).map(drop))
}

fn scripts_anew(stage: &Stage) -> Act<'_> {
    let lock = stage.lock("app:anew");
    Box::new(move || {
        stage.rig.server.run(&["SCRIPT", "FLUSH"]);
        told(lock.try_lock()).and_then(|got| got.map(drop).ok_or("busy".to_owned()))
    })
}

/// An error in a word.
pub(crate) fn told<T>(outcome: LockResult<T>) -> std::result::Result<T, String> {
    outcome.map_err(|error: Error| match (error.kind(), error.redis_word()) {
        (ErrorKind::Refused, Some(word)) => format!("`{word}`"),
        (kind, _) => format!("`{kind:?}`"),
    })
}

fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(ms(5));
    }
}

pub(crate) const PASSWORD: &str = "secret";
