//! Every kind of lock, each with a line about the special property.
//!
//! `cargo run --example kinds`

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Backoff, Client, ErrorKind, Lock, RedLock};
use lockson_harness::{ExampleServer, RedisServer};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let server = ExampleServer::open()?;
    let client = Client::connect(server.url())?;
    let redis = redis::Client::open(server.url())?;
    show("plain", plain(&client)?);
    show("owned guard", owned(&client)?);
    show("non-reentrant", non_reentrant(&client.get_non_reentrant_lock(name("non-reentrant")))?);
    show("fair", fair(&client, &mut redis.get_connection()?)?);
    show("non-reentrant fair", non_reentrant(&client.get_non_reentrant_fair_lock(name("non-reentrant-fair")))?);
    show("spin", spin(&client)?);
    show("fenced", fenced(&client)?);
    show("read-write", read_write(&client)?);
    show("multi", multi(&client)?);
    show("group", group(&client)?);
    show("red", red()?);
    show("token", token(&client, &mut redis.get_connection()?)?);
    show("semaphore", semaphore(&client)?);
    show("count-down latch", latch(&client)?);
    show("once per interval", once_per(&client)?);
    show("expiring permits", expiring_permits(&client)?);
    show("election", election(&client)?);
    Ok(())
}

/// Held by a thread, which may take the lock again.
fn plain(client: &Client) -> Outcome<String> {
    let lock = client.get_lock(name("plain"));
    let (outer, inner) = (lock.lock()?, lock.lock()?);
    let holds = lock.hold_count();
    inner.unlock()?;
    let free_after_one = free_for_others(&lock)?;
    outer.unlock()?;
    expect(!free_after_one && free_for_others(&lock)?)?;
    Ok(format!("one thread held the lock {holds} times; other threads got it after as many releases"))
}

/// The guard of any kind, for work that moves to another thread.
fn owned(client: &Client) -> Outcome<String> {
    let guard = client.get_lock(name("owned")).owned().lock()?;
    let unlocking = thread::spawn(move || guard.unlock());
    unlocking.join().map_err(|_| "the other thread panicked")??;
    expect(!client.get_lock(name("owned")).is_locked()?)?;
    Ok("taken on one thread, released on another".into())
}

/// A second take by the same thread is a mistake here and returns an error.
fn non_reentrant(lock: &Lock) -> Outcome<String> {
    let guard = lock.lock()?;
    let again = lock.lock().map(drop).map_err(|error| error.kind());
    expect(again == Err(ErrorKind::AlreadyHeld))?;
    guard.unlock()?;
    Ok("a second take by the holder failed at once with AlreadyHeld".into())
}

/// Waiters are served in the order of arrival, across processes and languages.
fn fair(client: &Client, redis: &mut redis::Connection) -> Outcome<String> {
    let (lock, queue) = (client.get_fair_lock(name("fair")), format!("redisson_lock_queue:{{{}}}", name("fair")));
    let guard = lock.lock()?;
    let (served, order) = mpsc::channel();
    let mut waiters = vec![];
    for number in 1..=3 {
        let (waiter, served) = (lock.clone(), served.clone());
        waiters.push(thread::spawn(move || -> lockson::Result<()> {
            let guard = waiter.lock()?;
            let _ = served.send(number); // the receiver lives longer
            guard.unlock()
        }));
        let came = Instant::now();
        while redis::cmd("LLEN").arg(&queue).query::<usize>(redis)? < number {
            expect(came.elapsed() < Duration::from_secs(5))?;
            thread::sleep(Duration::from_millis(1));
        }
        if number == 2 {
            // A waiter with a short limit leaves the queue, and the queue has no gap.
            let got = thread::scope(|scope| scope.spawn(|| try_for(&lock, Duration::from_millis(50))).join());
            expect(!got.map_err(|_| "the other thread panicked")??)?;
        }
    }
    guard.unlock()?;
    for waiter in waiters {
        waiter.join().map_err(|_| "a waiter panicked")??;
    }
    let order: Vec<usize> = order.try_iter().collect();
    expect(order == [1, 2, 3])?;
    Ok(format!("waiters that came as [1, 2, 3] were served as {order:?}; a waiter that gave up was passed over"))
}

/// No waiter listens: each waiter asks again after pauses of its choice.
fn spin(client: &Client) -> Outcome<String> {
    let three_tries = Backoff::new(|tries| (tries < 3).then_some(Duration::from_millis(50)));
    let lock = client.get_spin_lock_with(name("spin"), three_tries);
    let guard = lock.lock()?;
    let began = Instant::now();
    let got = thread::scope(|scope| scope.spawn(|| try_for(&lock, Duration::from_secs(5))).join());
    expect(!got.map_err(|_| "the other thread panicked")??)?;
    guard.unlock()?;
    Ok(format!("another thread tried three times, 50 ms apart, and gave up after {:.0?}", began.elapsed()))
}

/// Each grant has a number, for a store to refuse late writers; see `fenced_store`.
fn fenced(client: &Client) -> Outcome<String> {
    let lock = client.get_fenced_lock(name("fenced"));
    let mut tokens = vec![];
    for _ in 0..2 {
        tokens.push(lock.lock()?.token());
    }
    expect(tokens[0] < tokens[1])?;
    Ok(format!("grants had the tokens {} and {}", tokens[0], tokens[1]))
}

/// Many readers or one writer; a writer may go on as a reader.
fn read_write(client: &Client) -> Outcome<String> {
    let both = client.get_read_write_lock(name("read-write"));
    let (read, write) = (both.read(), both.write());
    let reading = read.lock()?;
    expect(free_for_others(&read)? && !free_for_others(&write)?)?;
    expect(write.lock().is_err_and(|error| error.kind() == ErrorKind::AlreadyHeld))?;
    reading.unlock()?;

    let (writing, reading) = (write.lock()?, read.lock()?);
    expect(!free_for_others(&read)?)?;
    writing.unlock()?;
    expect(free_for_others(&read)? && !free_for_others(&write)?)?;
    reading.unlock()?;
    Ok("two read, nobody wrote; then one wrote, nobody read; the writer stepped down to reading, and others read too"
        .into())
}

/// All of several locks, or none: a waiter holds none of them while it waits.
fn multi(client: &Client) -> Outcome<String> {
    let [one, two] = ["multi:one", "multi:two"].map(|part| client.get_lock(name(part)));
    let both = Lock::multi([one.clone(), two.clone()]);
    let guard = two.lock()?;
    expect(!free_for_others(&both)? && !one.is_locked()?)?;
    guard.unlock()?;
    let guard = both.lock()?;
    expect(!free_for_others(&one)? && !free_for_others(&two)?)?;
    guard.unlock()?;
    expect(free_for_others(&one)? && free_for_others(&two)?)?;
    Ok("took none of two locks while one was busy, and then both at once".into())
}

/// Values that share one key: sets without a common value are held side by side.
fn group(client: &Client) -> Outcome<String> {
    let seats = |numbers: &[u32]| client.get_group_lock(name("hall"), numbers.iter().map(u32::to_string));
    let guard = seats(&[11, 12]).lock()?;
    expect(free_for_others(&seats(&[13, 14]))? && !free_for_others(&seats(&[12, 13]))?)?;
    guard.unlock()?;
    expect(free_for_others(&seats(&[12, 13]))?)?;
    Ok("seats 11 and 12 were held; others got 13 and 14 at once, and 12 and 13 after the release".into())
}

/// Most of several locks on independent servers; see `red_lock`.
fn red() -> Outcome<String> {
    if std::env::var_os("REDIS_URL").is_some() {
        return Ok("needs three servers; see `red_lock`".into());
    }
    let servers = [(); 3].map(|()| RedisServer::start());
    let clients = servers.each_ref().map(|server| Client::builder(&server.url()).connect_lazily());
    let clients = clients.into_iter().collect::<lockson::Result<Vec<_>>>()?;
    // These servers are new, so they may vote at once, and a busy machine may take more than 50 ms for an answer.
    let lock = RedLock::new(clients.iter().map(|client| client.get_lock(name("red"))))
        .with_rejoin_after(Duration::ZERO)
        .with_node_timeout(Duration::from_millis(500));
    let guard = lock.lock()?;
    servers[0].kill();
    expect(guard.is_held() && !free_for_others(&lock)?)?;
    guard.unlock()?;
    expect(free_for_others(&lock)?)?;
    Ok("held on three servers; one was killed, and the lock was held, released and taken again".into())
}

/// `SET NX PX` and compare-and-delete: the same lock as redis-py, redsync and others have.
fn token(client: &Client, redis: &mut redis::Connection) -> Outcome<String> {
    let lock = client.get_token_lock(name("token"));
    let guard = lock.lock()?;
    let value: String = redis::cmd("GET").arg(lock.name()).query(redis)?;
    guard.unlock()?;
    expect(!lock.is_locked()?)?;
    Ok(format!("the key held one value, {value}, and only the owner of the value deleted the key"))
}

/// At most so many at a time, whoever they are.
fn semaphore(client: &Client) -> Outcome<String> {
    let semaphore = client.get_semaphore(name("semaphore"));
    semaphore.delete()?;
    expect(semaphore.set_permits_once(3)? && !semaphore.set_permits_once(9)?)?;
    let two = semaphore.acquire(2)?;
    let busy = semaphore.try_acquire(2)?.is_none();
    let got = thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.try_acquire_for(2, Duration::from_secs(5)));
        thread::sleep(Duration::from_millis(20));
        two.release()?;
        waiter.join().map_err(|_| "the other thread panicked".into())
    });
    let got: Outcome<_> = got;
    let permits = got??.ok_or("two are free")?;
    expect(busy && semaphore.available()? == 1)?;
    permits.release()?;
    semaphore.delete()?;
    Ok("of three permits two were taken; a thread that wanted two more waited until they came back".into())
}

/// Waits until others have done their parts.
fn latch(client: &Client) -> Outcome<String> {
    let latch = client.get_count_down_latch(name("latch"));
    latch.delete()?;
    expect(latch.set_count_once(3)?)?;
    let parts: Vec<_> = (0..3).map(|_| latch.clone()).map(|latch| thread::spawn(move || latch.count_down())).collect();
    let open = latch.wait_for(Duration::from_secs(5))?;
    for part in parts {
        part.join().map_err(|_| "a part panicked")??;
    }
    expect(open && latch.count()? == 0)?;
    Ok("three threads counted down, and the wait ended".into())
}

/// A gate instead of a section: the lock stays taken until its time to live ends.
fn once_per(client: &Client) -> Outcome<String> {
    let (lock, interval) = (client.get_lock(name("once-per")), Duration::from_millis(200));
    let first = lock.once_per(interval)?;
    let second = lock.once_per(interval)?;
    let guard = lock.try_lock_for(Duration::from_secs(5))?.ok_or("the interval ends")?;
    guard.unlock()?;
    let later = lock.once_per(interval)?;
    expect(first && !second && later)?;
    Ok(format!("asked twice and again {interval:?} later: {first}, {second}, {later}"))
}

/// A few holders at a time; permits of a crashed holder return by themselves. See `paid_api`.
fn expiring_permits(client: &Client) -> Outcome<String> {
    let semaphore = client.get_permit_expirable_semaphore(name("expiring-permits"));
    semaphore.set_permits(2)?;
    let kept = semaphore.acquire(1)?;
    let leased = semaphore.with_lease(Duration::from_millis(200)).acquire(1)?;
    expect(semaphore.try_acquire(1)?.is_none())?;
    let returned = semaphore.try_acquire_for(1, Duration::from_secs(5))?.ok_or("a lease ends")?;
    expect(kept.is_held() && returned.is_held() && !leased.is_held())?;
    drop((kept, returned));
    expect(semaphore.available()? == 2)?;
    Ok("of two permits one was kept; the other was leased for 200 ms, and taken again after that".into())
}

/// One candidate leads, and other processes can ask for its text; see `leader`.
fn election(client: &Client) -> Outcome<String> {
    let election = client.get_election(name("election"));
    let leadership = election.candidate("host-7").campaign()?;
    let leader = election.leader()?.ok_or("somebody leads")?;
    expect(leader.token() == leadership.token() && election.candidate("host-8").try_campaign()?.is_none())?;
    leadership.resign()?;
    let next = election.candidate("host-8").campaign()?;
    let seen = election.wait_change(Some(&leader), Duration::from_secs(5))?.ok_or("host-8 leads")?;
    expect(seen.token() == next.token() && seen != leader)?;
    Ok(format!("{} led, resigned, and {} followed", leader.candidate(), seen.candidate()))
}

/// Whether another thread can take the lock now.
fn free_for_others(lock: &Lock) -> Outcome<bool> {
    thread::scope(|scope| scope.spawn(|| try_for(lock, Duration::ZERO)).join())
        .map_err(|_| "the other thread panicked")?
}

fn try_for(lock: &Lock, wait: Duration) -> Outcome<bool> {
    Ok(lock.try_lock_for(wait)?.is_some())
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(so: bool) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("wrong result at {}", std::panic::Location::caller()).into()) }
}

fn show(kind: &str, line: String) {
    println!("{kind:<18} {line}");
}

fn name(kind: &str) -> String {
    format!("lockson:example:kinds:{kind}")
}
