//! The token lock without scripts: plain commands, and transactions where two commands belong together.

use std::collections::VecDeque;

use redis::{Cmd, ServerError, Value};

use super::answer::{Attempt, IfLock, Released, Renewal, RenewalAnswer, without_receivers};
use super::compare_and_delete::CompareAndDelete;
use super::entry::{Entry, command, word};
use super::reply::{int, known, list, refused};
use super::{Call, Pipeline, Rehearsal};
use crate::error::{Loss, Refusal, Stop};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

/// The form of a release without scripts. Before a lock is taken, the server is asked whether the user may release in
/// this form.
#[derive(Clone, Debug)]
pub(crate) enum Opening {
    Transaction(Rehearsal),
    Command(CompareAndDelete),
}

/// With `repairs`, a key without time to live gets the lease.
pub(crate) fn acquire(
    name: &LockName,
    owner: &OwnerId,
    lease: Lease,
    repairs: bool,
    opening: Opening,
) -> Call<Attempt> {
    let entry = Entry::of(name, owner);
    Call::with_round_trips(name, move |send| {
        match &opening {
            Opening::Transaction(rehearsal) => rehearsal.run(send, &entry)?,
            Opening::Command(own) => own.look_for(send, &entry)?,
        }
        entry.acquire(send, lease, repairs)
    })
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Result<(), Loss>> {
    let entry = Entry::of(name, owner);
    Call::with_round_trips(name, move |send| {
        entry.change(send, |value| entry.is(value), |ttl_ms| entry.raise(lease, ttl_ms))
    })
}

/// Releases one hold count. `remaining` is the lease for the hold counts that stay.
pub(crate) fn release(name: &LockName, owner: &OwnerId, remaining: Option<Lease>, opening: Opening) -> Call<Released> {
    let entry = Entry::of(name, owner);
    Call::with_round_trips(name, move |send| {
        let outcome = match (remaining, &opening) {
            (None, Opening::Command(own)) => own.run(send, &entry)?,
            (None, Opening::Transaction(_)) => {
                entry.change(send, |value| entry.is(value), |_| Some(entry.command("DEL")))?
            }
            (Some(lease), _) => entry.change(send, |value| entry.is(value), |_| Some(entry.expire(lease)))?,
        };
        Ok(without_receivers(outcome))
    })
}

pub(crate) fn force_release(name: &LockName) -> Call<IfLock<bool>> {
    let name = name.clone();
    Call::with_round_trips(&name.clone(), move |send| {
        Ok(Ok(change(send, &name, |_| true, |_| Some(command("DEL", name.key())))?.is_ok()))
    })
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let route = locks[0].name.clone();
    let locks: Vec<_> = locks.iter().map(|lock| (Entry::of(&lock.name, &lock.owner), lock.raise.endless)).collect();
    Call::with_round_trips(&route, move |send| renew_all(send, &locks))
}

impl Entry {
    fn is(&self, value: &[u8]) -> bool {
        value == self.owner.as_str().as_bytes()
    }

    fn expire(&self, lease: Lease) -> Cmd {
        expire(&self.name, lease)
    }

    /// Builds the command that raises the time to live, unless the time to live is longer already.
    fn raise(&self, lease: Lease, ttl_ms: i64) -> Option<Cmd> {
        is_less(ttl_ms, lease).then(|| self.expire(lease))
    }

    fn change(
        &self,
        send: &mut Pipeline<'_>,
        fits: impl Fn(&[u8]) -> bool,
        to_do: impl Fn(i64) -> Option<Cmd>,
    ) -> Result<Result<(), Loss>, Stop> {
        change(send, &self.name, fits, to_do)
    }

    fn acquire(&self, send: &mut Pipeline<'_>, lease: Lease, repairs: bool) -> Result<Attempt, Stop> {
        loop {
            let mut set = self.command("SET");
            set.arg(self.owner.as_str()).arg("NX").arg("PX").arg(lease.millis());
            // The last two replies count only if `SET` set nothing.
            let replies = send(&[set, self.command("GET"), self.command("PTTL")])?;
            let [set, holder, ttl_ms] = &replies[..] else { return Err(Stop::NoReply) };
            let holder = match (set, holder) {
                (Value::Okay, _) => return Ok(Attempt::Granted { token: None }),
                (Value::ServerError(error), _) => return Err(refused(error)),
                (Value::Nil, Value::ServerError(error)) => return self.other_type(send, error),
                (Value::Nil, Value::BulkString(holder)) => holder,
                // The key expired between the two commands.
                (Value::Nil, Value::Nil) => return Ok(Attempt::Busy { ttl_ms: 0 }),
                _ => return Err(Stop::NoReply),
            };
            if self.is(holder) {
                // An earlier copy of this request was granted and its reply was lost: grant again.
                match self.change(send, |value| self.is(value), |ttl_ms| self.raise(lease, ttl_ms))? {
                    Ok(()) => return Ok(Attempt::Granted { token: None }),
                    Err(_) => continue,
                }
            }
            let mut ttl_ms = match ttl_ms {
                Value::ServerError(error) => return Err(refused(error)),
                ttl_ms => known(int(ttl_ms))?,
            };
            if ttl_ms == -1 && repairs {
                let to_do = |ttl_ms| (ttl_ms == -1).then(|| self.expire(lease));
                let _ = self.change(send, |value| value == holder, to_do)?;
                ttl_ms = known(i64::try_from(lease.millis()).ok())?;
            }
            return Ok(Attempt::Busy { ttl_ms: if ttl_ms == -2 { 0 } else { ttl_ms } });
        }
    }

    /// The key is not a string: a lock of another kind, or no lock.
    fn other_type(&self, send: &mut Pipeline<'_>, error: &ServerError) -> Result<Attempt, Stop> {
        match send(&[self.command("TYPE")])?.first() {
            Some(Value::SimpleString(kind)) if kind == "hash" => Ok(Attempt::OtherKind),
            Some(_) => Err(refused(error)),
            None => Err(Stop::NoReply),
        }
    }
}

/// Runs the command that `to_do` builds from the time to live, if the value of the key `fits` and does not change
/// before the command runs. Starts again after a change.
fn change(
    send: &mut Pipeline<'_>,
    name: &LockName,
    fits: impl Fn(&[u8]) -> bool,
    to_do: impl Fn(i64) -> Option<Cmd>,
) -> Result<Result<(), Loss>, Stop> {
    loop {
        let key = name.key();
        let replies = send(&[command("WATCH", key), command("GET", key), command("PTTL", key)])?;
        check_replies(&replies)?;
        let [_, holder, ttl_ms] = &replies[..] else { return Err(Stop::NoReply) };
        let (outcome, to_do) = match holder {
            Value::Nil => (Err(Loss::Gone), None),
            Value::BulkString(value) if fits(value) => (Ok(()), to_do(known(int(ttl_ms))?)),
            Value::BulkString(_) => (Err(Loss::Taken), None),
            _ => return Err(Stop::NoReply),
        };
        let Some(to_do) = to_do else {
            send(&[word("UNWATCH")])?;
            return Ok(outcome);
        };
        if let Some(results) = transact(send, vec![to_do])? {
            return match results.first() {
                Some(Value::Int(1)) => Ok(Ok(())),
                Some(Value::Int(0)) => Ok(Err(Loss::Gone)),
                Some(Value::ServerError(error)) => Err(refused(error)),
                _ => Err(Stop::NoReply),
            };
        }
    }
}

/// Renews the locks in one transaction. A change of one key undoes the transaction, so each half is then renewed by
/// itself: no key that changes all the time delays the other locks.
fn renew_all(send: &mut Pipeline<'_>, locks: &[(Entry, Lease)]) -> Result<Vec<RenewalAnswer>, Stop> {
    let mut answers = vec![None; locks.len()];
    let mut parts = VecDeque::from([((0..locks.len()).collect::<Vec<_>>(), 0)]);
    while let Some((part, tries)) = parts.pop_front() {
        let left = renew_part(send, locks, &part, &mut answers)?;
        match left[..] {
            [] => {}
            [place] if tries + 1 == TRIES_ALONE => {
                let refusal = Refusal::from_text("BUSY the key changes again and again");
                answers[place] = Some(RenewalAnswer::Refused(refusal));
            }
            [_] => parts.push_back((left, tries + 1)),
            _ => parts.extend(left.chunks(left.len().div_ceil(2)).map(|half| (half.to_vec(), 0))),
        }
    }
    known(answers.into_iter().collect())
}

/// Renews the locks at these places in one transaction. Returns the places that have no answer yet because a
/// watched key was changed.
fn renew_part(
    send: &mut Pipeline<'_>,
    locks: &[(Entry, Lease)],
    part: &[usize],
    answers: &mut [Option<RenewalAnswer>],
) -> Result<Vec<usize>, Stop> {
    let keys: Vec<_> = part.iter().map(|&place| locks[place].0.name.key()).collect();
    let mut questions = vec![command("WATCH", keys)];
    let states = part.iter().map(|&place| &locks[place].0);
    questions.extend(states.flat_map(|entry| [entry.command("GET"), entry.command("PTTL")]));
    let replies = send(&questions)?;
    let (first, states) = known(replies.split_at_checked(1))?;
    check_replies(first)?;
    let (mut raised, mut to_do) = (vec![], vec![]);
    for (&place, state) in part.iter().zip(states.chunks_exact(2)) {
        let (entry, lease) = &locks[place];
        answers[place] = match &state[0] {
            Value::BulkString(value) if entry.is(value) && matches!(state[1], Value::ServerError(_)) => {
                Some(known(RenewalAnswer::read(&state[1]))?)
            }
            Value::BulkString(value) if entry.is(value) => match entry.raise(*lease, known(int(&state[1]))?) {
                Some(raise) => {
                    raised.push(place);
                    to_do.push(raise);
                    None
                }
                None => Some(RenewalAnswer::Renewed),
            },
            Value::BulkString(_) => Some(RenewalAnswer::Lost(Loss::Taken)),
            Value::Nil => Some(RenewalAnswer::Lost(Loss::Gone)),
            other => Some(known(RenewalAnswer::read(other))?),
        };
    }
    if to_do.is_empty() {
        send(&[word("UNWATCH")])?;
        return Ok(vec![]);
    }
    // The reads follow the writes, so that a connection with tracking is told of later changes to these keys.
    to_do.extend(raised.iter().map(|&place| locks[place].0.command("PTTL")));
    let Some(results) = transact(send, to_do)? else { return Ok(raised) };
    for (place, result) in raised.into_iter().zip(&results) {
        answers[place] = Some(known(RenewalAnswer::read(result))?);
    }
    Ok(vec![])
}

/// Runs the commands in a transaction; `None` if a watched key was changed.
fn transact(send: &mut Pipeline<'_>, to_do: Vec<Cmd>) -> Result<Option<Vec<Value>>, Stop> {
    let mut commands = vec![word("MULTI")];
    commands.extend(to_do);
    commands.push(word("EXEC"));
    let replies = send(&commands)?;
    check_replies(&replies)?;
    match replies.last() {
        Some(Value::Nil) => Ok(None),
        results => Ok(Some(known(results.and_then(list))?.to_vec())),
    }
}

fn expire(name: &LockName, lease: Lease) -> Cmd {
    let mut expire = command("PEXPIRE", name.key());
    expire.arg(lease.millis());
    expire
}

fn is_less(ttl_ms: i64, lease: Lease) -> bool {
    u64::try_from(ttl_ms).unwrap_or(0) < lease.millis()
}

/// Fails with the first refusal among the replies.
fn check_replies(replies: &[Value]) -> Result<(), Stop> {
    replies.iter().try_for_each(|reply| match reply {
        Value::ServerError(error) => Err(refused(error)),
        _ => Ok(()),
    })
}

/// A lock whose key changes before each of this many transactions of its own is not renewed this time.
const TRIES_ALONE: usize = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockson_harness::RedisServer;
    use redis::ConnectionLike;

    use super::*;
    use crate::script::answer::Raise;
    use crate::transport::PubSub;

    fn renewal(place: usize) -> Renewal {
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        Renewal {
            name: LockName::new(&format!("L{place}")).unwrap(),
            owner: OwnerId::encoded(&format!("o{place}")),
            raise: Raise { lease, endless: lease },
            reads: 0,
        }
    }

    /// Renews locks on a server with these replies. Returns the requests and the answers.
    fn renew(count: usize, replies: &[&str]) -> (Vec<String>, Vec<RenewalAnswer>) {
        let locks: Vec<_> = (0..count).map(renewal).collect();
        let (mut asked, mut replies) = (vec![], replies.iter());
        let answers = super::renew(&locks).round_trips().unwrap().run(
            &mut |commands| {
                asked.extend(commands.iter().map(in_words));
                let mut reply = || redis::parse_redis_value(replies.next().unwrap().as_bytes()).unwrap();
                Ok(commands.iter().map(|_| reply()).collect())
            },
            PubSub::Plain,
        );
        (asked, answers.expect("it is answered"))
    }

    fn in_words(command: &Cmd) -> String {
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_answer_of_a_renewal_is_that_of_its_lock() {
        // The first key has no expiry, the second lives long enough, the third expires before the write.
        let replies = [
            "+OK\r\n",
            "$2\r\no0\r\n",
            ":-1\r\n",
            "$2\r\no1\r\n",
            ":60000\r\n",
            "$2\r\no2\r\n",
            ":1\r\n",
            "$1\r\nx\r\n",
            ":1\r\n",
            "$-1\r\n",
            ":-2\r\n",
            "$2\r\no5\r\n",
            ":-1\r\n",
            "+OK\r\n",
            "+QUEUED\r\n",
            "+QUEUED\r\n",
            "+QUEUED\r\n",
            "+QUEUED\r\n",
            "+QUEUED\r\n",
            "+QUEUED\r\n",
            "*6\r\n:1\r\n:0\r\n:1\r\n:30000\r\n:-2\r\n:30000\r\n",
        ];
        let (asked, answers) = renew(6, &replies);
        use RenewalAnswer::{Lost, Renewed};
        assert_eq!(answers, [Renewed, Renewed, Lost(Loss::Gone), Lost(Loss::Taken), Lost(Loss::Gone), Renewed]);
        let written = ["PEXPIRE L0 30000", "PEXPIRE L2 30000", "PEXPIRE L5 30000"];
        let read = ["PTTL L0", "PTTL L2", "PTTL L5"];
        assert_eq!(asked[13..], [&["MULTI"], &written[..], &read[..], &["EXEC"]].concat());
    }

    /// Renews five locks of one owner each, while another client changes one of the keys before each `EXEC`.
    fn renew_beside(change: &[&str]) -> (Vec<RenewalAnswer>, Vec<i64>) {
        let server = RedisServer::start();
        let (locks, keys): (Vec<_>, Vec<_>) = (0..5).map(|place| (renewal(place), format!("L{place}"))).unzip();
        keys.iter().zip(0..).for_each(|(key, place)| server.run(&["SET", key, &format!("o{place}"), "PX", "9000"]));
        let (mut connection, mut writes) = (server.connection(), 0);
        let answers = super::renew(&locks).round_trips().unwrap().run(
            &mut |commands| {
                if commands.iter().any(|command| in_words(command) == "EXEC") {
                    server.run(change);
                    writes += 1;
                }
                // The time is up.
                if writes > 30 {
                    return Err(Stop::NoReply);
                }
                Ok(commands.iter().map(|command| connection.req_command(command).unwrap()).collect())
            },
            PubSub::Plain,
        );
        let answers = answers.expect("it is answered");
        (answers, keys.iter().map(|key| server.query(&["PTTL", key])).collect())
    }

    #[test]
    fn a_key_that_others_take_again_and_again_delays_nobody() {
        let (answers, ttls) = renew_beside(&["SET", "L2", "other", "PX", "9000"]);
        use RenewalAnswer::{Lost, Renewed};
        assert_eq!(answers, [Renewed, Renewed, Lost(Loss::Taken), Renewed, Renewed]);
        ttls.iter().enumerate().for_each(|(place, &ttl)| assert_eq!(ttl > 9_000, place != 2, "{place}: {ttl}"));
    }

    #[test]
    fn an_own_key_that_changes_all_the_time_delays_nobody() {
        let (answers, ttls) = renew_beside(&["PEXPIRE", "L2", "9000"]);
        for (place, (answer, ttl)) in answers.iter().zip(ttls).enumerate() {
            match (place, answer) {
                (2, RenewalAnswer::Refused(refusal)) => assert_eq!(refusal.word(), "BUSY"),
                _ => assert!(
                    place != 2 && *answer == RenewalAnswer::Renewed && ttl > 9_000,
                    "{place}: {answer:?}, {ttl}"
                ),
            }
        }
    }
}
