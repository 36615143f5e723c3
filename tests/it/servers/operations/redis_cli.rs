//! How `redis-cli` splits a command line into words, and how `redis-cli` prints an answer.

use redis::Value;

use crate::support::prelude::*;

/// The words of a command line, by the rules of a shell.
pub(crate) fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec![], None::<String>, None);
    for sign in line.chars() {
        match (quote, sign) {
            (Some(end), sign) if sign == end => quote = None,
            (Some(_), sign) => word.get_or_insert_default().push(sign),
            (None, '"' | '\'') => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (None, sign) if sign.is_whitespace() => words.extend(word.take()),
            (None, sign) => word.get_or_insert_default().push(sign),
        }
    }
    assert_eq!(quote, None, "{line}");
    words.extend(word);
    words
}

/// Sends a command and shows the answer in lines.
pub(crate) fn lines_of(server: &RedisServer, words: &[String]) -> Vec<String> {
    if let [scan, pattern, of] = words
        && (&**scan, &**pattern) == ("--scan", "--pattern")
    {
        let (_, keys): (u64, Vec<String>) = server.query(&["SCAN", "0", "MATCH", of, "COUNT", "1000"]);
        return keys;
    }
    if let [words @ .., bar, grep, text] = words
        && (&**bar, &**grep) == ("|", "grep")
    {
        return lines_of(server, words).into_iter().filter(|line| line.contains(text)).collect();
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let raw = matches!(words[..], ["CLIENT", "LIST"] | ["INFO", _]);
    let mut lines = vec![];
    match server.query::<Value>(&words) {
        Value::BulkString(text) if raw => lines.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned)),
        Value::VerbatimString { text, .. } => lines.extend(text.lines().map(str::to_owned)),
        answer => show(&answer, "", &mut lines),
    }
    lines
}

fn show(value: &Value, start: &str, lines: &mut Vec<String>) {
    match value {
        Value::Nil => lines.push(format!("{start}(nil)")),
        Value::Int(number) => lines.push(format!("{start}(integer) {number}")),
        Value::BulkString(text) => lines.push(format!("{start}{:?}", String::from_utf8_lossy(text))),
        Value::SimpleString(text) => lines.push(format!("{start}{text}")),
        Value::Okay => lines.push(format!("{start}OK")),
        Value::Array(values) if values.is_empty() => lines.push(format!("{start}(empty array)")),
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                show(value, &format!("{start}{}) ", number + 1), lines);
            }
        }
        other => panic!("no command of the page answers {other:?}"),
    }
}
