//! The rule about test names: a fact in at most 60 characters.

use std::fs;

use super::code::{is_name_char, without_comments_and_strings};
use super::{files_below, root};

const MOST_CHARACTERS_OF_A_TEST_NAME: usize = 60;

#[test]
fn test_names_are_short() {
    let mut faults = vec![];
    for folder in ["src", "tests", "benches", "examples", "book", "redisson-yaml"] {
        for path in files_below(&root().join(folder), "rs") {
            let code = without_comments_and_strings(&fs::read_to_string(&path).unwrap());
            faults.extend(long_test_names(&code).into_iter().map(|name| format!("{}: {name}", path.display())));
        }
    }
    assert!(faults.is_empty(), "over {MOST_CHARACTERS_OF_A_TEST_NAME} characters:\n{}", faults.join("\n"));
}

#[test]
fn long_test_names_are_found() {
    let found = |attributes: &str, length: usize| {
        long_test_names(&format!("{attributes}\nfn {}() {{}}\nfn {}() {{}}", "a".repeat(length), "b".repeat(99))).len()
    };
    assert_eq!((found("#[test]", 60), found("#[test]", 61)), (0, 1));
    assert_eq!(found("#[test]\n#[ignore = \"\"]", 61), 1);
    assert_eq!(found("#[cfg(test)]", 61), 0);
}

/// The names of tests over the limit.
fn long_test_names(code: &str) -> Vec<&str> {
    let name = |(at, _): (usize, &str)| {
        let after = code[at..].split_once("fn ")?.1;
        after.split(|c| !is_name_char(c)).next()
    };
    code.match_indices("#[test]").filter_map(name).filter(|name| name.len() > MOST_CHARACTERS_OF_A_TEST_NAME).collect()
}
