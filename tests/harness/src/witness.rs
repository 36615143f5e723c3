//! A witness of overlaps that does not trust Redis: files show which process or thread is inside.
//!
//! The convention, for peers in other languages too: to enter `name`, a peer creates the file
//! `<percent-encoded name>.inside` in the folder of the witness, which must not exist, and deletes the file when
//! leaving. All bytes but `A-Z a-z 0-9 - _ . ~` are percent-encoded, in upper-case hexadecimal. The content starts with
//! the process id in decimal; text after a space is for people. If the file exists and the process is alive, the two
//! overlap: the peer appends a line to the file `violations`. If the process is dead, the process was killed inside,
//! and the peer takes the place over.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::eventually::PAUSE;
use crate::pids;

/// A folder in which every process and thread signs in and out.
#[derive(Debug, Clone)]
pub struct Witness {
    folder: PathBuf,
}

impl Witness {
    /// Uses this folder, and creates the folder if necessary.
    pub fn at(folder: impl Into<PathBuf>) -> Witness {
        let folder = folder.into();
        fs::create_dir_all(&folder).expect("the folder of the witness can be written");
        Witness { folder }
    }

    /// The folder, to be passed on to other processes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Signs in under a name.
    ///
    /// An overlap never fails here: the overlap is written down and the test goes on.
    ///
    /// # Panics
    ///
    /// Panics when the folder cannot be written, or when the encoded name is too long for a file.
    pub fn enter(&self, name: impl AsRef<[u8]>) -> Inside {
        let encoded = encode(name.as_ref());
        let path = self.folder.join(format!("{encoded}.inside"));
        let content = signature();
        let owned = self.sign_in(&path, &content, &encoded);
        Inside { witness: self.clone(), name: encoded, path, content, owned }
    }

    /// Whether a file for the name exists, of a living or a dead process.
    pub fn is_inside(&self, name: impl AsRef<[u8]>) -> bool {
        let encoded = encode(name.as_ref());
        self.folder.join(format!("{encoded}.inside")).exists()
    }

    /// All overlaps seen so far, by all processes.
    pub fn violations(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(VIOLATIONS)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Checks that no peer has seen an overlap.
    ///
    /// # Panics
    ///
    /// Panics with all overlaps if there are any.
    #[track_caller]
    pub fn assert_no_violation(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "overlaps:\n{}", violations.join("\n"));
    }

    /// Returns whether the file now belongs to the caller.
    fn sign_in(&self, path: &Path, content: &str, name: &str) -> bool {
        loop {
            if self.create(path, content) {
                return true;
            }
            let Some(other) = read_settled(path) else {
                continue; // the other process has just left
            };
            if is_living(&other) {
                self.record(name, content, &format!("entered beside {other:?}"));
                return false;
            }
            self.clear_away(path, name, content);
        }
    }

    /// Creates the file with its content in one step, so no peer ever sees an empty file.
    fn create(&self, path: &Path, content: &str) -> bool {
        let draft = self.folder.join(format!("{}.draft", Uuid::new_v4()));
        fs::write(&draft, content).expect("the folder of the witness can be written");
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft).expect("the draft is ours");
        match linked {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => panic!("cannot sign in at {}: {error}", path.display()),
        }
    }

    /// Removes the file of a dead process. Only one of several peers can win the renaming.
    fn clear_away(&self, path: &Path, name: &str, content: &str) {
        let aside = self.folder.join(format!("{}.dead", Uuid::new_v4()));
        if fs::rename(path, &aside).is_err() {
            return; // another process was faster
        }
        // Between the look and the renaming another peer may have taken over and be inside.
        let found = fs::read_to_string(&aside).unwrap_or_default();
        if is_living(&found) {
            self.record(name, content, &format!("entered beside {found:?}"));
        }
        let _ = fs::remove_file(&aside); // a leftover file does no harm
    }

    fn record(&self, name: &str, content: &str, what: &str) {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let line = format!("{name}: {content:?} (thread {thread:?}) {what}\n");
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(VIOLATIONS))
            .and_then(|mut file| file.write_all(line.as_bytes())) // one write, so lines stay whole
            .expect("the folder of the witness can be written");
    }
}

/// The proof of being signed in; dropping the proof signs out.
#[must_use = "the entry ends with its drop"]
#[derive(Debug)]
pub struct Inside {
    witness: Witness,
    name: String,
    path: PathBuf,
    content: String,
    owned: bool,
}

impl Inside {
    /// Whether the place was free at the entry.
    pub fn is_alone(&self) -> bool {
        self.owned
    }

    /// Signs out, as dropping does.
    pub fn leave(self) {}
}

impl Drop for Inside {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        match fs::read_to_string(&self.path) {
            Ok(found) if found == self.content => {
                let _ = fs::remove_file(&self.path); // after a failure, the next entry reports the file
            }
            Ok(found) => self.disturbed(&format!("found {found:?} instead of the own file")),
            Err(error) => self.disturbed(&format!("the own file is gone: {error}")),
        }
    }
}

impl Inside {
    fn disturbed(&self, what: &str) {
        self.witness.record(&self.name, &self.content, what);
    }
}

/// Process id, start of the process if known, and an id of this entry.
fn signature() -> String {
    let pid = std::process::id();
    let start = pids::started_at(pid).unwrap_or(0);
    format!("{pid} {start} {}", Uuid::new_v4())
}

/// Reads the content; a peer that writes in two steps gets a moment for the second step.
fn read_settled(path: &Path) -> Option<String> {
    let started = Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(content) if !content.is_empty() || started.elapsed() > SETTLING => {
                return Some(content);
            }
            Ok(_) => thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => panic!("cannot read {}: {error}", path.display()),
        }
    }
}

/// A process that cannot be checked counts as living: a doubtful overlap must be reported rather than hidden.
fn is_living(content: &str) -> bool {
    let mut words = content.split_whitespace();
    let Some(pid) = words.next().and_then(|word| word.parse().ok()) else {
        return true;
    };
    let start: Option<u64> = words.next().and_then(|word| word.parse().ok());
    match (start, pids::started_at(pid)) {
        (Some(then @ 1..), Some(now)) if then != now => false, // the pid was used again
        _ => pids::is_alive(pid),
    }
}

fn encode(name: &[u8]) -> String {
    let mut encoded = String::with_capacity(name.len());
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

const VIOLATIONS: &str = "violations";
const SETTLING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_between_look_and_take_over_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let witness = Witness::at(folder.path());
        let path = folder.path().join("lock.inside");
        for (content, violations) in [("4194303 0 dead", 0), (&*signature(), 1)] {
            fs::write(&path, content).unwrap();
            witness.clear_away(&path, "lock", "me");
            assert_eq!(witness.violations().len(), violations);
        }
        witness.clear_away(&path, "lock", "me"); // another process was faster
        assert_eq!(witness.violations().len(), 1);
    }
}
