//! The rules about the house: the names in `state`, the clock, circles in a folder, and the pages that draw it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::code::is_name_char;
use super::{LAYERS, Source, check_sources, root, sources};

/// Two files that use each other although they lie in one folder, each with its reason.
const CIRCLES: &[(&str, &str, &str)] = &[];

/// Deciders that lie beside their driver, and decide as `state` does.
const DECIDERS: &[&str] = &["red/votes.rs"];

/// Names of clocks, threads, mutexes and connections, which belong to the engine.
const NOT_IN_STATE: &[&str] = &[
    "Instant::now",
    "Deadline::after",
    "thread::",
    "crate::sync",
    "Mutex",
    "Condvar",
    "Atomic",
    "crate::conn",
    "crate::engine",
];

/// The objects that a client is made of.
const OBJECTS: &[&str] = &["cells", "hold", "keeper", "life", "sender"];

/// The operations of a client, and the client itself.
const NOT_IN_OBJECTS: &[&str] = &[
    "engine::Engine",
    "engine::parts",
    "engine::handle",
    "engine::acquire",
    "engine::release",
    "engine::several",
    "engine::request",
    "engine::closing",
    "engine::inquiry",
    "engine::examination",
];

#[test]
fn state_decides_and_does_nothing() {
    check_sources(faults_of_state);
}

#[test]
fn the_objects_of_a_client_know_no_whole() {
    check_sources(faults_of_objects);
}

/// No test can suspend the machine, so the name of the clock stands for its behaviour.
#[test]
fn the_clock_counts_suspended_time() {
    let text = fs::read_to_string(root().join("src/time.rs")).unwrap();
    let code: String = text.split_whitespace().collect();
    assert!(code.contains("#[cfg(target_os=\"linux\")]constCLOCK:ClockId=ClockId::Boottime;"));
    assert!(code.contains("clock_gettime(CLOCK)"));
}

#[test]
fn no_folder_has_a_circle() {
    let sources = sources();
    let circles = circles(&sources);
    let known = |(folder, files): &(String, Vec<String>)| {
        CIRCLES.iter().any(|(place, one, other)| place == folder && files.as_slice() == [*one, *other])
    };
    let unknown: Vec<_> = circles.iter().filter(|circle| !known(circle)).collect();
    assert!(unknown.is_empty(), "these use each other: {unknown:#?}");
    assert_eq!(circles.len(), CIRCLES.len(), "an exception that is not needed any more");
}

#[test]
fn the_page_of_the_architecture_draws_these_files() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let faults = faults_of_tree(&page, &sources());
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_page_of_the_architecture_has_these_layers() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut layers: Vec<BTreeSet<String>> = LAYERS.iter().map(|layer| owned(layer)).collect();
    layers.reverse();
    assert_eq!(layers_of(&page), layers);
}

#[test]
fn each_rule_of_the_house_sees_what_it_forbids() {
    let source = |path: &str, code: &str| Source::new(path.into(), format!("//! It.\n{code}"));
    let doing = |code| faults_of_state(&source("state/a.rs", code)).len();
    assert_eq!(doing("fn f() { Instant::now(); }"), 1);
    assert_eq!(doing("use crate::sync::Mutex; use crate::conn::Server;"), 3);
    assert_eq!(faults_of_state(&source(DECIDERS[0], "fn f() { Instant::now(); }")).len(), 1);
    assert_eq!(doing("use crate::time::Instant; #[cfg(test)] mod t { use crate::engine::Engine; }"), 0);

    let whole = |path, code| faults_of_objects(&source(path, code)).len();
    assert_eq!(whole("engine/keeper/loss.rs", "use crate::engine::parts::Engine;"), 1);
    assert_eq!(whole("engine/life.rs", "fn f(engine: &crate::engine::Engine) {}"), 1);
    assert_eq!(whole("engine/acquire/waiting.rs", "use crate::engine::parts::Engine;"), 0);
    assert_eq!(whole("engine/life.rs", "#[cfg(test)] mod t { use crate::engine::Engine; }"), 0);

    let found = |files: &[(&str, &str)]| {
        circles(&files.iter().map(|(path, code)| source(path, code)).collect::<Vec<_>>()).len()
    };
    assert_eq!(found(&[("e/a.rs", "use super::b::B;"), ("e/b.rs", "use crate::e::a::A;")]), 1);
    assert_eq!(found(&[("e/a.rs", "use crate::{x, e::{b::{B}, c}};"), ("e/b.rs", "fn f() -> super::a::A {}")]), 1);
    assert_eq!(
        found(&[("e/a.rs", "use super::b::B;"), ("e/b.rs", "use super::c::C;"), ("e/c.rs", "use super::a;")]),
        1
    );
    assert_eq!(found(&[("e/r/a.rs", "use crate::e::b::B;"), ("e/b.rs", "use super::r::a::A;")]), 1, "a room is one");
    let face = ("e.rs", "pub(crate) use b::{B};");
    assert_eq!(found(&[face, ("e/a.rs", "use super::B;"), ("e/b.rs", "use super::a::A;")]), 1, "through the face");
    assert_eq!(found(&[("e/a.rs", "use super::b::B;"), ("e/b.rs", "#[cfg(test)] mod t { use super::super::a; }")]), 0);
    assert_eq!(found(&[("e.rs", "use a::A;"), ("e/a.rs", "use super::E;")]), 0, "a face and its children");

    let files = [source("a.rs", "fn a() {}"), source("e.rs", "mod b;"), source("e/b.rs", "fn b() {}")];
    let drawn = |tree: &str| faults_of_tree(&format!("x\n```text\nsrc/\n{tree}```\n"), &files).len();
    assert_eq!(drawn("  a.rs   it\n  e/     a room\n    b.rs it\n"), 0);
    assert_eq!(drawn("  a.rs   it\n  e/     a room that is not opened\n"), 0);
    assert_eq!(drawn("  e/     a room\n    b.rs it\n"), 1, "a.rs is missing");
    assert_eq!(drawn("  a.rs c.rs it\n  e/   a room\n    b.rs it\n"), 1, "c.rs is no file");
    assert_eq!(
        layers_of("| layer | modules |\n|---|---|\n| `b` | it |\n| `a`, `c` | `d` |\n"),
        [owned(&["b"]), owned(&["a", "c"])]
    );
}

fn faults_of_state(source: &Source) -> Vec<String> {
    let decides = source.part == "state" || DECIDERS.iter().any(|path| source.path == Path::new(path));
    if decides { source.forbid(NOT_IN_STATE, &[]) } else { vec![] }
}

/// The parts of a client are used by its operations, and use neither those nor the client.
fn faults_of_objects(source: &Source) -> Vec<String> {
    let room = source.path.with_extension("");
    let mut names = room.iter().filter_map(|name| name.to_str());
    match (names.next(), names.next()) {
        (Some("engine"), Some(object)) if OBJECTS.contains(&object) => source.forbid(NOT_IN_OBJECTS, &[]),
        _ => vec![],
    }
}

/// The folders in which files, or rooms, use each other, and those that do.
fn circles(sources: &[Source]) -> Vec<(String, Vec<String>)> {
    let faces = faces(sources);
    let mut arrows: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for source in sources {
        let own = module_of(source);
        for used in used_paths(source, &own).iter().map(|used| behind_face(used, &faces)) {
            for depth in 1..own.len().min(used.len()) + 1 {
                let is_below = own.len() > depth && used.len() > depth && own[..depth] == used[..depth];
                if is_below && own[depth] != used[depth] {
                    let arrow = (own[depth].clone(), used[depth].clone());
                    arrows.entry(own[..depth].join("/")).or_default().insert(arrow);
                }
            }
        }
    }
    let mut circles = vec![];
    for (folder, mut arrows) in arrows {
        // A file that uses no other file of the folder, or that no other file uses, is in no circle.
        loop {
            let (from, to): (BTreeSet<_>, BTreeSet<_>) = arrows.iter().cloned().unzip();
            let before = arrows.len();
            arrows.retain(|(one, other)| to.contains(one) && from.contains(other));
            if arrows.len() == before {
                break;
            }
        }
        if !arrows.is_empty() {
            circles
                .push((folder, arrows.into_iter().map(|(one, _)| one).collect::<BTreeSet<_>>().into_iter().collect()));
        }
    }
    circles
}

/// The module that a file is, as a path.
fn module_of(source: &Source) -> Vec<String> {
    source.path.with_extension("").iter().map(|name| name.to_str().unwrap().to_owned()).collect()
}

/// Whether a file stands beside a folder of its name, and speaks for the files there.
fn is_face(source: &Source, sources: &[Source]) -> bool {
    let folder = source.path.with_extension("");
    sources.iter().any(|other| other.path.starts_with(&folder))
}

/// The names that each face hands on: by folder and name, the child module that has it.
fn faces(sources: &[Source]) -> BTreeMap<(Vec<String>, String), Vec<String>> {
    let mut faces = BTreeMap::new();
    for source in sources.iter().filter(|source| is_face(source, sources)) {
        let folder = module_of(source);
        for at in source.places_of("use ") {
            for path in paths_at(&source.code[at + "use ".len()..]) {
                if let [child @ .., name] = path.as_slice()
                    && child.first().is_some_and(|first| first != "crate" && first != "super" && first != "std")
                {
                    faces.insert((folder.clone(), name.clone()), [folder.clone(), child.to_vec()].concat());
                }
            }
        }
    }
    faces
}

fn behind_face(used: &[String], faces: &BTreeMap<(Vec<String>, String), Vec<String>>) -> Vec<String> {
    let handed_on = |depth: usize| faces.get(&(used[..depth].to_vec(), used[depth].clone()));
    (0..used.len()).find_map(handed_on).cloned().unwrap_or_else(|| used.to_vec())
}

/// Every path of this crate that a file names, from the crate on.
fn used_paths(source: &Source, own: &[String]) -> Vec<Vec<String>> {
    let mut used = vec![];
    for start in ["crate::", "super::"] {
        let is_start = |at: &usize| !source.code[..*at].ends_with("::");
        for at in source.places_of(start).into_iter().filter(is_start) {
            for path in paths_at(&source.code[at..]) {
                let supers = path.iter().take_while(|name| *name == "super").count();
                let base = if supers > 0 { &own[..own.len().saturating_sub(supers)] } else { &[] };
                used.push([base, &path[supers.max(1)..]].concat());
            }
        }
    }
    used
}

/// The paths that begin here: one, or where it has braces, each of those.
fn paths_at(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut paths = vec![];
        let (mut depth, mut from) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    paths.extend(paths_at(&group[from..at]));
                    from = at + 1;
                }
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && c == '}' && from == at + 1 {
                break;
            }
        }
        return paths;
    }
    let name: String = text.chars().take_while(|&c| is_name_char(c)).collect();
    if name.is_empty() {
        return vec![];
    }
    match text[name.len()..].strip_prefix("::") {
        Some(rest) if rest.starts_with(|c: char| is_name_char(c) || c == '{') => {
            paths_at(rest).into_iter().map(|path| [vec![name.clone()], path].concat()).collect()
        }
        _ => vec![vec![name]],
    }
}

/// Where the tree on the page differs from the files. A room that is drawn closed stands for all that is in it, and a
/// face that only names its children, or a file for tests, need not be drawn.
fn faults_of_tree(page: &str, sources: &[Source]) -> Vec<String> {
    let tree = page.split("```text\n").find_map(|block| block.split("```").next()?.split_once("src/\n")).unwrap().1;
    let (mut drawn, mut rooms, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![]);
    for line in tree.lines() {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let names = line.trim_start().split("  ").next().unwrap().split(' ');
        open.truncate(depth - 1);
        for name in names.filter(|name| name.ends_with(".rs") || name.ends_with('/')) {
            let path = format!("{}{name}", open.concat());
            if name.ends_with('/') {
                rooms.insert(path);
                open.push(name.to_owned());
            } else {
                drawn.insert(path);
            }
        }
    }
    let is_closed = |room: &&String| !drawn.iter().chain(&rooms).any(|path| path.starts_with(*room) && path != *room);
    let closed: Vec<&String> = rooms.iter().filter(is_closed).collect();
    let files: BTreeMap<String, &Source> = sources.iter().map(|file| (file.path.display().to_string(), file)).collect();
    let mut faults: Vec<String> =
        drawn.iter().filter(|path| !files.contains_key(*path)).map(|path| format!("{path} is no file")).collect();
    faults.extend(files.keys().filter(|path| path.ends_with("mod.rs")).map(|path| format!("{path}: name its folder")));
    for (path, file) in &files {
        let is_plain_face = is_face(file, sources) && !file.code.contains("fn ");
        let has_code = !file.code.trim().is_empty() && !is_plain_face;
        if has_code
            && !drawn.contains(path)
            && !closed.iter().any(|room| path.replace(".rs", "/").starts_with(room.as_str()))
        {
            faults.push(format!("{path} is not drawn"));
        }
    }
    faults
}

/// The modules in each row of the table of layers.
fn layers_of(page: &str) -> Vec<BTreeSet<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with("| layer |")).skip(2);
    let modules = |row: &str| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.take_while(|line| line.starts_with('|')).map(modules).collect()
}

fn owned(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
