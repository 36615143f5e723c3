//! What a semaphore is in Redis: one counter, its time to live, and nothing that is invented.

use super::{free, semaphore_with};
use crate::support::prelude::*;

#[test]
fn the_counter_is_the_whole_state() {
    let (server, client) = (RedisServer::shared(), client());
    let semaphore = semaphore_with(&client, 3);
    let permits = semaphore.acquire(2).unwrap();
    assert_eq!(server.query::<String>(&["GET", semaphore.name()]), "1");
    assert_eq!(ttl_ms(server, semaphore.name()), -1);
    permits.release().unwrap();
    assert_eq!(server.query::<String>(&["GET", semaphore.name()]), "3");
    let key = format!("{}:{}:0", prefixed("lockson_once", semaphore.name()), client.id());
    assert!((590_000..=600_000).contains(&ttl_ms(server, &key)), "remembered for ten minutes");
    let keys: Vec<String> = server.query(&["KEYS", &format!("*{}*", semaphore.name())]);
    assert_eq!(keys.len(), 2, "one request at a time needs one slot: {keys:?}");
}

#[test]
fn no_change_ends_the_time_to_live() {
    let (server, semaphore) = (RedisServer::shared(), client().get_semaphore(fresh("semaphore")));
    assert!(semaphore.set_permits_once_for(5, ms(60_000)).unwrap());
    semaphore.add_permits(2).unwrap();
    semaphore.acquire(1).unwrap().release().unwrap();
    assert_eq!(semaphore.drain().unwrap(), 7);
    semaphore.add_permits(-2).unwrap();
    semaphore.release(3).unwrap();
    assert!(semaphore.release_if_exists(1).unwrap());
    assert_eq!(free(&semaphore), 2);
    assert!((50_000..=60_000).contains(&ttl_ms(server, semaphore.name())));
}

#[test]
fn permits_of_a_gone_semaphore_make_no_new_one() {
    let (server, client) = alone();
    let gone: [&dyn Fn(&str); 3] = [&|name| server.run(&["DEL", name]), &|_| server.run(&["FLUSHALL"]), &|name| {
        server.run(&["PEXPIRE", name, "50"]);
        thread::sleep(ms(100));
    }];
    for go in gone {
        let semaphore = semaphore_with(&client, 3);
        let (told, dropped) = (semaphore.acquire(1).unwrap(), semaphore.acquire(1).unwrap());
        go(semaphore.name());
        assert_eq!(kind_of(told.release()), ErrorKind::Lost(Loss::Gone));
        drop(dropped);
        assert!(!semaphore.release_if_exists(1).unwrap());
        assert_eq!(server.query::<u32>(&["EXISTS", semaphore.name()]), 0);
    }
}

#[test]
fn a_close_in_vain_is_not_said_to_have_given_back() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let client = Client::builder(&proxy.url()).drop_timeout(ms(100)).connect().unwrap();
    let permits = semaphore_with(&client, 1).acquire(1).unwrap();
    proxy.mute(Scope::All, Direction::Both);
    client.close();
    let error = permits.release().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("if the server answered"), "the permit stays taken: {error}");
}

#[test]
fn a_key_that_is_no_counter_is_another_kind() {
    let (server, client) = (RedisServer::shared(), client());
    let texts = ["abc", "5.5", "1e3", "0x10", "nan", "inf"].map(|text| ["SET", text, "KEEPTTL"]);
    for other in texts.into_iter().chain([["HSET", "field", "1"]]) {
        let semaphore = client.get_semaphore(fresh("semaphore"));
        server.run(&[other[0], semaphore.name(), other[1], other[2]]);
        assert_eq!(kind_of(semaphore.acquire(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.try_acquire(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.release(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.drain()), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.available()), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.add_permits(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.set_permits_once(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(semaphore.set_permits_once_for(1, ms(5_000))), ErrorKind::OtherKind);
        let expiring = client.get_permit_expirable_semaphore(semaphore.name());
        assert_eq!(kind_of(expiring.try_acquire(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(expiring.available()), ErrorKind::OtherKind);
        assert_eq!(kind_of(expiring.add_permits(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(expiring.set_permits(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(expiring.set_permits_once(1)), ErrorKind::OtherKind);
    }
}

/// A deletion by a wrong name would free a lock that is at work, or delete data.
#[test]
fn a_deletion_deletes_no_lock_and_no_data() {
    let (server, client) = (RedisServer::shared(), client());
    let election = client.get_election(fresh("semaphore"));
    let locks = [
        client.get_lock(fresh("semaphore")),
        client.get_fair_lock(fresh("semaphore")),
        client.get_read_write_lock(fresh("semaphore")).read(),
        client.get_read_write_lock(fresh("semaphore")).write(),
        client.get_token_lock(fresh("semaphore")),
    ];
    let guards = locks.each_ref().map(|lock| lock.lock().unwrap());
    let leadership = election.candidate("a").campaign().unwrap();
    let mut names: Vec<String> = locks.iter().map(|lock| lock.name().to_owned()).collect();
    names.push(election.name().to_owned());
    for data in [["SET", "some text"], ["RPUSH", "1"], ["SADD", "1"]] {
        names.push(fresh("semaphore"));
        server.run(&[data[0], names.last().unwrap(), data[1]]);
    }
    for name in &names {
        assert_eq!(kind_of(client.get_semaphore(name).delete()), ErrorKind::OtherKind, "{name}");
        assert_eq!(kind_of(client.get_count_down_latch(name).delete()), ErrorKind::OtherKind, "{name}");
        let permits = client.get_permit_expirable_semaphore(name);
        assert_eq!(kind_of(permits.delete()), ErrorKind::OtherKind, "{name}");
        assert_eq!(kind_of(permits.set_permits_once(1)), ErrorKind::OtherKind, "{name}");
        assert_eq!(kind_of(permits.available()), ErrorKind::OtherKind, "{name}");
        assert_eq!(server.query::<u8>(&["EXISTS", name]), 1, "{name}");
    }
    assert!(guards.iter().all(|guard| guard.is_held()) && leadership.is_held());
    // What stands in the place of the taken permits stays, too.
    let permits = client.get_permit_expirable_semaphore(fresh("semaphore"));
    permits.set_permits(1).unwrap();
    let beside = format!("{{{}}}:timeout", permits.name());
    server.run(&["SET", &beside, "text"]);
    assert_eq!(kind_of(permits.delete()), ErrorKind::OtherKind);
    assert_eq!(server.query::<u8>(&["EXISTS", &beside]), 1);
}

#[test]
fn no_number_of_free_permits_passes_what_java_counts() {
    const MOST: u32 = 2_147_483_647;
    let client = client();
    let semaphore = semaphore_with(&client, MOST);
    assert_eq!(kind_of(semaphore.release(1)), ErrorKind::BadInput);
    assert_eq!(kind_of(semaphore.release_if_exists(1)), ErrorKind::BadInput);
    assert_eq!(kind_of(semaphore.add_permits(MOST.into())), ErrorKind::BadInput);
    let held = semaphore.acquire(2).unwrap();
    RedisServer::shared().run(&["SET", semaphore.name(), &MOST.to_string()]);
    held.release().expect("permits of a holder always come back");
    RedisServer::shared().run(&["SET", semaphore.name(), &MOST.to_string()]);
    semaphore.add_permits(-1).unwrap();
    semaphore.release(1).unwrap();
    let permits = client.get_permit_expirable_semaphore(fresh("semaphore"));
    permits.set_permits(MOST).unwrap();
    assert_eq!(kind_of(permits.add_permits(1)), ErrorKind::BadInput);
    assert_eq!(permits.available().unwrap(), MOST.into());
}

/// Redisson's waiters listen for these numbers, and its listeners fail on a negative one.
#[test]
fn messages_tell_numbers_of_free_permits() {
    let (server, client) = (RedisServer::shared(), client());
    let semaphore = client.get_semaphore(fresh("semaphore"));
    let mut stranger = server.connection();
    let mut messages = stranger.as_pubsub();
    messages.set_read_timeout(Some(SOON)).unwrap();
    messages.subscribe(prefixed("redisson_sc", semaphore.name())).unwrap();
    let mut told = || messages.get_message().unwrap().get_payload::<String>().unwrap();
    assert!(semaphore.set_permits_once(3).unwrap());
    assert_eq!(told(), "3");
    semaphore.add_permits(-4).unwrap();
    semaphore.release(1).unwrap();
    semaphore.release(2).unwrap();
    assert_eq!(told(), "2", "-1 and 0 are no news");
}

#[test]
fn a_user_without_the_right_to_release_takes_nothing() {
    let rig = Rig::start();
    let semaphore = semaphore_with(&rig.direct(), 3);
    rig.server.run(&["ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-incrby"]);
    let poor = lockson::Client::connect(&format!("redis://poor:secret@127.0.0.1:{}", rig.proxy.port())).unwrap();
    let theirs = poor.get_semaphore(semaphore.name());
    assert_eq!(theirs.acquire(1).unwrap_err().redis_word(), Some("NOPERM"));
    assert_eq!(theirs.drain().unwrap_err().redis_word(), Some("NOPERM"));
    assert_eq!(free(&semaphore), 3);
}

#[test]
fn the_documented_rights_suffice() {
    let server = RedisServer::start();
    let words = "+ping +evalsha +eval +subscribe +unsubscribe +publish +get +set +incrby +exists +pexpire +del";
    let patterns = "~app:* ~lockson_once:{app:* &redisson_sc:{app:* &redisson_countdownlatch__channel__{app:*";
    let line = format!("ACL SETUSER app reset on >secret resetkeys resetchannels {patterns} -@all {words}");
    server.run(&line.split(' ').collect::<Vec<_>>());
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let client = lockson::Client::connect(&url).unwrap();
    let (semaphore, latch) = (client.get_semaphore("app:s"), client.get_count_down_latch("app:l"));
    semaphore.set_permits_once(3).unwrap();
    let all = semaphore.acquire(3).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.try_acquire_for(1, SOON).unwrap().expect("one comes back"));
        eventually(SOON, "the waiter listens", || server.channels().len() == 1);
        all.release().unwrap();
        joined(waiter).release().unwrap();
    });
    assert_eq!(semaphore.drain().unwrap(), 3);
    semaphore.add_permits(2).unwrap();
    assert!(semaphore.release_if_exists(1).unwrap() && semaphore.delete().unwrap());
    latch.set_count_once(2).unwrap();
    latch.count_down().unwrap();
    assert!(!latch.wait_for(ms(50)).unwrap() && latch.delete().unwrap());
}

#[test]
fn requests_about_a_name_in_braces_have_their_own_numbers() {
    const TIMES: usize = 300;
    let (client, name) = (client(), fresh("semaphore"));
    at_once([name.clone(), format!("{{{name}}}")], |name| {
        let semaphore = client.get_semaphore(name);
        assert!(semaphore.set_permits_once(1).unwrap());
        for _ in 0..TIMES {
            semaphore.try_acquire(1).unwrap().expect("nobody else takes it").release().unwrap();
        }
    });
}
