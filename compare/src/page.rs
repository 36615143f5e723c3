//! What a run leaves: the figures as a file, two pictures, and the table on the page.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::peer::{CANDIDATES, root};
use crate::picture;
use crate::table::{ROWS, Table, shown};

/// Writes everything into `docs`. `size` is that of the run.
pub(crate) fn write(table: &Table, size: &str) {
    let docs = root().join("docs");
    let conditions = conditions(table, size);
    let keep = |name: &str, text: String| fs::write(docs.join(name), text).expect("the pages can be written");
    keep("compare-speed.svg", picture::draw("What one operation takes", SPEED, table));
    keep("compare-load.svg", picture::draw("Many who want one lock, and what goes wrong", LOAD, table));
    keep("compare.json", json(table, &conditions));
    let page = fs::read_to_string(docs.join("performance.md")).expect("the page is there");
    let generated = format!("{conditions}\n\n{}\n{}", settings(table), markdown(table));
    keep("performance.md", between_marks(&page, &generated));
}

const SPEED: &[&str] = &["pair", "reentry", "multi", "semaphore", "red", "hand-over"];
const LOAD: &[&str] = &[
    "hot-1x8-0",
    "jain-1x8-0",
    "hot-1x8-1",
    "longest-1x8-1",
    "hot-4x2-1",
    "longest-4x2-1",
    "crowd-served",
    "many-bytes",
    "lost",
    "two-believe",
];

/// Where and when this was measured.
fn conditions(table: &Table, size: &str) -> String {
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(root()).output();
        output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
    let commit = said("git", &["rev-parse", "--short", "HEAD"]);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "One {size} run at commit {commit} on {}: {cpu}, {}, {}; load of the last minute {load}. The middle of the rounds.",
        said("date", &["-I"]),
        table.conditions,
        said("uname", &["-sr"]),
    )
}

fn settings(table: &Table) -> String {
    let line = |candidate: &crate::peer::Candidate| {
        let version = table.versions.get(candidate.name).map_or("not measured", String::as_str);
        let version = if version == "-" { String::new() } else { format!(" {version}") };
        format!("* **{}**{version}: {}.\n", candidate.name, candidate.set)
    };
    CANDIDATES.iter().map(line).collect()
}

/// The table, and below the reasons of cells without a figure.
fn markdown(table: &Table) -> String {
    let names: Vec<&str> = CANDIDATES.iter().map(|candidate| candidate.name).collect();
    let mut page = format!("| | better | {} |\n|---|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut reasons: Vec<&str> = vec![];
    for row in ROWS {
        let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
        let better = if row.less_is_better { "less" } else { "more" };
        let _ = write!(page, "| {}{unit} | {better} |", row.title);
        for name in &names {
            let cell = match (table.cell(row.key, name), table.middle(row.key, name)) {
                (Err(reason), _) => {
                    let place = reasons.iter().position(|other| *other == reason).unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    format!("{} ({})", bound(reason), place + 1)
                }
                (_, value) => shown(value.unwrap_or_default()),
            };
            let _ = write!(page, " {cell} |");
        }
        page.push('\n');
    }
    page.push_str("\nWithout a figure:\n\n");
    for (place, reason) in reasons.iter().enumerate() {
        let _ = writeln!(page, "{}. {reason}", place + 1);
    }
    page
}

/// What a cell shows in place of a figure: the time that was not enough, or nothing.
pub(crate) fn bound(reason: &str) -> String {
    let words = reason.starts_with("over ").then(|| reason.split(':').next()).flatten();
    words.unwrap_or("–").to_owned()
}

fn json(table: &Table, conditions: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " "));
    let row = |row: &crate::table::Row| {
        let cells = CANDIDATES.iter().map(|candidate| {
            let cell = match table.cell(row.key, candidate.name) {
                Ok(values) => format!("{values:?}"),
                Err(reason) => quoted(reason),
            };
            format!("      {}: {cell}", quoted(candidate.name))
        });
        let better = if row.less_is_better { "less" } else { "more" };
        let cells = cells.collect::<Vec<_>>().join(",\n");
        let [title, unit] = [row.title, row.unit].map(quoted);
        format!(
            "    {}: {{\n      \"title\": {title}, \"unit\": {unit}, \"better\": \"{better}\",\n{cells}\n    }}",
            quoted(row.key)
        )
    };
    let rows: Vec<String> = ROWS.iter().map(row).collect();
    format!("{{\n  \"conditions\": {},\n  \"rounds\": {{\n{}\n  }}\n}}\n", quoted(conditions), rows.join(",\n"))
}

/// The page with this text between the marks.
fn between_marks(page: &str, text: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has a mark where the figures begin");
    let (_, after) = rest.split_once(END).expect("the page has a mark where the figures end");
    format!("{before}{BEGIN}\n{}\n{END}{after}", text.trim_end())
}

const BEGIN: &str = "<!-- make compare writes from here -->";
const END: &str = "<!-- to here -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replaces_what_stands_between_the_marks() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(between_marks(&page, "new\n"), format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
    }

    #[test]
    fn a_cell_without_a_figure_says_why_below() {
        let mut table = Table::default();
        table.add("pair", "Lockson", Ok(50.0));
        table.add("pair", "Redisson", Err("over 40 s: no answer".to_owned()));
        let page = markdown(&table);
        assert!(
            page.contains("| take and release a free lock, us | less | – (1) | 50.0 | over 40 s (2) | – (1) |"),
            "{page}"
        );
        assert!(page.contains("\n1. not measured\n2. over 40 s: no answer\n"), "{page}");
        assert!(json(&table, "a \"b\"").contains("\"Lockson\": [50.0]"));
    }

    #[test]
    fn the_page_has_marks_and_both_pictures() {
        let page = fs::read_to_string(root().join("docs/performance.md")).expect("the page is there");
        assert!(between_marks(&page, "x").contains("\nx\n"));
        assert!(page.contains("](compare-speed.svg)") && page.contains("](compare-load.svg)"));
    }
}
