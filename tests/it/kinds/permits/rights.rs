//! The rights that the operations guide lists for expiring permits and for elections are enough.

use crate::support::prelude::*;

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// The words in backticks after this text.
fn words(after: &str) -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once(after).expect("the page has this text");
    rest.split('`').nth(1).expect("words in backticks follow").split(' ').collect()
}

/// A client of a user with these rights.
fn client_with(server: &RedisServer, rights: &[&[&'static str]]) -> Client {
    let mut line = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret", "-@all"];
    line.extend(rights.concat());
    server.run(&line);
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    Client::builder(&url).watchdog(ms(2_000), ms(200)).connect().unwrap()
}

#[test]
fn the_listed_rights_are_enough_for_permits() {
    let server = RedisServer::start();
    let rights = [words("The user of expiring permits needs"), words("+pttl +pexpire`, and")];
    let client = client_with(&server, &[&rights[0], &rights[1]]);
    let calls = client.get_permit_expirable_semaphore("app:calls");
    assert!(calls.set_permits_once(3).unwrap());
    calls.set_permits(2).unwrap();
    calls.add_permits(1).unwrap();
    let (two, one) = (calls.acquire(2).unwrap(), calls.with_lease(ms(100)).acquire(1).unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| calls.try_acquire_for(2, SOON).unwrap().expect("they return"));
        std::thread::sleep(ms(1_000)); // renewals happen, and the lease ends
        assert!(two.is_held());
        two.extend(ms(5_000)).unwrap();
        two.release().unwrap();
        assert_eq!(waiter.join().unwrap().ids().len(), 2);
    });
    drop(one);
    let (mine, id) = (calls.acquire(1).unwrap(), calls.acquire(1).unwrap());
    assert!(calls.remaining_time_to_live(&mine.ids()[0]).unwrap().is_some());
    let others = client_with(&server, &[&rights[0], &rights[1]]).get_permit_expirable_semaphore("app:calls");
    assert!(others.update_lease(&id.ids()[0], ms(60_000)).unwrap());
    calls.release_by_id(&id.ids()).unwrap();
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap(), calls.permits().unwrap()), (2, 1, 3));
    assert!(calls.delete().unwrap());
    assert_eq!(mine.wait_lost(SOON), Some(Loss::Gone));
}

#[test]
fn a_release_that_is_refused_destroys_no_permit() {
    let server = RedisServer::start();
    let rights = [words("The user of expiring permits needs"), words("+pttl +pexpire`, and")];
    let calls = client_with(&server, &[&rights[0], &rights[1]]).get_permit_expirable_semaphore("app:calls");
    calls.set_permits(3).unwrap();
    let two = calls.with_lease(ms(60_000)).acquire(2).unwrap();
    server.run(&["ACL", "SETUSER", "app", "-incrby"]);
    assert_eq!(kind_of(two.release()), ErrorKind::Refused);
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (1, 2));
    server.run(&["ACL", "SETUSER", "app", "+incrby"]);
    eventually(SOON, "the background gives the permits back", || calls.available().unwrap() == 3);
    assert_eq!(calls.acquired().unwrap(), 0);
}

#[test]
fn the_listed_rights_are_enough_for_an_election() {
    let server = RedisServer::start();
    let fenced = PAGE.lines().find_map(|line| line.strip_prefix("ACL SETUSER fenced reset on >PASSWORD "));
    let fenced: Vec<&str> = fenced.expect("the page has this line").split(' ').collect();
    let more = words("The user of an election has the line of `fenced` and, beside it,");
    let client = client_with(&server, &[&fenced, &more]);
    let election = client.get_election("app:election");
    let leadership = election.candidate("a").campaign().unwrap();
    let leader = election.leader().unwrap();
    assert_eq!(leader.as_ref().map(|leader| leader.token()), Some(leadership.token()));
    std::thread::scope(|scope| {
        let rival = scope.spawn(|| election.candidate("b").campaign_for(SOON).unwrap().expect("a resigns"));
        let seen = scope.spawn(|| election.wait_change(leader.as_ref(), SOON).unwrap());
        std::thread::sleep(ms(600)); // renewals happen
        assert!(leadership.is_held());
        leadership.resign().unwrap();
        assert_ne!(seen.join().unwrap(), leader);
        rival.join().unwrap().resign().unwrap();
    });
    // Without the right to delete, no candidate leads: it could not resign.
    server.run(&["ACL", "SETUSER", "app", "-del"]);
    assert!(election.candidate("a").try_campaign().is_err());
    let other = brisk(&server).connect().unwrap().get_election("app:election");
    assert!(other.candidate("c").try_campaign().unwrap().is_some(), "the refused take left nothing");
}

#[test]
fn a_refused_user_loses_no_permit() {
    let server = RedisServer::start();
    let rights = [words("The user of expiring permits needs"), words("+pttl +pexpire`, and")];
    let ours = brisk(&server).connect().unwrap().get_permit_expirable_semaphore("app:calls");
    assert!(ours.set_permits_once(3).unwrap());
    let expired = ours.with_lease(ms(20)).acquire(1).unwrap();
    assert_eq!(expired.wait_lost(SOON), Some(Loss::Expired));
    let held = ours.acquire(1).unwrap();
    for missing in ["-incrby", "-zrem"] {
        let theirs = client_with(&server, &[&rights[0], &rights[1], &[missing]]);
        let theirs = theirs.get_permit_expirable_semaphore("app:calls");
        for _ in 0..2 {
            assert!(theirs.try_acquire(1).is_err(), "{missing}");
            assert!(theirs.release_by_id(&held.ids()).is_err(), "{missing}");
        }
    }
    assert_eq!(ours.permits().unwrap(), 3);
    held.release().unwrap();
    assert_eq!(ours.acquire(3).unwrap().ids().len(), 3);
}
