//! Sequences of operations, after each of which both languages have to leave the same.

/// A few steps on one name that nothing has used before.
pub(crate) type Scenario = &'static [Step];

/// One step; what it leaves is compared if it has a label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) label: Option<&'static str>,
    pub(crate) action: Action,
}

/// What happens in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A thread is asked and answers.
    Ask(Command),
    /// A thread is asked for something that it waits for.
    Start(Command),
    /// The thread that waits gets its answer.
    Finish {
        thread: u32,
    },
    Pause {
        millis: u64,
    },
    /// The time to live of the lock rises by itself, or a renewal's time passes without that.
    Renewal,
    /// Somebody else sets how long the lock lives.
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

    /// Nothing but a look.
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
            _ => panic!("only what is asked has a thread"),
        }
    }

    /// Another kind of the same name.
    pub(crate) const fn of(self, kind: &'static str) -> Self {
        match self.action {
            Action::Ask(command) => Self { action: Action::Ask(Command { kind: Some(kind), ..command }), ..self },
            _ => panic!("only what is asked has a kind"),
        }
    }

    /// Through the client with the short watchdog.
    pub(crate) const fn brisk(self) -> Self {
        match self.action {
            Action::Ask(command) => Self { action: Action::Ask(Command { brisk: true, ..command }), ..self },
            _ => panic!("only what is asked has a client"),
        }
    }

    /// Nothing is compared after it.
    pub(crate) const fn unseen(self) -> Self {
        Self { label: None, ..self }
    }
}

impl Command {
    const fn new(thread: u32, verb: &'static str, more: &'static str) -> Self {
        Self { thread, verb, more, kind: None, brisk: false }
    }
}
