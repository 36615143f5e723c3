//! The observer's events about renewals, and about a process that stood still.

use crate::support::prelude::*;

#[test]
fn renewals_are_counted_for_each_round() {
    let (rig, events) = (Rig::start(), Events::default());
    let client = rig.builder().watchdog(SOON, ms(100)).observer(events.clone()).connect().unwrap();
    let _held = ["a", "b", "c"].map(|name| client.get_lock(name).owned().lock().unwrap());
    let _leased = client.get_lock("leased").with_lease(SOON).owned().lock().unwrap();
    let label = format!("renewed 3 of 127.0.0.1:{}", rig.proxy.port());
    eventually(SOON, "two rounds are told", || events.count_of(&label) >= 2);
}

#[test]
fn a_failed_renewal_tells_the_time_left_and_its_recovery() {
    let (rig, events) = (Rig::start(), Events::default());
    let lease = SOON * 2;
    let client =
        rig.builder().watchdog(lease, ms(100)).command_timeout(ms(200)).observer(events.clone()).connect().unwrap();
    let guard = client.get_lock("kept").lock().unwrap();
    eventually(SOON, "a renewal is told", || events.count_of("renewed") > 0);
    let muted = Instant::now();
    rig.proxy.mute(Scope::All, Direction::Both);
    eventually(SOON, "three failures are told", || events.times_left().len() >= 3);
    let left = events.times_left();
    assert!(left.iter().all(|left| *left < lease), "{left:?}");
    assert!(left.windows(2).all(|pair| pair[1] < pair[0]), "less from time to time: {left:?}");
    assert!(left[0] - left[2] >= ms(200), "as the time passes: {left:?}");
    assert!(events.outages().is_empty(), "not during the outage");
    rig.proxy.unmute();
    eventually(SOON, "the recovery is told", || !events.outages().is_empty());
    let whole = muted.elapsed();
    let outages = events.outages();
    assert!(outages.len() == 1 && outages[0] >= ms(200) && outages[0] <= whole, "{outages:?} in {whole:?}");
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[test]
fn a_refused_renewal_names_the_server_however_many_locks() {
    at_once([1, 50], |locks| {
        let (server, events) = (RedisServer::start(), Events::default());
        let client = Client::builder(&server.url()).watchdog(SOON, ms(100)).observer(events.clone()).connect().unwrap();
        let held: Vec<_> = (0..locks).map(|number| client.get_lock(number.to_string()).lock().unwrap()).collect();
        server.run(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
        eventually(SOON, "a renewal is refused", || events.count_of("not renewed") > 0);
        let error = events.errors_of("not renewed")[0].to_string();
        assert!(error.contains(&format!("redis at 127.0.0.1:{}/0 refused", server.port())), "{locks} locks: {error}");
        server.run(&["ACL", "SETUSER", "default", "+@all"]);
        held.into_iter().for_each(|guard| guard.unlock().unwrap());
    });
}

#[test]
fn a_loss_tells_that_the_process_stood_still() {
    at_once([("", ms(3_000)), (" lease_ms=3000", ms(4_000))], |(lease, time)| {
        let server = RedisServer::start();
        let options = format!("address=redis://127.0.0.1:{} watchdog_ms=2000 client_name=stopped", server.port());
        let mut peer = open_peer(&options);
        peer.ask(&format!("lock kind=plain name=job{lease}")).expect_ok();
        // A process that is stopped in the middle of the watchdog's first work cannot tell.
        eventually(SOON, "the hold is watched", || server.info("tracking_total_keys").as_deref() == Some("1"));
        thread::sleep(ms(50)); // to read the answer
        peer.stop();
        thread::sleep(time);
        peer.resume();
        let told = peer.ask("unlock kind=plain name=job");
        let message = told.expect_failure("not_owner");
        assert!(message.contains("Lost(Expired)") || lease.is_empty(), "{message}");
        let rest = message.split_once("this process stood still for about ").unwrap_or_else(|| panic!("{message}")).1;
        let seconds: u64 = rest.split(' ').next().unwrap().parse().unwrap();
        let most = (time * 2 + SCHEDULING).as_secs();
        assert!((2..=most).contains(&seconds), "{message}");
    });
}

#[test]
fn a_silent_redis_is_no_standstill() {
    let (rig, events) = (Rig::start(), Events::default());
    let client = rig.builder().watchdog(ms(2_000), ms(200)).observer(events.clone()).connect().unwrap();
    let guard = client.get_lock("job").lock().unwrap();
    rig.proxy.mute(Scope::All, Direction::Both);
    assert!(guard.wait_lost(SOON).is_some());
    let error = guard.unlock().unwrap_err().to_string();
    assert!(!error.contains("stood still"), "{error}");
    // Another thread may have noticed the loss and may still be about to report the loss.
    eventually(SOON, "the loss is told", || events.of("job") == ["acquired", "lost: Expired"]);
}
