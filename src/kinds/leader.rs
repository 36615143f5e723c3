//! The lock of an election: the fenced lock, and a hash that tells which candidate is the holder.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{AcquireArgs, FORCE_RELEASE, Kind, RELEASE, RENEW, UNLOCKED, fenced, prelude::*};
use crate::listing::record;
use crate::token::FencingToken;

static READ: Script = lua!("leader/read.lua");

/// The lock of an election, for one candidate.
#[derive(Debug)]
pub(crate) struct LeaderLock {
    /// The text that observers read.
    pub(crate) candidate: Arc<str>,
}

impl Kind for LeaderLock {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Leader
    }

    fn family(&self) -> &'static str {
        "leader"
    }

    /// A leadership lasts; nobody takes turns.
    fn stands_back(&self) -> bool {
        false
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let name = args.name;
        let call = fenced::ACQUIRE.call(name, &[name.as_key(), name.token(), name.leader()], Attempt::read);
        let call = call.arg(args.lease.millis()).arg(args.owner).arg(&*self.candidate);
        call.arg(name.leader_channel()).publish_command()
    }

    /// A leadership has one guard and is never re-entered, so nothing remains.
    fn release(&self, name: &LockName, owner: &OwnerId, _: Option<(Counts, Lease)>) -> Call<Released> {
        let call = RELEASE.call(name, &[name.as_key(), name.leader()], read_release).arg(owner).arg(0_u8).arg(0_u8);
        call.publishing(name.channel(), UNLOCKED).arg(name.leader_channel())
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        let names = || locks.iter().map(|lock| &lock.name);
        let keys: Vec<_> = names().map(LockName::as_key).chain(names().map(LockName::leader)).collect();
        let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
        locks.iter().fold(call, |call, lock| call.arg(&lock.owner).arg(lock.lease_ms()))
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let call = FORCE_RELEASE.call(name, &[name.as_key(), name.leader()], read_forced);
        call.publishing(name.channel(), UNLOCKED).arg(name.leader_channel())
    }
}

/// The state of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The time to live of the lock; negative without a lock, or for a lock without expiry.
    pub(crate) ttl_ms: i64,
    pub(crate) leader: Option<Leader>,
}

record! {
    /// The leader, as Redis told when it was asked.
    ///
    /// Two leaders are equal only if they are the same term: a candidate that resigned and won again has another token.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(leader) = client.get_election("scheduler").leader()? {
    ///     println!("{} leads since {:?} with token {}", leader.candidate(), leader.since(), leader.token());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(PartialEq, Eq)]
    pub struct Leader {
        /// Returns the text of the candidate.
        candidate: String => [&str],
        /// Returns the token of the term; a later term has a greater one.
        token: FencingToken => [FencingToken],
        /// Returns when the term began, by the clock of the server.
        since: SystemTime => [SystemTime],
    }
}

pub(crate) fn read(name: &LockName) -> Call<Reading> {
    READ.call(name, &[name.as_key(), name.leader()], Reading::read)
}

impl Reading {
    fn read(reply: &Value) -> Option<Self> {
        match list(reply)? {
            [ttl_ms] => Some(Self { ttl_ms: int(ttl_ms)?, leader: None }),
            [ttl_ms, token, since, candidate] => {
                let since = UNIX_EPOCH.checked_add(Duration::from_millis(number(since)?)).unwrap_or(UNIX_EPOCH);
                let leader = Leader { candidate: text(candidate)?, token: FencingToken(number(token)?), since };
                Some(Self { ttl_ms: int(ttl_ms)?, leader: Some(leader) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_has_a_leader_or_a_time_only() {
        let read = |reply: &str| Reading::read(&redis::parse_redis_value(reply.as_bytes()).unwrap());
        assert_eq!(read("*1\r\n:-2\r\n"), Some(Reading { ttl_ms: -2, leader: None }));
        let since = UNIX_EPOCH + Duration::from_millis(9);
        let leader = Leader { candidate: "a b".into(), token: FencingToken(7), since };
        let whole = "*4\r\n:50\r\n$1\r\n7\r\n$1\r\n9\r\n$3\r\na b\r\n";
        assert_eq!(read(whole), Some(Reading { ttl_ms: 50, leader: Some(leader) }));
        assert_eq!(read("*4\r\n:50\r\n$1\r\nx\r\n$1\r\n9\r\n$3\r\na b\r\n"), None);
        assert_eq!(read("*0\r\n"), None);
    }
}
