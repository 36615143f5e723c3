//! The values of settings, and the errors about them.

use std::time::Duration;

use lockson::ErrorKind;
use serde_norway::Value;

use crate::error::{Error, Result};

/// The error text for a file that is not YAML. The message of the parser is dropped, because the message may quote a
/// line with a password.
pub(super) fn not_yaml(yaml: &str, line: Option<usize>) -> String {
    // The parser stops at a tab, or a line later.
    let indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let tab = yaml.lines().position(indented_by_tab).map(|at| at + 1);
    match (tab, line) {
        (Some(tab), _) => {
            format!("line {tab} of the Redisson configuration begins with a tab; YAML takes only spaces there")
        }
        (None, Some(line)) => format!("the Redisson configuration is not valid YAML, see its line {line}"),
        (None, None) => "the Redisson configuration is not valid YAML".to_owned(),
    }
}

/// Whether two names differ by at most two letters, ignoring case.
pub(super) fn is_almost(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let other: Vec<char> = other.chars().collect();
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut costs[0], row + 1);
        for (column, counterpart) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *counterpart);
            before = costs[column + 1];
            costs[column + 1] = changed.min(before + 1).min(costs[column] + 1);
        }
    }
    costs[other.len()] <= 2
}

/// Replaces `${NAME}` and `${NAME:-default}` by the environment. A `${` before anything else than a name is text, as in
/// Redisson: it may be a part of a password. So is all of a comment.
pub(super) fn substitute(yaml: &str) -> Result<String> {
    let mut out = String::with_capacity(yaml.len());
    let mut rest = yaml;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let inside = after.lines().next().and_then(|line| line.split_once('}')).map_or("", |(inside, _)| inside);
        let (variable, default) =
            inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        out.push_str(&rest[..start]);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let line = out.rsplit('\n').next().unwrap_or_default();
        let begins_comment = |(before, _): (&str, &str)| !before.contains(['"', '\'']);
        let is_comment = line.trim_start().starts_with('#') || line.split_once(" #").is_some_and(begins_comment);
        if is_comment || variable.is_empty() || !variable.chars().all(is_name) {
            out.push_str("${");
            rest = after;
            continue;
        }
        match (std::env::var(variable), default) {
            (Ok(value), _) => out.push_str(&value),
            (Err(_), Some(default)) => out.push_str(default),
            (Err(_), None) => return Err(config(&format!("the environment variable {variable} is not set"))),
        }
        rest = &after[inside.len() + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The line with a number whose text is lost: one that begins with zero, which YAML 1.1, and so Redisson, reads as
/// octal, and any other than in plain decimal, like `0xff` or `+5`.
pub(super) fn rewritten(yaml: &str) -> Option<usize> {
    let is_rewritten = |setting: &str| {
        let value = setting.split_once(": ").map_or("", |(_, value)| value.trim_end_matches('}').trim());
        let is_octal = value.len() > 1 && value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit());
        let is_other = |read: Value| read.as_u64().is_some_and(|number| number.to_string() != value);
        is_octal || !value.contains(' ') && serde_norway::from_str(value).is_ok_and(is_other)
    };
    let settings = |line: &str| line.split(" #").next().unwrap_or_default().split(['{', ',']).any(is_rewritten);
    yaml.lines().position(|line| !line.trim_start().starts_with('#') && settings(line)).map(|at| at + 1)
}

/// The Java class that a setting is tagged with.
pub(super) fn class_of(settings: Option<&Value>, key: &str) -> Option<String> {
    match settings?.get(key)? {
        Value::Tagged(tagged) => Some(tagged.tag.to_string().trim_start_matches('!').to_owned()),
        _ => None,
    }
}

/// The prefix in the fields of a mapper, if the mapper has one, and nothing else but its class.
pub(super) fn prefix(fields: &Value) -> Option<String> {
    let fields = fields.as_mapping()?;
    let are_known = fields.keys().all(|key| matches!(key.as_str(), Some("class" | "prefix")));
    Some(fields.get("prefix").filter(|_| are_known)?.as_str()?.to_owned())
}

pub(super) fn name(key: &Value) -> Result<&str> {
    key.as_str().ok_or_else(|| config("a setting without a name in the Redisson configuration"))
}

pub(super) fn text(key: &str, value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        // YAML reads a password of digits as a number. The text of other numbers is lost.
        Value::Number(number) if number.is_u64() => Ok(number.to_string()),
        Value::Number(_) => Err(config(&format!("put the value of {key} in quotes: without, it is a number"))),
        _ => Err(bad(key, "a text")),
    }
}

pub(super) fn number(key: &str, value: &Value) -> Result<u64> {
    // In quotes, as around a variable, it is a number, too, and so are digits in groups.
    let number = value.as_u64().or_else(|| value.as_str()?.replace('_', "").parse().ok());
    number.ok_or_else(|| bad(key, "a whole number"))
}

pub(super) fn millis(key: &str, value: &Value) -> Result<Duration> {
    number(key, value).map(Duration::from_millis)
}

pub(super) fn config(text: &str) -> Error {
    Error::new(ErrorKind::Config, text)
}

pub(super) fn bad(key: &str, wanted: &str) -> Error {
    config(&format!("the value of {key} in the Redisson configuration is not possible; it must be {wanted}"))
}

pub(super) fn unsupported(key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{key} in the Redisson configuration: {why}"))
}
