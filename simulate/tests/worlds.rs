//! Stories that go well, stories that are told again, and mistakes that stories find.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};

use lockson_simulate::engine_mistakes::ENGINE_MISTAKES;
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
    for seed in ["7", "8", "9", "405", "408"] {
        let first = story(seed);
        for _ in 0..8 {
            assert_eq!(story(seed), first);
        }
    }
}

#[test]
fn each_planted_mistake_is_found() {
    assert_found(0..QUICKLY_FOUND, "90");
}

#[test]
fn each_mistake_of_the_engine_has_its_place() {
    for (file, right, _) in ENGINE_MISTAKES {
        let text = fs::read_to_string(Path::new("../src").join(file)).unwrap();
        assert_eq!(text.matches(right).count(), 1, "{file}: {right}");
    }
}

/// `make deep` gives each of them up to ten minutes.
#[test]
#[ignore = "make deep"]
fn each_mistake_that_is_seldom_seen_is_found() {
    assert_found(QUICKLY_FOUND..MISTAKES.len(), "5000");
}

fn assert_found(mistakes: Range<usize>, stories: &str) {
    let [from, to] = [mistakes.start, mistakes.end].map(|number| number.to_string());
    let output = play(&["mistakes", &from, &to, stories, "300"]);
    let found = text(&output.stdout);
    println!("{found}");
    assert!(output.status.success(), "{found}");
}
