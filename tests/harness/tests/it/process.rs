//! The promises of the harness about child processes.

use std::fs;
use std::time::Duration;

use lockson_harness::{HelperProcess, descriptors_of, eventually, is_alive, thread_names_of, threads_of};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_helper_ends_when_its_input_ends_even_while_it_is_blocked() {
    let mut helper = child("listen");
    assert_eq!(helper.ask("block", SOON), "blocking");
    assert!(helper.is_running());
    helper.close_input();
    assert!(helper.wait(SOON).success());
    assert!(!helper.is_running());
}

#[test]
fn a_dropped_helper_is_killed_stopped_or_deaf() {
    for mode in ["listen", "deaf"] {
        for stopped in [false, true] {
            let helper = child(mode);
            let pid = helper.pid();
            if stopped {
                helper.stop();
            }
            drop(helper);
            assert!(!is_alive(pid), "{mode} {stopped}");
        }
    }
}

#[test]
fn a_killed_parent_takes_its_helpers_with_it_stopped_or_deaf() {
    for mode in ["listen", "deaf"] {
        for stopped in [false, true] {
            let mut parent = child("listen");
            let pid = parent.ask(&format!("helper {mode}"), SOON).parse().unwrap();
            if stopped {
                parent.ask("stop-helpers", SOON);
            }
            assert!(is_alive(pid));
            parent.kill();
            eventually(SOON, "the grandchild is gone", || !is_alive(pid));
        }
    }
}

#[test]
fn a_killed_helper_leaves_no_watcher() {
    let mut parent = child("listen");
    parent.ask("helper listen", SOON);
    assert_eq!(children_of(parent.pid()), 2); // the helper and its leash
    parent.ask("drop-helpers", SOON);
    assert_eq!(children_of(parent.pid()), 0);
}

#[test]
fn threads_are_counted_while_a_process_lives() {
    let mut helper = child("listen");
    let pid = helper.pid();
    helper.ask("echo warm", SOON);
    let Some(before) = threads_of(pid) else {
        return; // no /proc here
    };
    helper.ask("threads 5", SOON);
    assert_eq!(threads_of(pid), Some(before + 5));
    assert_eq!(thread_names_of(pid).unwrap().len(), before + 5);
    helper.kill();
    assert_eq!(threads_of(pid), None);
}

#[test]
fn the_own_descriptors_are_counted_without_the_question() {
    if fs::metadata("/proc/self/fd").is_err() {
        return;
    }
    let mut helper = child("listen");
    let own = helper.ask("usage", SOON);
    let pid = helper.pid();
    let seen = format!("{:?} {:?}", threads_of(pid), descriptors_of(pid));
    assert_eq!(own, seen);
}

fn child(mode: &str) -> HelperProcess {
    HelperProcess::spawn(env!("CARGO_BIN_EXE_harness-child"), &[mode])
}

fn children_of(pid: u32) -> usize {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().count()
}
