//! A command as it is sent: plain words, packed.

use redis::Cmd;

/// Builds a command from its words.
pub(crate) fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}
