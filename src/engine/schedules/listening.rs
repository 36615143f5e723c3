//! Waiters of one lock, the listening thread and a connection that breaks: no waiter sleeps on, no entry is left.
#![cfg(all(test, shuttle))]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::{START, check};
use crate::bell::Bell;
use crate::conn::{Audience, ListenerEvent, Server, Sleeper, sleeper};
use crate::engine::cells::hub::{Hub, Subscription};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::state::channels::Subject;
use crate::state::wait_loop::{TakeOutcome, WaitLoop, wait_loop};
use crate::sync::Mutex;
use crate::time::{Deadline, Instant};
use crate::transport::{Demand, PubSub};

/// The lock and its channel in Redis.
#[derive(Default)]
struct Redis {
    taken: bool,
    subscribed: BTreeSet<String>,
    words: VecDeque<ListenerEvent>,
    cut: bool,
    waiting: usize,
}

struct Caller {
    hub: Arc<Hub>,
    redis: Arc<Mutex<Redis>>,
    name: LockName,
    bell: Bell,
    subscription: Option<Subscription>,
}

impl WaitLoop for Caller {
    type Grant = ();

    fn now(&self) -> Instant {
        START
    }

    fn attempt(&mut self) -> Result<TakeOutcome<()>> {
        let busy = std::mem::replace(&mut self.redis.lock().taken, true);
        Ok(if busy { TakeOutcome::Busy(Duration::from_secs(30)) } else { TakeOutcome::Taken(()) })
    }

    fn stand_back(&mut self) -> Result<()> {
        Ok(())
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy)
    }

    fn arm(&mut self) -> Result<bool> {
        if self.subscription.is_some() {
            return Ok(false);
        }
        let subscription = self.hub.join(&Subject::Lock(self.name.clone()), self.name.channel().text(), &self.bell)?;
        let live = subscription.is_live()?;
        self.subscription = Some(subscription);
        Ok(live)
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        self.bell.wait(until);
        Ok(())
    }
}

impl Caller {
    fn run(mut self) {
        if !self.hub.is_quiet() {
            let subject = Subject::Lock(self.name.clone());
            self.subscription = self.hub.join_live(&subject, self.name.channel().text(), &self.bell);
        }
        wait_loop(&mut self, Deadline::Never).unwrap();
        self.subscription = None;
        let channel = self.name.channel().text();
        let heard_on = self.hub.expect_own(|| channel.clone());
        let mut redis = self.redis.lock();
        redis.taken = false;
        let told = redis.subscribed.contains(&channel);
        if told {
            redis.words.push_back(ListenerEvent::Message { channel: channel.clone(), payload: b"0".to_vec() });
        }
        drop(redis);
        if heard_on.is_some() && !told {
            self.hub.unexpect_own(&channel);
        }
        self.redis.lock().waiting -= 1;
    }
}

/// Acts as the listening thread, from its first connection until no waiter is left.
fn listen(hub: &Hub, redis: &Mutex<Redis>, woken: &Sleeper) {
    hub.handle(ListenerEvent::Connected(None, PubSub::Plain));
    let mut asked = VecDeque::new();
    loop {
        let rest = loop {
            match hub.demand(Instant::now()) {
                Demand::Rest(until) => break until,
                Demand::Close => return,
                request => asked.push_back(request),
            }
        };
        loop {
            let mut server = redis.lock();
            if std::mem::take(&mut server.cut) {
                asked.clear();
                server.words.clear();
                server.subscribed.clear();
                drop(server);
                hub.handle(ListenerEvent::Lost(Error::new(ErrorKind::Connection, "cut")));
                hub.handle(ListenerEvent::Connected(None, PubSub::Plain));
                break;
            }
            match asked.pop_front() {
                Some(Demand::Subscribe(_, channels)) => {
                    server.subscribed.extend(channels.iter().cloned());
                    server.words.extend(channels.into_iter().map(ListenerEvent::Subscribed));
                }
                Some(Demand::Unsubscribe(_, channels)) => {
                    server.subscribed.retain(|channel| !channels.contains(channel));
                    server.words.extend(channels.into_iter().map(ListenerEvent::Unsubscribed));
                }
                _ => {}
            }
            let word = server.words.pop_front();
            let over = server.waiting == 0;
            drop(server);
            if let Some(word) = word {
                hub.handle(word);
                break;
            }
            // The real thread, too, takes the next demand when woken, after a message, and at the end of its rest.
            if woken.was_woken() {
                break;
            }
            if over {
                rest.comes();
                break;
            }
            thread::yield_now();
        }
    }
}

fn waiters(count: usize, cuts: usize) {
    let _pretence = START.pretend();
    let server = Arc::new(Server::for_test("redis://localhost"));
    let hub = Arc::new(Hub::new(server, Duration::from_secs(3), Arc::new(())));
    let redis = Arc::new(Mutex::new(Redis { waiting: count, ..Redis::default() }));
    let (waker, woken) = sleeper().unwrap();
    hub.is_listened_to(waker);
    let caller = || Caller {
        hub: Arc::clone(&hub),
        redis: Arc::clone(&redis),
        name: LockName::new("n").unwrap(),
        bell: Bell::new(),
        subscription: None,
    };
    let mut threads = vec![];
    for _ in 0..count {
        let caller = caller();
        threads.push(thread::spawn(move || caller.run()));
    }
    for _ in 0..cuts {
        let redis = Arc::clone(&redis);
        threads.push(thread::spawn(move || redis.lock().cut = true));
    }
    let listening = (Arc::clone(&hub), Arc::clone(&redis));
    threads.push(thread::spawn(move || listen(&listening.0, &listening.1, &woken)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(hub.is_empty(), "a channel stays");
}

#[test]
fn a_message_wakes_its_waiter() {
    check(1_000, || waiters(3, 0));
}

#[test]
fn a_broken_connection_still_wakes_its_waiters() {
    check(1_000, || waiters(3, 2));
}
