//! The command of a trial: a process that notes when another command is at work.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::getpgrp;

/// The variable that makes the test below a worker: the folder of the witness.
pub(crate) const WORK: &str = "LOCKSON_WORK_AT";
/// The variable that makes a worker ignore SIGTERM.
pub(crate) const STUBBORN: &str = "LOCKSON_WORK_ON";
/// The exit code of a worker that was not disturbed.
pub(crate) const DONE: i32 = 7;

/// The arguments that make this program a worker.
pub(crate) const WORKER: [&str; 3] = ["worker::work", "--exact", "--nocapture"];

/// Works until the end of standard input, where a trial asks for that.
#[test]
fn work() {
    let Some(folder) = std::env::var_os(WORK) else { return };
    if std::env::var_os(STUBBORN).is_some() {
        signal_hook::flag::register(signal_hook::consts::SIGTERM, std::sync::Arc::default()).unwrap();
    }
    let folder = Path::new(&folder);
    // The kernel ends the lock with the process.
    let file = File::create(folder.join("at-work")).unwrap();
    let _at_work = Flock::lock(file, FlockArg::LockExclusiveNonblock).or_else(|(file, _)| {
        let began = Instant::now();
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let mut overlaps = OpenOptions::new().create(true).append(true).open(folder.join("overlaps")).unwrap();
        writeln!(overlaps, "for {:?}", began.elapsed()).unwrap();
        lock
    });
    println!("\nin {} {}", std::process::id(), getpgrp());
    let _ = std::io::stdin().read_to_end(&mut vec![]);
    std::thread::sleep(Duration::from_millis(20));
    std::process::exit(DONE);
}

/// The overlaps that workers noted.
pub(crate) fn overlaps(folder: &Path) -> String {
    fs::read_to_string(folder.join("overlaps")).unwrap_or_default()
}
