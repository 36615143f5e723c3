//! A table in Markdown whose cells give the result of most versions, and the versions with other results.

use std::fmt::Write;

use crate::support::prelude::*;

/// The observations: for each row, and each version, one text for each column; none where nothing was tested.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) title: String,
    /// By the label of the version.
    pub(crate) seen: BTreeMap<String, Vec<String>>,
    /// The last column, the same for all.
    pub(crate) advice: String,
}

impl Table {
    /// The columns are the title, the observations, and the advice.
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|&word| word.to_owned()).collect(), rows: vec![] }
    }

    pub(crate) fn add(&mut self, row: Row) {
        assert!(row.seen.values().all(|cells| cells.len() + 2 == self.head.len()), "{row:?}");
        self.rows.push(row);
    }

    /// The table in the document's form.
    pub(crate) fn in_markdown(&self) -> String {
        let mut text = line(&self.head) + &line(&vec!["---".to_owned(); self.head.len()]).replace(' ', "");
        for row in &self.rows {
            let cells = (0..self.head.len() - 2).map(|column| row.cell(column));
            let whole: Vec<String> = [row.title.clone()].into_iter().chain(cells).chain([row.advice.clone()]).collect();
            text += &line(&whole);
        }
        text
    }

    /// The differences between this table, observed on some versions, and a written table with all versions.
    pub(crate) fn differences_from(&self, written: &str) -> String {
        let mut lines = written.lines().map(cells);
        let mut differences = String::new();
        if lines.next().as_ref() != Some(&self.head) {
            writeln!(differences, "its head is not {:?}", self.head).unwrap();
        }
        let mut written: BTreeMap<String, Vec<String>> =
            lines.skip(1).filter(|cells| !cells.is_empty()).map(|cells| (cells[0].clone(), cells)).collect();
        for row in &self.rows {
            match written.remove(&row.title) {
                Some(cells) => self.compare(row, &cells, &mut differences),
                None => writeln!(differences, "it has no row {:?}", row.title).unwrap(),
            }
        }
        for title in written.keys() {
            writeln!(differences, "nothing is known of its row {title:?}").unwrap();
        }
        differences
    }

    fn compare(&self, row: &Row, written: &[String], differences: &mut String) {
        if written.len() != self.head.len() || written.last() != Some(&row.advice) {
            writeln!(differences, "row {:?} does not end in {:?}", row.title, row.advice).unwrap();
            return;
        }
        for (version, seen) in &row.seen {
            for (column, seen) in seen.iter().enumerate() {
                let said = said_of(version, &written[column + 1]);
                if !seen.is_empty() && !said.contains(&seen.as_str()) {
                    let (title, column) = (&row.title, &self.head[column + 1]);
                    writeln!(differences, "{title}, {column}: {version} was seen to say {seen:?}, not {said:?}")
                        .unwrap();
                }
            }
        }
    }
}

impl Row {
    /// The text of most versions, and then the versions with another text.
    fn cell(&self, column: usize) -> String {
        let mut by_text: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (version, cells) in &self.seen {
            if !cells[column].is_empty() {
                by_text.entry(&cells[column]).or_default().push(version);
            }
        }
        if by_text.is_empty() {
            return String::new();
        }
        let common = by_text.iter().max_by_key(|(_, versions)| versions.len());
        let Some((common, _)) = common else { return "not seen here".to_owned() };
        let mut text = (*common).to_owned();
        for (other, versions) in by_text.iter().filter(|(text, _)| *text != common) {
            write!(text, "{BUT}{}{SAY}{other}", versions.join(", ")).unwrap();
        }
        text
    }
}

/// The texts that a cell claims for one version; for a version outside the written table, all texts of the cell.
fn said_of<'a>(version: &str, cell: &'a str) -> Vec<&'a str> {
    let mut parts = cell.split(BUT);
    let common = parts.next().unwrap_or_default();
    let others: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once(SAY)).collect();
    if !WRITTEN_WITH.contains(&version) {
        return others.iter().map(|(_, text)| *text).chain([common]).collect();
    }
    let own = others.iter().find(|(versions, _)| versions.split(", ").any(|one| one == version));
    vec![own.map_or(common, |(_, text)| text)]
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    if inner.is_empty() { vec![] } else { inner.split('|').map(|cell| cell.trim().to_owned()).collect() }
}

/// The versions in the committed tables.
const WRITTEN_WITH: [&str; 6] = ["Redis 6.2", "Redis 7.0", "Redis 8.0", "Redis 8.6", "Valkey 8", "Valkey 9"];
const BUT: &str = "; on ";
const SAY: &str = ": ";

#[test]
fn a_table_lists_and_checks_differences_of_versions() {
    let seen = |texts: &[(&str, &str)]| {
        texts.iter().map(|(version, text)| ((*version).to_owned(), vec![(*text).to_owned()])).collect()
    };
    let table = |texts: &[(&str, &str)]| {
        let mut table = Table::new(&["word", "acquire", "advice"]);
        table.add(Row { title: "`A`".into(), seen: seen(texts), advice: "do".into() });
        table
    };
    let all = table(&[("Redis 6.2", "works"), ("Redis 7.0", "refused"), ("Valkey 8", "refused")]);
    let text = all.in_markdown();
    assert_eq!(text, "| word | acquire | advice |\n|---|---|---|\n| `A` | refused; on Redis 6.2: works | do |\n");
    assert_eq!(all.differences_from(&text), "");
    for few in [("Redis 6.2", "works"), ("Valkey 8", "refused"), ("Redis 9.9", "refused"), ("Redis 9.9", "works")] {
        let few = [few];
        assert_eq!(table(&few).differences_from(&text), "");
    }
    for wrong in [[("Redis 6.2", "refused")], [("Valkey 8", "works")], [("Redis 9.9", "waits")]] {
        assert_ne!(table(&wrong).differences_from(&text), "");
    }
    assert_ne!(all.differences_from(&text.replace("do", "do not")), "");
    assert_ne!(all.differences_from(&text.replace("`A`", "`B`")), "");
    assert_ne!(all.differences_from(&(text + "| `C` | refused | do |\n")), "");
}
