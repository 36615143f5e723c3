//! Sequences of operations with equal states in both languages after each operation.

/// A few steps on one fresh name.
pub(crate) type Scenario = &'static [Step];

/// One step; the state after a step with a label is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) label: Option<&'static str>,
    pub(crate) action: Action,
}

/// The action of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A thread is asked and answers.
    Ask(Command),
    /// A thread gets a command with a wait.
    Start(Command),
    /// The waiting thread gets its answer.
    Finish {
        thread: u32,
    },
    Pause {
        millis: u64,
    },
    /// The time to live rises without a command, or a renewal interval passes without a rise.
    Renewal,
    /// Another client sets the lock's time to live.
    SetTtl {
        millis: u64,
    },
    /// The client goes.
    Close,
}

/// A command to one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) thread: u32,
    pub(crate) verb: &'static str,
    pub(crate) more: &'static str,
    /// Another kind of the same name.
    pub(crate) kind: Option<&'static str>,
    /// Through the client with the short watchdog.
    pub(crate) brisk: bool,
}

impl Step {
    /// Thread 0 is asked.
    pub(crate) const fn ask(label: &'static str, verb: &'static str, more: &'static str) -> Self {
        Self { label: Some(label), action: Action::Ask(Command::new(0, verb, more)) }
    }

    pub(crate) const fn start(label: &'static str, thread: u32, verb: &'static str, more: &'static str) -> Self {
        Self { label: Some(label), action: Action::Start(Command::new(thread, verb, more)) }
    }

    pub(crate) const fn finish(label: &'static str, thread: u32) -> Self {
        Self { label: Some(label), action: Action::Finish { thread } }
    }

    pub(crate) const fn renewal(label: &'static str) -> Self {
        Self { label: Some(label), action: Action::Renewal }
    }

    pub(crate) const fn pause(millis: u64) -> Self {
        Self { label: None, action: Action::Pause { millis } }
    }

    /// Only a look.
    pub(crate) const fn look(label: &'static str) -> Self {
        Self { label: Some(label), action: Action::Pause { millis: 0 } }
    }

    pub(crate) const fn set_ttl(millis: u64) -> Self {
        Self { label: None, action: Action::SetTtl { millis } }
    }

    pub(crate) const fn close(label: &'static str) -> Self {
        Self { label: Some(label), action: Action::Close }
    }

    /// Another thread.
    pub(crate) const fn by(self, thread: u32) -> Self {
        match self.action {
            Action::Ask(command) => Self { action: Action::Ask(Command { thread, ..command }), ..self },
            _ => panic!("only a command has a thread"),
        }
    }

    /// Another kind of the same name.
    pub(crate) const fn of(self, kind: &'static str) -> Self {
        match self.action {
            Action::Ask(command) => Self { action: Action::Ask(Command { kind: Some(kind), ..command }), ..self },
            _ => panic!("only a command has a kind"),
        }
    }

    /// Through the client with the short watchdog.
    pub(crate) const fn brisk(self) -> Self {
        match self.action {
            Action::Ask(command) => Self { action: Action::Ask(Command { brisk: true, ..command }), ..self },
            _ => panic!("only a command has a client"),
        }
    }

    /// The state after the step is not compared.
    pub(crate) const fn unseen(self) -> Self {
        Self { label: None, ..self }
    }
}

impl Command {
    const fn new(thread: u32, verb: &'static str, more: &'static str) -> Self {
        Self { thread, verb, more, kind: None, brisk: false }
    }
}
