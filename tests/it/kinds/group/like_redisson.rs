//! The promises that Redisson's tests make for `getMultiLock(group, values)`, and those that its script breaks.

use crate::support::prelude::*;

const PAIR: [&str; 2] = ["student:001", "student:002"];

/// The hold counts in Redis.
fn counts(group: &str) -> Vec<String> {
    let fields = fields(RedisServer::shared(), group).into_iter();
    fields.filter(|(field, _)| field.ends_with(":lock_count")).map(|(_, count)| count).collect()
}

fn fields_are_gone(group: &str) -> bool {
    fields(RedisServer::shared(), group).is_empty()
}

#[test]
fn a_release_wakes_a_waiter_for_one_of_the_values() {
    let (ours, theirs, group) = (client(), client(), fresh("class"));
    let took = median(5, |_| {
        let guard = ours.get_group_lock(&group, PAIR).lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = theirs.get_group_lock(&group, [PAIR[1]]).lock().unwrap();
                (Instant::now(), guard.unlock().unwrap()).0
            });
            eventually(SOON, "it waits", || !theirs.waiting().is_empty());
            thread::sleep(ms(50)); // it has subscribed and asked again
            let released = Instant::now();
            guard.unlock().unwrap();
            joined(waiter) - released
        })
    });
    assert!(took < ms(300), "{took:?}");
    assert!(fields_are_gone(&group));
}

#[test]
fn two_handles_of_a_thread_share_the_counts() {
    let (client, group) = (client(), fresh("class"));
    let (one, two) = (client.get_group_lock(&group, PAIR), client.get_group_lock(&group, PAIR));
    one.lock().unwrap().leave_to_unlock();
    two.lock().unwrap().leave_to_unlock();
    assert_eq!((counts(&group), one.hold_count()), (vec!["2".into(), "2".into()], 2));
    one.unlock().unwrap();
    assert_eq!((counts(&group), two.hold_count()), (vec!["1".into(), "1".into()], 1));
    assert!(elsewhere(|| one.try_lock().unwrap().is_none()), "it is still held");
    one.unlock().unwrap();
    assert!(fields_are_gone(&group));
    assert_eq!(kind_of(one.unlock()), ErrorKind::NotHeld);
}

#[test]
fn forcing_the_group_open_frees_all_values() {
    let (client, group) = (client(), fresh("class"));
    let lock = client.get_group_lock(&group, PAIR);
    let ask = || (lock.is_locked().unwrap(), lock.is_held_by_current_thread());
    assert_eq!((ask(), lock.force_unlock().unwrap()), ((false, false), false));
    let guard = lock.with_lease(Duration::from_secs(30)).lock().unwrap();
    assert_eq!((ask(), elsewhere(ask)), ((true, true), (true, false)));
    assert!(elsewhere(|| lock.force_unlock().unwrap()));
    assert_eq!(ask(), (false, false));
    assert!(fields_are_gone(&group));
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
}

/// The takeover happens inside a key that lives on, because another value is held for longer.
#[test]
fn a_takeover_beside_a_longer_hold_leaves_no_old_count() {
    let (ours, theirs, group) = (client(), client(), fresh("class"));
    let long = theirs.get_group_lock(&group, ["long"]).with_lease(Duration::from_secs(60)).lock().unwrap();
    let short = ours.get_group_lock(&group, ["short"]).with_lease(ms(600));
    let (one, two) = (short.lock().unwrap(), short.lock().unwrap());
    assert_eq!(counts(&group).len(), 2);
    one.keep_until_expiry();
    two.keep_until_expiry();
    let next = theirs.get_group_lock(&group, ["short", "other"]);
    let guard = next.try_lock_for(SOON).unwrap().expect("it expires");
    assert_eq!(counts(&group), ["1", "1", "1"]);
    guard.unlock().unwrap();
    assert_eq!(fields(RedisServer::shared(), &group).len(), 3);
    assert!(is_free(&short) && long.is_held());
    long.unlock().unwrap();
    assert!(fields_are_gone(&group));
}

#[test]
fn a_thousand_values_are_renewed_beside_one_that_is_lost() {
    let (client, group) = (brisk_client(), fresh("class"));
    let values: Vec<String> = (0..999).map(|value| format!("value {value}")).collect();
    let many = client.get_group_lock(&group, &values).lock().unwrap();
    let single = client.get_group_lock(&group, ["single"]).lock().unwrap();
    assert_eq!((many.wait_lost(TTL * 3 / 2), single.lost()), (None, None));
    assert!(many.is_held() && single.is_held() && ttl_ms(RedisServer::shared(), &group) > 0);
    let forced = Instant::now();
    assert!(client.get_group_lock(&group, ["single"]).force_unlock().unwrap());
    assert_eq!(single.wait_lost(SOON), Some(Loss::Gone));
    assert!(many.is_held());
    println!("told after {:?}", forced.elapsed());
    many.unlock().unwrap();
    drop(single);
    assert!(fields_are_gone(&group));
}

#[test]
fn a_lost_value_is_told_at_once_to_its_holder_only() {
    let server = RedisServer::start();
    let connect = || brisk(&server).watchdog(Duration::from_secs(30), Duration::from_secs(10)).connect().unwrap();
    let (ours, theirs) = (connect(), connect());
    let pair = ours.get_group_lock("class", ["1", "2"]).lock().unwrap();
    let other = theirs.get_group_lock("class", ["3"]).lock().unwrap();
    thread::sleep(ms(500)); // a hold is watched from an age of 0.2 s on
    let owner = pair.hold().members()[0].owner().to_owned();
    let field = fields(&server, "class").into_iter().find(|(_, value)| *value == owner).unwrap().0;
    let (took, loss) = timed(|| {
        server.run(&["HDEL", "class", &field]);
        pair.wait_lost(SOON)
    });
    println!("told after {took:?}");
    assert_eq!(loss, Some(Loss::Gone));
    assert!(took < ms(500) + STANDSTILLS, "{took:?}");
    assert!(other.is_held() && pair.hold().members()[1].is_held());
    drop(pair);
    assert!(is_free(&theirs.get_group_lock("class", ["1", "2"])));
    eventually(SOON, "nothing is left of the value that was deleted by hand", || fields(&server, "class").len() == 3);
    other.unlock().unwrap();
    assert!(server.keys().is_empty());
}

#[test]
fn a_group_that_is_gone_or_overwritten_is_lost() {
    let server = RedisServer::start();
    let client = brisk(&server).connect().unwrap();
    let lock = client.get_group_lock("class", PAIR);
    let faults: [(&[&str], Loss); 4] = [
        (&["DEL", "class"], Loss::Gone),
        (&["FLUSHALL"], Loss::Gone),
        (&["SET", "class", "text"], Loss::Taken),
        (&["RENAME", "class", "other"], Loss::Gone),
    ];
    for (fault, wanted) in faults {
        let guard = lock.lock().unwrap();
        server.run(fault);
        assert_eq!(guard.wait_lost(SOON), Some(wanted), "{fault:?}");
        assert!(guard.unlock().unwrap_err().is_lost());
        if wanted == Loss::Taken {
            assert_eq!(server.query::<String>(&["GET", "class"]), "text", "the text is not ours");
            let error = lock.try_lock().unwrap_err();
            assert!(error.to_string().contains("class"), "{error}");
        }
        server.run(&["FLUSHALL"]);
    }
}

#[test]
fn values_may_have_any_characters() {
    let group = fresh("{class} ü*[x]");
    let values = ["", " ", "a:b", "mode", "x:lock_count", "{tag}", "ü\u{0}\n", "[1]", "a, b"];
    let (ours, theirs) = (client(), client());
    let all = ours.get_group_lock(&group, values).lock().unwrap();
    assert_eq!(all.hold().members().len(), values.len());
    for value in values {
        assert!(!is_free(&theirs.get_group_lock(&group, [value])), "{value:?}");
    }
    assert!(is_free(&theirs.get_group_lock(&group, ["b"])) && is_free(&theirs.get_group_lock(&group, ["mode "])));
    all.unlock().unwrap();
    assert!(fields_are_gone(&group));
    let lock: Lock = theirs.get_group_lock(&group, values);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_value_named_twice_counts_once() {
    let (client, group) = (client(), fresh("class"));
    let lock = client.get_group_lock(&group, ["b", "a", "b", "a", "b"]);
    let guard = lock.lock().unwrap();
    let names: Vec<_> = guard.hold().members().iter().map(|member| member.name().to_owned()).collect();
    assert_eq!(names, [format!("{group}[b]"), format!("{group}[a]")]);
    assert_eq!(counts(&group), ["1", "1"]);
    guard.unlock().unwrap();
    assert!(fields_are_gone(&group));
}
