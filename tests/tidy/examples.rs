//! The rule about examples: documentation shows how each public item is used.

use super::code::is_name_char;
use super::{Source, check_sources};

#[test]
fn every_public_item_has_an_example() {
    check_sources(without_example);
}

#[test]
fn items_without_an_example_are_found() {
    let found = |code: &str| without_example(&Source::new("lock.rs".into(), format!("//! It.\n{code}"))).len();
    let shown = "/// It.\n///\n/// ```\n/// it.go();\n/// ```\n";
    assert_eq!(found("/// It.\npub struct It;"), 1);
    assert_eq!(found("/// It.\n#[derive(Clone)]\npub enum It {}\n/// It.\npub(crate) struct Other;"), 1);
    assert_eq!(found(&format!("{shown}#[derive(Clone)]\npub struct It;")), 0);
    assert_eq!(found("    /// Goes.\n    pub fn go() {}"), 1);
    assert_eq!(found(&format!("{shown}pub struct It;\n/// Goes.\npub fn go() {{}}")), 0, "the type's example shows it");
    assert_eq!(found(&format!("{shown}pub struct It;\n/// Goes on.\npub fn go_on() {{}}")), 1);
    assert_eq!(found("    /// Goes; see [`It::go`].\n    pub fn go() {}"), 0, "shown there");
    assert_eq!(found("record! {\n    /// It.\n    #[derive(Eq)]\n    pub struct It of a lock {}\n}\n"), 1);
    assert_eq!(found("#[cfg(test)]\nmod tests {\n    pub struct It;\n}\n"), 0);
}

/// Public types without an example of their own, and public functions that no example of their file calls and whose
/// documentation leads to no other function.
fn without_example(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let examples = examples_of(&lines);
    let is_called = |name: &str| {
        let call = format!("{name}(");
        examples.match_indices(&call).any(|(at, _)| !examples[..at].ends_with(is_name_char))
    };
    let mut faults = vec![];
    // What is there for tests only is blank in the code.
    for (at, line) in source.code.lines().map(str::trim).enumerate() {
        let Some((what, name)) = public_item(line, &lines[..at]) else { continue };
        let mut above =
            lines[..at].iter().rev().take_while(|above| above.starts_with("///") || above.starts_with("#["));
        // What only passes a call on is shown where the call goes.
        let is_shown = above.any(|above| above.starts_with("/// ```") || above.contains("; see [`"));
        if !is_shown && (what != "fn" || !is_called(name)) {
            faults.push(format!("line {}: {line}", at + 1));
        }
    }
    faults
}

/// The kind and name of the item that a line makes public.
fn public_item<'a>(line: &'a str, above: &[&str]) -> Option<(&'a str, &'a str)> {
    let (what, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
    let name = &rest[..rest.find(|c| !is_name_char(c)).unwrap_or(rest.len())];
    // In a macro the documentation and the name come from where the macro is used.
    let is_of_macro = name.is_empty() || above.last().is_some_and(|above| above.starts_with("$("));
    (["fn", "struct", "enum", "trait", "const"].contains(&what) && !is_of_macro).then_some((what, name))
}

/// The code in the documentation.
fn examples_of(lines: &[&str]) -> String {
    let mut is_code = false;
    let mut code = String::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}
