//! Stories that go well, stories that are told again, and mistakes that stories find.

use std::process::{Command, Output};

use lockson_simulate::mistakes::{MISTAKES, QUICKLY_FOUND};

fn play(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockson-simulate")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn no_promise_breaks_in_stories_with_fixed_seeds() {
    let output = play(&["1", "60", "200"]);
    let story = text(&output.stderr);
    let end: Vec<&str> = story.lines().rev().take(60).collect();
    assert!(output.status.success(), "{:#?}", end.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn a_seed_tells_the_same_story_again() {
    let story = |seed: &str| {
        let output = play(&[seed, "1", "100"]);
        text(&output.stdout).lines().find(|line| line.contains(": seed ")).unwrap().to_owned()
    };
    for seed in ["7", "8", "9", "10", "11"] {
        let first = story(seed);
        for _ in 0..20 {
            assert_eq!(story(seed), first);
        }
    }
}

#[test]
fn each_planted_mistake_is_found() {
    (0..QUICKLY_FOUND).for_each(|number| assert_found(number, "60"));
}

/// `make deep` gives each of them up to ten minutes.
#[test]
#[ignore = "make deep"]
fn each_mistake_that_is_seldom_seen_is_found() {
    (QUICKLY_FOUND..MISTAKES.len()).for_each(|number| assert_found(number, "5000"));
}

fn assert_found(number: usize, stories: &str) {
    let (right, wrong) = MISTAKES[number];
    let output = play(&["1", stories, "300", &number.to_string()]);
    assert!(text(&output.stderr).contains("BROKEN"), "no story finds {wrong:?} in place of {right:?}");
    println!("{}", text(&output.stderr).lines().last().unwrap_or_default());
}
