//! Credentials that a provider gives at each connect: rotation, refusals, and providers that fail.

use std::error::Error as StdError;

use crossbeam_channel::bounded;
use lockson::{Credentials, Login};
use lockson_harness::SentinelSet;

use crate::support::prelude::*;

/// What must appear in no text.
const CANARY: &str = "canary";

/// A provider with a password that the test rotates, and a memory like a provider of tokens has.
#[derive(Clone, Default)]
struct Vault(Arc<Inside>);

#[derive(Default)]
struct Inside {
    current: Mutex<String>,
    remembered: Mutex<Option<String>>,
    remembers: bool,
    asked: AtomicUsize,
    refused: AtomicUsize,
}

impl Vault {
    fn with(password: &str) -> Self {
        let vault = Self::default();
        vault.put(password);
        vault
    }

    fn that_remembers(password: &str) -> Self {
        let inside = Inside { remembers: true, ..Inside::default() };
        let vault = Self(Arc::new(inside));
        vault.put(password);
        vault
    }

    fn put(&self, password: &str) {
        password.clone_into(&mut self.0.current.lock());
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn refused(&self) -> usize {
        self.0.refused.load(Ordering::SeqCst)
    }
}

impl Credentials for Vault {
    fn credentials(&self) -> Result<Login, Box<dyn StdError + Send + Sync>> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let current = self.0.current.lock().clone();
        let password = match self.0.remembered.lock().as_ref().filter(|_| self.0.remembers) {
            Some(known) => known.clone(),
            None => current,
        };
        *self.0.remembered.lock() = Some(password.clone());
        Ok(Login::new("app", password))
    }

    fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::SeqCst);
        *self.0.remembered.lock() = None;
    }
}

/// A server with a user `app` and this password.
fn server(password: &str) -> RedisServer {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", "~*", "&*", "+@all", &format!(">{password}")]);
    server
}

fn rotate(server: &RedisServer, password: &str) {
    server.run(&["ACL", "SETUSER", "app", "resetpass", &format!(">{password}")]);
}

fn builder(server: &RedisServer, provider: impl Credentials + 'static) -> ClientBuilder {
    Client::builder(&server.url()).watchdog(TTL, TICK).credentials(provider)
}

fn password(number: usize) -> String {
    format!("{CANARY}-{number}")
}

/// Every text of an error and of its causes.
fn texts(error: &Error) -> String {
    let mut texts = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        texts += &format!(" {error} {error:?}");
        cause = error.source();
    }
    texts
}

#[test]
fn a_rotation_loses_no_hold_and_no_waiter() {
    let (server, vault, events) = (server(&password(0)), Vault::that_remembers(&password(0)), Events::default());
    let client = builder(&server, vault.clone()).observer(events.clone()).connect().unwrap();
    let (held, awaited) = (fresh("held"), fresh("awaited"));
    let guard = client.get_lock(&held).lock().unwrap();
    let other = Client::connect(&server.url()).unwrap();
    let obstacle = other.get_lock(&awaited).lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get_lock(&awaited).try_lock_for(SOON * 3).unwrap().map(drop));
        eventually(SOON, "the waiter waits", || client.waiting().len() == 1);
        for number in 1..=3 {
            let mark = (events.count_of("renewed"), vault.refused());
            rotate(&server, &password(number));
            vault.put(&password(number));
            server.run(&["CLIENT", "KILL", "USER", "app"]);
            eventually(SOON, "the next password is used", || vault.refused() > mark.1);
            eventually(SOON, "renewals go on", || events.count_of("renewed") >= mark.0 + 7);
            eventually(SOON, "the waiter listens", || server.subscribers(&channel(&awaited)) == 1);
        }
        assert!(guard.lost().is_none());
        assert_eq!(client.waiting().len(), 1);
        obstacle.unlock().unwrap();
        assert!(joined(waiter).is_some());
    });
    guard.unlock().unwrap();
    assert_eq!(events.count_of("lost"), 0);
    assert!(!format!("{events:?} {client:?}").contains(CANARY));
}

#[test]
fn open_connections_outlive_a_rotation() {
    let (server, vault) = (server(&password(0)), Vault::with(&password(0)));
    let client = builder(&server, vault.clone()).connect().unwrap();
    let lock = client.get_lock(fresh("old"));
    lock.lock().unwrap().unlock().unwrap();
    rotate(&server, &password(1));
    let asked = vault.asked();
    for _ in 0..20 {
        lock.try_lock().unwrap().unwrap().unlock().unwrap();
    }
    // The watchdog may have begun to connect after the first hold.
    assert!(vault.asked() <= asked + 4, "{} times", vault.asked());
    vault.put(&password(1));
    server.run(&["CLIENT", "KILL", "USER", "app"]);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_stale_token_is_asked_for_once_more() {
    let (server, vault) = (server(&password(1)), Vault::that_remembers(&password(0)));
    let _ = vault.credentials();
    vault.put(&password(1));
    let client = builder(&server, vault.clone()).connect().unwrap();
    assert_eq!((vault.asked(), vault.refused()), (3, 1));
    assert!(is_free(&client.get_lock(fresh("stale"))));
}

#[test]
fn a_server_without_room_refuses_no_credentials() {
    let (server, vault) = (server(&password(0)), Vault::with(&password(0)));
    let mut only = server.connection();
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).exec(&mut only).unwrap();
    let by_url = Client::builder(&server.url().replace("//", &format!("//app:{}@", password(0))));
    for builder in [by_url, builder(&server, vault.clone())] {
        let error = builder.connect().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("MAXCLIENTS")), "{error}");
        assert!(error.to_string().contains("max number of clients reached"), "{error}");
    }
    assert_eq!(vault.refused(), 0);
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "100"]).exec(&mut only).unwrap();
    builder(&server, vault).connect().unwrap();
}

#[test]
fn refused_credentials_are_told_and_asked_for_twice() {
    let server = server(&password(0));
    let check = |provider: &dyn Fn(usize) -> String, logins: u64| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let passwords = [provider(1), provider(2)];
        let provider = move || Ok(Login::new("app", &passwords[counted.fetch_add(1, Ordering::SeqCst) % 2]));
        server.reset_counters();
        let builder = builder(&server, provider);
        assert!(!format!("{builder:?}").contains(CANARY), "{builder:?}");
        let error = builder.connect().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGPASS")), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("redis at 127.0.0.1:{}/0 ", server.port())), "{text}");
        assert!(text.contains("credentials of the provider") && !text.contains("URL"), "{text}");
        assert!(!texts(&error).contains(CANARY), "{}", texts(&error));
        assert_eq!((asked.load(Ordering::SeqCst), server.calls_of("auth")), (2, logins));
    };
    check(&|number| password(number), 2);
    check(&|_| password(7), 1);
}

#[test]
fn a_provider_that_hangs_costs_one_thread_and_no_bound() {
    let (server, asked, (open, gate)) = (server(CANARY), Arc::new(AtomicUsize::new(0)), bounded::<()>(0));
    let counted = Arc::clone(&asked);
    let provider = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = gate.recv();
        Ok(Login::new("app", CANARY))
    };
    let limit = ms(300);
    let client = builder(&server, provider).command_timeout(limit).connect_lazily().unwrap();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|number| {
                let client = &client;
                scope.spawn(move || timed(|| client.get_lock(format!("hanging:{number}")).try_lock().map(drop)))
            })
            .collect();
        for caller in callers {
            let (took, outcome) = joined(caller);
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
            assert!(took < limit * 2 + SCHEDULING, "{took:?}");
            assert!(error.to_string().contains("the provider of credentials did not answer within "), "{error}");
        }
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    drop(open);
    assert!(client.get_lock("hanging").lock().is_ok(), "the call that hung serves later callers");
}

#[test]
fn a_provider_that_fails_is_the_source_of_the_error() {
    let server = server(CANARY);
    let fails = Arc::new(AtomicUsize::new(usize::MAX));
    let left = Arc::clone(&fails);
    let provider = move || match left.load(Ordering::SeqCst) {
        0 => Ok(Login::new("app", CANARY)),
        _ => Err("the vault is sealed".into()),
    };
    let client = builder(&server, provider).command_timeout(ms(300)).connect_lazily().unwrap();
    let error = client.get_lock("sealed").try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}/0", server.port())), "{error}");
    assert!(!error.to_string().contains("sealed\"; the vault"), "{error}");
    assert_eq!(error.source().unwrap().to_string(), "the vault is sealed");
    fails.store(0, Ordering::SeqCst);
    assert!(client.get_lock("sealed").try_lock().unwrap().is_some());
}

#[test]
fn a_provider_that_panics_is_told_without_its_words() {
    let server = server(CANARY);
    let provider = || -> Result<Login, Box<dyn StdError + Send + Sync>> { panic!("{CANARY}") };
    // The text of a panic, with a backtrace, may take long to print.
    let client = builder(&server, provider).watchdog(SOON * 2, TICK).command_timeout(SOON);
    let error = client.connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().ends_with("the provider of credentials panicked"), "{error}");
    assert!(!texts(&error).contains(CANARY), "{}", texts(&error));
}

#[test]
fn a_url_with_a_login_is_refused_beside_a_provider() {
    for url in ["redis://:canary@h", "redis://app@h", "redis+unix:///s?pass=canary"] {
        let error = Client::builder(url).credentials(Vault::with("x")).connect_lazily().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("credentials()") && !texts(&error).contains(CANARY), "{error}");
    }
}

#[test]
fn all_members_of_a_cluster_share_one_provider() {
    let cluster = RedisCluster::start(2, 0);
    let everywhere = |words: &[&str]| cluster.nodes().iter().for_each(|node| node.run(words));
    let rotate = |number: usize| {
        everywhere(&[
            "ACL",
            "SETUSER",
            "app",
            "on",
            "resetpass",
            "~*",
            "&*",
            "+@all",
            &format!(">{}", password(number)),
        ]);
    };
    rotate(0);
    let (vault, events) = (Vault::that_remembers(&password(0)), Events::default());
    let builder = Client::builder(&cluster.url()).watchdog(TTL, TICK).credentials(vault.clone());
    let client = builder.observer(events.clone()).connect().unwrap();
    let names_at = |member: usize| {
        let names = std::iter::repeat_with(|| fresh("member"));
        names.filter(|name| cluster.node_of(name) == member).take(4).collect::<Vec<String>>()
    };
    let names = [names_at(0), names_at(1)].concat();
    let guards: Vec<_> = names.iter().map(|name| client.get_lock(name).lock().unwrap()).collect();
    rotate(1);
    vault.put(&password(1));
    everywhere(&["CLIENT", "KILL", "USER", "app"]);
    let mark = events.count_of("renewed");
    eventually(SOON, "renewals go on", || events.count_of("renewed") >= mark + 40);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    assert_eq!(events.count_of("lost"), 0);
}

#[test]
fn sentinels_get_no_credentials_of_the_provider() {
    let set = SentinelSet::builder(0, 1).password(CANARY).start();
    let url = set.url().replace(&format!(":{CANARY}@"), "");
    let client = Client::builder(&url).credentials(|| Ok(Login::with_password(CANARY))).connect().unwrap();
    assert!(is_free(&client.get_lock(fresh("behind a sentinel"))));
    assert_eq!(set.sentinels()[0].calls_of("auth"), 0);
}

/// A connection to a master behind sentinels, or of a replicated set, waits for its provider as long as any other.
#[test]
fn a_slow_provider_is_waited_for_where_the_master_moves() {
    let set = SentinelSet::builder(0, 1).password(CANARY).start();
    at_once([set.url(), set.replicated_url()], |url| {
        let url = url.replace(&format!(":{CANARY}@"), "");
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let provider = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::sleep(ms(1_150));
            Ok(Login::with_password(CANARY))
        };
        let client = Client::builder(&url).credentials(provider).command_timeout(SOON).connect().unwrap();
        let asked = asked.load(Ordering::SeqCst);
        // The nodes of a set have the same provider, and less time for each question.
        assert!(asked == 1 || url.contains("replicated"), "{asked} times");
        assert!(is_free(&client.get_lock(fresh("slow"))));
    });
}

/// No other place of the master helps.
#[test]
fn a_provider_that_fails_is_asked_once_where_the_master_moves() {
    let set = SentinelSet::builder(0, 1).password(CANARY).start();
    let url = set.url().replace(&format!(":{CANARY}@"), "");
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let provider = move || -> Result<Login, Box<dyn StdError + Send + Sync>> {
        match counted.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Err("the vault is sealed".into()),
            _ => panic!("{CANARY}"),
        }
    };
    let client = Client::builder(&url).credentials(provider).command_timeout(SOON).connect_lazily().unwrap();
    for (number, words) in ["failed", "panicked"].into_iter().enumerate() {
        let error = client.get_lock(fresh("sealed")).try_lock().unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), number + 1);
        assert!(error.to_string().contains(words) && !texts(&error).contains(CANARY), "{}", texts(&error));
    }
}

/// A proxy, or a cloud whose tokens end, may end the login of an open connection.
#[test]
fn a_connection_that_wants_a_login_is_made_anew() {
    let (server, vault) = (server(&password(0)), Vault::with(&password(0)));
    let proxy = Proxy::start(server.address());
    let client = Client::builder(&proxy.url()).credentials(vault.clone()).connect().unwrap();
    let lock = client.get_lock(fresh("ended"));
    lock.lock().unwrap().unlock().unwrap();
    for word in ["NOAUTH", "WRONGPASS"] {
        let (asked, made) = (vault.asked(), proxy.connections_made());
        let refusal = format!("-{word} Authentication required.\r\n");
        let rule = proxy.rule(When::script().nth(1), Then::AnswerInstead(refusal.into_bytes()));
        let guard = lock.try_lock().unwrap().expect("the refused request had no effect");
        assert_eq!(rule.hits(), 1);
        assert!(vault.asked() > asked && proxy.connections_made() > made);
        guard.unlock().unwrap();
    }
}

#[test]
fn renewals_of_many_locks_log_in_anew() {
    let (server, vault) = (server(&password(0)), Vault::with(&password(0)));
    let proxy = Proxy::start(server.address());
    let client = Client::builder(&proxy.url()).credentials(vault).watchdog(TTL, TICK).connect().unwrap();
    let guards: Vec<_> = (0..30).map(|_| client.get_lock(fresh("many")).lock().unwrap()).collect();
    // They take more than one request, and only renewals have that many keys.
    let has_many = |request: &Request| request.text(1).parse().is_ok_and(|keys: u32| keys >= 10);
    let renewals = || When::script().that(has_many);
    let first = proxy.wait_for(&renewals(), SOON).connection;
    let refusal = b"-NOAUTH Authentication required.\r\n".to_vec();
    let of_first = move |request: &Request| request.connection == first;
    let rule = proxy.rule(When::script().that(of_first).always(), Then::AnswerInstead(refusal));
    rule.wait_hit(SOON);
    eventually(TTL, "renewed over another connection", || {
        proxy.fitting(&renewals()).iter().any(|request| request.connection != first)
    });
    assert!(guards.iter().all(|guard| guard.is_held()));
}

#[test]
fn a_listening_connection_without_login_is_made_anew() {
    let (server, vault) = (server(&password(0)), Vault::with(&password(0)));
    let proxy = Proxy::start(server.address());
    let client = Client::builder(&proxy.url()).credentials(vault.clone()).connect().unwrap();
    let other = Client::connect(&server.url()).unwrap();
    let names = [fresh("heard"), fresh("unheard")];
    let obstacles = [0, 1].map(|number: usize| other.get_lock(&names[number]).lock().unwrap());
    thread::scope(|scope| {
        let wait = |number: usize| {
            let lock = client.get_lock(&names[number]);
            scope.spawn(move || lock.try_lock_for(SOON * 3).unwrap().map(drop).is_some())
        };
        let listens = |number: usize| server.subscribers(&channel(&names[number])) == 1;
        let first = wait(0);
        eventually(SOON, "the first waiter listens", || listens(0));
        let refusal = b"-NOAUTH Authentication required.\r\n".to_vec();
        let rule = proxy.rule(When::command("SUBSCRIBE").nth(1), Then::AnswerInstead(refusal));
        let second = wait(1);
        rule.wait_hit(SOON);
        eventually(SOON, "both listen", || listens(0) && listens(1));
        obstacles.into_iter().for_each(|obstacle| obstacle.unlock().unwrap());
        assert!(joined(first) && joined(second));
    });
}
