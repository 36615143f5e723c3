//! The rules about the source, as a test: layers, forbidden words, sizes, headers of scripts, dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/examples.rs"]
mod examples;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/promises.rs"]
mod promises;
#[path = "tidy/words.rs"]
mod words;

use code::{FOR_TESTS, body_after, is_name_char, without_comments_and_strings, without_tests};

/// The parts of `src/` that each part may use: the part itself, and the parts in the lines above.
const LAYERS: &[&[&str]] = &[
    &["system"],
    &["error", "owner", "sync", "token"],
    &["durability", "name", "time", "tls"],
    &["bell", "credentials", "listing", "reply", "transport"],
    &["cancel", "event", "inspection"],
    &["conn", "script"],
    &["kinds", "state"],
    &["config"],
    &["engine"],
    &["hold"],
    &["guard"],
    &["lock"],
    &["election", "latch", "permits", "red", "semaphore"],
    &["client"],
    &["lib"],
];

/// Parts that may name the `redis` crate.
const SAY_REDIS: &[&str] = &["conn", "script", "kinds", "error", "reply"];
/// Parts that may start threads.
const START_THREADS: &[&str] = &["conn", "engine"];
/// Parts that choose the mutex and condition variable; a model checker provides replacements there.
const CHOOSE_MUTEXES: &[&str] = &["sync"];
/// Names that a script must build because of Redisson's own layout: channels of fair waiters, fields and keys of
/// read-write holds, fields of the values of a group.
const BUILT_IN_LUA: &[(&str, &str)] = &[
    ("fair/acquire.lua", "ARGV[4] .. ':' .. head"),
    ("fair/leave.lua", "ARGV[3] .. ':' .. head"),
    ("fair/release.lua", "ARGV[4] .. ':' .. head"),
    ("group/acquire.lua", "field .. ':' .. owner .. ':expire_time'"),
    ("group/acquire.lua", "field .. ':' .. owner .. ':lock_count'"),
    ("group/force_release.lua", "ARGV[1] .. ':' .. holder"),
    ("group/force_release.lua", "hold .. ':expire_time', hold .. ':lock_count'"),
    ("group/look.lua", "ARGV[1] .. ':' .. holder"),
    ("group/look.lua", "hold .. ':expire_time'"),
    ("group/look.lua", "hold .. ':lock_count'"),
    ("group/reenter.lua", "ARGV[1] .. ':' .. ARGV[2]"),
    ("group/reenter.lua", "hold .. ':expire_time'"),
    ("group/release.lua", "field .. ':' .. owner"),
    ("group/release.lua", "hold .. ':expire_time'"),
    ("group/renew.lua", "field .. ':' .. owner .. ':expire_time'"),
    ("read_write/look.lua", "ARGV[1] .. ':write'"),
    ("read_write/reenter.lua", "ARGV[2] .. ':write'"),
    ("read_write/release.lua", "ARGV[1] .. ':write'"),
    ("read_write/release.lua", "ARGV[5] .. of_owner .. ':rwlock_timeout:' .. number"),
    ("read_write/renew.lua", "owner .. ':write'"),
];

const MOST_LINES_OF_A_FILE: usize = 400;
const MOST_LINES_OF_A_FUNCTION: usize = 60;
const MOST_CRATES: usize = 60;

#[test]
fn layers_use_only_what_lies_below_them() {
    check_sources(upward_uses);
}

#[test]
fn only_a_few_parts_say_redis() {
    check_sources(|source| source.forbid(&["redis::"], SAY_REDIS));
}

#[test]
fn only_conn_and_engine_start_threads() {
    check_sources(|source| source.forbid(&["thread::spawn", "thread::Builder", "thread::scope"], START_THREADS));
}

#[test]
fn only_sync_chooses_a_mutex() {
    check_sources(|source| source.forbid(&["parking_lot"], CHOOSE_MUTEXES));
}

#[test]
fn only_time_reads_a_clock() {
    check_sources(foreign_clocks);
}

#[test]
fn nothing_panics_or_prints() {
    let words = [".unwrap()", "panic!", "todo!", "unimplemented!", "unreachable!", "dbg!", "println!", "eprintln!"];
    check_sources(|source| source.forbid(&words, &[]));
}

#[test]
fn every_file_opens_with_one_sentence() {
    check_sources(|source| opening_fault(&source.text).into_iter().collect());
}

#[test]
fn files_and_functions_are_short() {
    check_sources(too_long);
    for (folder, _) in words::FOLDERS.iter().filter(|folder| folder.1 == "rs" && folder.0 != "src") {
        for path in files_below(&root().join(folder), "rs") {
            let lines = lines_of(&without_comments_and_strings(&fs::read_to_string(&path).unwrap()));
            assert!(lines < MOST_LINES_OF_A_FILE, "{} has {lines} lines of code", path.display());
        }
    }
}

#[test]
fn the_face_has_no_logic() {
    check_sources(|source| if source.part == "lib" { source.forbid(&["fn ", "impl ", "::*"], &[]) } else { vec![] });
}

#[test]
fn scripts_say_what_they_take_and_answer() {
    let folder = root().join("lua");
    let mut faults = String::new();
    for path in files_below(&folder, "lua") {
        let name = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        for fault in script_faults(&name, &fs::read_to_string(&path).unwrap()) {
            writeln!(faults, "lua/{name}: {fault}").unwrap();
        }
    }
    for (name, expression) in BUILT_IN_LUA {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains(expression), "lua/{name} does not say {expression} any more");
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn every_script_is_declared_once_by_its_kind() {
    let sources = sources();
    for path in files_below(&root().join("lua"), "lua") {
        let name = path.strip_prefix(root().join("lua")).unwrap().to_str().unwrap().to_owned();
        let declared = |source: &&Source| {
            source.text.contains(&format!("lua!(\"{name}\")"))
                || source.text.contains(&format!("include_str!(\"../../lua/{name}\")"))
        };
        let places: Vec<_> = sources.iter().filter(declared).map(|source| source.part.clone()).collect();
        let owner = if name.starts_with("once/") { "script" } else { "kinds" };
        assert_eq!(places, [owner], "lua/{name}");
    }
}

#[test]
fn the_tree_of_dependencies_is_small() {
    let told = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--package", "lockson", "--prefix", "none"])
        .args(["--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8(told.stdout).unwrap();
    let crates: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("redis"), "{text}");
    assert!(crates.len() <= MOST_CRATES, "{} crates: {crates:?}", crates.len());
}

#[test]
fn each_rule_sees_what_it_forbids() {
    let source = |part: &str, code: &str| Source::new(format!("{part}.rs").into(), format!("//! It.\n{code}"));
    let upward = |part, code| upward_uses(&source(part, code)).len();
    assert_eq!(upward("error", "use crate::engine::Engine;"), 1);
    assert_eq!(upward("engine", "use crate::{error::Loss, lock::Lock};"), 1);
    assert_eq!(upward("conn", "use crate::script::Call;"), 1, "these two parts are independent");
    assert_eq!(upward("engine", "fn f() -> crate::Loss {}"), 1, "the face is the highest layer");
    assert_eq!(upward("engine", "// crate::lock\nuse crate::time::Lease; #[cfg(test)] mod t { use crate::lock; }"), 0);
    assert_eq!(upward("guard", "use super::lock::Lock;"), 1);

    let clocks = |code| foreign_clocks(&source("engine", code)).len();
    assert_eq!(clocks("use std::time::{Duration, Instant};"), 1);
    assert_eq!(clocks("fn f() { std::time::SystemTime::now(); }"), 1);
    assert_eq!(clocks("use std::time::Duration; use crate::time::Instant;"), 0);

    let words = |code| source("lock", code).forbid(&["panic!", ".unwrap()", "redis::"], &["conn"]).len();
    assert_eq!(words("fn f() { panic!(\"x\"); a.unwrap(); redis::cmd(); }"), 3);
    assert_eq!(words("fn f() { \"panic! .unwrap() redis::\"; a.unwrap_or(1); my_redis::x } // panic!"), 0);
    for mark in FOR_TESTS {
        let of_file = mark.replacen('#', "#!", 1);
        for code in
            [format!("{mark}\nmod tests {{\n fn f() {{ panic!() }}\n}}"), format!("{of_file}\nfn f() {{ panic!() }}")]
        {
            assert!(source("lock", &code).forbid(&["panic!"], &[]).is_empty(), "{code}");
        }
    }

    let long = |lines| too_long(&source("lock", &format!("fn f() {{\n{}}}", "a();\n".repeat(lines)))).len();
    assert_eq!((long(20), long(60), long(450)), (0, 1, 2));

    assert!(opening_fault("use a;").is_some() && opening_fault("//! Two. Sentences.\n").is_some());
    assert!(opening_fault("//! A sentence over\n//! two lines.\n//!\n//! More. Of it.\n").is_none());

    let head = "-- a/b.lua\n-- It does.\n--\n-- KEYS[1] a key\n-- ARGV[1] a word\n--\n-- reply: 1 = done\n";
    let script = |body: &str| script_faults("a/b.lua", &format!("{head}{body}\n")).len();
    assert_eq!(script("return redis.call('get', KEYS[1], ARGV[1])"), 0);
    assert_eq!(script("return redis.call('get', KEYS[1])"), 1, "ARGV[1] is listed and not used");
    assert_eq!(script("return {KEYS[1], ARGV[1], ARGV[2]}"), 1, "ARGV[2] is used and not listed");
    assert_eq!(script("return KEYS[1] .. ARGV[1]"), 1, "a name is built");
    assert_eq!(script("return {'..', KEYS[1], ARGV[1]} -- a..b"), 0);
    assert_eq!(script_faults("a/c.lua", &format!("{head}return {{KEYS[1], ARGV[1]}}\n")).len(), 1);
}

/// One file of `src/`.
struct Source {
    path: PathBuf,
    /// The file or folder directly below `src/` that contains the file.
    part: String,
    text: String,
    /// The text without comments, the content of strings, and test code.
    code: String,
}

impl Source {
    fn new(path: PathBuf, text: String) -> Self {
        let part = path.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        let code = without_tests(&without_comments_and_strings(&text));
        Self { path, part, text, code }
    }

    /// The places of these words, unless the file belongs to one of the parts that may use the words.
    fn forbid(&self, words: &[&str], parts: &[&str]) -> Vec<String> {
        if parts.contains(&self.part.as_str()) {
            return vec![];
        }
        let found = |word: &&str| self.places_of(word).into_iter().map(|at| self.at(at, word)).collect::<Vec<_>>();
        words.iter().flat_map(found).collect()
    }

    /// The places where a word stands in the code and is not the end of a longer word.
    fn places_of(&self, word: &str) -> Vec<usize> {
        let begins_name = word.starts_with(is_name_char);
        let whole = |at: &usize| !(begins_name && self.code[..*at].ends_with(is_name_char));
        self.code.match_indices(word).map(|(at, _)| at).filter(whole).collect()
    }

    fn at(&self, at: usize, what: &str) -> String {
        format!("line {}: {what}", self.code[..at].matches('\n').count() + 1)
    }
}

fn upward_uses(source: &Source) -> Vec<String> {
    let mut used = vec![];
    for at in source.places_of("crate::") {
        let rest = &source.code[at + "crate::".len()..];
        used.extend(first_names(rest).into_iter().map(|name| (at, name)));
    }
    // Directly below `src/`, `super` is the crate itself.
    if source.path.components().count() == 1 {
        for at in source.places_of("super::") {
            used.extend(first_names(&source.code[at + "super::".len()..]).into_iter().map(|name| (at, name)));
        }
    }
    let rank = |part: &str| LAYERS.iter().position(|layer| layer.contains(&part));
    let own = rank(&source.part).unwrap_or_else(|| panic!("{} is in no layer", source.path.display()));
    let is_upward = |name: &str| {
        // A name that is no module is a re-export in `lib.rs`.
        let part = if rank(name).is_some() { name } else { "lib" };
        part != source.part && rank(part).is_some_and(|rank| rank >= own) && source.part != "lib"
    };
    used.iter().filter(|(_, name)| is_upward(name)).map(|(at, name)| source.at(*at, name)).collect()
}

/// The first names of a path, or of a group of paths in braces.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|&c| is_name_char(c)).collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let mut depth = 0;
    let mut names = vec![name(group)];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn foreign_clocks(source: &Source) -> Vec<String> {
    if source.part == "time" {
        return vec![];
    }
    let mut faults = source.forbid(&["SystemTime::now", ".elapsed(", "clock_gettime", "rustix::time"], &[]);
    for at in source.places_of("std::time::") {
        let rest = &source.code[at + "std::time::".len()..];
        faults.extend(first_names(rest).iter().filter(|name| *name == "Instant").map(|name| source.at(at, name)));
    }
    faults
}

fn too_long(source: &Source) -> Vec<String> {
    let code = &source.code;
    let lines = lines_of(code);
    let mut faults: Vec<String> =
        (lines >= MOST_LINES_OF_A_FILE).then(|| format!("{lines} lines of code")).into_iter().collect();
    let functions = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_name_char));
    for (at, _) in functions {
        let Some(body) = body_after(code, at) else { continue };
        let length = code[at..body.1].matches('\n').count() + 1;
        if length >= MOST_LINES_OF_A_FUNCTION {
            let name: String = code[at + 3..].chars().take_while(|&c| is_name_char(c)).collect();
            faults.push(format!("function {name} has {length} lines"));
        }
    }
    faults
}

fn lines_of(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// The fault in the first paragraph of a file's documentation.
fn opening_fault(text: &str) -> Option<String> {
    let first: Vec<&str> =
        text.lines().map_while(|line| line.strip_prefix("//! ")).take_while(|line| !line.is_empty()).collect();
    let sentence = first.join(" ");
    if sentence.is_empty() {
        return Some("the file does not open with a sentence in //!".into());
    }
    // Before a list the sentence ends in a colon.
    let several = sentence.contains(". ") || !sentence.ends_with(['.', ':']);
    several.then(|| format!("the file does not open with exactly one sentence: {sentence}"))
}

fn script_faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = vec![];
    let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("--")).map(str::trim).collect();
    if header.first() != Some(&name) {
        faults.push(format!("the first line is not \"-- {name}\""));
    }
    let purpose = header.iter().skip(1).take_while(|line| !line.is_empty()).last();
    if purpose.is_none_or(|line| !line.ends_with('.')) {
        faults.push("no sentence below the path says what the script does".into());
    }
    if !header.iter().any(|line| line.starts_with("reply: ")) {
        faults.push("no line says \"reply: \"".into());
    }
    if !text.ends_with('\n') {
        faults.push("the file does not end with a line end".into());
    }
    let body = lua_code(text);
    for table in ["KEYS", "ARGV"] {
        let entry =
            |line: &&str| line.strip_prefix(table)?.strip_prefix('[')?.split_once(']').map(|(n, _)| n.to_owned());
        let listed: Vec<String> = header.iter().filter_map(entry).collect();
        let used = indices(&body, table);
        // Numbered ones come first, then a list of any length.
        let numbered = listed.strip_suffix(&["*".to_owned()]).unwrap_or(&listed);
        let order: Vec<String> = (1..=numbered.len()).map(|n| n.to_string()).collect();
        if numbered != order {
            faults.push(format!("{table} are listed as {listed:?}"));
        }
        let (listed, used): (BTreeSet<_>, BTreeSet<_>) = (listed.into_iter().collect(), used);
        faults.extend(used.difference(&listed).map(|n| format!("{table}[{n}] is used and not listed")));
        faults.extend(listed.difference(&used).map(|n| format!("{table}[{n}] is listed and not used")));
    }
    let forced = |line: &str| BUILT_IN_LUA.iter().any(|(script, part)| *script == name && line.contains(part));
    let built = body.lines().zip(text.lines()).filter(|(code, line)| code.contains("..") && !forced(line));
    faults.extend(built.map(|(_, line)| format!("the script builds a name: {}", line.trim())));
    faults
}

/// The elements of a table in a script; an index other than a plain number counts as `*`.
fn indices(code: &str, table: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(table) {
        let rest = &code[at + table.len()..];
        let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(index, _)| index.trim());
        match index {
            Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => used.insert(number.to_owned()),
            _ => used.insert("*".to_owned()),
        };
    }
    used
}

/// A script without comments and the content of strings.
fn lua_code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut quote = None;
        let mut previous = ' ';
        for c in line.chars() {
            match quote {
                Some(open) if c == open && previous != '\\' => quote = None,
                Some(_) => {}
                None if c == '\'' || c == '"' => quote = Some(c),
                None if c == '-' && previous == '-' => {
                    code.pop();
                    break;
                }
                None => code.push(c),
            }
            previous = c;
        }
        code.push('\n');
    }
    code
}

fn check_sources(rule: impl Fn(&Source) -> Vec<String>) {
    let mut faults: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        let found = rule(&source);
        if !found.is_empty() {
            faults.insert(source.path.display().to_string(), found);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn sources() -> Vec<Source> {
    let folder = root().join("src");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        Source::new(path.strip_prefix(&folder).unwrap().to_owned(), text)
    };
    let sources: Vec<_> = files_below(&folder, "rs").into_iter().map(read).collect();
    assert!(sources.len() > 10, "the folder of the sources is wrong");
    sources
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
