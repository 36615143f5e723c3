//! The answer of a peer to one command.

use std::collections::BTreeMap;

use crate::clock;
use lockson_harness::percent::decode;

/// One answer line, split into its parts.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    ok: bool,
    values: BTreeMap<String, String>,
}

impl Answer {
    pub(crate) fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let id = words.next().and_then(|id| id.parse().ok());
        let ok = words.next() == Some("ok");
        let values = words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), decode(value).expect("a peer writes UTF-8")));
        Self { id: id.unwrap_or_else(|| panic!("no answer: {line:?}")), ok, values: values.collect() }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.ok
    }

    /// Returns the answer, and panics unless the answer reports success.
    #[track_caller]
    pub(crate) fn expect_ok(self) -> Self {
        assert!(self.ok, "{}", self.story());
        self
    }

    /// Checks that the answer reports a failure of this kind.
    #[track_caller]
    pub(crate) fn expect_failure(&self, kind: &str) {
        assert!(!self.ok, "the command succeeded instead of failing with `{kind}`");
        assert!(self.values["kind"] == kind, "`{kind}` was due, not {}", self.story());
    }

    /// Whether the object is held now; an open latch counts as held.
    #[track_caller]
    pub(crate) fn acquired(&self) -> bool {
        assert!(self.ok, "{}", self.story());
        self.values.get("acquired").or_else(|| self.values.get("open")).is_none_or(|value| value == "true")
    }

    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        self.values.get(key).unwrap_or_else(|| panic!("no {key} in {}", self.story()))
    }

    pub(crate) fn optional_text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    #[track_caller]
    pub(crate) fn number(&self, key: &str) -> i64 {
        self.text(key).parse().unwrap_or_else(|error| panic!("{key} in {}: {error}", self.story()))
    }

    #[track_caller]
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    /// When the operation started.
    pub(crate) fn started(&self) -> u64 {
        self.time("t0")
    }

    /// When the operation returned.
    pub(crate) fn returned(&self) -> u64 {
        self.time("t1")
    }

    /// How long after `earlier` the operation returned, in milliseconds.
    pub(crate) fn millis_after(&self, earlier: u64) -> f64 {
        clock::millis_between(earlier, self.returned())
    }

    /// The failure as one line for people.
    pub(crate) fn story(&self) -> String {
        match (self.values.get("kind"), self.values.get("message")) {
            (Some(kind), Some(message)) => format!("{kind}: {message}"),
            _ => format!("{self:?}"),
        }
    }

    fn time(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or_else(|_| panic!("no time {key} in {self:?}"))
    }
}
