//! What Redis knows of one name, and the names of locks on a server: plain commands that change nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use super::answer::{IfLock, NotALock};
use super::query::is_owner;
use super::reply::{self, int, known, list, text};
use super::{Call, Pipeline, command};
use crate::error::{Refusal, Stop};
use crate::inspection::{ClientConnection, InspectedHolder, InspectedWaiter, Inspection};
use crate::listing::LockKind;
use crate::name::{GivenName, LockName};
use crate::owner::{OwnerId, is_client_id};
use crate::token::FencingToken;
use crate::transport::PubSub;

/// Asks what Redis knows of a name. `skew` is the largest difference between the clocks of the server and of Redisson
/// clients, which judge the deadlines of a group by their own.
pub(crate) fn inspect(name: &LockName, skew: Duration) -> Call<IfLock<Inspection>> {
    let name = name.clone();
    // Told as a call that publishes, because the answer depends on the kind of pub/sub.
    let call = Call::with_round_trips(&name.clone(), true, move |send, pub_sub| {
        let mut found = Inspector { send, name: &name, skew, pub_sub, found: nothing(&name) };
        Ok(if found.run()? { Ok(found.found) } else { Err(NotALock) })
    });
    call.following_its_key()
}

/// An inspection under way.
struct Inspector<'a, 'b> {
    send: &'a mut Pipeline<'b>,
    name: &'a LockName,
    skew: Duration,
    pub_sub: PubSub,
    found: Inspection,
}

/// The fields of a hash by name, at most [`MOST_FIELDS`] and a page.
type Fields = BTreeMap<String, String>;

impl Inspector<'_, '_> {
    /// Asks all there is to ask. Returns `false` for a key that is no lock.
    fn run(&mut self) -> Result<bool, Stop> {
        let (name, taken) = (self.name, self.name.taken_permits());
        let channels =
            [name.channel(), name.read_write_channel(), name.semaphore_channel(), name.latch_channel()].to_vec();
        let replies = self.ask(&[
            command("TYPE", name.key()),
            command("PTTL", name.key()),
            command("GETRANGE", (name.token(), 0, LONGEST_NUMBER)),
            command("HMGET", (name.leader(), "owner", "candidate")),
            command("LRANGE", (name.queue(), 0, MOST - 1)),
            command("ZCARD", &taken),
            redis::cmd("TIME"),
            self.subscribers(channels),
        ])?;
        let [kind, ttl, token, leader, queue, permits, time, listening] = &replies[..] else {
            return Err(Stop::NoReply);
        };
        self.found.remaining = ttl.as_ref().and_then(int).and_then(millis);
        self.found.token = token.as_ref().and_then(number).map(FencingToken::new);
        self.found.waiting_clients = listening.as_ref().map_or(0, count_of);
        let waiters: Vec<String> = queue.as_ref().and_then(list).unwrap_or_default().iter().filter_map(text).collect();
        let has_permits = permits.as_ref().and_then(int).is_some_and(|permits| permits > 0);
        let now = time.as_ref().and_then(server_time);
        let is_lock = match kind.as_ref().and_then(text).as_deref() {
            Some("hash") => self.hash(now)?,
            Some("string") => self.string()?,
            // Without the right to ask nothing is known.
            Some("none") | None => true,
            Some(_) => false,
        };
        if !is_lock {
            return Ok(false);
        }
        if has_permits && matches!(self.found.kind, None | Some(LockKind::Semaphore)) {
            self.permits(&taken, now)?;
        }
        if matches!(self.found.kind, None | Some(LockKind::Plain)) {
            let leader: Vec<String> =
                leader.as_ref().and_then(list).unwrap_or_default().iter().filter_map(text).collect();
            match (&leader[..], self.found.holders.first()) {
                ([owner, candidate], Some(holder)) if *owner == holder.owner => {
                    self.found.leader = Some(candidate.clone());
                    self.found.kind = Some(LockKind::Leader);
                }
                _ if !waiters.is_empty() => self.found.kind = Some(LockKind::Fair),
                _ if self.found.token.is_some() => self.found.kind = Some(LockKind::Fenced),
                _ => {}
            }
        }
        self.people(waiters)?;
        Ok(true)
    }

    /// Sends commands. A reply is `None` where the user may not run the command, or the key has another type.
    fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Option<Value>>, Stop> {
        let mut all = vec![];
        for commands in commands.chunks(MOST_AT_ONCE) {
            for (command, reply) in commands.iter().zip((self.send)(commands)?) {
                all.push(match reply {
                    Value::ServerError(error) => {
                        let refusal = Refusal::new(&error);
                        if refusal.lacks_command() {
                            let right = right_of(command);
                            if !self.found.without_rights.contains(&right) {
                                self.found.without_rights.push(right);
                            }
                        } else if refusal.word() != WRONG_TYPE {
                            return Err(Stop::Refused(refusal));
                        }
                        None
                    }
                    reply => Some(reply),
                });
            }
        }
        Ok(all)
    }

    /// Sends one command.
    fn ask_one(&mut self, command: Cmd) -> Result<Option<Value>, Stop> {
        Ok(self.ask(&[command])?.pop().flatten())
    }

    /// The question how many connections listen on these channels.
    fn subscribers(&self, channels: Vec<String>) -> Cmd {
        let word = match self.pub_sub {
            PubSub::Plain => "NUMSUB",
            PubSub::Sharded => "SHARDNUMSUB",
        };
        command("PUBSUB", (word, channels))
    }

    /// A number, or the value of a token lock.
    fn string(&mut self) -> Result<bool, Stop> {
        let value = self.ask_one(command("GETRANGE", (self.name.key(), 0, LONGEST_VALUE)))?;
        let Some(value) = value.as_ref().and_then(text) else { return Ok(true) };
        if let Ok(available) = value.parse() {
            self.found.available = Some(available);
            self.found.kind = Some(LockKind::Semaphore);
        } else if value.len() > LONGEST_VALUE {
            return Ok(false);
        } else if !value.is_empty() {
            self.found.kind = Some(LockKind::Token);
            self.hold(holder(value, 1));
        }
        Ok(true)
    }

    fn hash(&mut self, now: Option<Duration>) -> Result<bool, Stop> {
        let key = self.name.key();
        let replies = self.ask(&[command("HLEN", key), command("HMGET", (key, "mode"))])?;
        let length = replies[0].as_ref().and_then(number);
        let mode = replies[1].as_ref().and_then(list).and_then(|values| text(values.first()?));
        let (fields, is_whole) = self.fields()?;
        let length = length.filter(|_| !is_whole).unwrap_or(fields.len() as u64);
        let is_of_group = |field: &String| of_group(field).is_some();
        if let Some(mode) = mode {
            self.sides(&mode, fields, length)
        } else if fields.keys().any(is_of_group) {
            self.group(fields, length, is_whole, now)
        } else if fields.len() > 1 || fields.keys().any(|field| !is_owner(field)) {
            Ok(false)
        } else {
            for (owner, count) in fields {
                self.found.kind = Some(LockKind::Plain);
                self.hold(holder(owner, count.parse().unwrap_or(1)));
            }
            self.found.holder_count = length;
            Ok(true)
        }
    }

    /// Reads the fields of the hash, and whether these are all. A small hash comes as one page, whatever its number of
    /// fields.
    fn fields(&mut self) -> Result<(Fields, bool), Stop> {
        let (mut fields, mut cursor) = (Fields::new(), "0".to_owned());
        for _ in 0..MOST_PAGES {
            let page = self.ask_one(command("HSCAN", (self.name.key(), &cursor, "COUNT", MOST)))?;
            let Some(page) = page else { return Ok((fields, false)) };
            let (next, values) = known(page_of(&page))?;
            let pairs = values.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
            fields.extend(pairs);
            cursor = next;
            if cursor == "0" || fields.len() > MOST_FIELDS {
                break;
            }
        }
        Ok((fields, cursor == "0"))
    }

    /// The readers, or the writer and the reads of the writer.
    fn sides(&mut self, mode: &str, mut fields: Fields, length: u64) -> Result<bool, Stop> {
        fields.remove("mode");
        if fields.keys().any(|field| !is_owner(field)) {
            return Ok(false);
        }
        self.found.kind = Some(if mode == "write" { LockKind::Write } else { LockKind::Read });
        for (field, count) in fields.into_iter().take(MOST) {
            let (owner, side) = match field.strip_suffix(":write") {
                Some(owner) => (owner.to_owned(), LockKind::Write),
                None => (field, LockKind::Read),
            };
            self.hold(InspectedHolder { side: Some(side), ..holder(owner, count.parse().unwrap_or(1)) });
        }
        self.found.holder_count = length.saturating_sub(1);
        // Each read hold has a key of its own. A renewal raises all of them, and re-entry adds the last one.
        let name = self.name;
        let last_holds = self.found.holders.iter().flat_map(|holder| {
            let prefix = name.read_holds_of(&OwnerId::encoded(&holder.owner));
            [1, holder.hold_count].map(|number| command("PTTL", format!("{prefix}{number}")))
        });
        let last_holds: Vec<Cmd> = last_holds.collect();
        let replies = self.ask(&last_holds)?;
        for (holder, replies) in self.found.holders.iter_mut().zip(replies.chunks_exact(2)) {
            if holder.side == Some(LockKind::Read) {
                holder.remaining = replies.iter().flatten().filter_map(|reply| millis(int(reply)?)).max();
            }
        }
        Ok(true)
    }

    /// The values that are held. A value whose deadline is over is free.
    fn group(&mut self, fields: Fields, length: u64, is_whole: bool, now: Option<Duration>) -> Result<bool, Stop> {
        let values: Vec<(String, String)> = fields.into_iter().filter(|(field, _)| of_group(field).is_none()).collect();
        if values.iter().any(|(field, _)| !is_value(field)) {
            return Ok(false);
        }
        self.found.kind = Some(LockKind::Group);
        let all = if is_whole { values.len() as u64 } else { length / 3 };
        let listed = &values[..values.len().min(MOST)];
        let parts = listed
            .iter()
            .flat_map(|(field, owner)| GROUP_ENDS.map(|end| format!("{field}:{owner}{end}")))
            .collect::<Vec<_>>();
        if parts.is_empty() {
            return Ok(true);
        }
        let reply = self.ask_one(command("HMGET", (self.name.key(), parts)))?;
        let mut parts = reply.as_ref().and_then(list).map(|parts| parts.chunks_exact(2));
        for (field, owner) in listed {
            let part = parts.as_mut().and_then(Iterator::next);
            let number = |at: usize| part.and_then(|part| text(&part[at])?.parse().ok());
            // Without the clock or the right to read the deadline, the value counts as held.
            let remaining = match (now, part) {
                (Some(now), Some(_)) => match left(number(0).unwrap_or(0.0), self.skew, now) {
                    None => continue,
                    remaining => remaining,
                },
                _ => None,
            };
            let count = number(1).map_or(1, |count| count as u64);
            self.hold(InspectedHolder { value: Some(field.clone()), remaining, ..holder(owner.clone(), count) });
        }
        self.found.holder_count += all.saturating_sub(listed.len() as u64);
        Ok(true)
    }

    /// The permits that are taken, and those that are free or have expired.
    fn permits(&mut self, taken: &str, now: Option<Duration>) -> Result<(), Stop> {
        let is_counted = self.found.kind.is_some();
        self.found.kind = Some(LockKind::Permit);
        let after = now.map_or_else(|| "-inf".to_owned(), |now| format!("({}", now.as_millis()));
        let replies = self.ask(&[
            command("ZRANGEBYSCORE", (taken, &after, "+inf", "WITHSCORES", "LIMIT", 0, MOST)),
            command("ZCOUNT", (taken, &after, "+inf")),
            command("ZCARD", taken),
        ])?;
        let [permits, count, all] = &replies[..] else { return Err(Stop::NoReply) };
        // A flat list in RESP2, a list of pairs in RESP3.
        let permits = permits.as_ref().and_then(list).unwrap_or_default().iter();
        let words: Vec<&Value> = permits.flat_map(|value| list(value).unwrap_or(std::slice::from_ref(value))).collect();
        for pair in words.chunks_exact(2) {
            let Value::BulkString(id) = pair[0] else { continue };
            let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
            // A permit of Redisson without a lease has this time and never expires.
            let ends = score(pair[1]).filter(|ends| *ends < NEVER_MS);
            let remaining = now.zip(ends).and_then(|(now, ends)| left(ends, Duration::ZERO, now));
            self.hold(InspectedHolder { remaining, ..holder(id, 1) });
        }
        let [count, all] = [count, all].map(|reply| reply.as_ref().and_then(int));
        if let Some(count) = count {
            self.found.holder_count = count.try_into().unwrap_or(0);
        }
        // Without a counter there is no semaphore to which expired permits could return.
        let expired = all.zip(count).map_or(0, |(all, count)| all - count);
        self.found.available = if is_counted { self.found.available.map(|free| free + expired) } else { Some(0) };
        Ok(())
    }

    fn hold(&mut self, holder: InspectedHolder) {
        self.found.holders.push(holder);
        self.found.holder_count += 1;
    }

    /// Finds the connections of holders and waiters, and how many waiters listen on channels of their own.
    fn people(&mut self, waiters: Vec<String>) -> Result<(), Stop> {
        if !waiters.is_empty() {
            let channel = self.name.channel();
            let channels = waiters.iter().map(|owner| format!("{channel}:{owner}")).collect();
            let subscribers = self.subscribers(channels);
            self.found.waiting_clients += self.ask_one(subscribers)?.as_ref().map_or(0, count_of);
        }
        if waiters.is_empty() && self.found.holders.is_empty() {
            return Ok(());
        }
        let reply = self.ask_one(command("CLIENT", "LIST"))?;
        let clients = reply.as_ref().and_then(text).map(|lines| connections(&lines)).unwrap_or_default();
        let client_of = |owner: &str| clients.get(&first_digits(owner)?).cloned();
        for holder in &mut self.found.holders {
            holder.client = client_of(&holder.owner);
        }
        let waiter = |owner: String| InspectedWaiter { client: client_of(&owner), owner };
        self.found.waiters = waiters.into_iter().map(waiter).collect();
        Ok(())
    }
}

fn nothing(name: &LockName) -> Inspection {
    Inspection {
        name: name.to_string(),
        kind: None,
        holders: vec![],
        holder_count: 0,
        remaining: None,
        waiters: vec![],
        waiting_clients: 0,
        token: None,
        available: None,
        leader: None,
        without_rights: vec![],
    }
}

fn holder(owner: String, hold_count: u64) -> InspectedHolder {
    InspectedHolder { owner, hold_count, side: None, value: None, remaining: None, client: None }
}

/// The command as an ACL writes it.
fn right_of(command: &Cmd) -> String {
    let words = command.args_iter().filter_map(|word| match word {
        Arg::Simple(word) => Some(String::from_utf8_lossy(word).to_ascii_lowercase()),
        _ => None,
    });
    let words: Vec<String> = words.take(2).collect();
    let has_subcommands = matches!(words[0].as_str(), "client" | "pubsub");
    words[..if has_subcommands { 2 } else { 1 }].join("|")
}

/// The connections of clients of this library in a `CLIENT LIST`, by the first digits of the client's id.
fn connections(lines: &str) -> HashMap<String, ClientConnection> {
    let connection = |line: &str| {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let (name, address) = (field("name=")?, field("addr=")?);
        let parts: Vec<&str> = name.split(':').collect();
        let id = parts.iter().rposition(|part| is_client_id(part))?;
        let host = parts.get(id + 1).filter(|host| !host.is_empty()).map(|host| (*host).to_owned());
        let process_id = parts.get(id + 2).and_then(|id| id.parse().ok());
        let connection = ClientConnection { address: address.to_owned(), name: name.to_owned(), host, process_id };
        Some((first_digits(parts[id])?, connection))
    };
    lines.lines().filter_map(connection).collect()
}

/// The digits of a client's id with which its owners and the ids of its permits begin.
fn first_digits(owner: &str) -> Option<String> {
    let digits: String = owner.chars().filter(|letter| *letter != '-').take(DIGITS_OF_A_CLIENT).collect();
    (digits.len() == DIGITS_OF_A_CLIENT && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(digits)
}

/// The field of a group's deadline or hold count without its ending.
fn of_group(field: &str) -> Option<&str> {
    GROUP_ENDS.iter().find_map(|end| field.strip_suffix(end))
}

/// Whether a field of a group is a value: a hash in Base64.
fn is_value(field: &str) -> bool {
    field.len() >= SHORTEST_VALUE && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// A time to live in ms; negative without one.
fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The time until a deadline in ms since 1970; `None` when it is over.
fn left(ends_ms: f64, skew: Duration, now: Duration) -> Option<Duration> {
    let ends = Duration::try_from_secs_f64(ends_ms / 1_000.0).ok()?;
    (ends + skew).checked_sub(now).filter(|left| !left.is_zero())
}

fn server_time(reply: &Value) -> Option<Duration> {
    let [seconds, micros] = list(reply)? else { return None };
    Some(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
}

fn score(value: &Value) -> Option<f64> {
    match value {
        Value::Double(score) => Some(*score),
        value => text(value)?.parse().ok(),
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        value => text(value)?.parse().ok(),
    }
}

/// The subscribers of all channels in a reply to `PUBSUB NUMSUB`.
fn count_of(reply: &Value) -> u64 {
    list(reply).unwrap_or_default().iter().filter_map(int).filter_map(|count| u64::try_from(count).ok()).sum()
}

/// The next cursor and the elements of a page of a scan.
fn page_of(reply: &Value) -> Option<(String, &[Value])> {
    let [cursor, values] = list(reply)? else { return None };
    Some((text(cursor)?, list(values)?))
}

/// Asks for one page of the keys that begin with `prefix`. Returns the next cursor, `0` at the end, and the names that
/// are certainly those of locks.
pub(crate) fn scan(send: &mut Pipeline<'_>, cursor: &str, prefix: &str) -> Result<(String, Vec<String>), Stop> {
    let reply = send(&[command("SCAN", (cursor, "MATCH", pattern(prefix), "COUNT", MOST_AT_ONCE))])?.pop();
    let reply = known(reply)?;
    refused(&reply).map_or(Ok(()), Err)?;
    let (next, keys) = known(page_of(&reply))?;
    let names = keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => GivenName::new(String::from_utf8(key.clone()).ok()?.into()).checked().cloned().ok(),
        _ => None,
    });
    let names: Vec<LockName> = names.collect();
    let types = ask_each(send, names.iter().map(|name| command("TYPE", name.key())).collect())?;
    let (mut asked, mut questions) = (vec![], vec![]);
    for (name, kind) in names.iter().zip(types) {
        match kind.as_ref().and_then(text).as_deref() {
            Some("hash") => questions.push(command("HRANDFIELD", (name.key(), SAMPLE))),
            Some("string") => {
                questions.push(command("GETRANGE", (name.key(), 0, LONGEST_SAMPLE)));
                questions.push(command("TYPE", name.taken_permits()));
                asked.push((name, true));
                continue;
            }
            _ => continue,
        }
        asked.push((name, false));
    }
    let mut replies = ask_each(send, questions)?.into_iter();
    let mut found = vec![];
    for (name, is_string) in asked {
        let reply = replies.next().flatten();
        let is_lock = if is_string {
            let value = reply.as_ref().and_then(text).unwrap_or_default();
            let companion = replies.next().flatten().as_ref().and_then(text);
            is_own(&value) || value.parse::<i64>().is_ok() && companion.as_deref() == Some("zset")
        } else {
            reply
                .as_ref()
                .and_then(list)
                .is_some_and(|fields| is_hash_of_lock(&fields.iter().filter_map(text).collect::<Vec<_>>()))
        };
        if is_lock {
            found.push(name.to_string());
        }
    }
    Ok((next, found))
}

/// Asks about keys that may be gone by now, or on another server, or out of the user's reach: their replies are `None`.
fn ask_each(send: &mut Pipeline<'_>, questions: Vec<Cmd>) -> Result<Vec<Option<Value>>, Stop> {
    if questions.is_empty() {
        return Ok(vec![]);
    }
    let reply = |reply: Value| match refused(&reply) {
        Some(Stop::Refused(refusal))
            if refusal.word() == WRONG_TYPE
                || refusal.is_of_routing()
                || refusal.word() == "NOPERM" && !refusal.to_string().contains(" run the ") =>
        {
            Ok(None)
        }
        Some(stop) => Err(stop),
        None => Ok(Some(reply)),
    };
    send(&questions)?.into_iter().map(reply).collect()
}

fn refused(reply: &Value) -> Option<Stop> {
    match reply {
        Value::ServerError(error) => Some(reply::refused(error)),
        _ => None,
    }
}

/// The pattern of all keys with this beginning.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "*"
}

/// Whether these random fields, all of a small hash, can only be those of a lock.
fn is_hash_of_lock(fields: &[String]) -> bool {
    let is_part = |field: &String| {
        of_group(field).and_then(|field| field.split_once(':')).is_some_and(|(_, owner)| is_own(owner))
    };
    if fields.iter().any(is_part) {
        return true;
    }
    let (mode, owners): (Vec<&String>, Vec<&String>) = fields.iter().partition(|field| *field == "mode");
    let are_owners = owners.iter().all(|field| is_own(field.strip_suffix(":write").unwrap_or(field)));
    are_owners && (owners.len() == 1 || !owners.is_empty() && !mode.is_empty() || owners.len() == SAMPLE)
}

/// Whether this is an owner of this library or of Redisson: an id of a client, a colon and a number.
fn is_own(owner: &str) -> bool {
    let is_number = |number: &str| number.parse::<f64>().is_ok();
    owner.split_once(':').is_some_and(|(client, number)| is_client_id(client) && is_number(number))
}

/// The most holders and waiters that are listed, and the fields or keys in one page of a scan.
const MOST: usize = 1_000;
/// A value of a group has three fields.
const MOST_FIELDS: usize = 3 * MOST;
/// A hash that shrank has many empty pages.
const MOST_PAGES: usize = 100;
/// So many replies leave room for the requests of other clients.
const MOST_AT_ONCE: usize = 500;
/// The fields of a hash by which a scan knows a lock.
const SAMPLE: usize = 16;
const LONGEST_NUMBER: usize = 32;
/// The longest value of a token lock that is shown.
const LONGEST_VALUE: usize = 4 * 1024;
/// An owner id fits.
const LONGEST_SAMPLE: usize = 128;
/// A field of a group without padding.
const SHORTEST_VALUE: usize = 22;
const GROUP_ENDS: [&str; 2] = [":expire_time", ":lock_count"];
const DIGITS_OF_A_CLIENT: usize = 16;
const NEVER_MS: f64 = 922_337_203_685_477.0;
const WRONG_TYPE: &str = "WRONGTYPE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_by_the_name_it_carries() {
        let id = "d57e342e-f1e6-4b24-b3b6-7551a58aea46";
        let of = |name: &str| {
            connections(&format!("id=3 addr=10.0.0.7:51584 name={name} flags=N\n")).remove("d57e342ef1e64b24")
        };
        let found = of(&format!("a:b:{id}:host-7:4711")).unwrap();
        assert_eq!((found.address(), found.host(), found.process_id()), ("10.0.0.7:51584", Some("host-7"), Some(4711)));
        let older = of(&format!("lockson:{id}")).unwrap();
        assert_eq!((older.host(), older.process_id()), (None, None));
        assert_eq!(of("lockson"), None);
        assert_eq!(first_digits(&format!("{id}:7.19")), first_digits("d57e342ef1e64b240000000000130000"));
        assert_eq!(first_digits("billing/1"), None);
    }

    #[test]
    fn a_prefix_is_taken_by_its_letters() {
        assert_eq!(pattern("a*[b]?\\:{"), "a\\*\\[b\\]\\?\\\\:{*");
    }

    #[test]
    fn a_scan_lists_what_can_only_be_a_lock() {
        let id = "d57e342e-f1e6-4b24-b3b6-7551a58aea46";
        let check = |fields: &[&str], wanted| {
            let fields: Vec<String> = fields.iter().map(|field| field.replace("ID", id)).collect();
            assert_eq!(is_hash_of_lock(&fields), wanted, "{fields:?}");
        };
        check(&["ID:1"], true);
        check(&["ID:1.2"], true);
        check(&["mode", "ID:1", "ID:2.7:write"], true);
        check(&["DqvoYruF5eyLDrILcprmBw", "DqvoYruF5eyLDrILcprmBw:ID:1.2:lock_count"], true);
        check(&["ID:1", "ID:2"], false);
        check(&["mode"], false);
        check(&["mode", "user:1"], false);
        check(&["user:1"], false);
        check(&["ID:x"], false);
        check(&["total:lock_count"], false);
        check(&[], false);
    }
}
