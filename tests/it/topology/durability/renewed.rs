//! Renewals that the replicas do not have, and the master that believes on its own.

use lockson::{Durability, OwnedLock};

use super::scene::{Copied, one};
use crate::campaign::Campaign;
use crate::support::prelude::*;
use crate::topology::link::SlowLink;

#[test]
fn a_renewal_that_no_replica_has_prolongs_nothing() {
    let copied = Copied::start(1);
    let (events, client) = Events::of_client(brisk(&copied.master));
    let durable = client.get_lock(fresh("durable")).owned().with_durability(one()).lock().unwrap();
    let usual = client.get_lock(fresh("usual")).owned().lock().unwrap();
    thread::sleep(TTL + ms(500));
    assert!(durable.is_held(), "its renewals reach the replica");
    copied.replicas[0].pause();
    assert_eq!(durable.wait_lost(SOON), Some(Loss::Expired));
    assert!(ttl_ms(&copied.master, durable.name()) > 0, "the cut-off master goes on renewing");
    assert!(usual.is_held(), "other locks of the server are renewed all the same");
    let told = events.errors_of("not renewed");
    assert!(told.iter().all(|error| error.to_string().contains("0 of 1 replicas")) && !told.is_empty(), "{told:?}");
    usual.unlock().unwrap();
    drop(durable);
    eventually(SOON, "the lost lock is cleared away", || copied.master.keys().is_empty());
}

/// A section with a long lease may wait for its replica for longer than the other holds live.
#[test]
fn a_long_wait_for_a_replica_costs_no_other_hold() {
    let copied = Copied::start(1);
    let client = brisk(&copied.master).connect().unwrap();
    let usual = client.get_lock(fresh("usual")).owned().lock().unwrap();
    let lock = client.get_lock(fresh("nested"));
    let _outer = lock.lock().unwrap();
    let patient = lock.with_lease(SOON * 6).with_durability(one().within(SOON * 3));
    patient.lock().unwrap().unlock().unwrap();
    copied.replicas[0].pause();
    assert_eq!(usual.wait_lost(TTL * 3), None);
}

/// The two kinds of lock are renewed by a request each. A far replica answers later than the short waits after one in
/// vain.
#[test]
fn a_late_replica_costs_no_hold_that_does_without_it() {
    at_once([false, true], |far| {
        let copied = Copied::start(2);
        let link = SlowLink::to(copied.master.address(), ms(300));
        if far {
            copied.replicas[0].run(&["REPLICAOF", "127.0.0.1", &link.port.to_string()]);
            let status = || copied.replicas[0].info("master_link_status").unwrap();
            eventually(SOON, "the far replica is back", || status() == "up");
        }
        let client = Client::builder(&copied.master.url()).watchdog(TTL * 2, TICK).command_timeout(ms(1_000));
        let client = client.connect().unwrap();
        let both = Durability::replicas(2).within(ms(1_500));
        let both = client.get_lock(fresh("both")).owned().with_durability(both).lock().unwrap();
        let one = client.get_fenced_lock(fresh("one")).owned().with_durability(one()).lock().unwrap();
        thread::sleep(TICK * 5);
        copied.replicas[1].pause();
        assert_eq!(both.wait_lost(SOON), Some(Loss::Expired));
        assert_eq!(one.wait_lost(TTL), None, "its replica is far: {far}");
    });
}

#[test]
fn a_batch_of_renewals_waits_once() {
    let copied = Copied::start(1);
    let client = brisk(&copied.master).durability(one()).connect().unwrap();
    let guards: Vec<_> = (0..30).map(|_| client.get_lock(fresh("batch")).lock().unwrap()).collect();
    copied.master.reset_counters();
    thread::sleep(ms(1_000));
    // In this order, because each renewal precedes its wait; one may have been sent before the counters began.
    let (waits, renewals) = (copied.master.calls_of("wait"), copied.master.calls_of("evalsha"));
    assert!((5..=renewals + 1).contains(&waits) && waits < 30, "{waits} for {renewals}");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

#[test]
fn a_hold_that_ended_meanwhile_costs_its_batch_nothing() {
    let copied = Copied::start(1);
    let (proxy, events) = (Proxy::start(copied.master.address()), Events::default());
    let client = Client::builder(&proxy.url()).watchdog(TTL, TICK).durability(one()).observer(events.clone());
    let client = client.connect().unwrap();
    let mut guards = Vec::from([(); 2].map(|()| client.get_lock(fresh("batch")).owned().lock().unwrap()));
    let renew: String = copied.master.query(&["SCRIPT", "LOAD", include_str!("../../../../lua/plain/renew.lua")]);
    let renewals = When::script().containing(&renew);
    let renewal = proxy.wait_for_since(proxy.mark(), &renewals, SOON);
    let touches = When::script().containing("durability/touch").on_connection(renewal.connection);
    let held = proxy.rule(touches.clone(), Then::HoldRequest);
    // The key that stands for the batch goes between renewal and touch.
    let touch = held.wait_hit(SOON);
    let ended = guards.iter().position(|guard| touch.contains(guard.name())).expect("a key of the batch");
    copied.master.run(&["DEL", guards.remove(ended).name()]);
    held.release();
    let next = proxy.wait_for_since(touch.number + 1, &touches, SOON);
    assert!(next.contains(guards[0].name()), "the next key of the batch: {next:?}");
    proxy.wait_for_since(next.number + 1, &renewals, SOON);
    assert!(events.errors_of("not renewed").is_empty(), "{events:?}");
    assert!(guards[0].is_held());
}

/// A client at a master, and later one at its replica, which leaves the master and becomes one itself.
struct Split {
    copied: Copied,
    at_old: Client,
    at_new: Client,
}

impl Split {
    fn new() -> Self {
        let copied = Copied::start(1);
        let lazily = |server: &RedisServer| brisk(server).connect_lazily().unwrap();
        let (at_old, at_new) = (lazily(&copied.master), lazily(&copied.replicas[0]));
        Self { copied, at_old, at_new }
    }

    fn promote(&self) {
        self.copied.replicas[0].run(&["REPLICAOF", "NO", "ONE"]);
    }
}

/// Whether both sides believe that they hold the lock when the promoted replica grants it.
fn both_believe(needs: Option<Durability>, before: Duration) -> bool {
    let split = Split::new();
    let name = fresh("split");
    let lock = split.at_old.get_lock(&name);
    let old = needs.map_or_else(|| lock.clone(), |needs| lock.with_durability(needs)).owned().lock().unwrap();
    thread::sleep(before);
    split.promote();
    let new = split.at_new.get_lock(&name).try_lock_for(SOON).unwrap().expect("the copy expires");
    old.is_held() && new.is_held()
}

#[test]
fn a_cut_off_holder_ends_before_the_other_side_begins() {
    at_once([None, Some(one())], |needs| {
        let is_safe = needs.is_some();
        assert_ne!(both_believe(needs, ms(50)), is_safe, "without durability the old master renews for ever");
    });
}

/// The deadline of the holder is never later than the expiry of the copy that the other side has.
#[test]
fn the_deadline_comes_before_the_copy_expires() {
    let split = Split::new();
    let guard = split.at_old.get_lock(fresh("deadline")).with_durability(one()).lock().unwrap();
    thread::sleep(ms(250));
    split.promote();
    let promoted = &split.copied.replicas[0];
    loop {
        let left = ttl_ms(promoted, guard.name());
        let remaining = guard.remaining();
        assert!(remaining.as_millis() as i64 <= left.max(0), "{remaining:?} of {left} ms");
        if left < 0 {
            break;
        }
        thread::sleep(ms(5));
    }
    assert!(!guard.is_held());
}

/// Cuts at random moments, with sections of random length of several locks.
#[test]
#[ignore = "make topology"]
fn no_cut_gives_a_durable_lock_two_holders() {
    let mut campaign = Campaign::start("durable locks of a cut-off master", 100, 10);
    let mut granted = 0;
    while campaign.goes_on() {
        let mut random = campaign.random();
        let (split, over) = (Split::new(), AtomicBool::new(false));
        let sections: Vec<Section> = (0..LOCKS).map(|_| Section::of(&split.at_old, &mut random)).collect();
        let cut = ms(random.below(400));
        thread::scope(|scope| {
            let _over = OnDrop(&over);
            sections.iter().for_each(|section| drop(scope.spawn(|| section.repeat(&over))));
            thread::sleep(cut);
            split.promote();
            for section in &sections {
                let name = section.lock.name();
                let new = split.at_new.get_lock(name).owned().try_lock_for(SOON).unwrap().expect("the copy expires");
                for _ in 0..5 {
                    let both = section.is_held() && new.is_held();
                    assert!(!both, "two holders, cut after {cut:?}, sections of {:?}", section.time);
                    thread::sleep(ms(5));
                }
                granted += usize::from(new.is_held());
            }
        });
        campaign.passed(LOCKS);
    }
    campaign.end(format!("{granted} granted by the other side, 0 with two holders"));
}

/// A lock that a thread takes again and again, for so long.
struct Section {
    lock: OwnedLock,
    time: Duration,
    guard: Mutex<Option<OwnedGuard>>,
}

impl Section {
    fn of(client: &Client, random: &mut Random) -> Self {
        let needs = one().within(ms(50 + random.below(200)));
        let lock = client.get_lock(fresh("cut")).owned().with_durability(needs);
        Self { lock, time: ms(1 + random.below(3_000)), guard: Mutex::default() }
    }

    fn repeat(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            // After the cut no try succeeds.
            let Ok(Some(guard)) = self.lock.try_lock() else { continue };
            *self.guard.lock() = Some(guard);
            let end = Instant::now() + self.time;
            while Instant::now() < end && !over.load(Ordering::Relaxed) {
                thread::sleep(ms(1));
            }
            drop(self.guard.lock().take());
        }
    }

    fn is_held(&self) -> bool {
        self.guard.lock().as_ref().is_some_and(|guard| guard.is_held())
    }
}

/// Ends the sections, also after a failure.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const LOCKS: u64 = 8;
