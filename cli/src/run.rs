//! `lockson run`: a command under a lock.

mod clock;
mod group;
mod guardian;
mod kind;
mod terminal;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use clap::Args;
use lockson::{Cancel, Durability, ErrorKind, Loss};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use signal_hook::iterator::Signals;

use crate::args::Connection;
use crate::output::report;
use crate::{FAILED, Failure, connect};
use group::{End, Group};
use kind::{Kind, Taken};

/// The exit code where the lock was lost and the command ended.
const LOST: u8 = 123;
/// The exit code where the lock was not free in time.
const BUSY: u8 = 124;

const EXIT_CODES: &str = "\
The command finds LOCKSON_NAME, LOCKSON_OWNER and, for --fenced and --leader, LOCKSON_TOKEN in its environment.

Before the lock is lost, the command and all processes of its group get SIGTERM, and after the grace SIGKILL; SIGKILL \
at once where the lock was taken away. What the command leaves running in its group is ended before the lock is given \
back.

Exit codes:
  those of the command, 128+N if signal N ended it
  123  the lock was lost, and the command ended
  124  the lock was not free within --wait (-E changes it)
  125  lockson itself failed
  126  the command cannot be executed
  127  the command was not found
With --once-per the command is skipped, and the exit code is 0 or that of -E, if the interval is not over.";

/// Runs a command under a lock
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, override_usage = "lockson run [OPTIONS] NAME -- COMMAND [ARGUMENT]...")]
pub(crate) struct Options {
    /// Name of the lock
    name: String,
    #[command(flatten)]
    kind: Kind,
    /// Number of all permits, where none is set
    #[arg(long, value_name = "NUMBER", requires = "permits")]
    of: Option<u32>,
    /// Waits for the lock for so long; 0 asks once [default: waits without limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,
    /// Keeps the lock for so long at most; the command is ended before
    #[arg(long, value_name = "TIME", value_parser = duration)]
    lease: Option<Duration>,
    /// Time to live of the lock where --lease is not given; renewed each third of it [default: that of Redisson's
    /// file, or 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,
    /// Time from SIGTERM to SIGKILL [default: 5s, but at most a quarter of the time to live]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    grace: Option<Duration>,
    /// The lock counts when so many replicas have it
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<u8>,
    /// Exit code if the lock is not free within --wait
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How long before its end a hold is treated as lost.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// From SIGTERM to SIGKILL.
    grace: Duration,
    /// From SIGKILL to the end of the hold.
    margin: Duration,
}

/// What the command's supervisor is told.
enum Event {
    Signal(Signal),
    Lost(Loss),
    /// The guardian is there.
    Ready,
    /// The guardian ends the group, because the hold is about to end.
    Ending,
    /// The guardian has ended.
    GuardianEnded,
}

/// Runs a hidden stage of this program, if its arguments ask for one.
pub(crate) fn stage() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        guardian::GUARD => guardian::guard(arguments),
        guardian::EXEC => guardian::exec(arguments),
        _ => None,
    }
}

/// Runs the command.
pub(crate) fn run(connection: &Connection, options: &Options) -> Result<ExitCode, Failure> {
    let life = options.life(connection);
    life.map(|life| options.timing(life)).transpose()?;
    if let (Some(permits), Some(of)) = (options.kind.permits, options.of)
        && permits > of
    {
        return Err(format!("--permits {permits} cannot be taken --of {of}").into());
    }
    let (cancel, (sender, events)) = (Cancel::new(), mpsc::channel());
    listen(&cancel, &sender)?;
    let mut builder = connect::builder(connection)?;
    if let Some(ttl) = options.ttl {
        builder = builder.watchdog(ttl, ttl / 3);
    }
    if let Some(replicas) = options.replicas {
        builder = builder.durability(Durability::replicas(replicas));
    }
    let client = builder.connect()?;
    let (taken, rest) = match kind::take(&client, options, &cancel) {
        Ok(Some(taken)) => taken,
        Ok(None) => return Ok(options.busy()),
        Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(group::cancelled(&events)),
        Err(error) => return Err(error.into()),
    };
    let hold = taken.hold().clone();
    let timing = options.timing(life.unwrap_or_else(|| hold.remaining()))?;
    let told = sender.clone();
    hold.on_lost(move |loss| drop(told.send(Event::Lost(*loss))));
    let mut group = Group::start(&hold, timing, rest, sender)?;
    let end = group.supervise(&events, |deadline| guardian::command(deadline, &options.command, &taken))?;
    let code = options.give_back(taken, end);
    if group.had_terminal() && code == group::by_signal(Signal::SIGINT) {
        // The terminal told the command alone. A script or a pipeline around this program is to end, too.
        let _ = killpg(getpgrp(), Signal::SIGINT);
        signal_hook::low_level::emulate_default_handler(Signal::SIGINT as i32)?;
    }
    Ok(ExitCode::from(code))
}

impl Options {
    /// For how long the lock lives; `None` where only Redisson's file may tell.
    fn life(&self, connection: &Connection) -> Option<Duration> {
        let usual = connection.redisson_yaml.is_none().then_some(Duration::from_secs(30));
        self.kind.once_per.or(self.lease).or(self.ttl).or(usual)
    }

    fn timing(&self, life: Duration) -> Result<Timing, Failure> {
        let grace = self.grace.unwrap_or_else(|| Duration::from_secs(5).min(life / 4));
        if grace > life / 2 {
            return Err(format!("--grace {grace:?} is over half of the time for which the lock lives, {life:?}").into());
        }
        Ok(Timing { grace, margin: (life / 10).min(Duration::from_secs(1)) })
    }

    fn busy(&self) -> ExitCode {
        // Cron sends whatever a job says; of a fleet all but one say this.
        if std::io::stderr().is_terminal() {
            report(format_args!("{:?} is held by another owner", self.name));
        }
        let code = if self.kind.once_per.is_some() { 0 } else { BUSY };
        ExitCode::from(self.conflict_exit_code.unwrap_or(code))
    }

    /// Gives the lock back after the command has ended, and returns the exit code.
    fn give_back(&self, taken: Taken, end: End) -> u8 {
        let (name, keep) = (taken.hold().name().to_owned(), self.kind.once_per.is_some());
        let released = if keep && !matches!(end, End::Cancelled(_)) { taken.keep() } else { taken.release() };
        match (end, released) {
            (End::Lost(how), _) => {
                report(format_args!("the lock {name:?} was lost, and the command ended: {how}"));
                LOST
            }
            (End::Unguarded, _) => {
                report("the guardian of the command was killed, and the command ended");
                FAILED
            }
            (_, Err(error)) if error.is_lost() => {
                report(error);
                LOST
            }
            (End::Exited(code) | End::Cancelled(code), released) => {
                if let Err(error) = released {
                    report(format_args!("not given back: {error}"));
                }
                code
            }
        }
    }
}

/// Passes signals on to the supervisor. A signal that comes before the lock is had ends the wait.
fn listen(cancel: &Cancel, sender: &Sender<Event>) -> Result<(), Failure> {
    let ignored = ignored();
    let is_heeded = |signal: &&Signal| ignored >> (**signal as u32 - 1) & 1 == 0;
    let watched = guardian::PASSED_ON.iter().filter(is_heeded).chain([&Signal::SIGCHLD]);
    let mut signals = Signals::new(watched.map(|signal| *signal as i32))?;
    let (cancel, sender) = (cancel.clone(), sender.clone());
    std::thread::spawn(move || {
        for signal in signals.forever().filter_map(|number| Signal::try_from(number).ok()) {
            let _ = sender.send(Event::Signal(signal)); // before the wait ends, which looks for its reason
            if signal != Signal::SIGCHLD {
                cancel.cancel();
            }
        }
    });
    Ok(())
}

/// The signals that this program was started to ignore, as by `nohup`, a bit each. Where they have no handler, the
/// command inherits that.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0) // there is no /proc on macOS
}

/// Reads a time: seconds, or with units.
pub(crate) fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    text.parse().map(Duration::from_secs).or_else(|_| humantime::parse_duration(text))
}
