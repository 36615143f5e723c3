//! Lock names, and every key and channel derived from one.

mod field;

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
/// A valid lock name. The name is the key of the lock in Redis; a value of a group is a part of the group's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockName {
    key: Arc<str>,
    /// `None` for the whole key.
    part: Option<Arc<ValuePart>>,
}

/// A value of a group lock: a lock of its own beside the other values of the group.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ValuePart {
    /// The field of the value in the hash of the group.
    field: String,
    /// The name for texts: `group[value]`.
    text: String,
}

/// A key or channel that is made of a name: parts side by side, which a request takes as one word without a text of
/// their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined<'a>([&'a str; 6]);

/// The name in a handle. The name is checked once; an invalid name keeps the error for every use.
#[derive(Clone)]
pub(crate) struct GivenName {
    text: Arc<str>,
    checked: Result<LockName, Error>,
}

impl GivenName {
    pub(crate) fn new(text: Arc<str>) -> Self {
        Self { checked: LockName::of(&text), text }
    }

    /// The name of one value of a group.
    pub(crate) fn of_value(group: &Arc<str>, value: &str) -> Self {
        let checked = LockName::of(group).and_then(|name| name.with_value(value));
        Self { text: format!("{group}[{value}]").into(), checked }
    }

    /// Refuses a name for use on a cluster whose braces make no hash tag: the keys of one lock need a common slot. To the
    /// channel of a latch braces are added in any case.
    pub(crate) fn in_one_slot(self, is_of_latch: bool) -> Self {
        let checked = self.checked.and_then(|name| {
            let has_braces = name.key.contains(['{', '}']);
            let why = if has_braces && is_of_latch {
                "the name of a latch has no braces there, because its channel would be in another slot"
            } else if has_braces && hashed_part(name.key()) == name.key() {
                "its braces make no hash tag, as in {orders}:42, so its keys would be in several slots"
            } else {
                return Ok(name);
            };
            let text = format!("this name cannot be used on a cluster: {why}");
            Err(Error::new(ErrorKind::BadInput, text).about(&name))
        });
        Self { checked, ..self }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn checked(&self) -> Result<&LockName, Error> {
        self.checked.as_ref().map_err(Error::clone)
    }
}

/// The channel on which a server publishes changes of tracked keys to a RESP2 connection.
pub(crate) const INVALIDATIONS: &str = "__redis__:invalidate";

impl LockName {
    pub(crate) const LONGEST: usize = 4 * 1024;

    fn of(name: &Arc<str>) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::new(ErrorKind::BadInput, "a lock name cannot be empty"));
        }
        Self::check_length("a lock name", name)?;
        Ok(Self { key: Arc::clone(name), part: None })
    }

    /// The name of a value under this key. Any text is a value, also the empty one.
    fn with_value(self, value: &str) -> Result<Self, Error> {
        Self::check_length("a value of a group", value)?;
        let part = ValuePart { field: field::of_value(value.as_bytes()), text: format!("{}[{value}]", self.key) };
        Ok(Self { part: Some(Arc::new(part)), ..self })
    }

    /// Refuses a text that is longer than any name.
    pub(crate) fn check_length(what: &str, text: &str) -> Result<(), Error> {
        if text.len() <= Self::LONGEST {
            return Ok(());
        }
        let begin: String = text.chars().take(32).collect();
        let text = format!("{what} has at most {} bytes; {begin:?}.. has {}", Self::LONGEST, text.len());
        Err(Error::new(ErrorKind::BadInput, text))
    }

    /// The name that people read: the key, or `group[value]`.
    pub(crate) fn as_str(&self) -> &str {
        self.part.as_ref().map_or(&self.key, |part| &part.text)
    }

    /// The field of a value in the hash of its group; empty for a name of a whole key.
    pub(crate) fn field(&self) -> &str {
        self.part.as_ref().map_or("", |part| &part.field)
    }

    /// The name of the whole key, which a message on the channel and a report of a changed key are about.
    pub(crate) fn whole(&self) -> Self {
        Self { key: Arc::clone(&self.key), part: None }
    }

    /// Whether the two names cannot be held by two owners: the same name, or one is the whole key of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.key == other.key && (self.part == other.part || self.part.is_none() || other.part.is_none())
    }

    /// The key of the lock as a text.
    pub(crate) fn shared_key(&self) -> &Arc<str> {
        &self.key
    }

    /// The key of the lock, which also decides the server for every request about the lock.
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// The key, beside others that are made of the name.
    pub(crate) fn as_key(&self) -> Joined<'_> {
        Joined::of(&self.key)
    }

    /// The sorted set of taken permits, by the time at which each of them expires.
    pub(crate) fn taken_permits(&self) -> Joined<'_> {
        self.suffixed("timeout")
    }

    /// The names of semaphores whose taken permits are under this key: `n` and `{n}` share one.
    pub(crate) fn semaphores_of(key: &str) -> [Option<&str>; 2] {
        let Some(name) = key.strip_suffix(":timeout") else { return [None, None] };
        [Some(name), name.strip_prefix('{').and_then(|name| name.strip_suffix('}'))]
    }

    /// The channel of a count-down latch. Redisson adds braces also to a name that has some.
    pub(crate) fn latch_channel(&self) -> Joined<'_> {
        Joined(["redisson_countdownlatch__channel__{", &self.key, "}", "", "", ""])
    }

    /// The idempotency key of the requests of one client in one slot. Redisson has no such key.
    pub(crate) fn once(&self, client: &str, slot: u32) -> String {
        let Joined([prefix, before, key, after, ..]) = self.own("lockson_once");
        joined(&[prefix, before, key, after, ":", client, ":", itoa::Buffer::new().format(slot)])
    }

    /// The hash that tells who leads: owner, token, time and candidate. Redisson has no such key.
    pub(crate) fn leader(&self) -> Joined<'_> {
        self.own("lockson_leader")
    }

    /// The prefix of the keys of all read holds; owner, `:rwlock_timeout:` and a number follow.
    pub(crate) fn read_holds(&self) -> Joined<'_> {
        self.suffixed("")
    }

    /// The key of the read hold of one owner with this number.
    pub(crate) fn read_hold<'a>(&'a self, owner: &'a str, number: &'a str) -> Joined<'a> {
        let Joined([before, key, after, ..]) = self.read_holds();
        Joined([before, key, after, owner, ":rwlock_timeout:", number])
    }

    /// A key beside the lock whose name begins with the lock's, in the same hash slot.
    fn suffixed<'a>(&'a self, suffix: &'a str) -> Joined<'a> {
        let (before, after) = if self.key.contains('{') { ("", ":") } else { ("{", "}:") };
        Joined([before, &self.key, after, suffix, "", ""])
    }

    /// A key or channel beside the lock, in the same hash slot.
    fn prefixed<'a>(&'a self, prefix: &'a str) -> Joined<'a> {
        // Redisson only checks for an opening brace, not for the closing one.
        let (before, after) = if self.key.contains('{') { (":", "") } else { (":{", "}") };
        Joined([prefix, before, &self.key, after, "", ""])
    }

    /// A key beside the lock that Redisson does not have, and that the names `n` and `{n}` do not share.
    fn own<'a>(&'a self, prefix: &'a str) -> Joined<'a> {
        let Joined([prefix, before, key, after, ..]) = self.prefixed(prefix);
        Joined([prefix, before, key, if after.is_empty() { ":" } else { after }, "", ""])
    }
}

impl<'a> Joined<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self([text, "", "", "", "", ""])
    }

    /// Two more parts at the end, where there is room for them: after a prefixed key.
    pub(crate) fn and(self, more: [&'a str; 2]) -> Self {
        let (Self([a, b, c, d, ..]), [e, f]) = (self, more);
        Self([a, b, c, d, e, f])
    }

    pub(crate) fn parts(&self) -> [&'a [u8]; 6] {
        self.0.map(str::as_bytes)
    }

    pub(crate) fn text(&self) -> String {
        joined(&self.0)
    }
}

/// The parts side by side. The general way to do this takes twice as long.
fn joined(parts: &[&str]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| text.push_str(part));
    text
}

/// Returns the bytes that Redis hashes: those between the first `{` and the next `}` if there are any, else all.
pub(crate) fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let tag = &key[open + 1..];
    match tag.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &tag[..close],
    }
}

/// Declares keys and channels beside the lock by what stands before the name.
macro_rules! beside {
    ($($(#[$doc:meta])* $key:ident = $prefix:literal;)*) => {
        impl LockName {
            $($(#[$doc])*
            pub(crate) fn $key(&self) -> Joined<'_> {
                self.prefixed($prefix)
            })*
        }
    };
}

beside! {
    /// The channel for releases of a plain lock.
    channel = "redisson_lock__channel";
    /// The channel for releases of a read-write lock.
    read_write_channel = "redisson_rwlock";
    /// The list of waiters of a fair lock, in queue order.
    queue = "redisson_lock_queue";
    /// The sorted set of waiters of a fair lock, by the time at which Redisson drops each of them.
    queue_deadlines = "redisson_lock_timeout";
    /// The sorted set of the waiters of this library for a fair lock, by the time at which the patience with each of
    /// them ends. Redisson has no such key.
    queue_alive = "redisson_lock_alive";
    /// The key of the last fencing token.
    token = "redisson_lock_token";
    /// The channel for free permits of a semaphore.
    semaphore_channel = "redisson_sc";
    /// The channel for changes of the leader.
    leader_channel = "lockson_leader__channel";
}

impl fmt::Debug for GivenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl LockName {
        pub(crate) fn new(name: &str) -> Result<Self, Error> {
            Self::of(&name.into())
        }
    }

    #[test]
    fn every_channel_is_in_the_slot_of_its_key() {
        for name in ["L", "orders:42", "{test}:abc:key", "a{b}c", "a}b{c}{d}"] {
            let name = LockName::new(name).unwrap();
            let of_waiter = name.channel().and([":", "owner:1"]).text();
            let mut channels = vec![
                name.channel().text(),
                of_waiter,
                name.read_write_channel().text(),
                name.semaphore_channel().text(),
            ];
            channels.push(name.leader_channel().text());
            if !name.as_str().contains(['{', '}']) {
                channels.push(name.latch_channel().text());
            }
            for channel in channels {
                assert_eq!(hashed_part(channel.as_bytes()), hashed_part(name.key()), "{channel}");
            }
        }
    }

    #[test]
    fn a_channel_adds_braces_only_where_the_name_has_none() {
        let check = |name: &str, channel: &str| assert_eq!(LockName::new(name).unwrap().channel().text(), channel);
        check("L", "redisson_lock__channel:{L}");
        check("{test}:abc:key", "redisson_lock__channel:{test}:abc:key");
        check("a{b}c", "redisson_lock__channel:a{b}c");
        check("a}b", "redisson_lock__channel:{a}b}");
        check("line\nend\0", "redisson_lock__channel:{line\nend\0}");
    }

    #[test]
    fn a_set_of_permits_leads_to_its_semaphore() {
        for name in ["n", "{n}", "a{b}c", "a}b", "n:timeout"] {
            let key = LockName::new(name).unwrap().taken_permits().text();
            assert!(LockName::semaphores_of(&key).contains(&Some(name)), "{key}");
        }
        assert_eq!(LockName::new("a{b}c").unwrap().taken_permits().text(), "a{b}c:timeout");
        assert_eq!(LockName::semaphores_of("n"), [None, None]);
    }

    #[test]
    fn empty_and_overlong_names_are_refused() {
        for bad in [String::new(), "x".repeat(LockName::LONGEST + 1)] {
            assert_eq!(LockName::new(&bad).unwrap_err().kind(), ErrorKind::BadInput);
        }
        assert!(LockName::new(&"x".repeat(LockName::LONGEST)).is_ok());
    }

    #[test]
    fn values_of_a_group_are_names_of_their_own_under_one_key() {
        let of = |value: &str| GivenName::of_value(&"class".into(), value).checked().unwrap().clone();
        let (one, other, whole) = (of("a"), of("b"), LockName::new("class").unwrap());
        assert_eq!(one, of("a"));
        assert!(one != other && one != whole && one != LockName::new("class[a]").unwrap());
        assert_eq!((one.key(), one.channel().text()), (whole.key(), whole.channel().text()));
        assert_eq!((one.to_string().as_str(), other.whole()), ("class[a]", whole.clone()));
        assert!(one.overlaps(&one) && one.overlaps(&whole) && whole.overlaps(&one) && !one.overlaps(&other));
        assert!(!one.overlaps(&GivenName::of_value(&"group".into(), "a").checked().unwrap().clone()));
    }

    #[test]
    fn a_bad_group_or_value_is_refused() {
        let refused = |group: &str, value: &str| GivenName::of_value(&group.into(), value).checked().is_err();
        assert!(refused("", "a") && refused("g", &"x".repeat(LockName::LONGEST + 1)));
        assert!(!refused("g", "") && !refused("g", &"x".repeat(LockName::LONGEST)));
    }

    #[test]
    fn on_a_cluster_all_keys_of_a_name_have_one_tag() {
        for name in ["a", "{a}", "x{a}y", "{a}{b}", "x}{a}", "a{b", "{}x", "a}b", "{", "}", "{}{a}"] {
            let given = GivenName::new(name.into());
            let known = given.checked().unwrap().clone();
            let others = [
                known.channel().text(),
                known.read_write_channel().text(),
                known.queue().text(),
                known.queue_deadlines().text(),
                known.queue_alive().text(),
                known.token().text(),
                known.taken_permits().text(),
                known.semaphore_channel().text(),
                known.leader().text(),
                known.leader_channel().text(),
                known.once("client", 7),
                known.read_holds().text(),
            ];
            let is_one = |other: &String| hashed_part(other.as_bytes()) == hashed_part(known.key());
            assert_eq!(given.in_one_slot(false).checked().is_ok(), others.iter().all(is_one), "{name}");
            let latch = GivenName::new(name.into()).in_one_slot(true);
            assert_eq!(latch.checked().is_ok(), !name.contains(['{', '}']), "{name}");
            assert!(latch.checked().is_err() || is_one(&known.latch_channel().text()), "{name}");
        }
    }

    #[test]
    fn a_name_is_checked_once_and_fails_the_same_each_time() {
        let bad = GivenName::new("".into());
        let told = || bad.checked().unwrap_err().to_string();
        assert_eq!((bad.as_str(), told()), ("", told()));
        let good = GivenName::new("orders:42".into());
        let first = good.checked().unwrap();
        assert!(std::ptr::eq(first.as_str(), good.as_str()), "one text, not a copy for each use");
    }

    #[test]
    fn a_tag_is_between_the_first_braces() {
        let check = |key: &str, part: &str| assert_eq!(hashed_part(key.as_bytes()), part.as_bytes(), "{key}");
        check("a", "a");
        check("{a}", "a");
        check("x{a}y{b}", "a");
        check("x}{a}", "a");
        check("{{a}}", "{a");
        check("a{b", "a{b");
        check("{}a", "{}a");
        check("{}{a}", "{}{a}");
        check("a}b", "a}b");
    }
}
