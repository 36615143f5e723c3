//! Each chapter: its failure happens, Lockson holds, and the page shows what the program prints.

use std::fs;
use std::process::Command;

macro_rules! chapters {
    ($($name:ident: $number:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            play($number);
        })*
    };
}

chapters! {
    a_killed_holder_locks_for_ever: 1,
    takers_overwrite_and_clocks_differ: 2,
    killed_between_lock_and_expiry: 3,
    a_late_release_deletes_another_lock: 4,
    stopped_between_check_and_delete: 5,
    work_longer_than_the_time_to_live: 6,
    a_guard_thread_and_its_work_end_apart: 7,
    three_tries_are_late_and_give_up: 8,
    a_nested_call_waits_for_itself: 9,
    a_lost_answer_counts_twice: 10,
    a_paused_holder_writes_late: 11,
    a_master_dies_with_the_lock: 12,
    two_locks_in_any_order: 13,
}

#[track_caller]
fn play(number: usize) {
    let played =
        Command::new(env!("CARGO_BIN_EXE_lockson-book")).arg(number.to_string()).output().expect("the book starts");
    let output = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success(), "{output}\n{}", String::from_utf8_lossy(&played.stderr));
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("the page");
    let shown = block(&page, number);
    for part in shown.split("```").skip(1).step_by(2) {
        let part = part.trim_start_matches("rust\n").trim_start_matches("text\n");
        assert!(
            shape(&output).contains(&shape(part)),
            "book/README.md shows other lines than those below; `cargo run --package lockson-book -- --write` writes them \
             anew:\n{output}"
        );
    }
}

/// What the page shows of a chapter, as the program has written it.
fn block(page: &str, number: usize) -> &str {
    let begin = format!("<!-- chapter {number}: written by the program -->");
    let (_, rest) = page.split_once(&begin).expect("the page has the chapter");
    rest.split_once("<!-- end of the chapter's output -->").expect("the block ends").0
}

/// The text without what differs from run to run: numbers, and the spaces beside them.
fn shape(text: &str) -> String {
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = text.split_whitespace().map(|word| if is_number(word) { "0" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
