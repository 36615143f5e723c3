//! A run on a cluster, behind sentinels and over TLS: excluded, told what it has, ended when its lock is taken away.

use std::process::Command;

use lockson::Client;
use lockson_harness::{Authority, HelperProcess, RedisCluster, RedisServer, SentinelSet, Validity};

use super::{SOON, fresh, lockson};

#[test]
fn a_run_on_a_cluster() {
    let cluster = RedisCluster::start(2, 0);
    check(&cluster.url(), |arguments| lockson(&cluster.url(), arguments));
}

#[test]
fn a_run_behind_sentinels() {
    let sentinels = SentinelSet::start(1, 1);
    check(&sentinels.url(), |arguments| lockson(&sentinels.url(), arguments));
}

#[test]
fn a_run_over_tls() {
    let authority = Authority::new();
    let server = RedisServer::builder().mutual_tls(&authority.server()).start();
    let own = authority.client(Validity::Now);
    check(&server.url(), |arguments| {
        let mut command = lockson(&server.tls_url(), arguments);
        command.env("LOCKSON_CA", own.ca()).env("LOCKSON_CERT", &own.file).env("LOCKSON_KEY", &own.key);
        command
    });
}

fn check(url: &str, lockson: impl Fn(&[&str]) -> Command) {
    let name = fresh("place");
    let script = "echo $LOCKSON_NAME $LOCKSON_OWNER $LOCKSON_TOKEN; exec sleep 60";
    let mut holder = HelperProcess::spawn_command(lockson(&["run", &name, "--fenced", "--", "sh", "-c", script]));
    let told = holder.next_line(SOON);
    assert_eq!((told.split(' ').count(), told.split(' ').next()), (3, Some(&*name)), "{told}");
    let code = |command: &[&str]| {
        let run = [&["run", &name, "--fenced", "--wait", "0", "--"], command].concat();
        lockson(&run).output().unwrap().status.code()
    };
    assert_eq!(code(&["true"]), Some(124));
    assert!(Client::connect(url).unwrap().get_fenced_lock(&name).force_unlock().unwrap());
    assert_eq!(holder.wait(SOON).code(), Some(123));
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
}
