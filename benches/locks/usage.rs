//! How much processor time a process has used.

use std::time::Duration;

/// User and system time of a process so far; zero where there is no `/proc`.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name may hold any sign and ends with the last parenthesis.
    let after_name = line.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * MILLIS_IN_A_TICK)
}

/// The unit that Linux shows to programs, whatever clock the kernel uses.
const MILLIS_IN_A_TICK: u64 = 10;

/// The processor time that threads with these names have used in this process; zero where there is no `/proc`.
pub(crate) fn time_of_threads(names: &[&str]) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: &std::path::Path, file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
    let nanos = |path: std::path::PathBuf| {
        let name = read(&path, "comm");
        // The system keeps the first fifteen bytes of a name.
        let ours = names.iter().any(|wanted| wanted.starts_with(name.trim_end()) && !name.trim_end().is_empty());
        let used = read(&path, "schedstat").split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
        used.filter(|_| ours).unwrap_or(0)
    };
    Duration::from_nanos(tasks.map(|task| nanos(task.path())).sum())
}
