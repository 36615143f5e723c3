//! Tables for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use lockson::{ClientConnection, InspectedHolder, Inspection, LockKind};
use serde_json::{Value, json};

use crate::Failure;

/// Prints rows under their titles; titles are bold on a terminal.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    Ok(io::stdout().write_all(text_of(titles, rows, is_coloured()).as_bytes())?)
}

/// A line on a terminal that tells how far something is, once a second from the first second on.
#[derive(Debug)]
pub(crate) struct Progress {
    told: Instant,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { told: Instant::now(), is_shown: false }
    }

    pub(crate) fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.told.elapsed() >= Duration::from_secs(1) && io::stderr().is_terminal() {
            (self.told, self.is_shown) = (Instant::now(), true);
            eprint!("\r{}\x1b[K", text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Tells the user something on standard error, also where standard error is closed. What a server wrote into the text
/// does not move the cursor.
pub(crate) fn report(text: impl Display) {
    let lines: Vec<_> = text.to_string().lines().map(shown).collect();
    let _ = writeln!(io::stderr(), "lockson: {}", lines.join("\n"));
}

/// Prints one object on a line.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{value}")?)
}

fn text_of(titles: &[&str], rows: &[Vec<String>], is_coloured: bool) -> String {
    let width = |column: usize| {
        let of_rows = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        of_rows.chain([titles[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let titles = line(&titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    let titles = if is_coloured { format!("\x1b[1m{titles}\x1b[0m") } else { titles };
    let lines = [titles].into_iter().chain(rows.iter().map(|row| line(row)));
    lines.map(|line| line + "\n").collect()
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn is_coloured() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A text from Redis with its control characters and changes of direction escaped, so that no name moves the cursor.
pub(crate) fn shown(text: &str) -> String {
    let is_mark = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().flat_map(|c| if is_mark(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

/// A duration as people read it.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Fails where a missing right hides whether the lock is held.
pub(crate) fn unless_hidden(inspection: &Inspection) -> Result<(), Failure> {
    let missing = inspection.without_rights().join(", ");
    if inspection.kind().is_none() && !missing.is_empty() {
        return Err(format!("cannot tell about {}: the user may not run {missing}", shown(inspection.name())).into());
    }
    Ok(())
}

/// The word for the state of a name.
pub(crate) fn state(inspection: &Inspection) -> String {
    if unless_hidden(inspection).is_err() {
        return "unknown".to_owned();
    }
    match (inspection.kind(), inspection.available()) {
        (Some(LockKind::Semaphore), Some(count)) => format!("{count} left"),
        (Some(LockKind::Permit), Some(free)) => format!("{} taken, {free} free", inspection.holder_count()),
        _ if inspection.holder_count() == 0 => "free".to_owned(),
        _ => "held".to_owned(),
    }
}

/// The kind of a name, as far as Redis shows it.
pub(crate) fn kind(inspection: &Inspection) -> String {
    match inspection.kind() {
        // Both are one number.
        Some(LockKind::Semaphore) => "semaphore or latch".to_owned(),
        Some(kind) => kind.to_string(),
        None => "-".to_owned(),
    }
}

/// When the hold ends if its holder is dead.
pub(crate) fn end(remaining: Option<Duration>) -> String {
    remaining.map_or_else(|| "never".to_owned(), time)
}

/// When the first hold ends: permits, values of a group and readers end one by one.
pub(crate) fn first_end(inspection: &Inspection) -> Option<Duration> {
    inspection.holders().iter().filter_map(InspectedHolder::remaining).min().or(inspection.remaining())
}

/// The machine and process of a client.
pub(crate) fn place(client: Option<&ClientConnection>) -> String {
    let Some(client) = client else { return "-".to_owned() };
    match (client.host(), client.process_id()) {
        (Some(host), Some(process)) => format!("{} (process {process}, {})", shown(host), shown(client.address())),
        _ => format!("{} {}", shown(client.address()), shown(client.name())),
    }
}

fn json_of_client(client: Option<&ClientConnection>) -> Value {
    client.map_or(Value::Null, |client| {
        json!({
            "address": client.address(),
            "name": client.name(),
            "host": client.host(),
            "process": client.process_id(),
        })
    })
}

pub(crate) fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// How many connections listen for a release, with what they do, as far as the user may see that.
pub(crate) fn listening(inspection: &Inspection, deed: &str) -> String {
    let is_unknown = inspection.without_rights().iter().any(|right| right.starts_with("pubsub"));
    if is_unknown { "unknown".to_owned() } else { format!("{}{deed}", inspection.waiting_clients()) }
}

/// How many wait, of those that can be seen.
pub(crate) fn waiting(inspection: &Inspection) -> u64 {
    inspection.waiting_clients().max(inspection.waiters().len() as u64)
}

pub(crate) fn json_of(inspection: &Inspection) -> Value {
    let holder = |holder: &InspectedHolder| {
        json!({
            "owner": holder.owner(),
            "hold_count": holder.hold_count(),
            "side": holder.side().map(|side| side.to_string()),
            "value": holder.value(),
            "remaining_ms": millis(holder.remaining()),
            "client": json_of_client(holder.client()),
        })
    };
    json!({
        "name": inspection.name(),
        "kind": inspection.kind().map(|kind| kind.to_string()),
        "held": inspection.holder_count() > 0,
        "holders": inspection.holders().iter().map(holder).collect::<Vec<_>>(),
        "holder_count": inspection.holder_count(),
        "remaining_ms": millis(inspection.remaining()),
        "waiters": inspection.waiters().iter().map(|waiter| json!({
            "owner": waiter.owner(),
            "client": json_of_client(waiter.client()),
        })).collect::<Vec<_>>(),
        "waiting_clients": inspection.waiting_clients(),
        "token": inspection.token().map(i64::from),
        "available": inspection.available(),
        "leader": inspection.leader(),
        "held_for_ms": millis(inspection.held_for()),
        "without_rights": inspection.without_rights(),
        "without_clients": inspection.without_clients(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["orders:42", "plain"]), row(["ä", "fair"])];
        assert_eq!(text_of(&["NAME", "KIND"], &rows, false), "NAME       KIND\norders:42  plain\nä          fair\n");
        assert!(text_of(&["NAME"], &[], true).starts_with("\x1b[1mNAME\x1b[0m"));
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(shown("a\x1b[2J\nb ä"), "a\\u{1b}[2J\\nb ä");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn times_are_read_at_a_glance() {
        let shown = |ms| time(Duration::from_millis(ms));
        assert_eq!([shown(40), shown(61_000), shown(7_260_000)], ["0.0 s", "1 min 1 s", "2 h 1 min"]);
    }
}
