//! One numbered thread: runs its commands in order and lives as long as the process.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Sender, unbounded};
use lockson::Cancel;

use crate::say;

/// A worker's task for one command: takes the handle that ends waits, and returns the line of the answer.
pub(crate) type Command = Box<dyn FnOnce(&Cancel) -> String + Send>;

/// The handle of a worker's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    commands: Sender<Command>,
    /// Ends the waits of the current command.
    running: Arc<Mutex<Option<Cancel>>>,
}

impl Worker {
    pub(crate) fn start(number: u32) -> Self {
        let (commands, inbox) = unbounded::<Command>();
        let running = Arc::new(Mutex::new(None));
        let current = Arc::clone(&running);
        let set = move |cancel| *current.lock().unwrap_or_else(PoisonError::into_inner) = cancel;
        let run = move || {
            for command in inbox {
                let cancel = Cancel::new();
                set(Some(cancel.clone()));
                let line = command(&cancel);
                set(None); // before the answer, so that an interrupt sent after the answer cannot hit this command
                say(&line);
            }
        };
        thread::Builder::new().name(format!("peer-{number}")).spawn(run).expect("a thread can be started");
        Self { commands, running }
    }

    pub(crate) fn submit(&self, command: Command) {
        self.commands.send(command).expect("a worker lives as long as the process");
    }

    /// Interrupts the current command; returns false if there is none.
    pub(crate) fn interrupt(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().inspect(|cancel| cancel.cancel()).is_some()
    }
}
