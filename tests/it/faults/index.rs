//! The list in `docs/reliability.md` names only existing tests, and every fault that must be listed.

use crate::support::prelude::*;

#[test]
fn every_test_that_the_list_of_faults_names_exists() {
    let list = list();
    let names: BTreeSet<&str> = list.split('`').skip(1).step_by(2).filter(|name| is_sentence(name)).collect();
    assert!(names.len() > 80, "{} names", names.len());
    let sources: String = ["tests/it", "src"].iter().map(|folder| sources(&root().join(folder))).collect();
    let missing: Vec<_> = names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_fault_that_concerns_the_plain_lock_is_listed() {
    let list = list();
    let of =
        |letter: &str, numbers: &[u32]| numbers.iter().map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
    let wanted = [
        of("P", &[1, 2, 3, 4, 8, 10, 12, 17]),
        of("N", &(1..=13).collect::<Vec<_>>()),
        of("S", &[1, 5, 6, 10, 15, 16, 17, 18]),
        of("A", &(1..=18).collect::<Vec<_>>()),
    ];
    let words: BTreeSet<&str> = list.split(|sign: char| !sign.is_ascii_alphanumeric()).collect();
    let missing: Vec<_> = wanted.concat().into_iter().filter(|id| !words.contains(id.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn list() -> String {
    fs::read_to_string(root().join("docs/reliability.md")).unwrap()
}

/// Test names are sentences; nothing else in the list has so many words.
fn is_sentence(name: &str) -> bool {
    name.split('_').count() >= 4 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn sources(folder: &Path) -> String {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}
