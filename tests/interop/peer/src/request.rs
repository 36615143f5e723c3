//! One command line: its verb and its values, decoded on request.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use crate::answer::Failure;
use lockson_harness::percent;

/// A command in the form of the protocol.
#[derive(Debug)]
pub(crate) struct Request {
    verb: String,
    encoded: BTreeMap<String, String>,
    /// The keys that somebody has asked for.
    read: RefCell<BTreeSet<String>>,
}

impl Request {
    /// The id for the answer, also when the rest of the line is garbled.
    pub(crate) fn id_of(line: &str) -> &str {
        line.split(' ').next().unwrap_or(line)
    }

    pub(crate) fn parse(line: &str) -> Result<Self, Failure> {
        let mut words = line.split(' ').skip(1);
        let verb = words.next().filter(|verb| !verb.is_empty());
        let verb = verb.ok_or_else(|| Failure::bad_input("expected: <id> <verb> [key=value ...]"))?;
        let mut encoded = BTreeMap::new();
        for word in words {
            let pair = word.split_once('=').filter(|(key, _)| !key.is_empty());
            let (key, value) = pair.ok_or_else(|| Failure::bad_input(format!("not key=value: '{word}'")))?;
            if encoded.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(Failure::bad_input(format!("given twice: {key}")));
            }
        }
        Ok(Self { verb: verb.to_owned(), encoded, read: RefCell::default() })
    }

    pub(crate) fn verb(&self) -> &str {
        &self.verb
    }

    /// Fails on a key that nobody has asked for, so that a misspelt key is not ignored.
    pub(crate) fn all_read(&self) -> Result<(), Failure> {
        match self.encoded.keys().find(|key| !self.read.borrow().contains(*key)) {
            Some(key) => Err(Failure::bad_input(format!("{} does not take {key}", self.verb))),
            None => Ok(()),
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub(crate) fn text(&self, key: &str) -> Result<String, Failure> {
        self.optional_text(key)?.ok_or_else(|| Failure::bad_input(format!("{} needs {key}", self.verb)))
    }

    pub(crate) fn optional_text(&self, key: &str) -> Result<Option<String>, Failure> {
        self.value(key).map(decode).transpose()
    }

    /// Commas separate items before the decoding, so an encoded comma belongs to its item.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, Failure> {
        match self.value(key) {
            Some(items) if !items.is_empty() => items.split(',').map(decode).collect(),
            _ => Err(Failure::bad_input(format!("{} needs at least one of {key}", self.verb))),
        }
    }

    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<T, Failure> {
        self.optional_number(key)?.ok_or_else(|| Failure::bad_input(format!("{} needs {key}", self.verb)))
    }

    pub(crate) fn optional_number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.optional_text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Failure::bad_input(format!("{key} is no possible number: '{text}'")))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.read.borrow_mut().insert(key.to_owned());
        self.encoded.get(key).map(String::as_str)
    }
}

fn decode(encoded: &str) -> Result<String, Failure> {
    percent::decode(encoded).ok_or_else(|| Failure::bad_input(format!("not UTF-8 once decoded: {encoded}")))
}
