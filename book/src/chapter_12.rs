//! Chapter 12: a master that dies before its replica knows of the lock.

use std::time::Duration;

use lockson::{Client, ErrorKind, Guard, RedLock};
use lockson_harness::proxy::{Direction, Scope};
use lockson_harness::{Proxy, RedisServer, eventually};

use crate::actor::{Actor, Part, Recipe};
use crate::hash_lock;
use crate::process::BOUND;
use crate::redis_view::View;
use crate::stage::State::{Holds, Idle};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, mended, ms};
use crate::with_lockson::client;
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 12, recipe: "9 on a master that dies", source: include_str!("chapter_12.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult};

/// The take of chapter 9, kept only when a replica has it, too.
fn lock_and_wait(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    if !hash_lock::lock(redis, "lock", me, 10_000)? {
        return Ok(false);
    }
    let replicas: i64 = redis::cmd("WAIT").arg(1).arg(300).query(redis)?;
    if replicas == 0 {
        hash_lock::unlock(redis, "lock", me)?;
    }
    Ok(replicas > 0)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    // These servers have no vote in a red lock while they are younger than 2 seconds.
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();

    stage.failure("The master dies before the replica has the lock", &["A", "B"]);
    let seen = dying_master(stage, "hash", true)?;
    stage.seen("A and B both hold; A was told \"yes\" by the master and learns nothing");
    failed_as_expected(seen == [true, true], "one holder")?;

    stage.mend("WAIT until a replica has the lock", &["A", "B"]);
    let seen = dying_master(stage, "hash-wait", true)?;
    stage.seen("A was refused, because no replica had the lock after 300 ms; B is the only holder");
    mended(seen == [false, true], "two holders")?;

    stage.lockson("a lock that counts when its replica has it (Durability); the replica lags", &["A", "B"]);
    let seen = dying_master(stage, "lockson", true)?;
    lockson_held(seen == [false, true], "two holders")?;
    stage.lockson("the same, and the replica keeps up", &["A", "B"]);
    let seen = dying_master(stage, "lockson", false)?;
    stage.seen("the lagging replica cost A the lock, not the safety; the other replica kept the lock of A");
    lockson_held(seen == [true, false], "the lock died with the master")?;

    stage.lockson("a red lock on three servers that know nothing of each other", &["A", "B", "C"]);
    red(stage, &servers)?;
    stage.seen(
        "the lock outlived one server of three, and two servers that came back empty had no vote for 2 s (30 s by \
         default). No red lock outlives the loss of most servers, and none stops a paused holder: see chapter 11",
    );
    Ok(Verdict {
        failure: "fail-over without the lock: 2 holders".into(),
        lockson: "Durability, red lock: 1 holder".into(),
    })
}

/// A takes the lock on the master, the master dies, and B tries on the promoted replica; tells who had the lock.
fn dying_master(stage: &mut Stage, role: &str, replica_lags: bool) -> Outcome<[bool; 2]> {
    let master = RedisServer::builder().config("repl-diskless-sync-delay 0").start();
    let link = Proxy::start(master.address());
    let replica = RedisServer::builder().config(format!("replicaof 127.0.0.1 {}", link.port())).start();
    // After its first copy a replica may take up to a second before it follows.
    let mut copied = redis::pipe();
    copied.set("copied", "yes").ignore().cmd("WAIT").arg(1).arg(BOUND.as_millis());
    given(copied.query::<[i64; 1]>(&mut master.connection())? == [1], "the replica follows")?;
    stage.watch(vec![View::new("master", master.url(), "lock"), View::new("replica", replica.url(), "lock")]);
    let mut a = stage.process_at(&master, "A", role, &["lease=10000".into(), "replicas=1".into()])?;
    stage.start_clock();
    if replica_lags {
        link.mute(Scope::All, Direction::Both);
    }
    let first = a.lock()?;
    let words = match (first, replica_lags) {
        (true, true) => "A takes the lock; the replica lags",
        (true, false) => "A takes the lock; the replica has it",
        (false, _) => "no replica has the lock in time; A gives back",
    };
    stage.step(words, &[("A", if first { Holds } else { Idle })]);
    master.kill();
    link.cut(Scope::All);
    stage.step("the master is killed (SIGKILL)", &[]);
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connection())?;
    let role = if role == "lockson" { role } else { "hash" };
    let mut b = stage.process_at(&replica, "B", role, &["lease=10000".into()])?;
    let second = b.lock()?;
    let words = if second { "B takes the lock" } else { "B is refused" };
    stage.step(&format!("the replica is promoted; {words} there"), &[("B", if second { Holds } else { Idle })]);
    Ok([first, second])
}

fn red(stage: &mut Stage, servers: &[RedisServer]) -> Outcome<()> {
    for server in servers {
        let info = || redis::cmd("INFO").arg("server").query::<redis::InfoDict>(&mut server.connection());
        // Redis counts whole seconds: 3 are more than 2.
        eventually(BOUND, "the server has a vote", || {
            info().is_ok_and(|info| info.get("uptime_in_seconds") >= Some(3))
        });
    }
    let views = servers.iter().zip(["server 1", "server 2", "server 3"]);
    stage.watch(views.map(|(server, label)| View::new(label, server.url(), "lock")).collect());
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let options = [format!("urls={}", urls.join(","))];
    let mut a = stage.process_with("A", "red", &options)?;
    let (mut b, mut c) = (stage.process_with("B", "red", &options)?, stage.process_with("C", "red", &options)?);
    stage.start_clock();
    given(a.lock_within(ms(10_000))?.held, "the lock is free")?;
    stage.step("A takes the lock on three servers", &[("A", Holds)]);
    servers[0].kill();
    let refused = !b.lock()?;
    stage.step("a server is killed; B is refused", &[]);
    lockson_held(refused && a.ask("look")? == "true", "the lock died with a server")?;
    lockson_held(a.unlock()? == "released", "A could not release")?;
    let held = b.lock_within(ms(10_000))?.held;
    stage.step("A releases; B takes the lock on the two others", &[("A", Idle), ("B", Holds)]);
    lockson_held(held, "two of three servers are no majority")?;
    servers[1].restart();
    servers[0].start_again();
    let refused = !c.lock()?;
    stage.step("two servers come back empty; C is refused", &[]);
    lockson_held(refused, "servers voted that may have forgotten a lock")
}

/// The lock of chapter 9 with `WAIT`.
pub(crate) fn process(part: &Part) -> Outcome<Recipe> {
    let unlock = |redis: &mut Connection, me: &str| hash_lock::unlock(redis, "lock", me);
    Ok(Recipe { redis: part.connect()?, value: part.name.clone(), lock: lock_and_wait, unlock })
}

pub(crate) struct WithRedLock {
    /// The lock needs its clients.
    _clients: Vec<Client>,
    lock: RedLock,
    guard: Option<Guard>,
}

impl WithRedLock {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let urls = part.option("urls").ok_or("no servers")?;
        let clients: Vec<Client> = urls.split(',').map(client).collect::<lockson::Result<_>>()?;
        let lock = RedLock::new(clients.iter().map(|client| client.get_lock("lock")))
            .with_node_timeout(Duration::from_millis(500));
        Ok(Self { _clients: clients, lock, guard: None })
    }
}

impl Actor for WithRedLock {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(self.lock_within(Duration::ZERO)?.0)
    }

    fn lock_within(&mut self, patience: Duration) -> Outcome<(bool, u64)> {
        match self.lock.try_lock_for(patience) {
            Ok(guard) => self.guard = guard,
            // Too few servers have a vote.
            Err(error) if error.kind() == ErrorKind::Quorum => self.guard = None,
            Err(error) => return Err(error.into()),
        }
        Ok((self.guard.is_some(), 1))
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(self.guard.take().ok_or("not held")?.unlock().is_ok())
    }

    fn value(&self) -> String {
        let owners = |guard: &Guard| guard.hold().members().iter().map(|hold| hold.owner().to_owned()).collect();
        self.guard.as_ref().map(owners).map_or_else(String::new, |owners: Vec<String>| owners.join(","))
    }

    fn perform(&mut self, _: &str) -> Outcome<String> {
        Ok(self.guard.as_ref().is_some_and(|guard| guard.is_held()).to_string())
    }
}
