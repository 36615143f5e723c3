//! A witness of overlaps that does not trust Redis: files show who is inside.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::percent::encode;

/// A folder in which threads and processes sign in and out. Who is killed inside stays there.
#[derive(Debug, Clone)]
pub struct Witness {
    folder: PathBuf,
}

/// The proof of being signed in; dropping the proof signs out.
#[must_use = "the entry ends with its drop"]
#[derive(Debug)]
pub struct Inside {
    /// `None` where somebody else was inside.
    own: Option<PathBuf>,
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

    /// Signs in under a name. An overlap never fails here: the overlap is written down and the test goes on.
    ///
    /// # Panics
    ///
    /// Panics when the folder cannot be written, or when the encoded name is too long for a file.
    pub fn enter(&self, name: impl AsRef<str>) -> Inside {
        let file = self.folder.join(format!("{}.inside", encode(name.as_ref())));
        let own = match OpenOptions::new().write(true).create_new(true).open(&file) {
            Ok(_) => Some(file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.record(name.as_ref());
                None
            }
            Err(error) => panic!("cannot sign in at {}: {error}", file.display()),
        };
        Inside { own }
    }

    /// Checks that no thread of any process has seen an overlap.
    ///
    /// # Panics
    ///
    /// Panics with all overlaps if there are any.
    #[track_caller]
    pub fn assert_no_violation(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "overlaps:\n{violations}");
    }

    fn violations(&self) -> String {
        fs::read_to_string(self.folder.join(VIOLATIONS)).unwrap_or_default()
    }

    fn record(&self, name: &str) {
        let line = format!("{name:?}: process {} came beside another holder\n", std::process::id());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(VIOLATIONS))
            .and_then(|mut file| file.write_all(line.as_bytes())) // one write, so lines stay whole
            .expect("the folder of the witness can be written");
    }
}

impl Inside {
    /// Signs out, as dropping does.
    pub fn leave(self) {}
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(file) = &self.own {
            let _ = fs::remove_file(file); // after a failure, the next entry reports the file
        }
    }
}

const VIOLATIONS: &str = "violations";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_inside_at_a_time_are_an_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let witness = Witness::at(folder.path());
        (0..2).for_each(|_| witness.enter("lock").leave());
        let first = witness.enter("lock");
        let _others = ["other", "a/b", "violations"].map(|name| witness.enter(name));
        witness.assert_no_violation();
        Witness::at(folder.path()).enter("lock").leave();
        assert_eq!(witness.violations().lines().count(), 1);
        witness.enter("lock").leave();
        assert_eq!(witness.violations().lines().count(), 2, "the second one did not sign the first one out");
        first.leave();
        witness.enter("lock").leave();
        assert_eq!(witness.violations().lines().count(), 2);
    }
}
