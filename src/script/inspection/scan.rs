//! The names of locks on a server, page by page.

use redis::{Cmd, Value};

use super::{MOST_AT_ONCE, SAMPLE, WRONG_TYPE, is_hold, is_own, of_group};
use crate::error::{Refusal, Stop};
use crate::name::{GivenName, LockName};
use crate::reply::{ask, command, known, list, text, texts};
use crate::script::Pipeline;

/// Asks for one page of the keys that begin with `prefix`. Returns the next cursor, `0` at the end, and the names.
pub(crate) fn page(send: &mut Pipeline<'_>, cursor: &str, prefix: &str) -> Result<(String, Vec<LockName>), Stop> {
    let reply = ask(send, command("SCAN", (cursor, "MATCH", pattern(prefix), "COUNT", MOST_AT_ONCE)))?;
    let Some([next, keys]) = list(&reply) else { return Err(Stop::NoReply) };
    let names = known(list(keys))?.iter().filter_map(|key| match key {
        Value::BulkString(key) => GivenName::new(String::from_utf8(key.clone()).ok()?.into()).checked().cloned().ok(),
        _ => None,
    });
    Ok((known(text(next))?, names.collect()))
}

/// Asks which names are certainly names of locks. Returns beside them the word of a server that another one has a key:
/// all keys of a former master have gone to one, or the map tells of the others. Stops with [`Stop::NotALock`] at one
/// that has more data than any lock, and removes it, so that a repetition goes on without it.
pub(crate) fn certain_locks(
    send: &mut Pipeline<'_>,
    names: &mut Vec<LockName>,
) -> Result<(Vec<String>, Option<Refusal>), Stop> {
    let mut moved = None;
    let types = ask_each(send, &mut moved, names.iter().map(|name| command("TYPE", name.key())).collect())?;
    let (mut strings, mut hashes) = (vec![], vec![]);
    for (place, kind) in types.iter().enumerate() {
        match text(kind).as_deref() {
            Some("string") => strings.push(place),
            Some("hash") => hashes.push(place),
            _ => {}
        }
    }
    let questions = hashes.iter().map(|place| command("HRANDFIELD", (names[*place].key(), SAMPLE)));
    let samples = match ask_each(send, &mut moved, questions.collect()) {
        Err(Stop::TooLong(before)) => {
            names.remove(*known(hashes.get(before.len()))?);
            return Err(Stop::NotALock);
        }
        samples => samples?,
    };
    let hashes = hashes.iter().zip(&samples).filter(|(_, sample)| is_hash_of_lock(&texts(sample)));
    let mut found: Vec<usize> = hashes.map(|(place, _)| *place).collect();
    let questions = strings.iter().flat_map(|place| {
        let name = &names[*place];
        [command("GETRANGE", (name.key(), 0, LONGEST_SAMPLE)), command("TYPE", name.taken_permits().text())]
    });
    let replies = ask_each(send, &mut moved, questions.collect())?;
    found.extend(strings.iter().zip(replies.chunks_exact(2)).filter_map(|(place, replies)| {
        let [value, companion] = [0, 1].map(|at| text(&replies[at]).unwrap_or_default());
        (is_own(&value) || value.parse::<i64>().is_ok() && companion == "zset").then_some(*place)
    }));
    Ok((found.into_iter().map(|place| names[place].to_string()).collect(), moved))
}

/// Asks about keys that may be gone by now, or on another server, or out of the user's reach: their replies are nil.
fn ask_each(send: &mut Pipeline<'_>, moved: &mut Option<Refusal>, questions: Vec<Cmd>) -> Result<Vec<Value>, Stop> {
    if questions.is_empty() {
        return Ok(vec![]);
    }
    let reply = |reply: Value| match Refusal::in_reply(&reply) {
        Some(refusal) if refusal.word() == "MOVED" => {
            *moved = Some(refusal);
            Ok(Value::Nil)
        }
        Some(refusal)
            if refusal.word() == WRONG_TYPE
                || refusal.is_of_routing() && refusal.word() != "CLUSTERDOWN"
                || refusal.word() == "NOPERM" && !refusal.is_of_right_to_run() =>
        {
            Ok(Value::Nil)
        }
        Some(refusal) => Err(Stop::Refused(refusal)),
        None => Ok(reply),
    };
    send(&questions)?.into_iter().map(reply).collect()
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
    let are_owners = owners.iter().all(|field| is_hold(field));
    are_owners && (owners.len() == 1 || !owners.is_empty() && !mode.is_empty() || owners.len() == SAMPLE)
}

/// An owner id fits.
const LONGEST_SAMPLE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

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
