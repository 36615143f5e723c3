//! Writes what the program showed into the book's `README.md`, and the pictures beside it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::stage::{Stage, Verdict};
use crate::{Chapter, Outcome};

/// What is written.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Output {
    None,
    Pictures,
    PicturesAndText,
}

impl Output {
    /// Writes the pictures and the text of a chapter.
    pub(crate) fn write(self, stage: &Stage) -> Outcome<()> {
        if self == Output::None {
            return Ok(());
        }
        for picture in &stage.pictures {
            fs::write(book().join("pictures").join(format!("{}.svg", picture.name)), picture.svg())?;
        }
        if self == Output::PicturesAndText {
            let begin = format!("<!-- chapter {}: written by the program -->\n", stage.number);
            replace(&begin, "<!-- end of the chapter's output -->", &block(stage)?)?;
        }
        Ok(())
    }

    /// Writes the table of all chapters.
    pub(crate) fn write_summary(self, rows: &[(&Chapter, Verdict)]) -> Outcome<()> {
        if self != Output::PicturesAndText {
            return Ok(());
        }
        let mut table =
            "\n| | recipe | its failure, as seen | the same scene with Lockson |\n|---|---|---|---|\n".to_owned();
        for (chapter, verdict) in rows {
            writeln!(table, "| {} | {} | {} | {} |", chapter.number, chapter.recipe, verdict.failure, verdict.lockson)?;
        }
        table.push('\n');
        replace("<!-- summary: written by the program -->\n", "<!-- end of the summary -->", &table)
    }
}

/// The recipe, the pictures and the protocol of a chapter.
fn block(stage: &Stage) -> Outcome<String> {
    let mut block = format!("\n```rust\n{}\n```\n\n", stage.recipe);
    for picture in &stage.pictures {
        write!(block, "![Time line: {}](pictures/{}.svg)\n\n", picture.title, picture.name)?;
    }
    let text: Vec<&str> = stage.text.trim_matches('\n').lines().map(str::trim_end).collect();
    write!(block, "```text\n{}\n```\n\n", text.join("\n"))?;
    Ok(block)
}

/// Replaces what the page has between two lines.
fn replace(begin: &str, end: &str, block: &str) -> Outcome<()> {
    let path = book().join("README.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(begin).ok_or(format!("book/README.md lacks {begin}"))?;
    let (_, after) = rest.split_once(end).ok_or(format!("book/README.md lacks {end}"))?;
    Ok(fs::write(path, format!("{before}{begin}{block}{end}{after}"))?)
}

fn book() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
