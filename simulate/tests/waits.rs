//! The model of `WAIT` and `WAITAOF` beside real servers: the same copies are counted, the same requests wait in vain.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockson_harness::{RedisServer, RedisServerBuilder};
use lockson_simulate::{Backup, Cluster, Data, Queue, Reply};
use redis::Value;

const REQUESTS: &[&str] = &["WAIT 1", "WAIT 2", "WAITAOF 1 1", "WAITAOF 0 1", "WAITAOF 1 0"];
/// A replica tells each second what its disk has.
const LIMIT: Duration = Duration::from_secs(2);

/// A master and its replica, of the version that is installed or of one with `WAITAOF` as `.ci/servers` fetches them.
fn pair(program: Option<&PathBuf>) -> [RedisServer; 2] {
    let builder = || {
        let builder: RedisServerBuilder = RedisServer::builder().config("appendonly yes").config("appendfsync always");
        program.map_or(builder.clone(), |program| builder.program(program))
    };
    let master = builder().start();
    let replica = builder().config(format!("replicaof 127.0.0.1 {}", master.port())).start();
    let began = Instant::now();
    while replica.info("master_link_status").as_deref() != Some("up") {
        assert!(began.elapsed() < LIMIT * 10, "no replication");
        std::thread::sleep(LIMIT / 100);
    }
    [master, replica]
}

/// The copies that count, as far as they were asked for.
fn counts(value: &Value, wanted: &[i64]) -> Vec<i64> {
    let all = if let Value::Array(all) = value { all.clone() } else { vec![value.clone()] };
    let number = |value: &Value| if let Value::Int(number) = value { *number } else { panic!("{value:?}") };
    all.iter().map(number).zip(wanted).map(|(count, wanted)| count.min(*wanted)).collect()
}

#[test]
fn copies_count_where_they_do_at_real_servers() {
    let limit = LIMIT.as_millis().to_string();
    let fetched = PathBuf::from("../target/servers/redis-8.0/server");
    let [master, replica] = pair(fetched.exists().then_some(&fetched));
    let mut connection = master.connection();
    let knows_disks = master.try_query::<Value>(&["WAITAOF", "0", "0", "1"]).is_ok();
    for lags in [None, Some(Backup::Disk), Some(Backup::DiskOfReplica), Some(Backup::Replica)] {
        let mut model = Cluster::default();
        if let Some(backup) = lags {
            model.begin_to_lag(0, backup, &Data::default(), Queue::default());
        }
        let fsync = |lags| if lags { "no" } else { "always" };
        master.run(&["CONFIG", "SET", "appendfsync", fsync(lags == Some(Backup::Disk))]);
        replica.run(&["CONFIG", "SET", "appendfsync", fsync(lags == Some(Backup::DiskOfReplica))]);
        if lags == Some(Backup::Replica) {
            replica.pause();
        }
        for request in REQUESTS.iter().filter(|request| knows_disks || !request.contains("AOF")) {
            let words: Vec<&str> = request.split(' ').chain([&*limit]).collect();
            let wanted: Vec<i64> = words[1..words.len() - 1].iter().map(|word| word.parse().unwrap()).collect();
            redis::cmd("INCR").arg("key").exec(&mut connection).unwrap();
            let began = Instant::now();
            let real: Value = redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap();
            let in_vain = began.elapsed() >= LIMIT - LIMIT / 50;
            let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let (reply, suffices) = model.copies(0, &bytes);
            let modelled = match reply {
                Reply::List(all) => Value::Array(all.iter().map(number).collect()),
                one => number(&one),
            };
            assert_eq!(!suffices, in_vain, "{lags:?} lags: {request} -> {real:?}");
            // The counts of a wait in vain may be those of a moment before.
            if suffices {
                let [modelled, real] = [&modelled, &real].map(|value| counts(value, &wanted));
                assert_eq!(modelled, real, "{lags:?} lags: {request}");
            }
        }
        if lags == Some(Backup::Replica) {
            replica.resume();
        }
    }
}

fn number(reply: &Reply) -> Value {
    if let Reply::Int(number) = reply { Value::Int(*number) } else { panic!("{reply:?}") }
}
