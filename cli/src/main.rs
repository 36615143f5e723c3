//! `lockson`: runs a command under a lock, shows who holds what, and frees it.

mod args;
mod bench;
mod connect;
mod doctor;
mod free;
mod list;
mod output;
mod run;
mod seen;
mod serve;
mod show;
mod wait;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::{Args, Command};
use crate::output::report;

/// The exit code for an answer that is no.
const NO: u8 = 1;
/// The exit code where a time was up.
const TIMED_OUT: u8 = 124;
/// The exit code where this program failed: no connection, a wrong option, a refused request.
const FAILED: u8 = 125;

/// An error of this program, with a text for its user.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    if let Some(code) = run::stage() {
        return code;
    }
    let args = Args::read().unwrap_or_else(|error| {
        let _ = error.print();
        std::process::exit(if error.use_stderr() { FAILED.into() } else { 0 })
    });
    let Args { connection, command } = args;
    let outcome = match command {
        Command::Run(options) => run::run(&connection, &options),
        Command::Ls { beginning, listing } => list::ls(&connection, &beginning, listing),
        Command::Show { name, output } => show::show(&connection, &name, output),
        Command::Waiters { name, output } => show::waiters(&connection, &name, output),
        Command::Wait { name, timeout, latch } => wait::wait(&connection, &name, timeout, latch),
        Command::Free(options) => free::free(&connection, &options),
        Command::Doctor { output } => doctor::doctor(&connection, output),
        Command::Top { beginning, every, listing } => list::top(&connection, &beginning, every, listing),
        Command::Serve(options) => serve::serve(&connection, &options),
        Command::Bench { time, output } => bench::bench(&connection, time, output),
        Command::Completions { shell } => completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Man => man().map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|failure| {
        // A reader that has gone, as in `lockson ls | head`, is no failure.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if failure.downcast_ref().is_some_and(is_gone) {
            return ExitCode::SUCCESS;
        }
        report(in_options(&failure.to_string()));
        ExitCode::from(FAILED)
    })
}

/// The text of an error, with options in place of the methods that a program would call.
fn in_options(text: &str) -> String {
    let methods = [("ca_file", "--ca"), ("client_certificate", "--cert and --key"), ("server_name", "--server-name")];
    let text = text.replace("Tls::with_", "with_");
    methods.iter().fold(text, |text, (method, option)| text.replace(&format!("with_{method}()"), option))
}

/// Prints the completions for a shell. `clap_complete` panics where its output is refused, so it gets a buffer.
fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(shell, &mut Args::command(), "lockson", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Prints one man page for the program and its commands.
fn man() -> Result<(), Failure> {
    let mut page = vec![];
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let title =
            format!(".SH \"{}\"\n", command.get_display_name().unwrap_or_default().replace('-', " ").to_uppercase());
        page.extend(title.bytes());
        let man = clap_mangen::Man::new(command.clone());
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    Ok(io::stdout().write_all(&page)?)
}
