//! Asks for the kind, the holders and the waiters of one name, by plain commands that change nothing.

mod connections;
mod scan;

pub(crate) use connections::Connections;
pub(crate) use scan::{certain_locks, page};

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use super::answer::{IfLock, NotALock};
use super::{Call, Pipeline};
use crate::error::{Refusal, Stop};
use crate::inspection::{InspectedHolder, InspectedWaiter, Inspection};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::is_client_id;
use crate::reply::{command, int, known, list, number, read_fields, server_time, text, texts};
use crate::token::FencingToken;
use crate::transport::PubSub;

/// Asks what Redis knows of a name. `skew` is the largest difference between the clocks of the server and of Redisson
/// clients, which judge the deadlines of a group by their own.
pub(crate) fn inspect(name: &LockName, skew: Duration) -> Call<IfLock<Inspection>> {
    let name = name.clone();
    Call::with_round_trips(&name.clone(), move |send, pub_sub| {
        let mut inspector = Inspector {
            send,
            name: &name,
            skew,
            pub_sub,
            found: Inspection { name: name.to_string(), ..Inspection::default() },
        };
        match inspector.run() {
            Err(Stop::NotALock) => Ok(Err(NotALock)),
            // A reply without end is that of other data.
            Err(Stop::TooLong(_)) => Err(Stop::NotALock),
            outcome => outcome.map(|()| Ok(inspector.found)),
        }
    })
}

/// An inspection under way.
struct Inspector<'a, 'b> {
    send: &'a mut Pipeline<'b>,
    name: &'a LockName,
    skew: Duration,
    pub_sub: PubSub,
    found: Inspection,
}

/// The fields of a hash by name, at most [`MOST_FIELDS`].
type Fields = BTreeMap<String, String>;

impl Inspector<'_, '_> {
    /// Asks all there is to ask. Stops with [`Stop::NotALock`] at a key that is no lock.
    fn run(&mut self) -> Result<(), Stop> {
        let (name, taken) = (self.name, self.name.taken_permits().text());
        let channels = [name.channel(), name.read_write_channel(), name.semaphore_channel(), name.latch_channel()];
        let replies = self.ask(&[
            command("TYPE", name.key()),
            command("PTTL", name.key()),
            command("GETRANGE", (name.token().text(), 0, LONGEST_NUMBER)),
            command("HMGET", (name.leader().text(), "owner", "candidate", "since")),
            command("LRANGE", (name.queue().text(), 0, MOST - 1)),
            command("ZCARD", &taken),
            redis::cmd("TIME"),
            self.subscribers(channels.map(|channel| channel.text()).to_vec()),
        ])?;
        let [kind, ttl, token, leader, queue, permits, time, listening] = &replies[..] else {
            return Err(Stop::NoReply);
        };
        self.found.remaining = int(ttl).and_then(millis);
        self.found.token = number(token).map(FencingToken);
        self.found.waiting_clients = count_of(listening);
        let waiters = texts(queue);
        let has_permits = int(permits).is_some_and(|permits| permits > 0);
        let now = server_time(time);
        match text(kind).as_deref() {
            Some("hash") => self.hash(now)?,
            Some("string") => self.string()?,
            // Without the right to ask nothing is known.
            Some("none") | None => {}
            Some(_) => return Err(Stop::NotALock),
        }
        if has_permits && matches!(self.found.kind, None | Some(LockKind::Semaphore)) {
            self.permits(&taken, now)?;
        }
        if matches!(self.found.kind, None | Some(LockKind::Plain)) {
            self.tell_apart(&texts(leader), !waiters.is_empty(), now);
        }
        if !waiters.is_empty() {
            let channel = name.channel().text();
            let subscribers = self.subscribers(waiters.iter().map(|owner| format!("{channel}:{owner}")).collect());
            self.found.waiting_clients += count_of(&self.ask_one(subscribers)?);
        }
        self.found.waiters = waiters.into_iter().map(|owner| InspectedWaiter { owner, client: None }).collect();
        Ok(())
    }

    /// Finds out which kind of lock has one owner, or was left free.
    fn tell_apart(&mut self, leader: &[String], has_waiters: bool, now: Option<Duration>) {
        let found = &mut self.found;
        let (kind, since) = match (leader, found.holders.first()) {
            ([owner, candidate, since], Some(holder)) if *owner == holder.owner => {
                found.leader = Some(candidate.clone());
                (LockKind::Leader, since.parse().ok().map(Duration::from_millis))
            }
            _ if has_waiters => (LockKind::Fair, None),
            (_, holder) => {
                let Some(token) = found.token else { return };
                // Redisson's token counts; its owner has no number of the hold.
                let is_drawn = holder.is_some_and(|holder| holder.owner.contains('.'));
                (LockKind::Fenced, is_drawn.then(|| Duration::from_micros(token.value())))
            }
        };
        found.kind = Some(kind);
        found.held_for = since.and_then(|since| now?.checked_sub(since));
    }

    /// Sends commands. A reply is nil where the user may not run the command, or the key has another type. While the
    /// slot moves, the lock decides where all is asked; a key beside the lock that is not there counts as none.
    fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Stop> {
        let replies = (self.send)(commands)?;
        let told = |(command, reply): (&Cmd, Value)| match reply {
            Value::ServerError(error) if error.code() == "ASK" && word_of(command, 1) != self.name.key() => {
                Ok(Value::Nil)
            }
            reply => told(reply, command, &mut self.found.without_rights),
        };
        commands.iter().zip(replies).map(told).collect()
    }

    /// Sends one command.
    fn ask_one(&mut self, command: Cmd) -> Result<Value, Stop> {
        known(self.ask(&[command])?.pop())
    }

    /// The question how many connections listen on these channels.
    fn subscribers(&self, channels: Vec<String>) -> Cmd {
        let word = if self.pub_sub == PubSub::Plain { "NUMSUB" } else { "SHARDNUMSUB" };
        command("PUBSUB", (word, channels))
    }

    /// A number, or the value of a token lock.
    fn string(&mut self) -> Result<(), Stop> {
        let value = self.ask_one(command("GETRANGE", (self.name.key(), 0, LONGEST_VALUE)))?;
        let Some(value) = text(&value) else { return Ok(()) };
        if let Ok(available) = value.parse() {
            self.found.available = Some(available);
            self.found.kind = Some(LockKind::Semaphore);
        } else if value.len() > LONGEST_VALUE {
            return Err(Stop::NotALock);
        } else if !value.is_empty() {
            self.found.kind = Some(LockKind::Token);
            self.hold(holder(value, 1));
        }
        Ok(())
    }

    fn hash(&mut self, now: Option<Duration>) -> Result<(), Stop> {
        let key = self.name.key();
        // Some fields without their values: those of other data may be large.
        let replies =
            self.ask(&[command("HLEN", key), command("HMGET", (key, "mode")), command("HRANDFIELD", (key, SAMPLE))])?;
        let [length, mode, sample] = &replies[..] else { return Err(Stop::NoReply) };
        let is_part = |field: &str| of_group(field).is_some() || is_value(field);
        if texts(sample).iter().any(|field| field != "mode" && !is_hold(field) && !is_part(field)) {
            return Err(Stop::NotALock);
        }
        let (fields, is_whole) = self.fields()?;
        let length = number(length).filter(|_| !is_whole).unwrap_or(fields.len() as u64);
        let mode = list(mode).and_then(|values| text(values.first()?));
        let mode = mode.or_else(|| fields.get("mode").cloned());
        if let Some(mode) = mode {
            return self.sides(&mode, fields, length);
        }
        if fields.keys().any(|field| of_group(field).is_some()) {
            return self.group(fields, length, is_whole, now);
        }
        if fields.is_empty() && is_whole {
            self.found.remaining = None; // given back meanwhile
        } else if length > 1 {
            return Err(Stop::NotALock);
        }
        for (owner, count) in fields {
            let count = count_of_hold(&owner, &count).ok_or(Stop::NotALock)?;
            self.found.kind = Some(LockKind::Plain);
            self.hold(holder(owner, count));
        }
        self.found.holder_count = length;
        Ok(())
    }

    /// Reads the fields of the hash, and whether these are all.
    fn fields(&mut self) -> Result<(Fields, bool), Stop> {
        let reply = self.ask_one(command("HRANDFIELD", (self.name.key(), MOST_FIELDS, "WITHVALUES")))?;
        if reply == Value::Nil {
            return Ok((Fields::new(), false));
        }
        let fields = known(read_fields(&reply))?;
        let is_whole = fields.len() < MOST_FIELDS;
        Ok((fields.into_iter().collect(), is_whole))
    }

    /// The readers, or the writer and the reads of the writer.
    fn sides(&mut self, mode: &str, mut fields: Fields, length: u64) -> Result<(), Stop> {
        fields.remove("mode");
        self.found.kind = Some(match mode {
            "write" => LockKind::Write,
            "read" => LockKind::Read,
            _ => return Err(Stop::NotALock),
        });
        for (place, (field, count)) in fields.into_iter().enumerate() {
            let count = count_of_hold(&field, &count).ok_or(Stop::NotALock)?;
            let (owner, side) = match writer_of(&field) {
                Some(owner) => (owner.to_owned(), LockKind::Write),
                None => (field, LockKind::Read),
            };
            if place < MOST {
                self.hold(InspectedHolder { side: Some(side), ..holder(owner, count) });
            }
        }
        self.found.holder_count = length.saturating_sub(1);
        // Each read hold has a key of its own. A renewal raises all of them, and re-entry adds the last one.
        let name = self.name;
        let last_holds = self.found.holders.iter().flat_map(|holder| {
            let prefix = name.read_hold(&holder.owner, "").text();
            [1, holder.hold_count].map(|number| command("PTTL", format!("{prefix}{number}")))
        });
        let last_holds: Vec<Cmd> = last_holds.collect();
        let replies = self.ask(&last_holds)?;
        for (holder, replies) in self.found.holders.iter_mut().zip(replies.chunks_exact(2)) {
            if holder.side == Some(LockKind::Read) {
                holder.remaining = replies.iter().filter_map(|reply| millis(int(reply)?)).max();
            }
        }
        Ok(())
    }

    /// The values that are held. A value whose deadline is over is free.
    fn group(&mut self, fields: Fields, length: u64, is_whole: bool, now: Option<Duration>) -> Result<(), Stop> {
        let (parts, values): (Fields, Fields) = fields.into_iter().partition(|(field, _)| of_group(field).is_some());
        if values.keys().any(|field| !is_value(field)) {
            return Err(Stop::NotALock);
        }
        self.found.kind = Some(LockKind::Group);
        let all = if is_whole { values.len() as u64 } else { length / 3 };
        self.found.holder_count = all.saturating_sub(values.len().min(MOST) as u64);
        for (field, owner) in values.into_iter().take(MOST) {
            let part = |end: &str| parts.get(&format!("{field}:{owner}{end}"))?.parse().ok();
            let [ends, count]: [Option<f64>; 2] = GROUP_ENDS.map(part);
            // Without the clock, or where not all was read, a value without a deadline counts as held.
            let remaining = now.zip(ends.or(is_whole.then_some(0.0))).map(|(now, ends)| left(ends, self.skew, now));
            if remaining != Some(None) {
                let count = count.map_or(1, |count| count as u64);
                let value = Some(field);
                let remaining = remaining.flatten().map(|left| left.min(self.found.remaining.unwrap_or(left)));
                self.hold(InspectedHolder { value, remaining, ..holder(owner, count) });
            }
        }
        Ok(())
    }

    /// The permits that are taken, and the permits that are free or have expired.
    fn permits(&mut self, taken: &str, now: Option<Duration>) -> Result<(), Stop> {
        self.found.kind = Some(LockKind::Permit);
        let after = now.map_or_else(|| "-inf".to_owned(), |now| format!("({}", now.as_millis()));
        let replies = self.ask(&[
            command("ZRANGEBYSCORE", (taken, &after, "+inf", "WITHSCORES", "LIMIT", 0, MOST)),
            command("ZCOUNT", (taken, &after, "+inf")),
            command("ZCARD", taken),
        ])?;
        let [permits, count, all] = &replies[..] else { return Err(Stop::NoReply) };
        let permits: Vec<(Vec<u8>, f64)> = redis::from_redis_value_ref(permits).unwrap_or_default();
        for (id, ends) in permits {
            let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
            // A permit of Redisson without a lease has this time and never expires.
            let ends = Some(ends).filter(|ends| *ends < NEVER_MS);
            let remaining = now.zip(ends).and_then(|(now, ends)| left(ends, Duration::ZERO, now));
            self.hold(InspectedHolder { remaining, ..holder(id, 1) });
        }
        let [count, all] = [count, all].map(int);
        if let Some(count) = count {
            self.found.holder_count = count.try_into().unwrap_or(0);
        }
        // Without a counter there is no semaphore to which expired permits could return.
        let expired = all.zip(count).map_or(0, |(all, count)| all - count);
        self.found.available = self.found.available.map(|free| free.saturating_add(expired));
        Ok(())
    }

    fn hold(&mut self, holder: InspectedHolder) {
        self.found.holders.push(holder);
        self.found.holder_count += 1;
    }
}

fn holder(owner: String, hold_count: u64) -> InspectedHolder {
    InspectedHolder { owner, hold_count, ..InspectedHolder::default() }
}

/// The reply to a command; nil where the key has another type, or the user lacks a right, which is listed.
fn told(reply: Value, command: &Cmd, without_rights: &mut Vec<String>) -> Result<Value, Stop> {
    let Some(refusal) = Refusal::in_reply(&reply) else { return Ok(reply) };
    if refusal.lacks_command() {
        let [word, key] = [0, 1].map(|at| String::from_utf8_lossy(word_of(command, at)));
        let word = word.to_ascii_lowercase();
        let right = match word.as_str() {
            "client" | "pubsub" => format!("{word}|{}", key.to_ascii_lowercase()),
            _ if refusal.word() == "NOPERM" && !refusal.is_of_right_to_run() => format!("~{key}"),
            _ => word,
        };
        if !without_rights.contains(&right) {
            without_rights.push(right);
        }
    } else if refusal.word() != WRONG_TYPE {
        return Err(Stop::Refused(refusal));
    }
    Ok(Value::Nil)
}

/// A word of a request: the command, then its key or a subcommand.
fn word_of(command: &Cmd, at: usize) -> &[u8] {
    if let Some(Arg::Simple(word)) = command.args_iter().nth(at) { word } else { &[] }
}

/// The field of a group's deadline or hold count without its ending: a value, a colon, an owner.
pub(super) fn of_group(field: &str) -> Option<&str> {
    let hold = GROUP_ENDS.iter().find_map(|end| field.strip_suffix(end))?;
    hold.split_once(':').is_some_and(|(value, _)| is_value(value)).then_some(hold)
}

/// The owner in a field of the write side; `None` for another field. In a transaction of Redisson the id of the
/// transaction follows the side, and both belong to the owner.
pub(super) fn writer_of(field: &str) -> Option<&str> {
    field.strip_suffix(":write").or_else(|| field.contains(":write:").then_some(field))
}

/// Whether this is an owner of this library or of Redisson: an id of a client, a colon and a number; in a transaction of
/// Redisson then a colon and the id of the transaction.
fn is_own(owner: &str) -> bool {
    let parts: Vec<&str> = owner.split(':').collect();
    let [client, number, transaction @ ..] = &parts[..] else { return false };
    is_client_id(client) && number.parse::<f64>().is_ok() && transaction.len() <= 1
}

/// Whether the field of a hash is the owner of a lock, or of a side of a read-write lock. Redisson writes the id of a
/// transaction behind the side.
fn is_hold(field: &str) -> bool {
    is_own(&field.replacen(":write", "", 1))
}

/// The hold count of a field; `None` where either is that of other data.
fn count_of_hold(field: &str, count: &str) -> Option<u64> {
    count.parse().ok().filter(|_| is_hold(field))
}

/// Whether a field of a group is a value: a hash in Base64.
fn is_value(field: &str) -> bool {
    field.len() == LENGTH_OF_A_VALUE && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// A time to live in ms; negative without one.
fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The time until a deadline in ms since 1970; `None` when it is over.
fn left(ends_ms: f64, skew: Duration, now: Duration) -> Option<Duration> {
    let ends = Duration::try_from_secs_f64(ends_ms / 1_000.0).ok()?;
    ends.saturating_add(skew).checked_sub(now).filter(|left| !left.is_zero())
}

/// The subscribers of all channels in a reply to `PUBSUB NUMSUB`.
fn count_of(reply: &Value) -> u64 {
    list(reply).unwrap_or_default().iter().filter_map(int).filter_map(|count| u64::try_from(count).ok()).sum()
}

/// The most holders and waiters that are listed.
const MOST: usize = 1_000;
/// A value of a group has three fields. With one more it is certain that these are not all.
const MOST_FIELDS: usize = 3 * MOST + 1;
/// So many replies leave room for the requests of other clients.
const MOST_AT_ONCE: usize = 500;
/// The fields of a hash by which a scan knows a lock.
const SAMPLE: usize = 16;
const LONGEST_NUMBER: usize = 32;
/// The longest value of a token lock that is shown.
const LONGEST_VALUE: usize = 4 * 1024;
/// A field of a group without padding.
const LENGTH_OF_A_VALUE: usize = 22;
const GROUP_ENDS: [&str; 2] = [":expire_time", ":lock_count"];
const NEVER_MS: f64 = 922_337_203_685_477.0;
const WRONG_TYPE: &str = "WRONGTYPE";
