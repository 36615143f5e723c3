//! Names whose keys would be in several slots are refused before any request.

use crate::support::prelude::*;

fn client() -> Client {
    Client::connect(&RedisCluster::shared().url()).unwrap()
}

#[test]
fn names_whose_braces_make_no_tag_are_refused_at_once() {
    let client = client();
    for name in ["a{b", "{}x", "a}b", "{", "}"] {
        let name = fresh(name);
        let refused = |what: &str, outcome: Result<(), lockson::Error>| {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput, "{what} {name}: {error}");
            assert!(error.to_string().contains("on a cluster"), "{error}");
            assert!(error.lock_name().is_some_and(|told| told.starts_with(&name)), "{error}");
        };
        refused("lock", client.get_lock(&name).try_lock().map(drop));
        refused("fair", client.get_fair_lock(&name).try_lock().map(drop));
        refused("fenced", client.get_fenced_lock(&name).try_lock().map(drop));
        refused("read", client.get_read_write_lock(&name).read().try_lock().map(drop));
        refused("group", client.get_group_lock(&name, ["v"]).try_lock().map(drop));
        refused("semaphore", client.get_semaphore(&name).available().map(drop));
        refused("permits", client.get_permit_expirable_semaphore(&name).available().map(drop));
        refused("latch", client.get_count_down_latch(&name).count().map(drop));
        refused("question", client.get_lock(&name).is_locked().map(drop));
        refused("force", client.get_lock(&name).force_unlock().map(drop));
    }
}

#[test]
fn a_latch_has_no_braces_on_a_cluster() {
    let client = client();
    let name = fresh("{tag}");
    let error = client.get_count_down_latch(&name).count().unwrap_err();
    assert_eq!((error.kind(), error.lock_name()), (ErrorKind::BadInput, Some(&*name)), "{error}");
    assert_eq!(client.get_count_down_latch(fresh("latch")).count().unwrap(), 0);
}
