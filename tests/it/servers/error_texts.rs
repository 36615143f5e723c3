//! The text of each error: the event, the place, and the remedy.
//!
//! `cargo test --all-features --test it error_texts -- --nocapture` prints the texts to be read.

mod asked;
mod reached;
mod settings;

use std::error::Error as _;
use std::fmt::Write;

use crate::support::prelude::*;

/// A situation, and the required words of its error.
struct Row {
    situation: &'static str,
    error: Error,
    kind: ErrorKind,
    word: Option<&'static str>,
    /// The words that a reader must find in the text.
    says: Vec<String>,
    /// The cause may pass by itself.
    passes: bool,
}

impl Row {
    fn new(situation: &'static str, error: Error, kind: ErrorKind, says: &[&str]) -> Row {
        let says = says.iter().map(|&words| words.to_owned()).collect();
        Row { situation, error, kind, word: None, says, passes: false }
    }

    /// A refusal of a server, with Redis's word.
    fn refused(situation: &'static str, error: Error, word: &'static str, says: &[&str]) -> Row {
        Row { word: Some(word), ..Row::new(situation, error, ErrorKind::Refused, says) }
    }

    /// The same call may succeed a moment later.
    fn passing(self) -> Row {
        Row { passes: true, ..self }
    }

    /// The text names this server and database.
    fn at(mut self, port: u16, database: u32) -> Row {
        self.says.push(format!("redis at 127.0.0.1:{port}/{database}"));
        self
    }

    /// The text names this lock.
    fn of(mut self, name: &str) -> Row {
        self.says.push(format!(" {name:?}: "));
        assert_eq!(self.error.lock_name(), Some(name), "{}", self.situation);
        self
    }

    /// The faults of the error in this situation.
    fn faults(&self) -> Vec<String> {
        let text = self.error.to_string();
        let mut faults: Vec<String> = self
            .says
            .iter()
            .filter(|words| !text.contains(*words))
            .map(|words| format!("does not say {words:?}"))
            .collect();
        let mut fault = |is_one: bool, what: &str| {
            if is_one {
                faults.push(what.to_owned());
            }
        };
        fault(self.error.kind() != self.kind, "is of another kind");
        fault(self.error.redis_word() != self.word, "has another word of Redis");
        fault(self.error.is_transient() != self.passes, "says otherwise whether the cause passes");
        fault(self.error.is_in_doubt() != text.contains("may have been carried out"), "doubts not as the text does");
        fault(self.error.is_lost() != text.contains("unprotected"), "is lost not as the text says");
        fault(text.contains(CANARY) || format!("{:?}", self.error).contains(CANARY), "tells the password");
        fault(has_hash(&text), "names the hash of a script");
        fault(text.contains("user_script") || text.contains("with args"), "quotes a script or arguments");
        fault(self.word.is_some_and(|word| text.matches(word).count() > 1), "says the word of Redis twice");
        fault(text.matches("redis at ").count() > 1, "names the server twice");
        let sentences: Vec<&str> = text.split(": ").collect();
        fault((1..sentences.len()).any(|n| sentences[..n].contains(&sentences[n])), "says a sentence twice");
        fault(text.contains(".;") || text.contains("?;") || text.ends_with('.'), "has a stray full stop");
        fault(text.contains("see the server's log"), "sends the reader elsewhere");
        fault(text.len() > 420 || text.contains('\n'), "is too long");
        let mut source = self.error.source();
        while let Some(cause) = source {
            fault(text.contains(&cause.to_string()), "repeats its source");
            source = cause.source();
        }
        faults
    }
}

#[track_caller]
fn check(rows: &[Row], least: usize) {
    let mut faults = String::new();
    for row in rows {
        println!("{}\n    {:?} {:?}: {}", row.situation, row.error.kind(), row.error.redis_word(), row.error);
        if let Some(source) = row.error.source() {
            println!("    because: {source}");
        }
        for fault in row.faults() {
            writeln!(faults, "{}: {fault}: {}", row.situation, row.error).unwrap();
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
    assert!(rows.len() >= least, "{} situations", rows.len());
}

#[test]
fn a_text_about_a_setting_names_the_setting_and_its_bounds() {
    check(&settings::rows(), 30);
}

#[test]
fn a_text_about_connecting_says_what_is_there_and_what_to_do() {
    check(&reached::rows(), 18);
}

#[test]
fn a_text_about_a_request_names_lock_server_and_what_to_do() {
    check(&asked::rows(), 24);
}

/// The error of a client that cannot be opened.
#[track_caller]
fn no_client(url: &str) -> Error {
    Client::builder(url).command_timeout(LIMIT).connect().map(drop).expect_err("it cannot be opened")
}

fn has_hash(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_hexdigit();
    text.split(|c: char| !is_digit(c)).any(|part| part.len() == 40)
}

const CANARY: &str = "canary";
/// A mute server costs so long.
const LIMIT: std::time::Duration = std::time::Duration::from_millis(600);
