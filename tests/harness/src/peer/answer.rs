//! The answer of a peer to one command.

use std::collections::BTreeMap;

use crate::clock;
use crate::percent::decode;

/// One answer line, split into its parts.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) id: u64,
    ok: bool,
    values: BTreeMap<String, String>,
}

impl Answer {
    pub(super) fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let id = words.next().and_then(|id| id.parse().ok());
        let ok = words.next() == Some("ok");
        let values = words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), decode(value).expect("a peer writes UTF-8")));
        Self { id: id.unwrap_or_else(|| panic!("no answer: {line:?}")), ok, values: values.collect() }
    }

    /// Whether the answer reports success.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// Returns the answer, and panics unless the answer reports success.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert!(self.ok, "{}", self.story());
        self
    }

    /// Checks that the answer reports a failure of this kind, and returns the message.
    ///
    /// # Panics
    ///
    /// Panics when the answer reports a success or another failure.
    #[track_caller]
    pub fn expect_failure(&self, kind: &str) -> &str {
        assert!(!self.ok, "the command succeeded instead of failing with `{kind}`");
        assert!(self.values["kind"] == kind, "`{kind}` was due, not {}", self.story());
        self.text("message")
    }

    /// Whether the object is held now; an open latch counts as held.
    #[track_caller]
    pub fn acquired(&self) -> bool {
        assert!(self.ok, "{}", self.story());
        self.values.get("acquired").or_else(|| self.values.get("open")).is_none_or(|value| value == "true")
    }

    /// The value of this key.
    ///
    /// # Panics
    ///
    /// Panics when the answer has none.
    #[track_caller]
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).unwrap_or_else(|| panic!("no {key} in {}", self.story()))
    }

    /// The value of this key, if the answer has one.
    pub fn optional_text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value of this key, a number.
    ///
    /// # Panics
    ///
    /// Panics when the answer has none.
    #[track_caller]
    pub fn number(&self, key: &str) -> i64 {
        self.text(key).parse().unwrap_or_else(|error| panic!("{key} in {}: {error}", self.story()))
    }

    /// The value of this key, yes or no.
    #[track_caller]
    pub fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    /// When the operation started.
    pub fn started(&self) -> u64 {
        self.time("t0")
    }

    /// When the operation returned.
    pub fn returned(&self) -> u64 {
        self.time("t1")
    }

    /// How long after `earlier` the operation returned, in milliseconds.
    pub fn millis_after(&self, earlier: u64) -> f64 {
        clock::millis_between(earlier, self.returned())
    }

    /// The failure as one line for people.
    pub fn story(&self) -> String {
        match (self.values.get("kind"), self.values.get("message")) {
            (Some(kind), Some(message)) => format!("{kind}: {message}"),
            _ => format!("{self:?}"),
        }
    }

    fn time(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or_else(|_| panic!("no time {key} in {self:?}"))
    }
}
