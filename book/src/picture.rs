//! A picture of one scene: a time line of what each process believes and of what Redis has.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::redis_view::InRedis;
use crate::stage::State;

/// A time line. The columns are as wide as their words need, and the time of each is written above it.
pub(crate) struct Picture {
    /// The chapter and the number within the chapter.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
}

/// One step, and the states since then.
pub(crate) struct Column {
    pub(crate) at: Duration,
    pub(crate) what: String,
    pub(crate) states: BTreeMap<String, State>,
    pub(crate) redis: Vec<(String, InRedis)>,
}

impl Picture {
    pub(crate) fn new(name: String, title: &str) -> Self {
        Self { name, title: title.into(), columns: vec![] }
    }

    pub(crate) fn svg(&self) -> String {
        let Some(first) = self.columns.first() else { return String::new() };
        let names: Vec<&String> = first.states.keys().collect();
        let rows = names.len() + first.redis.len();
        let texts: Vec<Vec<String>> = self.columns.iter().map(|column| wrapped(&column.what, COLUMN_SIGNS)).collect();
        let head = TITLE + 24 + LINE * texts.iter().map(Vec::len).max().unwrap_or(1);
        let of_columns = LABEL + self.columns.len() * COLUMN + MARGIN;
        let of_title = self.title.len() * TITLE_SIGN + 2 * MARGIN;
        let (width, height) = (of_columns.max(of_title).max(LEAST_WIDTH), head + rows * ROW + 44);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\" font-family=\"-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, \
             sans-serif\" font-size=\"13\">\n<title>{title}</title>\n{STYLE}\
             <rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
             <text class=\"strong\" x=\"{MARGIN}\" y=\"26\" font-size=\"15\">{title}</text>\n",
            width - 1,
            height - 1,
            title = escaped(&self.title),
        );
        self.verdicts(&mut svg, head, rows);
        for (index, column) in self.columns.iter().enumerate() {
            let x = LABEL + index * COLUMN;
            let time = column.at.as_millis();
            text(&mut svg, "strong", x + 6, TITLE + 14, &format!("{time} ms"));
            for (line, words) in texts[index].iter().enumerate() {
                text(&mut svg, "soft", x + 6, TITLE + 14 + LINE * (line + 1), words);
            }
        }
        for (row, name) in names.iter().enumerate() {
            let y = head + row * ROW;
            text(&mut svg, "strong", MARGIN, y + 22, name);
            let cells = self.columns.iter().map(|column| cell_of(row, &column.states[*name]));
            bars(&mut svg, y, &cells.collect::<Vec<_>>());
        }
        for (number, (label, _)) in first.redis.iter().enumerate() {
            let y = head + (names.len() + number) * ROW;
            text(&mut svg, "strong", MARGIN, y + 22, label);
            let cells = self.columns.iter().map(|column| cell_of_redis(&names, &column.redis[number].1));
            bars(&mut svg, y, &cells.collect::<Vec<_>>());
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Marks the columns with a failure, and names the failure below.
    fn verdicts(&self, svg: &mut String, head: usize, rows: usize) {
        let mut verdicts: Vec<&str> = self.columns.iter().map(verdict_of).collect();
        // At the start of a scene nobody has had the time to take a free lock.
        verdicts[0] = if verdicts[0] == FREE { "" } else { verdicts[0] };
        for (index, count) in runs(&verdicts) {
            if verdicts[index].is_empty() {
                continue;
            }
            let (x, wide, high) = (LABEL + index * COLUMN, count * COLUMN, rows * ROW + 8);
            let _ = writeln!(
                svg,
                "<rect class=\"wrong\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"{high}\"/>",
                head - 4
            );
            text(svg, "wrong-text", x + 6, head + rows * ROW + 24, verdicts[index]);
        }
    }
}

/// A part of a bar: its colour, its words, and words that may change within the bar.
#[derive(Clone, PartialEq)]
struct Cell {
    class: String,
    words: String,
    below: String,
}

fn cell_of(row: usize, state: &State) -> Cell {
    let (class, words) = match state {
        State::Idle => (String::new(), ""),
        State::Waits => (format!("waits p{row}"), "waits"),
        State::Holds => (format!("holds p{row}"), "believes: I hold it"),
        State::Stopped => ("off".into(), "stopped"),
        State::Dead => ("off".into(), "killed"),
        State::Ended(words) => ("off".into(), *words),
        State::Both(words) => (format!("waits p{row}"), *words),
    };
    Cell { class, words: words.into(), below: String::new() }
}

fn cell_of_redis(names: &[&String], state: &InRedis) -> Cell {
    let (class, words, below) = match state {
        InRedis::Down => ("off".into(), "down".into(), String::new()),
        InRedis::Free => (String::new(), "no lock".into(), String::new()),
        InRedis::Data(value) => ("data".into(), value.clone(), String::new()),
        InRedis::Taken { by, left } => {
            let owner = names.iter().position(|name| by.split(' ').next() == Some(name.as_str()));
            let class = owner.map_or("holds unknown".into(), |row| format!("holds p{row}"));
            let words = if owner.is_some() { format!("lock of {by}") } else { by.clone() };
            (class, words, left.clone())
        }
    };
    Cell { class, words, below }
}

fn bars(svg: &mut String, y: usize, cells: &[Cell]) {
    let same: Vec<(&str, &str)> = cells.iter().map(|cell| (cell.class.as_str(), cell.words.as_str())).collect();
    for (index, count) in runs(&same) {
        let (x, cell) = (LABEL + index * COLUMN, &cells[index]);
        if !cell.class.is_empty() {
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>",
                cell.class,
                x + 2,
                y + 2,
                count * COLUMN - 4,
                ROW - 6
            );
        }
        let has_two = cells[index..index + count].iter().any(|cell| !cell.below.is_empty());
        text(svg, "", x + 8, y + if has_two { 17 } else { 23 }, &cell.words);
        for (further, cell) in cells[index..index + count].iter().enumerate() {
            text(svg, "soft small", x + further * COLUMN + 8, y + 31, &cell.below);
        }
    }
}

/// The failure since a step, or nothing.
fn verdict_of(column: &Column) -> &'static str {
    let count = |wanted: fn(&State) -> bool| column.states.values().filter(|state| wanted(state)).count();
    let holders = count(|state| *state == State::Holds);
    let involved = count(|state| matches!(state, State::Stopped | State::Both(_)));
    let is_taken = column
        .redis
        .iter()
        .any(|(_, state)| matches!(state, InRedis::Taken { left, .. } if !left.starts_with("ended")));
    match holders {
        2.. => "two holders",
        0 if is_taken && involved == 0 => "locked, and nobody holds it",
        0 if count(|state| matches!(state, State::Both(_))) == 2 => "each waits for the other",
        0 if !is_taken && count(|state| *state == State::Waits) > 0 => FREE,
        _ => "",
    }
}

/// The starts and lengths of runs of equal values.
fn runs<T: PartialEq>(values: &[T]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = vec![];
    for index in 0..values.len() {
        match runs.last_mut() {
            Some((start, count)) if values[*start] == values[index] => *count += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

fn wrapped(words: &str, signs: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        if lines.last().is_some_and(|line| !line.is_empty() && line.len() + word.len() >= signs) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn text(svg: &mut String, class: &str, x: usize, y: usize, words: &str) {
    if !words.is_empty() {
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(words));
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

const FREE: &str = "free, and one waits";
const LABEL: usize = 92;
const COLUMN: usize = 152;
const COLUMN_SIGNS: usize = 21;
const ROW: usize = 44;
const LINE: usize = 17;
const MARGIN: usize = 14;
const TITLE: usize = 36;
const TITLE_SIGN: usize = 8;
const LEAST_WIDTH: usize = 560;

const STYLE: &str = "<style>
  .card { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328 }
  .soft { fill: #59636e } .strong { font-weight: 600 } .small { font-size: 11px }
  .p0 { fill: #0969da; stroke: #0969da } .p1 { fill: #bc4c00; stroke: #bc4c00 } .p2 { fill: #8250df; stroke: #8250df }
  .p3 { fill: #1a7f37; stroke: #1a7f37 } .p4 { fill: #bf3989; stroke: #bf3989 }
  .unknown { fill: #59636e; stroke: #59636e }
  .holds { fill-opacity: .18; stroke-width: 1.5 }
  .waits { fill-opacity: .05; stroke-dasharray: 5 4 }
  .off { fill: #59636e; fill-opacity: .12; stroke: #59636e; stroke-dasharray: 1 3 }
  .data { fill: #59636e; fill-opacity: .06 }
  .wrong { fill: #cf222e; fill-opacity: .1 } .wrong-text { fill: #cf222e; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .soft { fill: #9198a1 }
    .p0 { fill: #58a6ff; stroke: #58a6ff } .p1 { fill: #f0883e; stroke: #f0883e } .p2 { fill: #d2a8ff; stroke: #d2a8ff }
    .p3 { fill: #3fb950; stroke: #3fb950 } .p4 { fill: #f778ba; stroke: #f778ba }
    .unknown, .off { fill: #9198a1; stroke: #9198a1 }
    .wrong { fill: #ff7b72; fill-opacity: .18 } .wrong-text { fill: #ff7b72 }
  }
</style>
";
