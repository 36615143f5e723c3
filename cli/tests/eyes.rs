//! Every command on every kind of lock, on one server, behind sentinels and on a cluster.

#[path = "eyes/free.rs"]
mod free;
#[path = "eyes/table.rs"]
mod table;

use std::any::Any;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use lockson::{Client, Lock};
use lockson_harness::{Authority, HelperProcess, RedisCluster, RedisServer, SentinelSet, Validity, eventually};
use serde_json::Value;

use table::{Case, Lockson, Row, SOON};

type Hold = fn(&Client, &str) -> Box<dyn Any>;
type Wait = fn(&Client, &str);

/// A kind that is waited for as it is taken.
macro_rules! lock {
    ($row:literal, |$client:ident, $name:ident| $lock:expr) => {
        ($row, |$client, $name| Box::new($lock.lock().unwrap()), |$client, $name| drop($lock.lock().unwrap()))
    };
}
/// A kind of lock by its row in the table: how it is taken, and how it is waited for and given back.
const KINDS: &[(&str, Hold, Wait)] = &[
    lock!("Lock", |client, name| client.get_lock(name)),
    lock!("Non-reentrant lock", |client, name| client.get_non_reentrant_lock(name)),
    lock!("Spin lock", |client, name| client.get_spin_lock(name)),
    lock!("Fair lock", |client, name| client.get_fair_lock(name)),
    lock!("Non-reentrant fair lock", |client, name| client.get_non_reentrant_fair_lock(name)),
    lock!("Fenced lock", |client, name| client.get_fenced_lock(name)),
    lock!("Write lock", |client, name| client.get_read_write_lock(name).write()),
    lock!("Token lock", |client, name| client.get_token_lock(name)),
    lock!("Multi-lock", |client, name| Lock::multi([name, &format!("{name}:b")].map(|name| client.get_lock(name)))),
    lock!("Group lock", |client, name| client.get_group_lock(name, ["seat"])),
    (
        "Read lock",
        |client, name| Box::new(client.get_read_write_lock(name).read().lock().unwrap()),
        |client, name| drop(client.get_read_write_lock(name).write().lock().unwrap()),
    ),
    (
        "Election",
        |client, name| Box::new(client.get_election(name).candidate("one").campaign().unwrap()),
        |client, name| drop(client.get_election(name).candidate("two").campaign().unwrap()),
    ),
    (
        "Expirable permits",
        |client, name| {
            let permits = client.get_permit_expirable_semaphore(name);
            permits.set_permits_once(1).unwrap();
            Box::new(permits.acquire(1).unwrap())
        },
        |client, name| drop(client.get_permit_expirable_semaphore(name).acquire(1).unwrap()),
    ),
    (
        "Semaphore",
        |client, name| {
            let semaphore = client.get_semaphore(name);
            semaphore.set_permits_once(1).unwrap();
            semaphore.acquire(1).unwrap().leave_to_release();
            Box::new(())
        },
        |client, name| drop(client.get_semaphore(name).acquire(1).unwrap()),
    ),
    (
        "Count-down latch",
        |client, name| Box::new(client.get_count_down_latch(name).set_count_once(2).unwrap()),
        |client, name| client.get_count_down_latch(name).wait().unwrap(),
    ),
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
    for command in [&["wait", "orders"][..], &["free", "orders", "--reason", "test"], &["top"]] {
        let output = lockson(&url, command);
        assert_eq!(code(&output), 125, "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("type"), "{output:?}");
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
fn a_server_cannot_move_the_cursor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            // The client sends its first requests together, and waits for all answers.
            while stream.read(&mut request).is_ok_and(|read| read > 0) {
                stream.write_all(&b"-ERR \x1b[2Jwiped\r\n".repeat(9)).unwrap();
            }
        }
    });
    let output = lockson(&url, &["show", "orders"]);
    assert_eq!(code(&output), 125);
    assert!(output.stderr.ends_with(b"\\u{1b}[2Jwiped\n"), "{output:?}");
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
fn certificates_of_the_environment_are_for_tls_alone() {
    let authority = Authority::new();
    let server = RedisServer::builder().mutual_tls(&authority.server()).start();
    let (own, other) = (authority.client(Validity::Now), Authority::new());
    let yaml = server.data_folder().join("redisson.yaml");
    let pair = server.data_folder().join("pair.pem");
    let pems = [&own.file, &own.key].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(&pair, pems.concat()).unwrap();
    let show = |address: &str, tls: &str, options: &[&str]| {
        std::fs::write(&yaml, format!("singleServerConfig: {{address: '{address}'{tls}}}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockson"));
        command.args(["show", "orders"]).args(options).env("LOCKSON_CA", authority.file());
        command.env("LOCKSON_REDISSON_YAML", &yaml).output().unwrap()
    };
    let (plain, secure) = (server.url(), server.tls_url());
    let [plain, secure] = [&plain, &secure].map(|url| url.trim_end_matches("/0"));
    assert_eq!(code(&show(plain, "", &[])), 0, "a file without TLS");
    assert_eq!(code(&show(plain, "", &["--url", plain])), 0, "a URL without TLS");
    let ca = authority.file();
    for options in [&["--ca", ca.to_str().unwrap()][..], &["--ca", ca.to_str().unwrap(), "--url", plain]] {
        let refused = show(plain, "", options);
        assert_eq!(code(&refused), 125);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("TLS"), "{refused:?}");
    }
    let keystore = format!(", sslKeystore: 'file:{}'", pair.display());
    let both = format!("{keystore}, sslTruststore: 'file:{}'", other.file().display());
    assert_eq!(code(&show(secure, &keystore, &[])), 0, "the certificate of the file, the authority of the variable");
    assert_eq!(code(&show(secure, &both, &[])), 0, "both authorities");
    assert_eq!(code(&show(secure, &both, &["--ca", other.file().to_str().unwrap()])), 125, "no authority");
}

#[test]
fn the_name_in_a_certificate_can_be_given() {
    let authority = Authority::new();
    let server = RedisServer::builder().tls(&authority.server_for(&["redis.example"], Validity::Now)).start();
    let ca = authority.file();
    let show =
        |options: &[&str]| lockson(&server.tls_url(), &[&["ls", "--ca", ca.to_str().unwrap()], options].concat());
    let refused = show(&[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("which one to expect by --server-name"), "{refused:?}");
    assert_eq!(code(&show(&["--server-name", "redis.example"])), 0);
}

#[test]
fn an_option_with_a_url_beats_a_variable_with_a_file() {
    let server = RedisServer::start();
    let _guard = Client::connect(&server.url()).unwrap().get_lock("orders").lock().unwrap();
    let yaml = server.data_folder().join("redisson.yaml");
    std::fs::write(&yaml, "singleServerConfig: {address: 'redis://127.0.0.1:1'}").unwrap();
    let show = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockson"));
        command.args(["show", "orders", "--json"]).args(options);
        command.env("LOCKSON_REDISSON_YAML", &yaml).output().unwrap()
    };
    assert_eq!(code(&show(&[])), 125, "the file counts");
    assert_eq!(json(&show(&["--url", &server.url()]))["held"], true);
    let both = show(&["--url", &server.url(), "--redisson-yaml", yaml.to_str().unwrap()]);
    assert_eq!(code(&both), 125);
    assert!(String::from_utf8_lossy(&both.stderr).contains("'--redisson-yaml <FILE>'"), "{both:?}");
}

#[test]
fn a_prefix_in_redissons_file_counts_for_lists() {
    let server = RedisServer::start();
    let _guard = Client::connect(&server.url()).unwrap().get_lock("shop:orders").lock().unwrap();
    let yaml = server.data_folder().join("redisson.yaml");
    let text = format!("singleServerConfig: {{address: 'redis://{}'}}", server.address());
    std::fs::write(&yaml, text + "\nnameMapper: !<com.acme.Mapper> {prefix: 'shop:'}\n").unwrap();
    let listed = |more: &[&str]| {
        let arguments = [&["--redisson-yaml", yaml.to_str().unwrap(), "ls", "--json"], more].concat();
        let output = lockson("redis://127.0.0.1:1", &arguments);
        if output.stdout.is_empty() { Value::Null } else { json(&output)["name"].take() }
    };
    assert_eq!(listed(&[]), "shop:orders");
    assert_eq!(listed(&["ord"]), "shop:orders");
    assert_eq!(listed(&["--prefix", "shop:ord"]), "shop:orders", "the option counts more");
    assert_eq!(listed(&["--prefix", "till:"]), Value::Null);
}

#[test]
fn top_looks_again_and_again() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let top = HelperProcess::spawn(
        env!("CARGO_BIN_EXE_lockson"),
        &["top", "till:", "--every", "10ms", "--json", "--url", &server.url()],
    );
    let next = || -> Value { serde_json::from_str(&top.next_line(SOON)).unwrap() };
    for _ in 0..2 {
        let guard = client.get_lock("till:1").lock().unwrap();
        eventually(SOON, "the owner is seen", || {
            let line = next();
            line["holders"][0]["owner"] == guard.owner() && line["seen_for_ms"].as_u64() >= Some(50)
        });
        guard.unlock().unwrap();
    }
    let _guard = client.get_lock("till:1").lock().unwrap();
    eventually(SOON, "the hand-overs are counted", || next()["hand_overs_per_second"].as_f64() > Some(0.0));
}

#[test]
#[cfg(target_os = "linux")]
fn what_lasts_tells_how_far_it_is_on_a_terminal() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let on_a_terminal = |arguments: &str| {
        let line = format!("'{}' --url {} {arguments}", env!("CARGO_BIN_EXE_lockson"), server.url());
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let guard = client.get_lock("long").lock().unwrap();
    let held = format!("long is held by {}, for ", guard.owner());
    tells_seconds(on_a_terminal("wait long --timeout 60s"), &held, || guard.unlock().unwrap());
    let open = on_a_terminal("wait closed --latch --timeout 60s").wait_with_output().unwrap();
    assert!(open.status.success() && open.stdout.is_empty(), "a latch without a count is open: {open:?}");
    let latch = client.get_count_down_latch("closed");
    latch.set_count_once(1).unwrap();
    let count_down = || latch.count_down().unwrap();
    tells_seconds(on_a_terminal("wait closed --latch --timeout 60s"), "closed is not open, for ", count_down);
    let said = on_a_terminal("bench --time 1200ms").wait_with_output().unwrap().stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(" s of 1.2s") && said.contains(" pairs in ") && said.contains("P99.9"), "{said}");
    let _guard = client.get_lock("long").lock().unwrap();
    assert!(!lockson(&server.url(), &["wait", "long", "--timeout", "1300ms"]).stderr.contains(&b'\r'), "no terminal");
}

/// A program that waits tells for how many seconds, and ends well when what it waits for comes.
fn tells_seconds(mut program: Child, before: &str, come: impl FnOnce()) {
    let (mut said, mut seconds) = (vec![], None);
    let mut output = BufReader::new(program.stdout.take().unwrap()).bytes();
    while let (None, Some(byte)) = (seconds, output.next()) {
        said.push(byte.unwrap());
        let said = String::from_utf8_lossy(&said);
        let number = said.split_once(before).and_then(|(_, rest)| rest.split_once(" s"));
        seconds = number.and_then(|(number, _)| number.parse::<u64>().ok());
    }
    assert!(seconds >= Some(1), "{}", String::from_utf8_lossy(&said));
    come();
    assert!(program.wait().unwrap().success());
}

#[test]
fn a_token_of_time_shows_for_how_long_it_is_held() {
    let server = RedisServer::start();
    let leadership = Client::connect(&server.url()).unwrap().get_election("jobs").candidate("one").campaign().unwrap();
    eventually(SOON, "a time passes", || {
        let shown = json(&lockson(&server.url(), &["show", "jobs", "--json"]));
        shown["leader"] == "one" && shown["held_for_ms"].as_u64() > Some(100)
    });
    let fenced = leadership.hold().name().to_owned() + ":fenced";
    let guard = Client::connect(&server.url()).unwrap().get_fenced_lock(&fenced).lock().unwrap();
    eventually(SOON, "a time passes", || {
        json(&lockson(&server.url(), &["show", &fenced, "--json"]))["held_for_ms"].as_u64() > Some(100)
    });
    for name in ["jobs", guard.name()] {
        let shown = String::from_utf8(lockson(&server.url(), &["show", name]).stdout).unwrap();
        assert!(shown.contains("\nheld for "), "{shown}");
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
        for command in ["run", "ls", "show", "waiters", "wait", "free", "doctor", "top", "serve", "bench"] {
            assert!(text.contains(command), "{arguments:?}: {command}");
        }
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockson"));
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

/// Checks all rows of the table, each with a held lock and a waiter.
fn check(url: &str) {
    let (holder, waiter) = (Client::connect(url).unwrap(), Client::connect(url).unwrap());
    let rows = Row::all();
    assert_eq!(rows.len(), KINDS.len());
    let program = Path::new(env!("CARGO_BIN_EXE_lockson"));
    for row in rows {
        let (_, hold, wait) = KINDS.iter().find(|(lock, ..)| *lock == row.lock).expect("the kind is known");
        let names = ["", ":b"].map(|end| format!("eyes:{}{end}", row.lock));
        let _held = hold(&holder, &names[0]);
        let parts = if row.lock == "Multi-lock" { 2 } else { 1 };
        let case = Case { names: &names[..parts], values: &["seat"], process: Some(std::process::id()) };
        let (client, name) = (waiter.clone(), names[0].clone());
        let waits = thread::spawn(move || wait(&client, &name));
        row.check(Lockson { program, url }, &case, || waits.join().unwrap());
    }
}

fn lockson(url: &str, arguments: &[&str]) -> Output {
    Lockson { program: Path::new(env!("CARGO_BIN_EXE_lockson")), url }.output(arguments)
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
