//! The intended differences between the states that Lockson and Redisson leave: the rows of `docs/compatibility.md` that
//! have a reason.

use std::fs;

use super::Record;
use crate::document::NOT_INTENDED;
use crate::kind::Kind;
use crate::program::workspace;

/// One intended difference: exactly these two outcomes, and no other.
#[derive(Debug)]
pub(crate) struct Difference {
    label: String,
    rust: String,
    java: String,
    pub(crate) reason: String,
}

/// The intended differences of a kind.
pub(crate) fn of(kind: &Kind) -> Vec<Difference> {
    let page = fs::read_to_string(workspace().join("docs/compatibility.md")).expect("the document can be read");
    let part = page.split("\n### ").find_map(|part| part.strip_prefix(kind.title)?.strip_prefix('\n'));
    let (_, rows) = part.and_then(|part| part.split_once("\nDifferent:\n")).unwrap_or_default();
    rows.lines().filter_map(Difference::read).filter(|difference| difference.reason != NOT_INTENDED).collect()
}

pub(crate) fn find<'d>(differences: &'d [Difference], label: &str) -> Option<&'d Difference> {
    differences.iter().find(|difference| difference.label == label)
}

impl Difference {
    fn read(row: &str) -> Option<Self> {
        let cells: Vec<&str> = row.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [label, rust, java, reason, _] = cells.try_into().ok()?;
        let [label, rust, java, reason] = [label, rust, java, reason].map(str::to_owned);
        Some(Self { label, rust, java, reason })
    }

    pub(crate) fn is(&self, rust: &Record, java: &Record) -> bool {
        self.rust == rust.in_a_cell() && self.java == java.in_a_cell()
    }
}
