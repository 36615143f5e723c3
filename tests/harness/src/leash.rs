//! A watcher that kills a process as soon as this one is gone, however it went.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A small shell that sleeps on a pipe held by this process.
///
/// The kernel closes the pipe when this process ends, by `SIGKILL` too; the shell then kills the
/// process it watches and removes the folder it was given.
#[derive(Debug)]
pub(crate) struct Leash {
    watcher: Child,
}

impl Leash {
    /// Watches over `pid`, and over `folder` too if there is one.
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

    /// Ends the watcher and leaves its process alone.
    ///
    /// To be called before the watched process is reaped: until then its pid cannot be used again.
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

/// The pause lets the process die before its folder goes. It is bounded, because a dead process can
/// look alive for as long as nobody reaps it.
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
