//! `lockson serve`: what the page shows, what it refuses, and what a browser makes of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lockson::Client;
use lockson_harness::{HelperProcess, RedisServer, eventually};
use serde_json::{Value, json};

/// A page about the locks of a server.
struct Page {
    _program: HelperProcess,
    address: String,
    secret: String,
}

impl Page {
    fn open(server: &RedisServer, options: &[&str]) -> Self {
        let url = server.url();
        let arguments = [&["--url", &url, "serve"], options].concat();
        let program = HelperProcess::spawn(env!("CARGO_BIN_EXE_lockson"), &arguments);
        let url = program.next_line(SOON);
        let (address, secret) = url.trim_start_matches("http://").trim_end_matches('/').split_once('/').unwrap();
        Self { address: address.to_owned(), secret: secret.to_owned(), _program: program }
    }

    /// Sends a request. Returns the status and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The locks, and what the page says of them.
    fn told(&self) -> Value {
        let (status, body) = self.ask("GET", &format!("/{}/locks", self.secret), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn locks(&self) -> Value {
        self.told()["locks"].take()
    }

    /// Looks as an open page does. Returns what the looks saw of a lock.
    fn seen(&self, name: &str) -> Value {
        self.locks();
        let (status, body) = self.ask("POST", &format!("/{}/seen", self.secret), name);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The stretches with a holder, or a waiter.
    fn whats(&self, name: &str, of: &str) -> Vec<String> {
        let seen = self.seen(name);
        let whats = seen[of].as_array().unwrap().iter().map(|it| it["what"].as_str().unwrap().to_owned());
        whats.filter(|what| !what.is_empty()).collect()
    }
}

#[test]
fn the_page_shows_locks_and_frees_none() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let guard = client.get_lock("page:1").lock().unwrap();
    let page = Page::open(&server, &["page:"]);
    assert_eq!(page.ask("GET", &format!("/{}/", page.secret), "").0, 200);
    assert_eq!(page.locks()[0]["holders"][0]["owner"], guard.owner());
    let body = json!({ "name": "page:1", "owner": guard.owner(), "reason": "test" }).to_string();
    assert_eq!(page.ask("POST", &format!("/{}/free", page.secret), &body).0, 404);
    for path in ["/", "/locks", "/0123/locks", "//locks"] {
        assert_eq!(page.ask("GET", path, "").0, 404, "without the secret: {path}");
    }
    assert!(guard.is_held());
}

#[test]
fn the_page_remembers_holders_waiters_and_times_that_ran_out() {
    let server = RedisServer::start();
    let [client, other] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let page = Page::open(&server, &["page:"]);
    assert_eq!(page.whats("page:1", "holds"), [""; 0]);
    let guard = client.get_lock("page:1").lock().unwrap();
    let first = guard.owner().to_owned();
    eventually(SOON, "the holder is seen", || page.whats("page:1", "holds") == [&*first]);
    thread::scope(|scope| {
        let wait = scope.spawn(|| other.get_lock("page:1").with_lease(Duration::from_secs(2)).owned().lock().unwrap());
        eventually(SOON, "the waiter is seen", || page.whats("page:1", "waits") == ["1 waiting"]);
        guard.unlock().unwrap();
        let next = wait.join().unwrap();
        let second = next.owner().to_owned();
        next.keep_until_expiry();
        eventually(SOON, "the end is seen", || page.seen("page:1")["ran_out"][0]["owner"] == *second);
        assert_eq!(page.whats("page:1", "holds"), [first, second]);
    });
    assert_eq!(page.whats("page:1", "waits"), ["1 waiting"]);
    assert_eq!(page.seen("page:1")["ran_out"].as_array().unwrap().len(), 1);
}

#[test]
fn a_page_that_may_free_frees_one_owner() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let guard = client.get_fair_lock("page:2").lock().unwrap();
    let page = Page::open(&server, &["page:", "--allow-free"]);
    let free = |owner: &str| {
        let body = json!({ "name": "page:2", "owner": owner, "reason": "test" }).to_string();
        page.ask("POST", &format!("/{}/free", page.secret), &body)
    };
    assert_eq!(free("another:1"), (200, r#"{"freed":false}"#.to_owned()));
    assert!(guard.is_held());
    assert_eq!(free(guard.owner()), (200, r#"{"freed":true}"#.to_owned()));
    eventually(SOON, "the holder is told", || guard.lost().is_some());
    let other = client.get_lock("other").lock().unwrap();
    let body = json!({ "name": "other", "owner": other.owner(), "reason": "test" }).to_string();
    assert_eq!(page.ask("POST", &format!("/{}/free", page.secret), &body).0, 403, "outside of the prefix");
    let _silent = TcpStream::connect(&page.address).unwrap(); // holds up no other
    assert_eq!(page.ask("POST", &format!("/{}/free", page.secret), "no json").0, 400);
}

#[test]
fn a_page_tells_where_it_looks_and_what_it_leaves_out() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let names = ["<b>&:1", "<b>&:2"];
    let _guards = names.map(|name| client.get_lock(name).owned().lock().unwrap());
    let page = Page::open(&server, &["<b>&", "--limit", "2"]);
    let (_, html) = page.ask("GET", &format!("/{}/", page.secret), "");
    let title = format!("<h1>Locks &lt;b&gt;&amp;* at redis://{}", server.address());
    assert!(html.contains(&title), "{html}");
    let told = page.told();
    assert_eq!(told["notes"], json!(["there may be more than 2 locks; --limit shows more"]));
    eventually(SOON, "the holders are seen", || page.locks()[0]["seen_for_ms"].as_u64() > Some(0));
    assert_eq!(Page::open(&server, &["<b>&"]).told()["notes"], json!([]));
}

#[test]
fn a_page_tells_that_its_server_is_gone_and_back() {
    let server = RedisServer::start();
    let page = Page::open(&server, &[]);
    server.kill();
    let (status, body) = page.ask("GET", &format!("/{}/locks", page.secret), "");
    assert!(status == 502 && body.contains("redis"), "{status} {body}");
    server.start_again();
    eventually(SOON, "the page is back", || page.ask("GET", &format!("/{}/locks", page.secret), "").0 == 200);
}

/// Two minutes of some holders, for the picture.
fn take_turns(server: &RedisServer, page: &Page) {
    let end = Instant::now() + Duration::from_secs(120);
    thread::scope(|scope| {
        for till in 3..6 {
            scope.spawn(move || {
                let client = Client::connect(&server.url()).unwrap();
                while Instant::now() < end {
                    let guard = client.get_fenced_lock("orders:42").lock().unwrap();
                    thread::sleep(Duration::from_secs(till));
                    guard.unlock().unwrap();
                    thread::sleep(Duration::from_secs(5 * till));
                }
            });
        }
        while Instant::now() < end {
            page.locks();
            thread::sleep(Duration::from_secs(1));
        }
    });
}

/// `make browser` installs the browser and names it; with `WRITE=1` it draws the picture of the documents.
#[test]
#[ignore = "needs a browser: make browser"]
fn a_browser_shows_who_holds_a_lock() {
    let browser = std::env::var("LOCKSON_BROWSER").expect("LOCKSON_BROWSER names a browser of the Chromium family");
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let page = Page::open(&server, &["orders:"]);
    if std::env::var_os("WRITE").is_some() {
        take_turns(&server, &page);
    }
    let guard = client.get_fenced_lock("orders:42").lock().unwrap();
    let _named = client.get_lock("orders:<b>43</b>").lock().unwrap();
    let permits = client.get_permit_expirable_semaphore("orders:paid-api");
    permits.set_permits_once(5).unwrap();
    let _permits = permits.acquire(2).unwrap();
    let dead = Client::connect(&server.url()).unwrap();
    let lapsed = dead.get_lock("orders:44").with_lease(Duration::from_secs(2)).lock().unwrap();
    let owner = lapsed.owner().to_owned();
    lapsed.keep_until_expiry();
    let (lock, waiter) = (dead.get_lock("orders:42"), dead.clone());
    let wait = thread::spawn(move || lock.lock().map(drop));
    eventually(SOON, "the end and the waiter are seen", || {
        page.seen("orders:44")["ran_out"][0]["owner"] == *owner
            && page.whats("orders:42", "waits").last().is_some_and(|last| last == "1 waiting")
    });
    let url = |name: &str| format!("http://{}/{}/#{name}", page.address, page.secret);
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"];
    let dump = |name: &str| {
        let output = Command::new(&browser).args(flags).args(["--dump-dom", &url(name)]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = dump("orders:44");
    let (_, ran_out) = shown.split_once("<ul id=\"ran_out\">").expect("a list");
    assert!(ran_out.split_once("</ul>").unwrap().0.contains(&owner), "{shown}");
    let shown = dump("orders:42");
    assert!(shown.contains("<ul id=\"ran_out\"><li class=\"quiet\">none seen</li></ul>"), "{shown}");
    let process = std::process::id().to_string();
    for wanted in [
        "orders:&lt;b&gt;43&lt;/b&gt;",
        " and 1 more</td>",
        guard.owner(),
        &process,
        "<h2 id=\"title\">orders:42</h2>",
        "title=\"1 waiting: ",
        "listen for a release: 1.",
        "<div id=\"content\" class=\"\">",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    if std::env::var_os("WRITE").is_some() {
        let file = concat!("--screenshot=", env!("CARGO_MANIFEST_DIR"), "/page.png");
        let size = "--window-size=1100,760";
        assert!(Command::new(&browser).args(flags).args([file, size, &url("orders:42")]).status().unwrap().success());
    }
    waiter.stop_waiting();
    assert!(wait.join().unwrap().is_err());
    server.kill();
    let shown = dump("orders:42");
    assert!(shown.contains("<div id=\"content\" class=\"old\">") && shown.contains("cannot be reached"), "{shown}");
}

const SOON: Duration = Duration::from_secs(20);
