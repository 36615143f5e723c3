//! Where this lock comes from: thirteen older recipes, each made to fail on a real server, and what mends it.
//!
//! `cargo run --release --package lockson-book` plays all chapters in about a minute; `-- 4` plays chapter 4 alone.
//! `-- --pictures` also draws each failure into `book/pictures`, `-- --write` also writes `book/README.md` anew.

mod actor;
mod chapter_01;
mod chapter_02;
mod chapter_03;
mod chapter_04;
mod chapter_05;
mod chapter_06;
mod chapter_07;
mod chapter_08;
mod chapter_09;
mod chapter_10;
mod chapter_11;
mod chapter_12;
mod chapter_13;
mod hash_lock;
mod page;
mod picture;
mod process;
mod redis_view;
mod stage;
mod with_lockson;

use std::error::Error;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

use actor::{Actor, Part};
use stage::{Stage, Verdict};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A recipe, its failure and its mend.
struct Chapter {
    number: usize,
    /// The commands of the recipe, in a few words.
    recipe: &'static str,
    /// The file with the code of the recipe, which the program shows.
    source: &'static str,
    play: fn(&mut Stage) -> Outcome<Verdict>,
}

const CHAPTERS: [Chapter; 13] = [
    chapter_01::CHAPTER,
    chapter_02::CHAPTER,
    chapter_03::CHAPTER,
    chapter_04::CHAPTER,
    chapter_05::CHAPTER,
    chapter_06::CHAPTER,
    chapter_07::CHAPTER,
    chapter_08::CHAPTER,
    chapter_09::CHAPTER,
    chapter_10::CHAPTER,
    chapter_11::CHAPTER,
    chapter_12::CHAPTER,
    chapter_13::CHAPTER,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--child", words)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return ended(actor::serve(words, actor_of));
    }
    let (mut chosen, mut output) = (vec![], page::Output::None);
    for word in &arguments {
        match (word.as_str(), word.parse::<usize>()) {
            ("--pictures", _) => output = page::Output::Pictures,
            ("--write", _) => output = page::Output::PicturesAndText,
            (_, Ok(number @ 1..=13)) => chosen.push(number),
            _ => return ended(Err("usage: lockson-book [CHAPTER, 1 to 13 ...] [--pictures | --write]".into())),
        }
    }
    ended(play(&chosen, output))
}

/// Plays the chosen chapters, or all where none is chosen.
fn play(chosen: &[usize], output: page::Output) -> Outcome<()> {
    stage::check_server()?;
    let began = Instant::now();
    let (mut rows, mut failed) = (vec![], 0);
    for chapter in CHAPTERS.iter().filter(|chapter| chosen.is_empty() || chosen.contains(&chapter.number)) {
        let mut stage = Stage::open(chapter);
        // A panic of the harness means that a state was not reached in time.
        let played = catch_unwind(std::panic::AssertUnwindSafe(|| (chapter.play)(&mut stage)));
        let verdict = match played.unwrap_or_else(|_| Err("a state was not reached; see above".into())) {
            Ok(verdict) => verdict,
            Err(error) => {
                failed += 1;
                stage.say(&format!("WRONG: {error}"));
                Verdict { failure: "WRONG".into(), lockson: error.to_string() }
            }
        };
        output.write(&stage)?;
        rows.push((chapter, verdict));
    }
    println!("\n  # | {:<35} | {:<58} | with Lockson", "recipe", "the failure that was made to happen");
    println!("{:-<4}|{:-<37}|{:-<60}|{:-<50}", "", "", "", "");
    for (chapter, verdict) in &rows {
        println!(" {:>2} | {:<35} | {:<58} | {}", chapter.number, chapter.recipe, verdict.failure, verdict.lockson);
    }
    if chosen.is_empty() {
        output.write_summary(&rows)?;
    }
    println!("\nChapters: {}, wrong: {failed}, in {:.1} s", rows.len(), began.elapsed().as_secs_f64());
    if failed == 0 { Ok(()) } else { Err("a failure did not happen, or Lockson did not hold".into()) }
}

/// The part that a process plays.
fn actor_of(part: &Part) -> Outcome<Box<dyn Actor>> {
    Ok(match part.role.as_str() {
        "setnx" => Box::new(chapter_01::process(part)?),
        "getset" => Box::new(chapter_02::Process::new(part)?),
        "expire" => Box::new(chapter_03::Process::new(part)?),
        "set-nx-px" => Box::new(chapter_04::process(part)?),
        "own-value" => Box::new(chapter_05::process(part)?),
        "watch" | "script" | "command" => Box::new(chapter_06::process(part)?),
        "guard-thread" => Box::new(chapter_07::Process::new(part)?),
        "three-tries" => Box::new(chapter_08::Process::new(part)?),
        "hash" => Box::new(hash_lock::Process::new(part)?),
        "hash-repeated" => Box::new(chapter_10::Process::new(part)?),
        "account" => Box::new(chapter_11::Process::new(part)?),
        "account-lockson" => Box::new(chapter_11::WithToken::new(part)?),
        "hash-wait" => Box::new(chapter_12::process(part)?),
        "red" => Box::new(chapter_12::WithRedLock::new(part)?),
        "two-locks" => Box::new(chapter_13::Process::new(part)?),
        "multi" => Box::new(chapter_13::WithMultiLock::new(part)?),
        "lockson" => Box::new(with_lockson::Process::new(part)?),
        role => return Err(format!("no process plays {role}").into()),
    })
}

fn ended(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockson-book: {error}");
            ExitCode::FAILURE
        }
    }
}
