//! The promises of the harness about overlaps.

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lockson_harness::{HelperProcess, Witness};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn one_after_the_other_is_no_overlap() {
    let (_folder, witness) = witness();
    for _ in 0..3 {
        let inside = witness.enter("lock");
        assert!(inside.is_alone() && witness.is_inside("lock"));
        inside.leave();
        assert!(!witness.is_inside("lock"));
    }
    witness.assert_no_violation();
}

#[test]
fn names_do_not_disturb_each_other() {
    let (_folder, witness) = witness();
    let _held = ["a", "A", "a/b", "a%2Fb", "ä", "..", "violations"].map(|name| witness.enter(name));
    witness.assert_no_violation();
}

#[test]
fn the_file_follows_the_convention() {
    let (_folder, witness) = witness();
    let _inside = witness.enter("aZ09-_.~ /ä{}");
    let path = witness.folder().join("aZ09-_.~%20%2F%C3%A4%7B%7D.inside");
    let content = fs::read_to_string(path).unwrap();
    let pid = content.split(' ').next().unwrap();
    assert_eq!(pid, std::process::id().to_string());
    assert_eq!(fs::read_dir(witness.folder()).unwrap().count(), 1); // no litter
}

#[test]
fn two_threads_inside_are_an_overlap() {
    let (_folder, witness) = witness();
    let first = witness.enter("lock");
    thread::scope(|scope| {
        scope.spawn(|| assert!(!witness.enter("lock").is_alone()));
    });
    assert_eq!(witness.violations().len(), 1);
    assert!(witness.is_inside("lock")); // the second one did not sign the first one out
    first.leave();
    assert!(!witness.is_inside("lock"));
}

#[test]
fn two_processes_inside_are_an_overlap() {
    let (_folder, witness) = witness();
    let mut other = visitor(&witness);
    assert_eq!(other.ask("enter lock", SOON), "alone");
    assert!(!witness.enter("lock").is_alone());
    let violations = witness.violations();
    assert!(violations[0].contains(&other.pid().to_string()), "{violations:?}");
    assert_eq!(other.ask("leave", SOON), "done");
    assert!(witness.enter("lock").is_alone());
    assert_eq!(witness.violations().len(), 1);
}

#[test]
fn the_place_of_a_killed_process_is_taken_over() {
    let (_folder, witness) = witness();
    let mut other = visitor(&witness);
    assert_eq!(other.ask("enter lock", SOON), "alone");
    other.kill();
    assert!(witness.is_inside("lock"));
    let inside = witness.enter("lock");
    assert!(inside.is_alone());
    inside.leave();
    witness.assert_no_violation();
    assert_eq!(fs::read_dir(witness.folder()).unwrap().count(), 0);
}

#[test]
fn a_stopped_process_is_still_inside() {
    let (_folder, witness) = witness();
    let mut other = visitor(&witness);
    assert_eq!(other.ask("enter lock", SOON), "alone");
    other.stop();
    assert!(!witness.enter("lock").is_alone());
    assert_eq!(witness.violations().len(), 1);
}

#[test]
fn a_pid_used_again_does_not_keep_the_place() {
    let (_folder, witness) = witness();
    if fs::metadata("/proc/self/stat").is_err() {
        return;
    }
    let content = format!("{} 1 someone-of-long-ago", std::process::id());
    fs::write(witness.folder().join("lock.inside"), content).unwrap();
    assert!(witness.enter("lock").is_alone());
    witness.assert_no_violation();
}

#[test]
fn a_peer_that_writes_only_its_pid_is_seen() {
    let (_folder, witness) = witness();
    let path = witness.folder().join("lock.inside");
    fs::write(&path, std::process::id().to_string()).unwrap();
    assert!(!witness.enter("lock").is_alone());
    fs::write(&path, "4194303").unwrap(); // far above the pids in use here
    assert!(witness.enter("lock").is_alone());
    assert_eq!(witness.violations().len(), 1);
}

#[test]
fn a_peer_that_has_not_written_its_pid_yet_is_seen() {
    let (_folder, witness) = witness();
    fs::write(witness.folder().join("lock.inside"), "").unwrap();
    assert!(!witness.enter("lock").is_alone());
    assert_eq!(witness.violations().len(), 1);
}

#[test]
fn a_place_that_was_taken_away_is_told_on_leaving() {
    let (_folder, witness) = witness();
    let path = witness.folder().join("lock.inside");
    let inside = witness.enter("lock");
    fs::remove_file(&path).unwrap();
    inside.leave();
    let inside = witness.enter("lock");
    fs::write(&path, "1 another").unwrap();
    inside.leave();
    assert_eq!(witness.violations().len(), 2);
}

#[test]
fn of_many_threads_only_one_takes_over_and_the_others_are_told() {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let (_folder, witness) = witness();
        fs::write(witness.folder().join("lock.inside"), "4194303").unwrap();
        let (start, end) = (Barrier::new(THREADS), Barrier::new(THREADS));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    let inside = witness.enter("lock");
                    end.wait(); // all are inside at once
                    drop(inside);
                });
            }
        });
        let violations = witness.violations().len();
        assert!(violations >= THREADS - 1, "{violations}");
    }
}

#[test]
fn threads_that_exclude_each_other_are_never_told() {
    let (_folder, witness) = witness();
    let lock = parking_lot::Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _held = lock.lock();
                    let _inside = witness.enter("lock");
                }
            });
        }
    });
    witness.assert_no_violation();
}

fn witness() -> (TempDir, Witness) {
    let folder = tempfile::tempdir().unwrap();
    let witness = Witness::at(folder.path());
    (folder, witness)
}

fn visitor(witness: &Witness) -> HelperProcess {
    let mut helper = HelperProcess::spawn(env!("CARGO_BIN_EXE_harness-child"), &["listen"]);
    let folder = witness.folder().display();
    assert_eq!(helper.ask(&format!("witness {folder}"), SOON), "done");
    helper
}
