//! The parent's side: a process that can be told, stopped and killed, behind a proxy of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use lockson_harness::proxy::{Request, RuleHandle, Then, When};
use lockson_harness::{HelperProcess, Proxy};

use crate::Outcome;

/// The names of processes by the values that their locks have in Redis.
pub(crate) type Names = Rc<RefCell<BTreeMap<String, String>>>;

/// A child process. Its requests pass a proxy, so that the stage can count them, hold them, and lose their answers.
pub(crate) struct Process {
    pub(crate) proxy: Proxy,
    helper: HelperProcess,
    pub(crate) name: String,
    names: Names,
    /// An answer that has come and was not read.
    early: Option<String>,
}

/// The answer of a process that tried to take the lock.
pub(crate) struct Try {
    pub(crate) held: bool,
    pub(crate) after: Duration,
    pub(crate) tries: u64,
}

impl Process {
    pub(crate) fn start(role: &str, name: &str, proxy: Proxy, options: &[String], names: &Names) -> Outcome<Self> {
        let url = proxy.url();
        let mut arguments = vec!["--child", role, name, &url];
        arguments.extend(options.iter().map(String::as_str));
        let helper = HelperProcess::spawn(std::env::current_exe()?, &arguments);
        helper.expect_line("ready", BOUND);
        Ok(Self { proxy, helper, name: name.into(), names: Rc::clone(names), early: None })
    }

    /// Tries once.
    pub(crate) fn lock(&mut self) -> Outcome<bool> {
        self.tell("lock");
        Ok(self.tried()?.held)
    }

    /// Tries until the patience is over.
    pub(crate) fn lock_within(&mut self, patience: Duration) -> Outcome<Try> {
        self.tell(&format!("lock {}", patience.as_millis()));
        self.tried()
    }

    /// Releases the lock; the answer of the recipe.
    pub(crate) fn unlock(&mut self) -> Outcome<String> {
        self.ask("unlock")
    }

    pub(crate) fn ask(&mut self, request: &str) -> Outcome<String> {
        self.tell(request);
        self.answer()
    }

    /// Sends a request whose answer is read later.
    pub(crate) fn tell(&mut self, request: &str) {
        self.helper.send(request);
    }

    /// Tells whether the process has answered, and waits for a moment if it has not.
    pub(crate) fn has_answered(&mut self) -> bool {
        if self.early.is_none() {
            self.early = self.helper.line(Duration::from_millis(5));
        }
        self.early.is_some()
    }

    pub(crate) fn answer(&mut self) -> Outcome<String> {
        let line = self.early.take().unwrap_or_else(|| self.helper.next_line(BOUND));
        match line.strip_prefix("error ") {
            Some(error) => Err(format!("process {}: {error}", self.name).into()),
            None => Ok(line),
        }
    }

    /// Reads the answer to `lock`.
    pub(crate) fn tried(&mut self) -> Outcome<Try> {
        let answer = self.answer()?;
        let words: Vec<&str> = answer.splitn(4, ' ').collect();
        let [word, after, tries, value] = words[..] else { return Err(format!("not expected: {answer}").into()) };
        for value in value.split(',').filter(|value| !value.is_empty()) {
            self.names.borrow_mut().insert(value.into(), self.name.clone());
        }
        Ok(Try { held: word == "held", after: Duration::from_millis(after.parse()?), tries: tries.parse()? })
    }

    /// Sends a request, and stops the process once Redis has carried out the command and before the process has read
    /// the answer.
    pub(crate) fn tell_and_stop_after(&mut self, request: &str, command: When) -> Pause {
        let rule = self.proxy.rule(command, Then::HoldReply);
        self.tell(request);
        let request = rule.wait_hit(BOUND);
        self.proxy.wait_fate(&request, BOUND);
        self.stop();
        Pause { rule, request }
    }

    /// Sends a request, and stops the process while its command is on the way to Redis.
    pub(crate) fn tell_and_stop_before(&mut self, request: &str, command: When) -> Pause {
        let rule = self.proxy.rule(command, Then::HoldRequest);
        self.tell(request);
        let request = rule.wait_hit(BOUND);
        self.stop();
        Pause { rule, request }
    }

    /// Continues the process, with its command or its answer.
    pub(crate) fn go_on(&self, pause: Pause) {
        pause.rule.remove();
        pause.rule.release();
        self.proxy.wait_fate(&pause.request, BOUND);
        self.resume();
    }

    pub(crate) fn stop(&self) {
        self.helper.stop();
    }

    pub(crate) fn resume(&self) {
        self.helper.resume();
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.helper.kill();
    }
}

/// A process that is stopped with a command or an answer on the way.
pub(crate) struct Pause {
    rule: RuleHandle,
    request: Request,
}

/// The bound of every wait for a process or a server: over on a broken machine only.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
