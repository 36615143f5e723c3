//! Proves exclusion without Redis: each holder of a name owns a file in a shared directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use lockson_harness::percent::encode;

/// One loop's view of the directory.
#[derive(Debug)]
pub(crate) struct Witness {
    directory: PathBuf,
    /// A file of this loop with the pid; hard links to the file appear with their content.
    card: PathBuf,
    /// How many holders a name may have.
    places: u32,
    pub(crate) violations: u64,
    pub(crate) takeovers: u64,
}

impl Witness {
    pub(crate) fn at(directory: &str, places: u32) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let directory = PathBuf::from(directory);
        let card = directory.join(scratch("card"));
        fs::write(&card, process::id().to_string())?;
        Ok(Self { directory, card, places, violations: 0, takeovers: 0 })
    }

    /// Returns the file that now marks a place of the name, to be deleted when leaving; nothing after a violation.
    pub(crate) fn enter(&mut self, name: &str) -> io::Result<Option<PathBuf>> {
        for place in 1..=self.places {
            let file = self.file(name, place);
            if self.mark(&file)? {
                return Ok(Some(file));
            }
        }
        self.violations += 1;
        Ok(None)
    }

    /// Of two processes that find a dead holder, the later may have moved the mark of the earlier.
    pub(crate) fn leave(file: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn mark(&mut self, file: &Path) -> io::Result<bool> {
        loop {
            match fs::hard_link(&self.card, file) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            if is_living(file)? || !self.remove_dead(file)? {
                return Ok(false);
            }
        }
    }

    /// Moves the file away first: of several processes that find a dead holder, only one can move the file.
    fn remove_dead(&mut self, file: &Path) -> io::Result<bool> {
        let grave = self.directory.join(scratch("dead"));
        match fs::rename(file, &grave) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        }
        // Another process may have entered between the look and the move.
        let living = is_living(&grave)?;
        fs::remove_file(&grave)?;
        self.takeovers += u64::from(!living);
        Ok(!living)
    }

    fn file(&self, name: &str, place: u32) -> PathBuf {
        let further = if place == 1 { String::new() } else { format!(".{place}") };
        self.directory.join(format!("{}.inside{further}", encode(name)))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.card); // a leftover file does no harm
    }
}

/// A vanished file has no living owner; an unreadable file counts as living.
fn is_living(file: &Path) -> io::Result<bool> {
    let content = match fs::read_to_string(file) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let pid = content.split_whitespace().next().unwrap_or("");
    if pid.is_empty() || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(true);
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Ok(false) };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    Ok(!matches!(state, Some('Z' | 'X')))
}

/// A file name that no other process or thread chooses.
fn scratch(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}.pid", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
