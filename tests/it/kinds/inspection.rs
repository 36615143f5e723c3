//! `Client::inspect` and `Client::scan`: locks of every kind and of both languages, on one server and on a cluster.

mod faults;

use lockson::{InspectedHolder, Inspection, LockKind};

use crate::support::prelude::*;

const DOCUMENT: &str = include_str!("../../../docs/operations.md");
/// The id of a client, as Redisson writes it.
const JAVA: &str = "d57e342e-f1e6-4b24-b3b6-7551a58aea46";

#[track_caller]
fn only(found: &Inspection) -> &InspectedHolder {
    assert_eq!((found.holders().len(), found.holder_count()), (1, 1), "{found:#?}");
    &found.holders()[0]
}

/// Asks by each protocol for a lock that `client` holds, and checks all that every kind has.
#[track_caller]
fn held(client: &Client, name: &str, kind: LockKind, owner: &str) -> Inspection {
    let url = RedisServer::shared().url();
    let [found, other] = [url.clone(), format!("{url}?protocol=resp3")]
        .map(|url| Client::builder(&url).connect_lazily().unwrap().inspect(name).unwrap());
    for found in [&found, &other] {
        assert_eq!((found.name(), found.kind()), (name, Some(kind)), "{found:#?}");
        let holder = only(found);
        assert_eq!(holder.owner(), owner);
        let process = holder.client().expect("the client is connected");
        assert!(process.name().contains(client.id()) && process.address().starts_with("127.0.0.1:"), "{process:?}");
        assert_eq!(process.host(), Some(&*rustix::system::uname().nodename().to_string_lossy()));
        assert_eq!(process.process_id(), Some(std::process::id()));
        assert!(found.remaining().is_some_and(|left| left <= Duration::from_secs(30)), "{found:#?}");
        assert_eq!(found.without_rights(), [""; 0]);
    }
    found
}

#[test]
fn a_lock_of_one_owner_shows_kind_owner_and_process() {
    let client = client();
    let plain = client.get_lock(fresh("inspect"));
    let (_outer, inner) = (plain.lock().unwrap(), plain.lock().unwrap());
    assert_eq!(only(&held(&client, plain.name(), LockKind::Plain, inner.owner())).hold_count(), 2);

    let fenced = client.get_fenced_lock(fresh("inspect"));
    let before = Instant::now();
    let guard = fenced.lock().unwrap();
    thread::sleep(ms(20));
    let found = held(&client, fenced.name(), LockKind::Fenced, guard.owner());
    assert_eq!(found.token(), Some(guard.token()));
    let held_for = found.held_for().unwrap();
    assert!(held_for >= ms(20) && held_for <= before.elapsed(), "{held_for:?}");
    let token = guard.token();
    guard.unlock().unwrap();
    let found = client.inspect(fenced.name()).unwrap();
    assert_eq!((found.kind(), found.token(), found.holders()), (Some(LockKind::Fenced), Some(token), &[][..]));
    assert_eq!(found.held_for(), None);
    RedisServer::shared().run(&["HSET", fenced.name(), &format!("{JAVA}:1"), "1"]);
    let found = client.inspect(fenced.name()).unwrap();
    assert_eq!((only(&found).owner().len(), found.held_for()), (38, None), "a token of Redisson is no time");
    fenced.force_unlock().unwrap();

    let token = client.get_token_lock(fresh("inspect"));
    let guard = token.lock().unwrap();
    held(&client, token.name(), LockKind::Token, guard.owner());

    let name = fresh("inspect");
    let before = Instant::now();
    let leadership = client.get_election(&name).candidate("host-7 {ä}").campaign().unwrap();
    thread::sleep(ms(20));
    let found = held(&client, &name, LockKind::Leader, leadership.hold().owner());
    assert_eq!((found.leader(), found.token()), (Some("host-7 {ä}"), Some(leadership.token())));
    // Redis counts whole milliseconds.
    let held_for = found.held_for().unwrap() + ms(1);
    assert!(held_for >= ms(20) && held_for <= before.elapsed() + ms(2), "{held_for:?}");

    let lock = client.get_read_write_lock(fresh("inspect"));
    let writing = lock.write().lock().unwrap();
    let found = held(&client, writing.name(), LockKind::Write, writing.owner());
    assert_eq!(only(&found).side(), Some(LockKind::Write));
    let reading = lock.read().lock().unwrap();
    let found = client.inspect(writing.name()).unwrap();
    let sides: Vec<_> = found.holders().iter().map(|holder| (holder.owner(), holder.side())).collect();
    assert_eq!(sides, [(reading.owner(), Some(LockKind::Read)), (writing.owner(), Some(LockKind::Write))]);
}

#[test]
fn readers_have_a_time_of_their_own() {
    let (client, name) = (client(), fresh("inspect"));
    let lock = client.get_read_write_lock(&name).read().with_lease(Duration::from_secs(20));
    let guard = lock.lock().unwrap();
    let found = held(&client, &name, LockKind::Read, guard.owner());
    assert_eq!(only(&found).side(), Some(LockKind::Read));
    assert!(only(&found).remaining().is_some_and(|left| left <= Duration::from_secs(20)), "{found:#?}");
}

#[test]
fn each_value_of_a_group_has_its_holder() {
    let (client, name) = (client(), fresh("inspect"));
    let one = client.get_group_lock(&name, ["a"]).with_lease(Duration::from_secs(20));
    let (_first, _second) = (one.lock().unwrap(), one.lock().unwrap());
    let owner_of = |value: &str| {
        let full = format!("{name}[{value}]");
        client.held().iter().find(|held| held.name() == full).expect("it is held").owner().to_owned()
    };
    let found = held(&client, &name, LockKind::Group, &owner_of("a"));
    let field = only(&found).value().expect("a value").to_owned();
    assert_eq!(only(&found).hold_count(), 2);
    assert!(only(&found).remaining().is_some_and(|left| left <= Duration::from_secs(20)), "{found:#?}");
    let _other = client.get_group_lock(&name, ["b"]).lock().unwrap();
    let (a, b) = (owner_of("a"), owner_of("b"));
    let found = client.inspect(&name).unwrap();
    assert_eq!(found.holder_count(), 2);
    let value_of = |owner: &str| found.holders().iter().find(|holder| holder.owner() == owner).unwrap().value();
    assert_eq!(value_of(&a), Some(&*field));
    assert_ne!(value_of(&b), Some(&*field));
    // A value whose deadline is over is free, whatever the hash says.
    RedisServer::shared().run(&["HSET", &name, &format!("{field}:{a}:expire_time"), "1"]);
    assert_eq!(only(&client.inspect(&name).unwrap()).owner(), b);
}

#[test]
fn permits_lead_to_their_process() {
    let (server, client, name) = (RedisServer::shared(), client(), fresh("inspect"));
    let semaphore = client.get_permit_expirable_semaphore(&name);
    semaphore.set_permits_once(5).unwrap();
    let permits = semaphore.acquire(3).unwrap();
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.kind(), found.available(), found.holder_count()), (Some(LockKind::Permit), Some(2), 3));
    for (holder, id) in found.holders().iter().zip(permits.ids()) {
        assert_eq!(holder.owner(), id.to_string());
        assert_eq!(holder.client().and_then(|process| process.process_id()), Some(std::process::id()));
        assert!(holder.remaining().is_some_and(|left| left <= Duration::from_secs(30)));
    }
    // One that has expired is free; one of Redisson without a lease never expires.
    let taken = format!("{{{name}}}:timeout");
    server.run(&["ZADD", &taken, "1", "0123456789abcdef", "922337203685477", "fedcba9876543210"]);
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.available(), found.holder_count()), (Some(3), 4));
    let [.., endless] = found.holders() else { panic!("{found:#?}") };
    assert_eq!((endless.owner(), endless.remaining()), ("66656463626139383736353433323130", None));
    let resp3 = Client::connect(&format!("{}?protocol=resp3", server.url())).unwrap().inspect(&name).unwrap();
    let owners = |found: &Inspection| found.holders().iter().map(|of| of.owner().to_owned()).collect::<Vec<_>>();
    assert_eq!(owners(&resp3), owners(&found));
}

#[test]
fn waiters_of_a_fair_lock_are_listed_in_their_order() {
    let (server, holding, waiting) = (RedisServer::shared(), client(), client());
    let lock = waiting.get_fair_lock(fresh("inspect"));
    let guard = holding.get_fair_lock(lock.name()).lock().unwrap();
    let length = || server.query::<usize>(&["LLEN", &prefixed("redisson_lock_queue", lock.name())]);
    thread::scope(|scope| {
        let waiters: Vec<_> = (1..=2)
            .map(|number| {
                let waiter = scope.spawn(|| drop(lock.lock().unwrap()));
                eventually(SOON, "it waits", || length() == number);
                waiter
            })
            .collect();
        eventually(SOON, "both listen", || holding.inspect(lock.name()).unwrap().waiting_clients() == 2);
        let found = holding.inspect(lock.name()).unwrap();
        assert_eq!((found.kind(), only(&found).owner()), (Some(LockKind::Fair), guard.owner()));
        let queue: Vec<_> = found.waiters().iter().map(|waiter| waiter.owner()).collect();
        let waiting_here = waiting.waiting();
        assert_eq!(queue, waiting_here.iter().map(|waiter| waiter.owner()).collect::<Vec<_>>());
        let process = |at: usize| found.waiters()[at].client().and_then(|process| process.process_id());
        assert_eq!([process(0), process(1)], [Some(std::process::id()); 2]);
        guard.unlock().unwrap();
        waiters.into_iter().for_each(joined);
    });
}

#[test]
fn listening_clients_are_counted_for_each_kind() {
    let (holding, waiting) = (client(), client());
    let (lock, semaphore, latch) = (fresh("inspect"), fresh("inspect"), fresh("inspect"));
    let reading = holding.get_read_write_lock(&lock).read().lock().unwrap();
    let (permits, count) = (holding.get_semaphore(&semaphore), holding.get_count_down_latch(&latch));
    permits.set_permits_once(0).unwrap();
    count.set_count_once(1).unwrap();
    thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| drop(waiting.get_read_write_lock(&lock).write().lock().unwrap())),
            scope.spawn(|| drop(waiting.get_semaphore(&semaphore).acquire(1).unwrap())),
            scope.spawn(|| waiting.get_count_down_latch(&latch).wait().unwrap()),
        ];
        for (name, kind, available) in [
            (&lock, LockKind::Read, None),
            (&semaphore, LockKind::Semaphore, Some(0)),
            (&latch, LockKind::Semaphore, Some(1)),
        ] {
            eventually(SOON, "one waits", || holding.inspect(name).unwrap().waiting_clients() == 1);
            let found = holding.inspect(name).unwrap();
            assert_eq!((found.kind(), found.available()), (Some(kind), available), "{found:#?}");
        }
        reading.unlock().unwrap();
        permits.add_permits(1).unwrap();
        count.count_down().unwrap();
        waiters.into_iter().for_each(joined);
    });
}

#[test]
fn three_thousand_holders_are_counted_and_some_listed() {
    let (server, client) = (RedisServer::shared(), client());
    let [permits, readers, group] = [(); 3].map(|()| fresh("inspect"));
    let each = |script: &str, key: &str| {
        server.run(&["EVAL", &format!("for i = 1, 3000 do {script} end"), "1", key, JAVA]);
    };
    server.run(&["SET", &permits, "7"]);
    each(
        "redis.call('zadd', KEYS[1], 99999999999999 + i, string.format('%016d', i))",
        &format!("{{{permits}}}:timeout"),
    );
    each("redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1] .. ':' .. i, 1)", &readers);
    let value = "local v = string.format('%022d', i) local o = ARGV[1] .. ':' .. i redis.call('hset', KEYS[1], v, o, \
                 v .. ':' .. o .. ':expire_time', 99999999999999, v .. ':' .. o .. ':lock_count', 1)";
    each(value, &group);
    for (name, kind) in [(&permits, LockKind::Permit), (&readers, LockKind::Read), (&group, LockKind::Group)] {
        let found = client.inspect(name).unwrap();
        assert_eq!((found.kind(), found.holder_count()), (Some(kind), 3_000));
        assert!((900..=1_000).contains(&found.holders().len()), "{kind}: {}", found.holders().len());
        server.run(&["DEL", name, &format!("{{{name}}}:timeout")]);
    }
}

#[test]
fn locks_of_redisson_are_read_just_the_same() {
    let (server, client) = (RedisServer::shared(), client());
    let (name, owner) = (fresh("inspect"), format!("{JAVA}:46"));
    server.run(&["HSET", &name, &owner, "3"]);
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.kind(), found.remaining()), (Some(LockKind::Plain), None), "it never expires");
    assert_eq!((only(&found).owner(), only(&found).hold_count()), (&*owner, 3));
    assert_eq!(only(&found).client(), None);
    server.run(&["RPUSH", &prefixed("redisson_lock_queue", &name), &format!("{JAVA}:47")]);
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.kind(), found.waiters()[0].owner()), (Some(LockKind::Fair), &*format!("{JAVA}:47")));

    let name = fresh("inspect");
    server.run(&["HSET", &name, "mode", "read", &owner, "2"]);
    for (number, ttl) in [("1", "20000"), ("2", "40000")] {
        server.run(&["SET", &format!("{{{name}}}:{owner}:rwlock_timeout:{number}"), "1", "PX", ttl]);
    }
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.kind(), only(&found).owner()), (Some(LockKind::Read), &*owner));
    assert!(only(&found).remaining().is_some_and(|left| left > Duration::from_secs(20)), "{found:#?}");

    let (name, owner) = (fresh("inspect"), format!("{owner}:6f3c1a52-5f1b-4a58-8b16-0d7a7c52b3aa"));
    server.run(&["HSET", &name, &owner, "1"]);
    let found = client.inspect(&name).unwrap();
    assert_eq!((found.kind(), only(&found).owner()), (Some(LockKind::Plain), &*owner), "of a transaction");
}

#[test]
fn free_names_are_free_and_other_data_is_refused() {
    let (server, client) = (RedisServer::shared(), client());
    let found = client.inspect(fresh("inspect")).unwrap();
    assert_eq!((found.kind(), found.holder_count(), found.remaining()), (None, 0, None));
    assert_eq!((found.token(), found.available(), found.leader(), found.waiting_clients()), (None, None, None, 0));
    let big = "x".repeat(5_000);
    let rows: [&[&str]; 10] = [
        &["HSET", "", "title", "x"],
        &["HSET", "", "user:1", "x", "user:2", "y"],
        &["HSET", "", "user:1", "Alice"],
        &["HSET", "", "user:1", "5"],
        &["HSET", "", "mode", "dark", "title", "x"],
        &["HSET", "", "mode", "dark", "theme:1", "2"],
        &["HSET", "", "title", &big, "text", &big],
        &["RPUSH", "", "x"],
        &["ZADD", "", "1", "x"],
        &["SET", "", &big],
    ];
    for row in rows {
        let (name, mut words) = (fresh("inspect"), row.to_vec());
        words[1] = &name;
        server.run(&words);
        let error = client.inspect(&name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OtherKind, "{row:?}");
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(server.query::<u32>(&["DEL", &name]), 1, "nothing was changed");
    }
}

#[test]
fn missing_rights_are_listed_beside_what_is_known() {
    let server = RedisServer::start();
    let _guard = Client::connect(&server.url()).unwrap().get_lock("app:1").lock().unwrap();
    let as_user = |rights: &[&str]| {
        server.run(&[&["ACL", "SETUSER", "u", "reset", "on", ">word", "~app:*", "&*", "+ping"], rights].concat());
        Client::connect(&server.url().replace("redis://", "redis://u:word@")).unwrap()
    };
    let client = as_user(&["+type", "+pttl"]);
    let found = client.inspect("app:1").unwrap();
    assert_eq!((found.kind(), found.holders(), found.remaining().is_some()), (None, &[][..], true));
    let missing = ["getrange", "hmget", "lrange", "zcard", "time", "pubsub|numsub", "hlen", "hrandfield"];
    assert_eq!(found.without_rights(), missing);
    let refused = client.scan("app:", 10).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("'scan'"), "{refused}");
    // Each command, for the keys of the locks alone.
    let client = as_user(&["+@read", "+time", "+pubsub"]);
    let found = client.inspect("app:1").unwrap();
    assert_eq!((found.kind(), found.holder_count()), (Some(LockKind::Plain), 1));
    let beside = ["redisson_lock_token:", "lockson_leader:", "redisson_lock_queue:"];
    let mut missing: Vec<String> = beside.iter().map(|prefix| format!("~{prefix}{{app:1}}")).collect();
    missing.extend(["~{app:1}:timeout".to_owned(), "client|list".to_owned()]);
    assert_eq!(found.without_rights(), missing);
    assert_eq!(client.scan("", 10).unwrap(), ["app:1"]);
}

/// The words for `client.inspect()` in the document are enough, and least.
#[test]
fn the_documented_rights_are_enough_and_least() {
    let (server, client) = alone();
    let _guards = [client.get_fair_lock("hash").lock().unwrap(), client.get_token_lock("string").lock().unwrap()];
    let semaphore = client.get_permit_expirable_semaphore("set");
    semaphore.set_permits_once(1).unwrap();
    let _permit = semaphore.acquire(1).unwrap();
    let line = DOCUMENT.lines().find(|line| line.starts_with("The user of `client.inspect()`")).expect("a line");
    let words: Vec<&str> = line.split('`').nth(3).expect("words").split(' ').collect();
    let missing = |words: &[&str]| {
        server.run(&[&["ACL", "SETUSER", "u", "reset", "on", ">word"], words].concat());
        let client = Client::builder(&server.url().replace("redis://", "redis://u:word@")).connect_lazily().unwrap();
        let found = ["hash", "string", "set"].map(|name| client.inspect(name).unwrap());
        let mut missing: Vec<String> = found.iter().flat_map(|found| found.without_rights()).cloned().collect();
        missing.dedup();
        missing
    };
    assert_eq!(missing(&words), [""; 0]);
    for word in words.iter().filter_map(|word| word.strip_prefix('+')).filter(|word| *word != "ping") {
        let rest: Vec<&str> = words.iter().copied().filter(|other| other.strip_prefix('+') != Some(word)).collect();
        assert!(missing(&rest).contains(&word.to_owned()), "{word}");
    }
}

#[test]
fn a_long_list_of_connections_is_read() {
    let server = RedisServer::start();
    // As long as the list of a thousand connections with usual names.
    let mut crowd: Vec<_> = (0..6).map(|_| server.connection()).collect();
    for connection in &mut crowd {
        let () = redis::cmd("CLIENT").arg("SETNAME").arg("x".repeat(50_000)).query(connection).unwrap();
    }
    let client = Client::connect(&server.url()).unwrap();
    let _guard = client.get_lock("crowded").lock().unwrap();
    assert!(only(&client.inspect("crowded").unwrap()).client().is_some());
}

#[test]
fn a_scan_lists_what_is_certainly_a_held_lock() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).name_prefix("a*:").connect().unwrap();
    let plain = client.get_lock("plain").lock().unwrap();
    let fair = client.get_fair_lock("fair").lock().unwrap();
    let fenced = client.get_fenced_lock("fenced").lock().unwrap();
    let reading = client.get_read_write_lock("read").read().lock().unwrap();
    let writing = client.get_read_write_lock("write").write().lock().unwrap();
    let token = client.get_token_lock("token").lock().unwrap();
    let value = client.get_group_lock("group", ["a", "b"]).lock().unwrap();
    let leader = client.get_election("leader").candidate("a").campaign().unwrap();
    let semaphore = client.get_permit_expirable_semaphore("permits");
    semaphore.set_permits_once(1).unwrap();
    let permit = semaphore.acquire(1).unwrap();
    let java = format!("{JAVA}:1");
    for words in [
        &["HSET", "a*:java", &java, "1"][..],
        &["HSET", "ab:not-the-prefix", &java, "1"],
        &["HSET", "a*:data", "user:1", "1"],
        &["SET", "a*:number", "7"],
        &["SET", "a*:text", "x"],
        &["RPUSH", "a*:list", &java],
    ] {
        server.run(words);
    }
    let names = ["fair", "fenced", "group", "java", "leader", "permits", "plain", "read", "token", "write"];
    let wanted = names.map(|name| format!("a*:{name}"));
    assert_eq!(client.scan("", 100).unwrap(), wanted);
    assert_eq!(client.scan("p", 100).unwrap(), ["a*:permits", "a*:plain"]);
    assert_eq!(client.scan("", 3).unwrap().len(), 3);
    assert_eq!(client.scan("", 0).unwrap(), [""; 0]);
    drop((plain, fair, fenced, reading, writing, token, value, leader, permit));
    eventually(SOON, "a free lock stores nothing", || client.scan("", 100).unwrap() == ["a*:java"]);
    client.close();
    assert_eq!(kind_of(client.scan("", 1)), ErrorKind::Closed);
    assert_eq!(kind_of(client.inspect("plain")), ErrorKind::Closed);
}

#[test]
fn a_lock_of_a_cluster_is_inspected_where_it_is() {
    let cluster = RedisCluster::start(3, 0);
    let client = Client::connect(&cluster.url()).unwrap();
    let names: Vec<String> = (0..12).map(|_| fresh("inspect")).collect();
    let guards: Vec<_> = names.iter().map(|name| client.get_fair_lock(name).lock().unwrap()).collect();
    let other = Client::builder(&cluster.url()).connect_lazily().unwrap();
    assert_eq!(other.scan("inspect:", 100).unwrap(), names, "from every master");
    for (name, guard) in names.iter().zip(&guards) {
        let found = other.inspect(name).unwrap();
        assert_eq!((only(&found).owner(), found.kind()), (guard.owner(), Some(LockKind::Plain)));
        assert!(only(&found).client().is_some_and(|process| process.name().contains(client.id())));
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(other.get_fair_lock(&names[0]).lock().unwrap()));
        eventually(SOON, "it listens, by the messages of the cluster", || {
            let found = client.inspect(&names[0]).unwrap();
            found.kind() == Some(LockKind::Fair) && found.waiting_clients() == 1
        });
        guards.into_iter().for_each(|guard| guard.unlock().unwrap());
        joined(waiter);
    });
    // The slot begins to move, so that its old place sends all that is not there to the new one.
    let guard = client.get_lock(&names[1]).lock().unwrap();
    let (slot, from) = (slot_of(&names[1]), cluster.node_of(&names[1]));
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("there are three");
    cluster.begin_move(slot, to);
    assert_eq!(only(&other.inspect(&names[1]).unwrap()).owner(), guard.owner());
    assert_eq!(cluster.move_keys(slot, to, |_| true), 1);
    assert_eq!(only(&other.inspect(&names[1]).unwrap()).owner(), guard.owner(), "at the new place");
    cluster.finish_move(slot, to);
    assert_eq!(only(&other.inspect(&names[1]).unwrap()).owner(), guard.owner());
}
