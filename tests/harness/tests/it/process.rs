//! The promises of the harness about child processes.

use std::time::Duration;

use lockson_harness::{HelperProcess, eventually, is_alive};

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

fn child(mode: &str) -> HelperProcess {
    HelperProcess::spawn(env!("CARGO_BIN_EXE_harness-child"), &[mode])
}
