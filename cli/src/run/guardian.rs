//! The guardian of a command: a process that ends the command's group where the holder of the lock cannot.
//!
//! The guardian leads the group, so no moment exists in which the command runs without it. The holder tells it, by a
//! pipe, until when the lock is held. The guardian needs neither the holder nor a network to end the group in time.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, setpgid};

use super::kind::Taken;
use super::{LOST, Timing, clock};
use crate::FAILED;
use crate::output::report;

/// The hidden stages of this program.
pub(super) const GUARD: &str = "__guard";
pub(super) const EXEC: &str = "__exec";

/// The signals that the command gets in place of this program.
pub(super) const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// Signals beside them that a group gets, and that must not end or stop the guardian.
const SURVIVED: [Signal; 4] = [Signal::SIGALRM, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// What the guardian says.
pub(super) const READY: u8 = b'r';
pub(super) const ENDING: u8 = b'e';

/// The longest sleep: sleeps are measured by a clock that stops while the machine is suspended.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// How often the guardian looks whether the group has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A stage of this program, as a command.
pub(super) fn this_program(stage: &str) -> Result<Command, std::io::Error> {
    // The link works also after an upgrade has replaced the file.
    let link = std::path::Path::new("/proc/self/exe");
    let mut command = Command::new(if link.exists() { link.to_owned() } else { std::env::current_exe()? });
    command.arg0("lockson").arg(stage);
    Ok(command)
}

/// The guardian of a group that must have ended at `deadline`.
pub(super) fn guardian(deadline: Duration, timing: Timing) -> Result<Command, std::io::Error> {
    let mut command = this_program(GUARD)?;
    command.args([deadline, timing.grace, timing.margin].map(clock::write)).process_group(0);
    Ok(command)
}

/// The command, which does not start at `deadline` or after the end of this process.
pub(super) fn command(deadline: Duration, words: &[OsString], taken: &Taken) -> Result<Command, std::io::Error> {
    let mut command = this_program(EXEC)?;
    command.args([std::process::id().to_string(), clock::write(deadline)]).args(words);
    command.env("LOCKSON_NAME", taken.hold().name()).env("LOCKSON_OWNER", taken.owner());
    match taken.hold().token() {
        Some(token) => command.env("LOCKSON_TOKEN", token.to_string()),
        None => command.env_remove("LOCKSON_TOKEN"), // of a lock around this one
    };
    Ok(command)
}

/// Becomes the command.
pub(super) fn exec(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let (parent, deadline) = (text(arguments.next())?, clock::read(&text(arguments.next())?)?);
    let program = arguments.next()?;
    // The kernel tells the command the end of the holder, for the case that the guardian is killed with it.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    if getppid().to_string() != parent {
        return Some(ExitCode::from(FAILED));
    }
    if clock::now() >= deadline {
        return Some(ExitCode::from(LOST));
    }
    let error = Command::new(&program).args(arguments).exec();
    report(format_args!("{}: {error}", program.display()));
    Some(ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }))
}

/// Guards the group of this process.
pub(super) fn guard(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let times: Option<Vec<Duration>> = arguments.map(|argument| clock::read(&text(Some(argument))?)).collect();
    let [deadline, grace, margin] = times?.try_into().ok()?;
    for signal in PASSED_ON.iter().chain(&SURVIVED) {
        signal_hook::flag::register(*signal as i32, std::sync::Arc::default()).ok()?;
    }
    let group = getpgrp();
    let holders = getpgid(Some(getppid())).ok()?;
    let deadlines = listen();
    say(READY);
    let mut plan = Plan { deadline, timing: Timing { grace, margin }, is_abandoned: false, terminated: None };
    let mut has_left = false;
    loop {
        if has_left && killpg(group, None).is_err() {
            return Some(ExitCode::SUCCESS);
        }
        match plan.step(clock::now()) {
            Step::Sleep(time) if plan.is_abandoned => std::thread::sleep(time.min(LOOK)),
            Step::Sleep(time) => match deadlines.recv_timeout(time.min(STEP)) {
                Ok(deadline) => plan.deadline = deadline,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    plan.is_abandoned = true;
                    // From outside the guardian sees when the group is empty. The number stays the group's.
                    has_left = setpgid(Pid::from_raw(0), holders).is_ok();
                }
            },
            Step::Terminate => {
                if !plan.is_abandoned {
                    say(ENDING);
                }
                let _ = killpg(group, Signal::SIGTERM);
            }
            Step::Kill => {
                let _ = killpg(group, Signal::SIGKILL);
                return Some(ExitCode::SUCCESS);
            }
        }
    }
}

/// Reads the deadlines that the holder tells, until the holder has ended or needs no guardian any more.
fn listen() -> Receiver<Duration> {
    let (sender, deadlines) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines.filter_map(|line| clock::read(&line)).try_for_each(|deadline| sender.send(deadline))
    });
    deadlines
}

/// Says a word to the holder, who may be gone.
fn say(word: u8) {
    let mut out = std::io::stdout();
    let _ = out.write_all(&[word]).and_then(|()| out.flush());
}

fn text(argument: Option<OsString>) -> Option<String> {
    argument.as_deref().and_then(OsStr::to_str).map(str::to_owned)
}

/// When a group gets which signal.
struct Plan {
    /// The end of the hold.
    deadline: Duration,
    timing: Timing,
    /// Whether the holder has ended, or the command.
    is_abandoned: bool,
    terminated: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Sleep(Duration),
    Terminate,
    Kill,
}

impl Plan {
    fn step(&mut self, now: Duration) -> Step {
        let Timing { grace, margin } = self.timing;
        let last = self.deadline.saturating_sub(margin);
        let (at, step) = match self.terminated {
            None if self.is_abandoned => (now, Step::Terminate),
            None => (last.saturating_sub(grace), Step::Terminate),
            Some(at) => (last.min(at.saturating_add(grace)), Step::Kill),
        };
        if now < at {
            return Step::Sleep(at.saturating_sub(now));
        }
        self.terminated = Some(now);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn plan(deadline: u64) -> Plan {
        let timing = Timing { grace: ms(500), margin: ms(100) };
        Plan { deadline: ms(deadline), timing, is_abandoned: false, terminated: None }
    }

    #[test]
    fn a_group_ends_before_its_deadline() {
        let mut plan = plan(10_000);
        assert_eq!(plan.step(ms(1_000)), Step::Sleep(ms(8_400)));
        plan.deadline = ms(20_000);
        assert_eq!(plan.step(ms(19_000)), Step::Sleep(ms(400)));
        assert_eq!(plan.step(ms(19_400)), Step::Terminate);
        assert_eq!(plan.step(ms(19_401)), Step::Sleep(ms(499)));
        assert_eq!(plan.step(ms(19_900)), Step::Kill);
    }

    #[test]
    fn an_abandoned_group_gets_its_grace_but_no_longer() {
        let mut early = plan(10_000);
        early.is_abandoned = true;
        assert_eq!(early.step(ms(1_000)), Step::Terminate);
        assert_eq!(early.step(ms(1_000)), Step::Sleep(ms(500)));
        assert_eq!(early.step(ms(1_500)), Step::Kill);

        let mut late = plan(10_000);
        late.is_abandoned = true;
        assert_eq!(late.step(ms(9_000)), Step::Terminate);
        assert_eq!(late.step(ms(9_000)), Step::Sleep(ms(500)));
        let mut latest = plan(10_000);
        assert_eq!(latest.step(ms(11_000)), Step::Terminate);
        assert_eq!(latest.step(ms(11_000)), Step::Kill);
    }

    #[test]
    fn a_late_renewal_takes_no_signal_back() {
        let mut plan = plan(1_000);
        assert_eq!(plan.step(ms(500)), Step::Terminate);
        plan.deadline = ms(9_000);
        assert_eq!(plan.step(ms(999)), Step::Sleep(ms(1)));
        assert_eq!(plan.step(ms(1_000)), Step::Kill);
    }
}
