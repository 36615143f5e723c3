//! The rule about words: one word for one thing, so that a retired word does not come back.

#[path = "metrics.rs"]
mod metrics;

use std::fs;

use super::code::is_name_char;
use super::{files_below, root};

/// Retired words, each with the word that replaced it; `docs/glossary.md` explains the words in use.
const RETIRED: &[(&str, &str)] = &[
    ("Announcement", "channel, message"),
    ("Contender", "Acquisition"),
    ("Kept", "Result<_, Loss>"),
    ("Link", "Connection"),
    ("Loose", "InDoubt"),
    ("News", "NewLoss, Events"),
    ("Notice", "ListenerEvent"),
    ("Prize", "Grant"),
    ("Said", "Result<_, Stop>"),
    ("Settlement", "Cleanup"),
    ("Talk", "RoundTrips"),
    ("Topics", "Channels"),
    ("Wish", "AcquireRequest"),
    ("cancelled_by", "with_cancel"),
    ("converse", "round_trips"),
    ("haunted", "unfenceable"),
    ("in_other_words", "encoded"),
    ("into_manual", "leave_to_unlock"),
    ("mind_if_heard", "schedule_if_observed"),
    ("minded", "pending_check"),
    ("settler", "cleaner"),
    ("telling_nobody", "NO_RECEIVERS"),
    ("unminded", "needless_check"),
];

/// The folders with words of this project, and the ends of the names of their files.
pub(crate) const FOLDERS: &[(&str, &str)] = &[
    ("src", "rs"),
    ("lua", "lua"),
    ("tests", "rs"),
    ("benches", "rs"),
    ("examples", "rs"),
    ("demo", "rs"),
    ("book", "rs"),
    ("cli", "rs"),
    ("compare", "rs"),
    ("doctor", "rs"),
    ("redisson-yaml", "rs"),
    ("telemetry", "rs"),
    ("test-kit", "rs"),
    ("docs", "md"),
];

#[test]
fn no_retired_word_is_used() {
    let mut faults = vec![];
    for (folder, extension) in FOLDERS {
        for path in files_below(&root().join(folder), extension) {
            // The list itself names the retired words.
            if path.ends_with("tests/tidy/words.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let found = retired_words(&text).into_iter();
            faults.extend(found.map(|(line, word, now)| format!("{}:{line}: {word} is now {now}", path.display())));
        }
    }
    assert!(faults.is_empty(), "retired words:\n{}", faults.join("\n"));
}

#[test]
fn retired_words_are_found_as_whole_words() {
    assert_eq!(retired_words("fn f() {}\nuse super::Link;"), [(2, "Link", "Connection")]);
    assert_eq!(
        retired_words("// We converse, they Talk."),
        [(1, "Talk", "RoundTrips"), (1, "converse", "round_trips")]
    );
    assert_eq!(retired_words("Links, a_Link, LinkState, conversely"), []);
}

/// Returns the lines with a retired word, the word, and the word that replaced it.
fn retired_words(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let in_line = |(index, line): (usize, &str)| {
        let words: Vec<String> = line.split(|c| !is_name_char(c)).map(str::to_owned).collect();
        let is_used = move |(word, _): &&(&str, &str)| words.iter().any(|used| used == word);
        RETIRED.iter().filter(is_used).map(|(word, now)| (index + 1, *word, *now)).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(in_line).collect()
}
