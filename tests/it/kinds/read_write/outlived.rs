//! A reader that outlived its own key.

use super::{hold_key, sides};
use crate::support::prelude::*;

#[test]
fn a_renewal_makes_a_reader_s_own_key_anew() {
    let server = RedisServer::shared();
    let name = fresh("rw");
    let (ours, theirs) = (brisk_client(), brisk_client());
    let read = sides(&ours, &name).0;
    let (outer, inner) = (read.lock().unwrap(), read.lock().unwrap());
    let other = sides(&theirs, &name).0.lock().unwrap();
    let keys = [1, 2].map(|number| hold_key(&name, outer.owner(), number));
    for key in &keys {
        server.run(&["DEL", key]);
    }
    eventually(SOON, "the keys exist again", || keys.iter().all(|key| ttl_ms(server, key) > 0));
    // A release leaves the lock to the holders whose keys exist.
    other.unlock().unwrap();
    assert!(ttl_ms(server, &name) > 0, "the lock is held for reading");
    assert!(sides(&theirs, &name).1.try_lock_for(ms(50)).unwrap().is_none(), "no writer comes in beside a reader");
    assert!(outer.is_held());
    drop((inner, outer));
    assert!(sides(&theirs, &name).1.try_lock().unwrap().is_some());
}

#[test]
fn a_reader_of_redisson_cuts_no_other_lease() {
    let (server, ours, theirs) = (RedisServer::shared(), client(), client());
    let check = |(lease, is_old): (Option<Duration>, bool)| {
        let (what, name) = (format!("lease {lease:?}, by 3.52.0: {is_old}"), fresh("rw"));
        let read = sides(&ours, &name).0;
        let reading = lease.map_or(read.clone(), |lease| read.with_lease(lease)).owned().lock().unwrap();
        let key = hold_key(&name, reading.owner(), 1);
        let keys = if is_old { vec![&key, &name] } else { vec![&name] };
        // A renewal of a reader that then dies. The watchdog of this crate renews after ten seconds.
        keys.iter().for_each(|key| server.run(&["PEXPIRE", key, "5000"]));
        let keeps = || [&name, &key].into_iter().all(|key| ttl_ms(server, key) > 20_000);
        eventually(ms(4_500), &format!("{what}: it keeps its time"), keeps);
        assert!(reading.is_held(), "{what}: {:?}", reading.lost());
        assert!(!is_free(&sides(&theirs, &name).1), "{what}: a writer beside a reader");
        reading.unlock().unwrap();
        assert_eq!(ttl_ms(server, &name), -2, "{what}");
    };
    let rows = [None, Some(ms(60_000))].into_iter().flat_map(|lease| [(lease, false), (lease, true)]);
    at_once(rows.collect::<Vec<_>>(), check);
}

#[test]
fn a_reader_that_gets_in_ends_an_older_writer_of_its_process() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&brisk_client(), &name);
    let writer = write.owned().lock().unwrap();
    server.run(&["DEL", &name]);
    let reader = read.owned().lock().unwrap();
    assert!(!writer.is_held(), "a reader is beside the writer");
    assert!(writer.unlock().is_err());
    let second = read.owned().lock().unwrap();
    assert!(reader.is_held(), "readers are in together");
    reader.unlock().unwrap();
    second.unlock().unwrap();
}
