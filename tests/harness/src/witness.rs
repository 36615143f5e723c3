//! A witness of overlaps that does not trust Redis: files show who is inside.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::percent::encode;
use crate::pids::is_alive;

/// A folder in which threads and processes sign in and out: each holder of a name owns a file.
#[derive(Debug)]
pub struct Witness {
    folder: PathBuf,
    /// A file with the id of this process; hard links to the file appear with their content.
    card: PathBuf,
    /// How many holders a name may have.
    places: u32,
    violations: AtomicU64,
    takeovers: AtomicU64,
}

/// The proof of being signed in; dropping the proof signs out.
#[must_use = "the entry ends with its drop"]
#[derive(Debug)]
pub struct Inside {
    /// `None` where somebody else was inside.
    own: Option<PathBuf>,
}

impl Witness {
    /// Uses this folder, and creates the folder if necessary. A name has one place.
    pub fn at(folder: impl Into<PathBuf>) -> Witness {
        Witness::with_places(folder, 1)
    }

    /// As [`at`](Self::at), where so many holders of a name may be inside at once.
    ///
    /// # Panics
    ///
    /// Panics when the folder cannot be written.
    pub fn with_places(folder: impl Into<PathBuf>, places: u32) -> Witness {
        let folder = folder.into();
        fs::create_dir_all(&folder).expect("the folder of the witness can be written");
        let card = folder.join(scratch("card"));
        fs::write(&card, process::id().to_string()).expect("the folder of the witness can be written");
        Witness { folder, card, places, violations: AtomicU64::new(0), takeovers: AtomicU64::new(0) }
    }

    /// The folder, to be passed on to other processes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Signs in under a name, also in the place of a process that was killed inside. An overlap never fails here: the
    /// overlap is written down and the test goes on.
    ///
    /// # Panics
    ///
    /// Panics when the folder cannot be written, or when the encoded name is too long for a file.
    pub fn enter(&self, name: impl AsRef<str>) -> Inside {
        let file = |place: u32| {
            let further = if place == 1 { String::new() } else { format!(".{place}") };
            self.folder.join(format!("{}.inside{further}", encode(name.as_ref())))
        };
        let sign = |file: &PathBuf| {
            self.signs(file).unwrap_or_else(|error| panic!("cannot sign in at {}: {error}", file.display()))
        };
        let own = (1..=self.places).map(file).find(sign);
        if own.is_none() {
            self.record(name.as_ref());
        }
        Inside { own }
    }

    /// How often an entry of this witness came beside too many others.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// How often an entry of this witness took the place of a process that is dead.
    pub fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::Relaxed)
    }

    fn signs(&self, file: &Path) -> io::Result<bool> {
        loop {
            match fs::hard_link(&self.card, file) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            if is_living(file)? || !self.remove_dead(file)? {
                return Ok(false);
            }
        }
    }

    /// Moves the file away first: of several processes that find a dead holder, only one can move the file.
    fn remove_dead(&self, file: &Path) -> io::Result<bool> {
        let grave = self.folder.join(scratch("dead"));
        match fs::rename(file, &grave) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        }
        // Another process may have entered between the look and the move.
        let living = is_living(&grave)?;
        fs::remove_file(&grave)?;
        self.takeovers.fetch_add(u64::from(!living), Ordering::Relaxed);
        Ok(!living)
    }

    /// Checks that no thread of any process has seen an overlap.
    ///
    /// # Panics
    ///
    /// Panics with all overlaps if there are any.
    #[track_caller]
    pub fn assert_no_violation(&self) {
        let violations = self.recorded();
        assert!(violations.is_empty(), "overlaps:\n{violations}");
    }

    /// Every overlap that a thread of any process has seen, a line each.
    ///
    /// # Panics
    ///
    /// Panics when the list of overlaps cannot be read.
    pub fn recorded(&self) -> String {
        match fs::read_to_string(self.folder.join(VIOLATIONS)) {
            Ok(lines) => lines,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => panic!("the folder of the witness cannot be read: {error}"),
        }
    }

    fn record(&self, name: &str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let line = format!("{name:?}: process {} came beside another holder\n", process::id());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(VIOLATIONS))
            .and_then(|mut file| file.write_all(line.as_bytes())) // one write, so lines stay whole
            .expect("the folder of the witness can be written");
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.card); // a leftover file does no harm
    }
}

impl Inside {
    /// Signs out, as dropping does.
    pub fn leave(self) {}
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(file) = &self.own {
            // Of two processes that find a dead holder, the later may have moved the file of the earlier. After another
            // failure, the next entry reports the file.
            let _ = fs::remove_file(file);
        }
    }
}

/// A vanished file has no living owner; an unreadable file counts as living.
fn is_living(file: &Path) -> io::Result<bool> {
    let content = match fs::read_to_string(file) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(content.trim().parse().map_or(true, is_alive))
}

/// A file name that no other process or thread chooses.
fn scratch(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}.pid", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
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
        assert_eq!(witness.recorded().lines().count(), 1);
        witness.enter("lock").leave();
        assert_eq!(witness.recorded().lines().count(), 2, "the second one did not sign the first one out");
        first.leave();
        witness.enter("lock").leave();
        assert_eq!(witness.recorded().lines().count(), 2);
    }
}
