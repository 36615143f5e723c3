//! A watcher that kills a process as soon as the test process is gone, for any reason.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A small shell that sleeps on a pipe of the test process.
///
/// The kernel closes the pipe when the test process ends, by `SIGKILL` too; the shell then kills the watched process
/// and removes the given folder.
#[derive(Debug)]
pub(crate) struct Leash {
    watcher: Child,
}

impl Leash {
    /// Watches over `pid`, and over `folder` if given.
    pub(crate) fn hold(pid: u32, folder: Option<&Path>) -> Leash {
        let watcher = Command::new("sh")
            .arg("-c")
            .arg(WATCH)
            .arg("leash")
            .arg(pid.to_string())
            .args(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a signal to the group of the test must not end the watcher first
            .spawn()
            .expect("cannot start sh");
        Leash { watcher }
    }

    /// Ends the watcher without killing the watched process.
    ///
    /// Must be called before the watched process is reaped: after the reaping, the system may reuse the pid.
    pub(crate) fn release(self) {
        drop(self);
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.watcher.stdin.take() {
            let _ = pipe.write_all(b"release\n"); // an error means that the watcher is gone already
        }
        let _ = self.watcher.wait();
    }
}

/// The pause lets the process die before the folder is removed. The pause is bounded, because a dead process may look
/// alive as long as nobody reaps the process.
const WATCH: &str = r#"
trap '' HUP INT QUIT TERM
read -r line && exit 0
kill -9 "$1"
[ -n "$2" ] || exit 0
for _ in 1 2 3 4 5; do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.05
done
rm -rf "$2"
"#;
