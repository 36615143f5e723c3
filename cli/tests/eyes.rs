//! Every command on every kind of lock, on one server, behind sentinels and on a cluster.

use std::any::Any;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use lockson::Client;
use lockson_harness::{Authority, HelperProcess, RedisCluster, RedisServer, SentinelSet, Validity, eventually};
use serde_json::Value;

/// A kind of lock, as the commands see it.
struct Kind {
    /// The word for the kind in JSON.
    word: &'static str,
    hold: fn(&Client, &str) -> Box<dyn Any>,
    /// Waits for what `hold` has, and gives it back.
    wait: fn(&Client, &str),
    /// The options with which `free` frees this kind; `OWNER` stands for the holder.
    free: &'static [&'static str],
    /// Whether Redis has a list of holders.
    has_holders: bool,
    /// Whether waiters can be seen.
    listens: bool,
    /// Whether Redis shows by the key alone that it is a lock.
    is_listed: bool,
}

/// A kind that is freed by its name alone, and shows everything.
const USUAL: Kind = Kind {
    word: "plain",
    hold: |client, name| Box::new(client.get_lock(name).lock().unwrap()),
    wait: |client, name| drop(client.get_lock(name).lock().unwrap()),
    free: &[],
    has_holders: true,
    listens: true,
    is_listed: true,
};

const KINDS: &[Kind] = &[
    USUAL,
    Kind { hold: |client, name| Box::new(client.get_non_reentrant_lock(name).lock().unwrap()), ..USUAL },
    Kind {
        hold: |client, name| Box::new(client.get_spin_lock(name).lock().unwrap()),
        wait: |client, name| drop(client.get_spin_lock(name).lock().unwrap()),
        listens: false,
        ..USUAL
    },
    // Without a queue nothing shows that it is fair.
    Kind {
        hold: |client, name| Box::new(client.get_fair_lock(name).lock().unwrap()),
        wait: |client, name| drop(client.get_fair_lock(name).lock().unwrap()),
        ..USUAL
    },
    Kind {
        word: "fenced",
        hold: |client, name| Box::new(client.get_fenced_lock(name).lock().unwrap()),
        wait: |client, name| drop(client.get_fenced_lock(name).lock().unwrap()),
        ..USUAL
    },
    Kind {
        word: "write",
        hold: |client, name| Box::new(client.get_read_write_lock(name).write().lock().unwrap()),
        wait: |client, name| drop(client.get_read_write_lock(name).read().lock().unwrap()),
        ..USUAL
    },
    Kind {
        word: "read",
        hold: |client, name| Box::new(client.get_read_write_lock(name).read().lock().unwrap()),
        wait: |client, name| drop(client.get_read_write_lock(name).write().lock().unwrap()),
        ..USUAL
    },
    Kind {
        word: "token",
        hold: |client, name| Box::new(client.get_token_lock(name).lock().unwrap()),
        wait: |client, name| drop(client.get_token_lock(name).lock().unwrap()),
        free: &["--owner", "OWNER"],
        listens: false,
        ..USUAL
    },
    Kind {
        word: "leader",
        hold: |client, name| Box::new(client.get_election(name).candidate("one").campaign().unwrap()),
        wait: |client, name| drop(client.get_election(name).candidate("two").campaign().unwrap()),
        ..USUAL
    },
    Kind {
        word: "group",
        hold: |client, name| Box::new(client.get_group_lock(name, ["seat"]).lock().unwrap()),
        wait: |client, name| drop(client.get_group_lock(name, ["seat"]).lock().unwrap()),
        free: &["--value", "seat"],
        ..USUAL
    },
    Kind {
        word: "permit",
        hold: |client, name| {
            let permits = client.get_permit_expirable_semaphore(name);
            permits.set_permits_once(1).unwrap();
            Box::new(permits.acquire(1).unwrap())
        },
        wait: |client, name| drop(client.get_permit_expirable_semaphore(name).acquire(1).unwrap()),
        ..USUAL
    },
    Kind {
        word: "semaphore",
        hold: |client, name| {
            let semaphore = client.get_semaphore(name);
            semaphore.set_permits_once(1).unwrap();
            let permits = semaphore.acquire(1).unwrap();
            permits.leave_to_release();
            Box::new(())
        },
        wait: |client, name| drop(client.get_semaphore(name).acquire(1).unwrap()),
        free: &["--permits", "1"],
        has_holders: false,
        is_listed: false,
        ..USUAL
    },
];

#[test]
fn every_kind_on_one_server() {
    check(&RedisServer::start().url());
}

#[test]
fn every_kind_behind_sentinels() {
    check(&SentinelSet::start(1, 1).url());
}

#[test]
fn every_kind_on_a_cluster() {
    check(&RedisCluster::start(2, 0).url());
}

#[test]
fn a_latch_is_shown_waited_for_and_opened() {
    let server = RedisServer::start();
    let (url, client) = (server.url(), Client::connect(&server.url()).unwrap());
    let latch = client.get_count_down_latch("loaded");
    latch.set_count_once(2).unwrap();
    assert_eq!(json(&lockson(&url, &["show", "loaded", "--json"]))["available"], 2);
    assert_eq!(code(&lockson(&url, &["wait", "loaded", "--latch", "--timeout", "1ms"])), 124);
    thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait().unwrap());
        assert_eq!(code(&lockson(&url, &["free", "loaded", "--latch", "--reason", "test"])), 0);
        waits.join().unwrap();
    });
    assert_eq!(code(&lockson(&url, &["wait", "loaded", "--latch"])), 0);
}

#[test]
fn a_queue_is_shown_with_the_processes_of_its_waiters() {
    let server = RedisServer::start();
    let (url, client) = (server.url(), Client::connect(&server.url()).unwrap());
    let lock = client.get_fair_lock("fair");
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| scope.spawn(|| drop(lock.lock().unwrap())));
        eventually(SOON, "both are seen", || {
            let shown = json(&lockson(&url, &["show", "fair", "--json"]));
            let waiters = shown["waiters"].as_array().unwrap();
            shown["kind"] == "fair"
                && waiters.len() == 2
                && waiters.iter().all(|waiter| waiter["client"]["process"] == std::process::id())
        });
        guard.unlock().unwrap();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
    });
}

#[test]
fn one_owner_is_freed_and_others_stay() {
    let server = RedisServer::start();
    let (url, client) = (server.url(), Client::connect(&server.url()).unwrap());
    let readers = [(); 2].map(|()| client.get_read_write_lock("prices").read().owned().lock().unwrap());
    let other = Client::connect(&url).unwrap().get_read_write_lock("prices").read().lock().unwrap();
    let freed = lockson(&url, &["free", "prices", "--owner", other.owner(), "--reason", "test"]);
    assert_eq!(code(&freed), 0);
    let told = String::from_utf8(freed.stdout).unwrap();
    assert!(told.contains(other.owner()) && told.matches("was held by").count() == 1, "{told}");
    eventually(SOON, "the freed reader is told", || other.lost().is_some());
    assert!(readers.iter().all(|reader| reader.is_held()));
    assert_eq!(json(&lockson(&url, &["show", "prices", "--json"]))["holder_count"], 2);
}

#[test]
fn a_lock_of_java_is_shown_and_freed() {
    let server = RedisServer::start();
    let owner = "0f3c8a2b-7d51-4a39-9a55-2f8f4f3f1d10:87";
    server.run(&["HSET", "orders", owner, "2"]);
    server.run(&["PEXPIRE", "orders", "30000"]);
    let shown = json(&lockson(&server.url(), &["show", "orders", "--json"]));
    assert_eq!((&shown["holders"][0]["owner"], &shown["holders"][0]["hold_count"]), (&owner.into(), &2.into()));
    assert_eq!(code(&lockson(&server.url(), &["free", "orders", "--reason", "test"])), 0);
    assert_eq!(json(&lockson(&server.url(), &["show", "orders", "--json"]))["held"], false);
}

#[test]
fn data_is_neither_shown_as_a_lock_nor_freed() {
    let server = RedisServer::start();
    server.run(&["HSET", "orders", "customer", "7", "total", "99"]);
    let all: [&[&str]; 3] = [&["show", "orders"], &["free", "orders", "--reason", "x"], &["waiters", "orders"]];
    for command in all {
        let output = lockson(&server.url(), command);
        assert_eq!(code(&output), 125, "{command:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("orders"), "{output:?}");
    }
    server.run(&["SET", "greeting", "hello"]);
    assert_eq!(code(&lockson(&server.url(), &["free", "greeting", "--reason", "x"])), 125);
    assert_eq!(server.query::<String>(&["GET", "greeting"]), "hello");
    assert_eq!(lockson(&server.url(), &["ls", "--json"]).stdout, b"");
    assert_eq!(server.query::<u64>(&["HLEN", "orders"]), 2);
}

#[test]
fn a_missing_right_is_no_free_lock() {
    let server = RedisServer::start();
    let _guard = Client::connect(&server.url()).unwrap().get_lock("orders").lock().unwrap();
    server.run(&["ACL", "SETUSER", "eye", "on", ">eye", "~*", "&*", "+@all", "-type", "-hlen"]);
    let url = format!("redis://eye:eye@{}", server.address());
    for command in [&["wait", "orders"][..], &["free", "orders", "--reason", "test"]] {
        let output = lockson(&url, command);
        assert_eq!(code(&output), 125, "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("may not run type"), "{output:?}");
    }
}

#[test]
fn the_doctor_ends_with_one_where_locks_are_in_danger() {
    let server = RedisServer::builder().config("maxmemory 100mb").config("maxmemory-policy allkeys-lru").start();
    let output = lockson(&server.url(), &["doctor", "--json"]);
    assert_eq!(code(&output), 1);
    let text = String::from_utf8(output.stdout).unwrap();
    let kinds = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].clone());
    assert!(kinds.into_iter().any(|kind| kind == "Eviction"), "{text}");
}

#[test]
fn a_server_that_is_not_there_is_a_failure_of_lockson() {
    let output = lockson("redis://127.0.0.1:1", &["ls"]);
    assert_eq!((code(&output), output.stdout.len()), (125, 0));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("lockson: "), "{output:?}");
}

#[test]
fn certificates_prefix_and_redissons_file_lead_to_the_lock() {
    let authority = Authority::new();
    let server = RedisServer::builder().mutual_tls(&authority.server()).start();
    let _guard = Client::connect(&server.url()).unwrap().get_lock("shop:orders").lock().unwrap();
    let own = authority.client(Validity::Now);
    let [ca, cert, key] = [own.ca(), &own.file, &own.key].map(|path| path.to_str().unwrap());
    let shown = ["--ca", ca, "--cert", cert, "--key", key, "--prefix", "shop:", "show", "orders", "--json"];
    assert_eq!(json(&lockson(&server.tls_url(), &shown))["held"], true);
    assert_eq!(code(&lockson(&server.tls_url(), &shown[6..])), 125, "without certificates");
    let listed = json(&lockson(&server.url(), &["--prefix", "shop:", "ls", "ord", "--json"]));
    assert_eq!(listed["name"], "shop:orders");
    let yaml = server.data_folder().join("redisson.yaml");
    std::fs::write(&yaml, format!("singleServerConfig: {{address: 'redis://{}'}}", server.address())).unwrap();
    let by_file = ["--redisson-yaml", yaml.to_str().unwrap(), "show", "shop:orders", "--json"];
    assert_eq!(json(&lockson("redis://127.0.0.1:1", &by_file))["held"], true);
}

#[test]
fn top_looks_again_and_again() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let top = HelperProcess::spawn(
        env!("CARGO_BIN_EXE_lockson"),
        &["top", "till:", "--every", "10ms", "--json", "--url", &server.url()],
    );
    let next_owner = || {
        let line: Value = serde_json::from_str(&top.next_line(SOON)).unwrap();
        line["holders"][0]["owner"].as_str().unwrap_or_default().to_owned()
    };
    for _ in 0..2 {
        let guard = client.get_lock("till:1").lock().unwrap();
        eventually(SOON, "the owner is seen", || next_owner() == guard.owner());
        guard.unlock().unwrap();
    }
}

#[test]
fn a_measurement_leaves_no_key() {
    let server = RedisServer::start();
    let figures = json(&lockson(&server.url(), &["bench", "--time", "10ms", "--json"]));
    assert!(figures["pairs"].as_u64() > Some(0) && figures["p50_us"].as_f64() > Some(0.0), "{figures}");
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}

#[test]
fn completions_and_the_man_page_name_every_command() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let text = String::from_utf8(lockson("redis://localhost", arguments).stdout).unwrap();
        for command in ["run", "ls", "show", "waiters", "wait", "free", "doctor", "top", "bench"] {
            assert!(text.contains(command), "{arguments:?}: {command}");
        }
    }
}

/// Holds a lock of each kind, lets somebody wait, and asks every command about it.
fn check(url: &str) {
    let (holder, waiter) = (Client::connect(url).unwrap(), Client::connect(url).unwrap());
    for (number, kind) in KINDS.iter().enumerate() {
        let name = format!("eyes:{number}");
        let _held = (kind.hold)(&holder, &name);
        let shown = json(&lockson(url, &["show", &name, "--json"]));
        assert_eq!(shown["kind"], kind.word, "{shown}");
        assert_eq!(shown["without_rights"], Value::Array(vec![]));
        if kind.has_holders {
            assert_eq!(shown["holders"][0]["client"]["process"], std::process::id(), "{shown}");
        }
        assert!(lockson(url, &["show", &name]).status.success());
        let listed = lockson(url, &["ls", "eyes:", "--json"]).stdout;
        let is_listed = String::from_utf8(listed).unwrap().lines().any(|line| line.contains(&format!("{name:?}")));
        assert!(is_listed || !kind.is_listed, "{}", kind.word);
        assert_eq!(code(&lockson(url, &["wait", &name, "--timeout", "1ms"])), 124, "{}", kind.word);
        thread::scope(|scope| {
            let waits = scope.spawn(|| (kind.wait)(&waiter, &name));
            if kind.listens {
                eventually(SOON, "the waiter is seen", || {
                    let waiters = json(&lockson(url, &["waiters", &name, "--json"]));
                    waiters["waiting_clients"] != 0 || waiters["waiters"] != Value::Array(vec![])
                });
            }
            let owner = shown["holders"][0]["owner"].as_str().unwrap_or_default();
            let options = kind.free.iter().map(|option| if *option == "OWNER" { owner } else { option });
            let words: Vec<&str> = ["free", &name, "--reason", "test"].into_iter().chain(options).collect();
            let free = lockson(url, &words);
            assert_eq!(code(&free), 0, "{} {free:?}", kind.word);
            waits.join().unwrap();
        });
        assert_eq!(code(&lockson(url, &["wait", &name, "--timeout", "5s"])), 0, "{}", kind.word);
    }
}

fn lockson(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockson")).env("LOCKSON_URL", url).args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const SOON: Duration = Duration::from_secs(20);
