//! The data of a server, and the commands that read and write it.

mod values;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::words::{count, float, integer, members, slice};
use crate::reply::Reply;

/// Keys, their values and when they expire.
#[derive(Clone, Debug, Default)]
pub struct Data {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// Milliseconds of the server's clock, and the microseconds beyond them.
    now: i64,
    micros: i64,
    /// Grows with each change.
    pub version: u64,
    /// Memory is full.
    pub is_full: bool,
    /// A write of the script that runs is done: all that follow are done, too.
    has_written: bool,
    pub published: Vec<Published>,
    /// The keys whose time to live has ended.
    pub ended: BTreeSet<Vec<u8>>,
    /// What the last commands read and changed, in order.
    pub touched: Vec<Touch>,
}

/// A message, and whether it is for those of one shard.
#[derive(Clone, Debug)]
pub struct Published {
    pub is_sharded: bool,
    pub channel: Vec<u8>,
    pub message: Vec<u8>,
}

/// What a command does to keys, for those who watch them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A command has read; a script that does so has read all of its keys.
    Read,
    Changed(Vec<u8>),
    Expired(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    expires: Option<i64>,
}

#[derive(Clone, Debug)]
enum Value {
    Text(Vec<u8>),
    /// Fields in the order of their first write.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    List(VecDeque<Vec<u8>>),
    /// By score, then by member.
    Sorted(Vec<(f64, Vec<u8>)>),
}

type Outcome = Result<Reply, String>;
type Words<'a> = &'a [Vec<u8>];

impl Data {
    /// Names of all keys that have not expired.
    pub fn names(&mut self) -> Vec<String> {
        self.expire();
        self.keys.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Sets the clock, in microseconds.
    pub fn set_clock(&mut self, micros: i64) {
        (self.now, self.micros) = (micros / 1_000, micros % 1_000);
    }

    /// Names of the keys that never expire.
    pub fn lasting(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().filter(|(_, entry)| entry.expires.is_none()).map(|(key, _)| key.as_slice())
    }

    /// Takes these keys from other data.
    pub fn restore(&mut self, from: &Self, goes: impl Fn(&[u8]) -> bool) {
        self.version += 1;
        self.keys.retain(|key, _| !goes(key));
        let there = from.keys.iter().filter(|(key, _)| goes(key));
        self.keys.extend(there.map(|(key, entry)| (key.clone(), entry.clone())));
    }

    /// Removes these keys. Returns the owners in them.
    pub fn clear(&mut self, goes: impl Fn(&[u8]) -> bool) -> Vec<String> {
        self.version += 1;
        let owners = self.all_owners(&goes);
        self.keys.retain(|key, _| !goes(key));
        owners
    }

    /// Nobody hears of what was changed and published.
    pub fn forget_changes(&mut self) {
        self.published.clear();
        self.touched.clear();
        self.ended.clear();
    }

    /// A script begins, or a command that is in none.
    pub fn begin(&mut self) {
        self.has_written = false;
    }

    /// Runs one command.
    pub fn run(&mut self, words: Words<'_>) -> Reply {
        self.expire();
        let name = String::from_utf8_lossy(words.first().map_or(b"", Vec::as_slice)).to_uppercase();
        let keys = words.get(1..).unwrap_or_default();
        if self.is_full && !self.has_written && GROWING.contains(&&*name) {
            return Reply::error(FULL);
        }
        let is_write = GROWING.contains(&&*name) || WRITING.contains(&&*name);
        self.has_written |= is_write;
        self.version += u64::from(is_write);
        // Only this one may change a set and count nothing.
        let before =
            if matches!(&*name, "ZADD" | "ZINCRBY") { self.sorted(&words[1]).ok().flatten().cloned() } else { None };
        let reply = self.command(&name, keys).unwrap_or_else(Reply::Error);
        let has_changed = match &*name {
            "INCRBY" | "DECRBY" | "HINCRBY" | "HSET" | "RPUSH" => !matches!(reply, Reply::Error(_)),
            "SET" => matches!(reply, Reply::Status(_)) || words.iter().any(|word| word.eq_ignore_ascii_case(b"get")),
            "DEL" | "PEXPIRE" | "PERSIST" | "HDEL" | "LPOP" | "LREM" | "ZREM" => {
                !matches!(reply, Reply::Error(_) | Reply::Nil | Reply::Int(0))
            }
            "ZADD" | "ZINCRBY" => self.sorted(&words[1]).is_ok_and(|after| after.cloned() != before),
            "PING" | "TIME" | "PUBLISH" | "SPUBLISH" => false,
            _ => {
                self.touched.push(Touch::Read);
                false
            }
        };
        if has_changed {
            let most = if name == "DEL" { keys.len() } else { 1 };
            self.touched.extend(keys[..most].iter().cloned().map(Touch::Changed));
        }
        reply
    }

    /// Removes what has expired. Returns when the next key does.
    pub fn expire(&mut self) -> Option<i64> {
        let Self { keys, touched, ended, now, version, .. } = self;
        keys.retain(|key, entry| {
            let is_there = entry.expires.is_none_or(|at| at > *now);
            if !is_there {
                *version += 1;
                touched.push(Touch::Expired(key.clone()));
                ended.insert(key.clone());
            }
            is_there
        });
        self.keys.values().filter_map(|entry| entry.expires).min()
    }

    /// The owners in a lock, whatever its kind.
    pub fn owners(&self, key: &[u8]) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => {
                let owners = fields.iter().map(|(field, _)| text(field)).filter(|field| field.contains(':'));
                owners.map(|field| field.trim_end_matches(":write").to_owned()).collect()
            }
            Some(Value::Text(value)) => vec![text(value)],
            _ => vec![],
        }
    }

    /// All owners of these locks.
    fn all_owners(&self, goes: impl Fn(&[u8]) -> bool) -> Vec<String> {
        let of_group = |key: &Vec<u8>| match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => {
                fields.iter().map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
            }
            _ => vec![],
        };
        self.keys.keys().filter(|key| goes(key)).flat_map(|key| [self.owners(key), of_group(key)].concat()).collect()
    }

    /// The values of a list.
    pub fn listed(&self, key: &[u8]) -> Vec<String> {
        match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::List(list)) => list.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect(),
            _ => vec![],
        }
    }

    /// The scores of a sorted set.
    pub fn scores(&self, key: &[u8]) -> BTreeMap<String, f64> {
        match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::Sorted(set)) => {
                set.iter().map(|(score, member)| (String::from_utf8_lossy(member).into_owned(), *score)).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each command")]
    fn command(&mut self, name: &str, words: Words<'_>) -> Outcome {
        Ok(match (name, words) {
            ("PING", []) => Reply::Status("PONG"),
            ("TIME", []) => Reply::List(vec![
                Reply::text((self.now / 1_000).to_string()),
                Reply::text((self.now % 1_000 * 1_000 + self.micros).to_string()),
            ]),
            ("PUBLISH" | "SPUBLISH", [channel, message]) => {
                let (channel, message) = (channel.clone(), message.clone());
                self.published.push(Published { is_sharded: name == "SPUBLISH", channel, message });
                Reply::Int(0)
            }
            ("EXISTS", keys) => count(keys.iter().filter(|key| self.keys.contains_key(*key)).count()),
            ("DEL", keys) => count(keys.iter().filter(|key| self.keys.remove(*key).is_some()).count()),
            ("TYPE", [key]) => Reply::Status(match self.keys.get(key).map(|entry| &entry.value) {
                None => "none",
                Some(Value::Text(_)) => "string",
                Some(Value::Hash(_)) => "hash",
                Some(Value::List(_)) => "list",
                Some(Value::Sorted(_)) => "zset",
            }),
            ("PEXPIRE", [key, millis]) => {
                let at = self.now + integer(millis)?;
                let Some(entry) = self.keys.get_mut(key) else { return Ok(Reply::Int(0)) };
                entry.expires = Some(at);
                if at <= self.now {
                    self.keys.remove(key);
                }
                Reply::Int(1)
            }
            ("PERSIST", [key]) => {
                let entry = self.keys.get_mut(key);
                count(entry.is_some_and(|entry| entry.expires.take().is_some()).into())
            }
            ("PTTL", [key]) => Reply::Int(match self.keys.get(key) {
                None => -2,
                Some(entry) => entry.expires.map_or(-1, |at| at - self.now),
            }),
            ("GET", [key]) => Reply::maybe(self.text(key)?.cloned()),
            ("GETRANGE", [key, from, to]) => {
                let text = self.text(key)?.cloned().unwrap_or_default();
                Reply::Bulk(
                    slice(text.len(), integer(from)?, integer(to)?).map_or(vec![], |range| text[range].to_vec()),
                )
            }
            ("SET", [key, value, options @ ..]) => self.set(key, value, options)?,
            ("INCRBY" | "DECRBY", [key, by]) => {
                let by = if name == "INCRBY" { integer(by)? } else { -integer(by)? };
                let number = self.text(key)?.map_or(Ok(0), |text| integer(text))? + by;
                self.write_text(key, number.to_string().into_bytes());
                Reply::Int(number)
            }
            ("HSET", [key, pairs @ ..]) => {
                let hash = self.hash_to_write(key)?;
                let before = hash.len();
                for pair in pairs.chunks_exact(2) {
                    match hash.iter_mut().find(|(field, _)| *field == pair[0]) {
                        Some((_, value)) => value.clone_from(&pair[1]),
                        None => hash.push((pair[0].clone(), pair[1].clone())),
                    }
                }
                count(hash.len() - before)
            }
            ("HINCRBY", [key, field, by]) => {
                let number = self.field(key, field)?.map_or(Ok(0), |text| integer(&text))? + integer(by)?;
                let _ = self.command("HSET", &[key.clone(), field.clone(), number.to_string().into_bytes()])?;
                Reply::Int(number)
            }
            ("HGET", [key, field]) => Reply::maybe(self.field(key, field)?),
            ("HEXISTS", [key, field]) => count(self.field(key, field)?.is_some().into()),
            ("HMGET", [key, fields @ ..]) => {
                let values: Result<Vec<_>, _> = fields.iter().map(|field| self.field(key, field)).collect();
                Reply::List(values?.into_iter().map(Reply::maybe).collect())
            }
            ("HDEL", [key, fields @ ..]) => {
                let Some(hash) = self.hash(key)? else { return Ok(Reply::Int(0)) };
                let before = hash.len();
                hash.retain(|(field, _)| !fields.contains(field));
                let gone = before - hash.len();
                self.drop_if_empty(key);
                count(gone)
            }
            ("HLEN", [key]) => count(self.hash(key)?.map_or(0, |hash| hash.len())),
            ("HGETALL", [key]) => {
                let pairs = self.hash(key)?.cloned().unwrap_or_default();
                Reply::List(pairs.into_iter().flat_map(|(field, value)| [field, value]).map(Reply::Bulk).collect())
            }
            ("HKEYS", [key]) => {
                let fields = self.hash(key)?.cloned().unwrap_or_default();
                Reply::List(fields.into_iter().map(|(field, _)| Reply::Bulk(field)).collect())
            }
            // Any fields are right; the first ones are as good.
            ("HRANDFIELD", [key, most]) => {
                let most = usize::try_from(integer(most)?).map_err(|_| "ERR no such count here".to_owned())?;
                let fields = self.hash(key)?.cloned().unwrap_or_default();
                Reply::List(fields.into_iter().take(most).map(|(field, _)| Reply::Bulk(field)).collect())
            }
            ("RPUSH", [key, values @ ..]) => {
                let list = self.list_to_write(key)?;
                list.extend(values.iter().cloned());
                count(list.len())
            }
            ("LPOP", [key]) => {
                let first = self.list(key)?.and_then(VecDeque::pop_front);
                self.drop_if_empty(key);
                Reply::maybe(first)
            }
            ("LLEN", [key]) => count(self.list(key)?.map_or(0, |list| list.len())),
            ("LINDEX", [key, at]) => {
                let at = integer(at)?;
                Reply::maybe(self.list(key)?.and_then(|list| {
                    let at = if at < 0 { at + i64::try_from(list.len()).ok()? } else { at };
                    list.get(usize::try_from(at).ok()?).cloned()
                }))
            }
            ("LRANGE", [key, from, to]) => {
                let list: Vec<_> = self.list(key)?.cloned().unwrap_or_default().into();
                let range = slice(list.len(), integer(from)?, integer(to)?);
                Reply::List(range.map_or(vec![], |range| list[range].to_vec()).into_iter().map(Reply::Bulk).collect())
            }
            ("LPOS", [key, value, options @ ..]) => {
                let most = if let [_, most] = options { integer(most)? } else { i64::MAX };
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let place = self.list(key)?.and_then(|list| list.iter().take(most).position(|other| other == value));
                place.map_or(Reply::Nil, count)
            }
            ("LREM", [key, most, value]) => {
                let most = integer(most)?;
                let Some(list) = self.list(key)? else { return Ok(Reply::Int(0)) };
                let (mut left, before) = (if most == 0 { i64::MAX } else { most.abs() }, list.len());
                list.retain(|other| {
                    let goes = other == value && left > 0;
                    left -= i64::from(goes);
                    !goes
                });
                let gone = before - list.len();
                self.drop_if_empty(key);
                count(gone)
            }
            ("ZADD", [key, option, score, member]) if option.eq_ignore_ascii_case(b"xx") => {
                let is_there = self.score(key, member)?.is_some();
                let pair = [key.clone(), score.clone(), member.clone()];
                return if is_there { self.command("ZADD", &pair) } else { Ok(Reply::Int(0)) };
            }
            ("ZADD", [key, pairs @ ..]) => {
                let sorted = self.sorted_to_write(key)?;
                let before = sorted.len();
                for pair in pairs.chunks_exact(2) {
                    sorted.retain(|(_, member)| *member != pair[1]);
                    sorted.push((float(&pair[0])?, pair[1].clone()));
                }
                sorted.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
                count(sorted.len() - before)
            }
            ("ZINCRBY", [key, by, member]) => {
                let score = self.score(key, member)?.map_or(Ok(0.0), |score| float(&score))? + float(by)?;
                let score = score.to_string();
                let _ = self.command("ZADD", &[key.clone(), score.clone().into_bytes(), member.clone()])?;
                Reply::text(score)
            }
            ("ZSCORE", [key, member]) => Reply::maybe(self.score(key, member)?),
            ("ZMSCORE", [key, members @ ..]) => {
                let scores: Result<Vec<_>, _> = members.iter().map(|member| self.score(key, member)).collect();
                Reply::List(scores?.into_iter().map(Reply::maybe).collect())
            }
            ("ZREM", [key, members @ ..]) => {
                let Some(sorted) = self.sorted(key)? else { return Ok(Reply::Int(0)) };
                let before = sorted.len();
                sorted.retain(|(_, member)| !members.contains(member));
                let gone = before - sorted.len();
                self.drop_if_empty(key);
                count(gone)
            }
            ("ZCARD", [key]) => count(self.sorted(key)?.map_or(0, |sorted| sorted.len())),
            ("ZCOUNT", [key, from, to]) => count(self.between(key, from, to)?.len()),
            ("ZRANGEBYSCORE", [key, from, to, options @ ..]) => {
                let mut found = self.between(key, from, to)?;
                let has_scores = options.iter().any(|option| option.eq_ignore_ascii_case(b"withscores"));
                if let Some(at) = options.iter().position(|option| option.eq_ignore_ascii_case(b"limit")) {
                    let [from, most] = [1, 2].map(|next| options.get(at + next).map_or(Ok(0), |word| integer(word)));
                    let most = usize::try_from(most?).unwrap_or(usize::MAX);
                    found = found.into_iter().skip(usize::try_from(from?).unwrap_or(0)).take(most).collect();
                }
                members(found, has_scores)
            }
            ("ZRANGE" | "ZREVRANGE", [key, from, to, options @ ..]) => {
                let mut all = self.sorted(key)?.cloned().unwrap_or_default();
                if name == "ZREVRANGE" {
                    all.reverse();
                }
                let range = slice(all.len(), integer(from)?, integer(to)?);
                members(range.map_or(vec![], |range| all[range].to_vec()), !options.is_empty())
            }
            _ => return Err(format!("ERR unknown command '{name}' with {} words", words.len())),
        })
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: Words<'_>) -> Outcome {
        let has = |word: &str| options.iter().any(|option| option.eq_ignore_ascii_case(word.as_bytes()));
        let before = if has("GET") { self.text(key)?.cloned() } else { None };
        let is_there = self.keys.contains_key(key);
        let answer = if has("GET") { Reply::maybe(before) } else { Reply::Status("OK") };
        if has("NX") && is_there || has("XX") && !is_there {
            return Ok(if has("GET") { answer } else { Reply::Nil });
        }
        let kept = self.keys.get(key).and_then(|entry| entry.expires).filter(|_| has("KEEPTTL"));
        let place = options.iter().position(|option| option.eq_ignore_ascii_case(b"px"));
        let millis = place.and_then(|at| options.get(at + 1)).map(|millis| integer(millis)).transpose()?;
        let expires = millis.map(|millis| self.now + millis).or(kept);
        self.keys.insert(key.to_vec(), Entry { value: Value::Text(value.to_vec()), expires });
        Ok(answer)
    }
}

/// Commands that a full memory refuses, and other ones that write.
const GROWING: &[&str] = &["SET", "INCRBY", "DECRBY", "HSET", "HINCRBY", "RPUSH", "ZADD", "ZINCRBY"];
const WRITING: &[&str] = &["DEL", "PEXPIRE", "PERSIST", "HDEL", "LPOP", "LREM", "ZREM"];
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
