//! The resources of a process: threads, descriptors, memory.

use std::fs;

/// Counts the threads of a process.
///
/// Returns `None` where there is no `/proc` or no such process: a test then skips the assertion.
pub fn threads_of(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/task")).ok()?.count())
}

/// Lists the names of the threads of a process, sorted; Linux cuts names to 15 bytes.
///
/// Answers `None` where there is no `/proc` or no such process.
pub fn thread_names_of(pid: u32) -> Option<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut names: Vec<String> = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect();
    names.sort();
    Some(names)
}

/// Counts the open file descriptors of a process.
///
/// For the own process, the descriptor of the question itself is left out. Returns `None` where there is no `/proc`, no
/// such process, or no right to look.
pub fn descriptors_of(pid: u32) -> Option<usize> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(all - usize::from(pid == std::process::id()))
}

/// Tells how much memory of a process is resident, in bytes.
///
/// Answers `None` where there is no `/proc` or no such process.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
