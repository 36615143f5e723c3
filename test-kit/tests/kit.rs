//! Each fault of the kit does what it says.

use std::process::Command;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind, Loss};
use lockson_test::TestRedis;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_hold_is_deleted_on_demand() {
    is_lost(patient, TestRedis::delete, Loss::Gone);
}

#[test]
fn a_hold_is_stolen_on_demand() {
    is_lost(patient, TestRedis::steal, Loss::Taken);
}

#[test]
fn a_renewed_hold_expires_on_demand() {
    let brief = |redis: &TestRedis| {
        let settings = redis.builder().watchdog(Duration::from_secs(1), Duration::from_millis(100));
        settings.connect().unwrap()
    };
    is_lost(brief, TestRedis::expire, Loss::Expired);
}

/// A client whose holds do not expire while a test stands still.
fn patient(redis: &TestRedis) -> Client {
    redis.builder().watchdog(Duration::from_secs(30), Duration::from_millis(100)).connect().unwrap()
}

/// Loses a lock that is a hash, and one that is a value.
fn is_lost(open: fn(&TestRedis) -> Client, lose: fn(&TestRedis, &str), loss: Loss) {
    let redis = TestRedis::start();
    let client = open(&redis);
    for lock in [client.get_lock("report"), client.get_token_lock("value")] {
        let guard = lock.lock().unwrap();
        lose(&redis, lock.name());
        assert_eq!(guard.wait_lost(SOON), Some(loss), "{}", lock.name());
    }
}

#[test]
fn a_hold_outlives_a_cut_and_not_a_restart() {
    let redis = TestRedis::start();
    let guard = redis.client().get_lock("report").lock().unwrap();
    redis.cut();
    guard.extend(SOON * 2).unwrap();
    redis.restart();
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
}

#[test]
fn a_mute_or_slow_server_is_so_until_it_is_healed() {
    let redis = TestRedis::start();
    let lock = redis.client().get_lock("report");
    redis.mute();
    assert_eq!(lock.is_locked().unwrap_err().kind(), ErrorKind::Connection);
    assert!(redis.rival().get_lock("report").try_lock().unwrap().is_some(), "a rival is not concerned");
    redis.heal();
    assert!(!lock.is_locked().unwrap());
    let (delay, started) = (Duration::from_millis(60), Instant::now());
    redis.slow(delay);
    lock.is_locked().unwrap();
    assert!(started.elapsed() >= delay);
}

#[test]
fn a_late_holder_believes_in_a_stolen_lock() {
    let redis = TestRedis::start();
    let guard = redis.client().get_lock("report").lock().unwrap();
    guard.extend(SOON * 2).unwrap();
    redis.mute();
    redis.steal("report");
    assert!(guard.is_held() && redis.rival().get_lock("report").is_locked().unwrap());
    redis.heal();
    assert_eq!(guard.unlock().unwrap_err().loss(), Some(Loss::Taken));
}

#[test]
fn the_lost_answer_is_that_of_an_executed_request() {
    let redis = TestRedis::start();
    let lock = redis.client().get_lock("report");
    let answer = redis.lose_answer("report");
    assert!(!answer.is_lost());
    let guard = lock.lock().unwrap();
    assert!(answer.is_lost() && guard.is_held());
    let answer = redis.lose_answer("report");
    guard.unlock().unwrap();
    assert!(answer.is_lost() && redis.keys().is_empty());
    let rival = redis.rival().get_lock("report");
    rival.lock().unwrap().leave_to_unlock();
    let answer = redis.lose_answer("report");
    assert!(lock.force_unlock().unwrap_err().is_in_doubt(), "this request is not repeated");
    assert!(answer.is_lost() && !rival.is_locked().unwrap());
}

#[test]
fn a_missing_server_is_told_with_the_remedy() {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "a_hold_outlives_a_cut_and_not_a_restart"]).env("LOCKSON_REDIS_SERVER", "no-such-server");
    let outcome = test.output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned() + &String::from_utf8_lossy(&outcome.stderr);
    assert!(!outcome.status.success() && said.contains("there is no no-such-server here: install it"), "{said}");
}

#[test]
fn a_clock_set_forward_ends_leases_and_permits() {
    const LONG: Duration = Duration::from_secs(3_600);
    let redis = TestRedis::start();
    let (client, dead) = (redis.client(), redis.rival());
    let leased = client.get_lock("leased").with_lease(LONG).lock().unwrap();
    let renewed = client.get_lock("renewed").lock().unwrap();
    dead.get_lock("left").with_lease(LONG).lock().unwrap().keep_until_expiry();
    dead.get_group_lock("seats", ["1"]).with_lease(LONG).lock().unwrap().keep_until_expiry();
    let permits = client.get_permit_expirable_semaphore("permits");
    assert!(permits.set_permits_once(1).unwrap());
    dead.get_permit_expirable_semaphore("permits").with_lease(LONG).acquire(1).unwrap().keep_until_expiry();

    redis.advance_clock(LONG / 2);
    let left = client.get_lock("left");
    assert!(left.try_lock().unwrap().is_none() && permits.try_acquire(1).unwrap().is_none());
    assert!(leased.is_held());
    redis.advance_clock(LONG / 2);
    assert_eq!(leased.wait_lost(SOON), Some(Loss::Gone));
    assert_eq!(renewed.wait_lost(SOON), Some(Loss::Gone));
    assert!(left.try_lock().unwrap().is_some());
    assert!(client.get_group_lock("seats", ["1"]).try_lock().unwrap().is_some());
    assert!(permits.try_acquire(1).unwrap().is_some());
}

#[test]
fn a_stolen_read_write_lock_has_another_owner() {
    let redis = TestRedis::start();
    let (client, rival) = (redis.client(), redis.rival());
    for name in ["read", "write"] {
        let sides = client.get_read_write_lock(name);
        let lock = if name == "read" { sides.read() } else { sides.write() };
        let guard = lock.lock().unwrap();
        redis.steal(name);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Taken), "{name}");
        let sides = rival.get_read_write_lock(name);
        assert!(sides.read().try_lock().unwrap().is_none() && sides.write().is_locked().unwrap(), "{name}");
    }
}

#[test]
fn a_stolen_lock_is_listed_and_inspected_as_one() {
    let redis = TestRedis::start();
    let (client, rival) = (redis.client(), redis.rival());
    let locks = [
        client.get_lock("plain"),
        client.get_non_reentrant_lock("once"),
        client.get_spin_lock("spin"),
        client.get_fair_lock("fair"),
        client.get_fenced_lock("fenced").into(),
        client.get_read_write_lock("read").read(),
        client.get_read_write_lock("write").write(),
    ];
    for lock in &locks {
        let guard = lock.lock().unwrap();
        redis.steal(lock.name());
        let found = rival.inspect(lock.name()).unwrap();
        assert!(found.holder_count() == 1 && found.holders()[0].owner() != guard.owner(), "{found:?}");
    }
    assert_eq!(rival.scan("", 100).unwrap().len(), locks.len());
}

#[test]
fn the_keys_are_those_of_the_service() {
    let redis = TestRedis::start();
    let tickets = redis.client().get_semaphore("tickets");
    tickets.set_permits_once(1).unwrap();
    tickets.acquire(1).unwrap().release().unwrap();
    assert_eq!(redis.keys(), ["tickets"]);
    tickets.delete().unwrap();
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn all_times_end_where_the_clock_is_set_forward_for_ever() {
    let redis = TestRedis::start();
    let guard = redis.client().get_lock("report").with_lease(SOON * 10).lock().unwrap();
    redis.advance_clock(Duration::MAX);
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
}

#[test]
fn the_lost_answer_is_about_this_name_alone() {
    let redis = TestRedis::start();
    let client = redis.client();
    let answer = redis.lose_answer("order");
    client.get_lock("orders").lock().unwrap().unlock().unwrap();
    assert!(!answer.is_lost());
    client.get_lock("order").lock().unwrap().unlock().unwrap();
    assert!(answer.is_lost());
}

#[test]
fn the_last_delay_counts_and_loses_no_lost_answer() {
    let redis = TestRedis::start();
    let lock = redis.client().get_lock("report");
    let (short, long) = (Duration::from_millis(20), Duration::from_millis(120));
    redis.slow(short);
    redis.slow(long);
    let answer = redis.lose_answer("report");
    let started = Instant::now();
    lock.is_locked().unwrap();
    assert!(started.elapsed() >= long);
    redis.slow(short);
    lock.lock().unwrap().unlock().unwrap();
    assert!(answer.is_lost());
}

#[test]
fn a_server_without_a_name_is_the_usual_one() {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "a_hold_outlives_a_cut_and_not_a_restart"]).env("LOCKSON_REDIS_SERVER", "");
    assert!(test.output().unwrap().status.success());
}
