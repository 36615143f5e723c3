//! The parts of `docs/operations.md` that these tests read or write.

use std::env;

use crate::support::prelude::*;

/// The whole document.
pub(crate) fn text() -> String {
    fs::read_to_string(path()).expect("docs/operations.md can be read")
}

/// The text between the marks of this name.
pub(crate) fn part(name: &str) -> String {
    let text = text();
    let (from, to) = span(&text, name);
    text[from..to].to_owned()
}

/// Puts this text between the marks of this name.
pub(crate) fn replace_part(name: &str, new: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let mut text = text();
    let (from, to) = span(&text, name);
    text.replace_range(from..to, new);
    fs::write(path(), text).expect("docs/operations.md can be written");
}

/// Whether the parts are to be written and not only compared.
pub(crate) fn is_to_be_written() -> bool {
    env::var_os("LOCKSON_WRITE_TABLE").is_some()
}

fn span(text: &str, name: &str) -> (usize, usize) {
    let place = |mark: &str| text.find(mark).unwrap_or_else(|| panic!("docs/operations.md has no {mark}"));
    let begin = format!("<!-- {name}: written by `make servers WRITE=1` -->\n\n");
    (place(&begin) + begin.len(), place(&format!("\n<!-- end of {name} -->")))
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")
}
