//! Questions about locks on a server in trouble, and about data without end.

use lockson::Inspection;

use super::{JAVA, only};
use crate::support::prelude::*;

fn lists() -> When {
    When::command("CLIENT").containing("LIST").always()
}

#[test]
fn a_listing_asks_once_for_all_connections() {
    let server = RedisServer::start();
    let (holder, other) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let _guards: Vec<_> = (0..100).map(|at| holder.get_lock(format!("job:{at}")).lock().unwrap()).collect();
    let found: Vec<Inspection> = other.inspect_all(other.scan("job:", 1_000).unwrap()).map(Result::unwrap).collect();
    assert_eq!(found.len(), 100);
    for inspection in &found {
        let process = only(inspection).client().expect("the client is connected");
        assert!(process.name().contains(holder.id()), "{process:?}");
    }
    let counted: String = server.query(&["INFO", "commandstats"]);
    let lists: Vec<&str> = counted.lines().filter(|line| line.starts_with("cmdstat_client|list:")).collect();
    // Before 7.0 Redis counts all subcommands as one.
    assert!(lists.iter().all(|list| list.contains(":calls=1,")), "{lists:?}");
    assert!(lists.len() == 1 || counted.contains("cmdstat_client:"), "{counted}");
}

#[test]
fn connections_that_are_not_told_hide_nothing_else() {
    let (rig, holder) = Rig::start().and(Rig::direct);
    let guards = ["a", "b", "c"].map(|name| holder.get_lock(name).lock().unwrap());
    let client = rig.impatient().connect().unwrap();
    for then in [Then::SwallowReply, Then::CutBeforeRequest, Then::ReplaceReply(b"-OOM no memory\r\n".to_vec())] {
        let rule = rig.proxy.rule(lists(), then.clone());
        let names = guards.iter().map(|guard| guard.name());
        for (found, guard) in client.inspect_all(names).map(Result::unwrap).zip(&guards) {
            assert_eq!((only(&found).owner(), only(&found).client()), (guard.owner(), None), "{then:?}");
            assert!(found.without_clients().is_some() && found.without_rights().is_empty(), "{found:#?}");
        }
        assert_eq!(rule.hits(), 1, "{then:?}: not asked again for each lock");
        rule.remove();
    }
    let found = client.inspect("a").unwrap();
    assert!(only(&found).client().is_some() && found.without_clients().is_none(), "{found:#?}");
}

#[test]
fn data_without_end_is_told_as_no_lock() {
    let (server, client) = alone();
    let (big, owner) = ("x".repeat(20 << 20), format!("{JAVA}:1"));
    let rows: [&[&str]; 6] = [
        &[&big, "1"],
        &["user", "x", &big, "1"],
        &[&owner, &big],
        &["mode", &big, &owner, "1"],
        &["mode", "read", &owner, &big],
        &["DqvoYruF5eyLDrILcprmBw", &big],
    ];
    for (at, row) in rows.iter().enumerate() {
        let name = format!("data:{at}");
        server.run(&[&["HSET", &name], *row].concat());
        let mark: u64 = server.query(&["CLIENT", "ID"]);
        let error = client.inspect(&name).unwrap_err();
        assert_eq!((error.kind(), error.lock_name()), (ErrorKind::OtherKind, Some(&*name)), "{at}: {error}");
        let next: u64 = server.query(&["CLIENT", "ID"]);
        assert!(next - mark <= 3, "{at}: not asked again and again");
    }
    // The value alone is no business of a scan, which reads fields only.
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.iter().step_by(2).all(|field| field.len() < 100)) {
        assert_eq!(server.query::<u64>(&["DEL", &format!("data:{at}")]), 1, "{row:.100?}");
    }
    let _guards = ["data:a", "data:z"].map(|name| client.get_lock(name).lock().unwrap());
    assert_eq!(client.scan("data:", 100).unwrap(), ["data:a", "data:z"]);
    drop(big);
}

#[test]
fn a_scan_that_loses_each_connection_ends() {
    let rig = Rig::start();
    rig.server.run(&["EVAL", "for i = 1, 2000 do redis.call('SET', 'data:' .. i, 'x') end", "0"]);
    let client = rig.impatient().connect().unwrap();
    let second = When::command("SCAN").that(|request| request.text(0) != "0").always();
    for then in [Then::CutBeforeRequest, Then::SwallowReply] {
        let rule = rig.proxy.rule(second.clone(), then.clone());
        let error = client.scan("data:", 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{then:?}: {error}");
        assert!(rule.hits() > 1, "{then:?}: asked again from the start");
        rule.remove();
    }
    assert_eq!(client.scan("data:", 10).unwrap(), [""; 0]);
}
