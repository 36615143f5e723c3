//! The program starts and ends. Cargo builds the program for this test, and so for `tests/it/support/peer.rs`.

use std::time::Duration;

use lockson_harness::HelperProcess;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn the_program_is_ready_and_ends_with_its_input() {
    let mut peer = HelperProcess::spawn(env!("CARGO_BIN_EXE_lockson-peer"), &[""; 0]);
    assert!(peer.next_line(SOON).starts_with("ready "));
    peer.close_input();
    assert!(peer.wait(SOON).success());
}
