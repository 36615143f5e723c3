//! Whose turn it is at the terminal: this program's, or the command's.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal at standard input, if there is one, and the group of the command.
pub(super) struct Terminal {
    is_there: bool,
    group: Pid,
    pub(super) was_given: bool,
}

impl Terminal {
    pub(super) fn of(group: Pid) -> Self {
        Self { is_there: stdin().is_terminal(), group, was_given: false }
    }

    /// Gives the terminal to the command, if this program is in the foreground.
    pub(super) fn give(&mut self) {
        self.was_given |= self.pass(getpgrp(), self.group);
    }

    /// Takes the terminal back from the command.
    pub(super) fn take_back(&self) {
        self.pass(self.group, getpgrp());
    }

    /// Stops this program and its pipeline, as the command was, until the shell continues them. Returns whether there
    /// is a terminal.
    pub(super) fn stop(&mut self) -> bool {
        self.take_back();
        if self.is_there {
            let _ = killpg(getpgrp(), Signal::SIGTSTP);
            self.give();
        }
        self.is_there
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        if !self.is_there || tcgetpgrp(stdin()) != Ok(from) {
            return false;
        }
        // In the background, where this program may be by now, the change would stop it.
        let stop = SigSet::from(Signal::SIGTTOU);
        let passed = stop.thread_block().and_then(|()| tcsetpgrp(stdin(), to));
        stop.thread_unblock().and(passed).is_ok()
    }
}
