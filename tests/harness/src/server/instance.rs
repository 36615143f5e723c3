//! One run of the server program, from the start to a certain end.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{BOUND, LOG, empty_folder, keep_logs};
use crate::eventually::PAUSE;
use crate::leash::Leash;
use crate::ports::Port;

/// The program, and the place to run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) lines: Vec<String>,
    /// Arguments behind the configuration file.
    pub(super) arguments: Vec<String>,
    pub(super) port: Port,
    pub(super) tls_port: Option<Port>,
}

impl Plan {
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("server.sock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn wipe_data(&self) {
        empty_folder(&self.data());
    }

    pub(super) fn read_log(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn write_config(&self) -> PathBuf {
        let path = self.folder.join("server.conf");
        let own = [
            format!("port {}", self.port.number),
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {}", self.socket().display()),
            format!("dir {}", self.data().display()),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            "daemonize no".to_owned(),
        ];
        let tls = self.tls_port.as_ref().map(|port| format!("tls-port {}", port.number));
        let text: String = own.iter().chain(&tls).chain(&self.lines).map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).expect("the configuration can be written");
        path
    }
}

/// A running server process; dropping the instance kills and reaps the process.
#[derive(Debug)]
pub(super) struct Instance {
    child: Child,
    leash: Option<Leash>,
}

impl Instance {
    /// Takes other ports when another program has taken a port of the plan.
    #[track_caller]
    pub(super) fn start_on_free_port(plan: &mut Plan) -> Instance {
        let mut trouble = String::new();
        for _ in 0..PORT_TRIES {
            match Instance::start(plan) {
                Ok(instance) => return instance,
                Err(Failure::PortTaken(log)) => trouble = log,
                Err(Failure::Other(log)) => panic!("{log}"),
            }
            plan.port = Port::free();
            plan.tls_port = plan.tls_port.as_ref().map(|_| Port::free());
        }
        panic!("{PORT_TRIES} ports were taken by others; the last log:\n{trouble}");
    }

    #[track_caller]
    pub(super) fn start_on_same_port(plan: &Plan) -> Instance {
        let started = Instant::now();
        loop {
            match Instance::start(plan) {
                Ok(instance) => return instance,
                Err(Failure::PortTaken(_)) if started.elapsed() < BOUND => thread::sleep(PAUSE),
                Err(Failure::PortTaken(log) | Failure::Other(log)) => panic!("{log}"),
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&mut self) -> bool {
        let ended = self.child.try_wait().expect("the child is ours");
        if ended.is_some() {
            self.leash = None; // from now on the system may reuse the pid
        }
        ended.is_none()
    }

    fn start(plan: &Plan) -> Result<Instance, Failure> {
        let log_start = plan.read_log().len();
        let mut instance = Instance::launch(plan);
        let started = Instant::now();
        while !answers(plan) {
            let ended = instance.child.try_wait().expect("the child is ours");
            if ended.is_none() && started.elapsed() < BOUND {
                thread::sleep(PAUSE);
                continue;
            }
            let log = plan.read_log().split_off(log_start);
            let how = match ended {
                Some(status) => format!("ended with {status}"),
                None => format!("did not answer a PING within {BOUND:?}"),
            };
            let story = format!("{} {how}; its log:\n{log}", plan.program.display());
            let taken = ended.is_some() && log.contains("Address already in use");
            return Err(if taken { Failure::PortTaken(story) } else { Failure::Other(story) });
        }
        Ok(instance)
    }

    /// The shell waits for a word before `exec` turns the shell into the server, so a server never lives without a
    /// leash. The process id does not change.
    fn launch(plan: &Plan) -> Instance {
        let log = OpenOptions::new().create(true).append(true).open(plan.log()).expect("the log can be written");
        let also = log.try_clone().expect("the log can be opened twice");
        let mut child = Command::new("sh")
            .args(["-c", "read -r word && exec \"$@\" </dev/null", "server"])
            .arg(&plan.program)
            .arg(plan.write_config())
            .args(&plan.arguments)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(also)
            .process_group(0)
            .spawn()
            .expect("cannot start sh");
        let folder = (!keep_logs()).then_some(plan.folder.as_path());
        let leash = Leash::hold(child.id(), folder);
        let mut pipe = child.stdin.take().expect("standard input is a pipe");
        let _ = pipe.write_all(b"start\n"); // if the shell is gone, the readiness wait tells
        Instance { child, leash: Some(leash) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SIGKILL, because a stopped or busy server does not react to SIGTERM.
        let _ = self.child.kill();
        if let Some(leash) = self.leash.take() {
            leash.release(); // before the reaping, because the system may reuse the pid afterwards
        }
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
enum Failure {
    PortTaken(String),
    Other(String),
}

/// Asks over the unix socket, which certainly belongs to this server, and which is opened after the TCP port.
fn answers(plan: &Plan) -> bool {
    let Ok(mut stream) = UnixStream::connect(plan.socket()) else {
        return false;
    };
    let limit = Some(Duration::from_secs(1));
    if stream.set_read_timeout(limit).is_err() || stream.write_all(b"PING\r\n").is_err() {
        return false;
    }
    let mut reply = [0; 64];
    let Ok(length) = stream.read(&mut reply) else {
        return false;
    };
    // Any other error, as LOADING, means "not yet".
    [&b"+PONG"[..], b"-NOAUTH", b"-NOPERM"].iter().any(|word| reply[..length].starts_with(word))
}

const PORT_TRIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occupied_port_is_told_apart_from_other_failures() {
        let folder = tempfile::tempdir().unwrap();
        let (port, other) = Port::listen();
        let plan = Plan {
            program: "redis-server".into(),
            folder: folder.path().to_owned(),
            lines: Vec::new(),
            arguments: Vec::new(),
            port,
            tls_port: None,
        };
        plan.wipe_data();
        let failure = Instance::start(&plan).unwrap_err();
        assert!(matches!(failure, Failure::PortTaken(_)), "{failure:?}");
        drop(other);
        Instance::start_on_same_port(&plan);
        let bad = Plan { lines: vec!["no-such-line yes".to_owned()], ..plan };
        let failure = Instance::start(&bad).unwrap_err();
        assert!(matches!(failure, Failure::Other(_)), "{failure:?}");
    }
}
