//! Every command in `docs/operations.md` does what the page says, in the scene that the page names.

mod redis_cli;
mod scenes;

use redis_cli::{lines_of, words_of};
use scenes::{House, Place, SCENES, Scene};

use crate::support::prelude::*;

/// A block of commands and their answers.
#[derive(Debug)]
struct Block {
    scene: String,
    /// The words of a command, and the lines of the answer.
    commands: Vec<(Vec<String>, Vec<String>)>,
}

#[test]
fn each_command_of_the_page_does_what_the_page_says() {
    let blocks = blocks(&page());
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    let unused: Vec<_> =
        SCENES.iter().map(|scene| scene.name).filter(|name| blocks.iter().all(|block| block.scene != *name)).collect();
    assert_eq!(unused, Vec::<&str>::new(), "scenes that the page does not name");
    // A few blocks at a time, because each block has its own server.
    for few in blocks.chunks(8) {
        for place in [Place::One, Place::Sentinels, Place::Cluster] {
            at_once(few, |block| run(block, place));
        }
    }
}

#[test]
fn no_command_stands_outside_a_scene() {
    let page = page();
    let commands = page.matches("$ redis-cli ").count();
    assert_eq!(blocks(&page).iter().map(|block| block.commands.len()).sum::<usize>(), commands);
}

/// Sets the scene, runs the commands and compares the shape of the answers.
fn run(block: &Block, place: Place) {
    let scene = SCENES.iter().find(|scene| scene.name == block.scene);
    let scene = scene.unwrap_or_else(|| panic!("no scene {:?}", block.scene));
    (scene.play)(&House::start(place), &mut |server, owners| {
        for (words, wanted) in &block.commands {
            let mut words: Vec<String> = words.iter().map(|word| owners.put_into(word)).collect();
            if place == Place::Cluster {
                words.iter_mut().for_each(|word| *word = sharded(word));
            }
            let answer = lines_of(server, &words);
            compare(scene, &words, wanted, &answer);
        }
    });
}

/// A word of a command as the page's table tells it for a cluster.
fn sharded(word: &str) -> String {
    let page = page();
    let (_, table) = page.split_once("| one server | Redis Cluster |").expect("a table of words");
    let pairs =
        table.lines().skip(2).map_while(|line| line.strip_prefix("| `")?.strip_suffix("` |")?.split_once("` | `"));
    let mut word = word.to_owned();
    for (plain, sharded) in pairs {
        if word == plain || plain.contains('\'') {
            word = word.replace(plain, sharded);
        }
    }
    word
}

fn compare(scene: &Scene, words: &[String], wanted: &[String], answer: &[String]) {
    let place = format!("{}: {words:?} answers {answer:#?}, and the page says {wanted:#?}", scene.name);
    if wanted.iter().all(|line| line.ends_with("...")) || scene.is_partial {
        // Some lines of many, and some words of each.
        let mut rest: Vec<Vec<String>> = answer.iter().map(|line| shapes(line)).collect();
        for line in wanted {
            let line = shapes(line.trim_end_matches("..."));
            let found = rest.iter().position(|words| line.iter().all(|word| is_among(word, words)));
            rest.remove(found.unwrap_or_else(|| panic!("{place}")));
        }
        return;
    }
    // The keys of a scan come in any order.
    let shape = |lines: &[String]| {
        let mut lines: Vec<String> = lines.iter().map(|line| shapes(line).join(" ")).collect();
        if words.contains(&"--scan".to_owned()) {
            lines.sort();
        }
        lines
    };
    assert_eq!(shape(answer), shape(wanted), "{place}");
}

fn is_among(word: &str, words: &[String]) -> bool {
    words.iter().any(|other| other == word || (word.ends_with(',') && other.starts_with(word)))
}

/// The words of a line without owners and numbers, which differ from run to run.
fn shapes(line: &str) -> Vec<String> {
    line.split_whitespace().map(shape).collect()
}

fn shape(word: &str) -> String {
    let mut shape = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let (mark, length) = match owner_length(rest) {
            Some(_) if is_process(rest) => ("<process>", rest.len()),
            Some(length) => ("<owner>", length),
            None if is_permit(rest) => ("<permit>", 32),
            None if first.is_ascii_digit() => ("9", rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
            None => ("", first.len_utf8()),
        };
        shape += if mark.is_empty() { &rest[..length] } else { mark };
        rest = &rest[length..];
    }
    shape
}

/// Whether the text is the id of a client with its host and process, as connections are named.
fn is_process(text: &str) -> bool {
    let place = text.get(36..).and_then(|rest| rest.strip_prefix(':')?.split_once(':'));
    place.is_some_and(|(_, process)| !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the text begins with the id of a permit.
fn is_permit(text: &str) -> bool {
    text.get(..32).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The length of the owner id at the start of the text, or of the client id alone: a uuid, and for an owner a colon and
/// two numbers with a point between.
fn owner_length(text: &str) -> Option<usize> {
    let is_uuid = text.get(..36)?.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let tail = text.get(36..).filter(|_| is_uuid)?.strip_prefix(':').unwrap_or_default();
    let end = tail.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tail.len());
    Some(if tail[..end].contains('.') { 37 + end } else { 36 })
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = vec![];
    let parts: Vec<&str> = page.split("```").collect();
    // Every second part is inside a fence.
    for pair in parts.chunks_exact(2) {
        let Some(inside) = pair[1].strip_prefix("text\n").filter(|inside| inside.contains("$ redis-cli ")) else {
            continue;
        };
        let mark = pair[0].trim_end().lines().last().unwrap_or_default();
        let scene = mark.strip_prefix("<!-- scene: ").and_then(|rest| rest.strip_suffix(" -->"));
        let scene = scene.unwrap_or_else(|| panic!("no scene before {inside}")).to_owned();
        blocks.push(Block { scene, commands: commands(inside) });
    }
    blocks
}

fn commands(inside: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut commands: Vec<(Vec<String>, Vec<String>)> = vec![];
    for line in inside.replace("\\\n", " ").lines() {
        match line.strip_prefix("$ redis-cli ") {
            Some(command) => commands.push((words_of(command), vec![])),
            None => commands.last_mut().expect("a command comes first").1.push(line.to_owned()),
        }
    }
    commands
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    fs::read_to_string(path).expect("docs/operations.md can be read")
}

#[test]
fn shapes_forget_owners_and_numbers_and_nothing_else() {
    let owner = "d57e342e-f1e6-4b24-b3b6-7551a58aea46:7.19";
    assert_eq!(shape(&format!("\"{owner}:write\"")), "\"<owner>:write\"");
    assert_eq!(shape("name=a:d57e342e-f1e6-4b24-b3b6-7551a58aea46:1.host:4"), "name=a:<process>");
    assert_eq!(shape("{orders:42}"), "{orders:9}");
    assert_ne!(shape("(nil)"), shape("(integer)"));
    assert_eq!(words_of("EVAL \"return 'a b'\" 0 'c d' {e}"), ["EVAL", "return 'a b'", "0", "c d", "{e}"]);
}
