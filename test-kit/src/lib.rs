#![doc = include_str!("../README.md")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockson::{Client, ClientBuilder};
use lockson_harness::proxy::{Direction, NewConnections, Proxy, Request, RuleHandle, Scope, Then, When};
use lockson_harness::{RedisServer, eventually, missing_server};

/// A `redis-server` of its own on a free port, and a proxy in front of it that breaks the network on demand.
///
/// Each test starts its own, which takes some 30 ms. The server is killed when this value is dropped, and also when the
/// test process ends in any other way, `SIGKILL` included. What a test does to the network concerns clients of
/// [`url`](Self::url); a [`rival`](Self::rival) reaches the server past it.
///
/// `delete`, `steal` and `expire` wait for at most 10 seconds until the lock is held, and panic then. The name is that in
/// Redis, with the client's prefix. The lock is one of any kind but a group, or a leadership; expiring permits end by
/// [`advance_clock`](Self::advance_clock).
///
/// ```
/// # use std::time::Duration;
/// # use lockson_test::TestRedis;
/// let redis = TestRedis::start();
/// let guard = redis.client().get_lock("report").lock()?;
/// redis.delete("report");
/// assert!(guard.wait_lost(Duration::from_secs(5)).is_some());
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Debug)]
pub struct TestRedis {
    proxy: Proxy,
    server: Arc<RedisServer>,
    slowness: Mutex<Option<(RuleHandle, Duration)>>,
}

/// An answer that is to be lost, of [`TestRedis::lose_answer`].
#[derive(Debug)]
pub struct LostAnswer(RuleHandle);

impl TestRedis {
    /// Starts the `redis-server` of the `PATH`, or the program in `LOCKSON_REDIS_SERVER`.
    ///
    /// # Panics
    ///
    /// Panics where there is none, and says how to install it; with the log of the server when that does not start.
    #[track_caller]
    pub fn start() -> Self {
        if let Some(advice) = missing_server() {
            panic!("{advice}");
        }
        let server = Arc::new(RedisServer::start());
        Self { proxy: Proxy::start(server.address()), server, slowness: Mutex::default() }
    }

    /// The URL for clients of the service.
    pub fn url(&self) -> String {
        self.proxy.url()
    }

    /// The settings of [`client`](Self::client): a watchdog that renews each 100 ms, so that each loss is told after
    /// that time at the latest.
    pub fn builder(&self) -> ClientBuilder {
        brisk(&self.url())
    }

    /// Opens a client for the service. Each call opens another one, which is another owner.
    ///
    /// # Panics
    ///
    /// Panics when the server is not reached.
    #[track_caller]
    pub fn client(&self) -> Client {
        open(self.builder())
    }

    /// Opens a client that faults of the network do not concern, for the other holder of a lock.
    ///
    /// # Panics
    ///
    /// Panics when the server is not reached.
    #[track_caller]
    pub fn rival(&self) -> Client {
        open(brisk(&self.server.url()))
    }

    /// The keys in Redis, sorted, without idempotency keys, which expire by themselves. After all locks, permits and
    /// latches are given back, the fencing tokens are left, and counters of permits that were not deleted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.server.keys();
        keys.retain(|key| !key.starts_with("lockson_once:"));
        keys
    }

    /// Makes the lock gone, as an operator or an eviction does. Its holder is told `Gone`.
    ///
    /// # Panics
    ///
    /// Panics when nobody holds the lock.
    #[track_caller]
    pub fn delete(&self, name: &str) {
        self.await_holder(name);
        self.server.run(&["DEL", name]);
    }

    /// Gives the lock to another owner for 30 seconds, or until [`delete`](Self::delete). Its holder is told `Taken`; a
    /// holder behind a [mute](Self::mute) network goes on believing until its deadline, as a late writer does.
    ///
    /// # Panics
    ///
    /// Panics when nobody holds the lock.
    #[track_caller]
    pub fn steal(&self, name: &str) {
        self.await_holder(name);
        self.server.run(&["EVAL", STEAL, "1", name]);
    }

    /// Lets no renewal through until the time to live of the lock is over. Its holder is told `Expired`. Takes that time:
    /// 2 seconds for a lock of [`client`](Self::client), or the lease. Ends a [`mute`](Self::mute).
    ///
    /// # Panics
    ///
    /// Panics when nobody holds the lock, or when a direct client like a rival renews it.
    #[track_caller]
    pub fn expire(&self, name: &str) {
        self.await_holder(name);
        self.proxy.mute(Scope::All, Direction::Both);
        let left: i64 = self.server.query(&["PTTL", name]);
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        eventually(left + PATIENCE, "the lock expires", || !self.is_held(name));
        self.proxy.unmute();
    }

    /// Sets the clock of the server forward: each time to live, lease, interval and permit ends sooner by this time.
    /// The holder of a key that ends now is told `Gone`. What ends inside a key that stays is told when a rival takes it:
    /// a leased permit, a value of a group beside others, a reader beside one with a longer lease.
    ///
    /// The clock of the clients stays, and a renewal begins a time to live anew.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockson_test::TestRedis;
    /// let (redis, interval) = (TestRedis::start(), Duration::from_secs(12 * 3_600));
    /// let job = redis.client().get_lock("report");
    /// assert!(job.once_per(interval)?);
    /// assert!(!job.once_per(interval)?);
    /// redis.advance_clock(interval);
    /// assert!(job.once_per(interval)?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn advance_clock(&self, by: Duration) {
        self.server.run(&["EVAL", ADVANCE, "0", &by.as_millis().min(FOR_EVER_MS).to_string()]);
    }

    /// Cuts all connections once; clients may connect again.
    pub fn cut(&self) {
        self.proxy.cut(Scope::All);
    }

    /// Lets nothing through, in both directions, but keeps all connections open, until [`heal`](Self::heal).
    pub fn mute(&self) {
        self.proxy.mute(Scope::All, Direction::Both);
    }

    /// Delays each answer by this time, until [`heal`](Self::heal).
    pub fn slow(&self, delay: Duration) {
        let rule = self.proxy.rule(When::any().always(), Then::DelayReply(delay));
        if let Some((earlier, _)) = self.slowness().replace((rule, delay)) {
            earlier.remove();
        }
    }

    fn slowness(&self) -> MutexGuard<'_, Option<(RuleHandle, Duration)>> {
        self.slowness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts all connections and refuses new ones, until [`heal`](Self::heal). The server keeps its data.
    pub fn down(&self) {
        self.proxy.new_connections(NewConnections::Refuse);
        self.proxy.cut(Scope::All);
    }

    /// Kills the server and starts it without its data: all locks are lost.
    pub fn restart(&self) {
        self.server.restart();
    }

    /// Loses the answer to the next request about this name that changes something: the server executes the request, and
    /// the connection is cut instead of the answer.
    ///
    /// Where the lock is held, that request may be a renewal.
    #[must_use = "ask whether the answer was lost, or the test may prove nothing"]
    pub fn lose_answer(&self, name: &str) -> LostAnswer {
        // A script that the server does not know yet is refused, and has no effect.
        let server = Arc::downgrade(&self.server);
        let is_known = move |hash: &str| {
            let known = server.upgrade().map(|server| server.try_query::<Vec<bool>>(&["SCRIPT", "EXISTS", hash]));
            known.is_some_and(|known| known.is_ok_and(|known| known == [true]))
        };
        let name = name.as_bytes().to_vec();
        let fits = move |request: &Request| {
            request.arguments.contains(&name) && (request.command == "EVAL" || is_known(&request.text(0)))
        };
        let rule = self.proxy.rule(When::script().that(fits), Then::CutReplyAfter(0));
        // Of two rules about one answer the older one acts.
        let delay = self.slowness().as_ref().map(|(_, delay)| *delay);
        delay.into_iter().for_each(|delay| self.slow(delay));
        LostAnswer(rule)
    }

    /// Ends all faults of the network.
    pub fn heal(&self) {
        *self.slowness() = None;
        self.proxy.heal();
    }

    #[track_caller]
    fn await_holder(&self, name: &str) {
        eventually(PATIENCE, &format!("{name:?} is held"), || self.is_held(name));
    }

    fn is_held(&self, name: &str) -> bool {
        self.server.query(&["EXISTS", name])
    }
}

impl LostAnswer {
    /// Whether a request came whose answer was lost.
    pub fn is_lost(&self) -> bool {
        self.0.hits() > 0
    }
}

fn brisk(url: &str) -> ClientBuilder {
    Client::builder(url).watchdog(Duration::from_secs(2), Duration::from_millis(100))
}

#[track_caller]
fn open(builder: ClientBuilder) -> Client {
    builder.connect().unwrap_or_else(|error| panic!("{error}"))
}

/// Stores another owner in the form of the lock: a value, a hash of an owner and its count, or one with a writer.
const STEAL: &str = r"
local thief = '00000000-0000-0000-0000-000000000000:1'
local form = redis.call('TYPE', KEYS[1]).ok
local has_sides = form == 'hash' and redis.call('HEXISTS', KEYS[1], 'mode') == 1
redis.call('DEL', KEYS[1])
if has_sides then
    redis.call('HSET', KEYS[1], 'mode', 'write', thief .. ':write', 1)
elseif form == 'string' then
    redis.call('SET', KEYS[1], thief)
else
    redis.call('HSET', KEYS[1], thief, 1)
end
redis.call('PEXPIRE', KEYS[1], 30000)
";

/// All times that are stored: of keys, of waiters and permits, of values of groups.
const ADVANCE: &str = r"
local by = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
    local left, form = redis.call('PTTL', key), redis.call('TYPE', key).ok
    local is_of_locks = string.find(key, '^redisson_lock_') or string.find(key, ':timeout$')
    if form == 'zset' and is_of_locks then
        local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        for i = 1, #members, 2 do
            redis.call('ZADD', key, string.format('%.0f', members[i + 1] - by), members[i])
        end
    elseif form == 'hash' then
        for _, field in ipairs(redis.call('HKEYS', key)) do
            if string.find(field, ':expire_time$') then
                redis.call('HINCRBY', key, field, -by)
            end
        end
    end
    if left >= 0 then
        redis.call('PEXPIRE', key, left - by)
    end
end
";

/// About 300 years, which every version of Redis takes as a number of its scripts.
const FOR_EVER_MS: u128 = 10_000_000_000_000;
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_forward_leaves_data_of_the_service() {
        let redis = TestRedis::start();
        redis.server.run(&["ZADD", "scores", "42.5", "Ann"]);
        redis.advance_clock(PATIENCE);
        assert_eq!(redis.server.query::<String>(&["ZSCORE", "scores", "Ann"]), "42.5");
    }
}
