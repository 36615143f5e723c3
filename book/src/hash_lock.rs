//! The reentrant lock of chapters 9 to 13: a hash with the owner and a count.

use crate::Outcome;
use crate::actor::{Actor, Part};

// ---- the recipe ----
// The mend, and the lock of the next chapters.
use redis::{Connection, RedisResult, Script};

/// Takes the lock, or takes it once more.
pub(crate) fn lock(redis: &mut Connection, key: &str, me: &str, lease_ms: u64) -> RedisResult<bool> {
    let script = Script::new(
        "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
             redis.call('hincrby', KEYS[1], ARGV[1], 1)
             redis.call('pexpire', KEYS[1], ARGV[2])
             return 1
         end
         return 0",
    );
    script.key(key).arg(me).arg(lease_ms).invoke(redis)
}

/// Gives back once; the last release deletes the lock.
pub(crate) fn unlock(redis: &mut Connection, key: &str, me: &str) -> RedisResult<bool> {
    let script = Script::new(
        "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
             return 0
         end
         if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then
             redis.call('del', KEYS[1])
         end
         return 1",
    );
    script.key(key).arg(me).invoke(redis)
}
// ---- end of the recipe ----

pub(crate) struct Process {
    redis: Connection,
    me: String,
    lease_ms: u64,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let mut redis = part.connect()?;
        warm_up(&mut redis)?;
        let lease_ms = part.option("lease").unwrap_or("1000").parse()?;
        Ok(Self { redis, me: part.name.clone(), lease_ms })
    }
}

/// The first call of a script sends its text; the scenes are about later calls.
pub(crate) fn warm_up(redis: &mut Connection) -> Outcome<()> {
    lock(redis, "warm-up", "warm-up", 1_000)?;
    unlock(redis, "warm-up", "warm-up")?;
    Ok(())
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(lock(&mut self.redis, "lock", &self.me, self.lease_ms)?)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(unlock(&mut self.redis, "lock", &self.me)?)
    }

    fn value(&self) -> String {
        self.me.clone()
    }
}
