//! The rules about names: a type name stands for one thing, a test name is a fact in at most 60 characters, and the list
//! of slow tests names what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::code::{is_name_char, without_comments_and_strings};
use super::{files_below, root, sources};

const MOST_CHARACTERS_OF_A_TEST_NAME: usize = 60;

/// What a file keeps under a mutex, and shares with its thread, is named alike everywhere.
const OF_ONE_FILE: [&str; 2] = ["Shared", "State"];

#[test]
fn a_type_name_stands_for_one_thing() {
    let mut files = BTreeMap::<_, BTreeSet<_>>::new();
    for source in sources() {
        for name in types(&source.code) {
            files.entry(name).or_default().insert(source.path.clone());
        }
    }
    files.retain(|name, files| files.len() > 1 && !OF_ONE_FILE.contains(&name.as_str()));
    assert!(files.is_empty(), "{files:#?}");
}

#[test]
fn declared_types_are_found() {
    assert_eq!(types("pub(crate) struct A;\nenum B<T> {}\nstructs C; trait D: E {} enum"), ["A", "B", "D"]);
}

/// The names of the types that a file declares.
fn types(code: &str) -> Vec<String> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let declared = words.windows(2).filter(|pair| ["struct", "enum", "trait"].contains(&pair[0]));
    let name = |pair: &[&str]| pair[1].split(|c| !is_name_char(c)).next().unwrap_or_default().to_owned();
    declared.map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn test_names_are_short() {
    let mut faults = vec![];
    for (folder, _) in super::words::FOLDERS.iter().filter(|folder| folder.1 == "rs") {
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

#[test]
fn the_list_of_slow_tests_names_what_is_there() {
    let list = fs::read_to_string(root().join("tests/slow.txt")).unwrap();
    let lost: Vec<&str> = list.lines().filter(|line| !is_there(line)).collect();
    // Without a word, `make slow` would run every test and `make test` leave out none.
    assert!(!list.is_empty(), "tests/slow.txt is empty");
    assert!(lost.is_empty(), "tests/slow.txt: no such test or room: {lost:#?}");
}

#[test]
fn lost_slow_tests_are_found() {
    assert!(is_there("tidy::code::body_after") && is_there("tidy::code::"));
    assert!(!is_there("tidy::code::body_afte") && !is_there("tidy::codes::") && !is_there(""));
}

/// A room ends with two colons; other lines end with the name of a test in the file of its module.
fn is_there(line: &str) -> bool {
    let Some((room, test)) = line.rsplit_once("::") else { return false };
    let room = room.replace("::", "/");
    let file = ["tests/it", "tests/harness/tests/it", "tests", "src"].into_iter().find_map(|folder| {
        let read = |end: &str| fs::read_to_string(root().join(folder).join(format!("{room}{end}"))).ok();
        read(".rs").or_else(|| read("/mod.rs"))
    });
    file.is_some_and(|text| {
        let is_whole =
            |at: usize| !text[..at].ends_with(is_name_char) && !text[at + test.len()..].starts_with(is_name_char);
        test.is_empty() || text.match_indices(test).any(|(at, _)| is_whole(at))
    })
}
