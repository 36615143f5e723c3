//! One direction of a connection: queued bytes, each with a condition for sending.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Some bytes that are sent together.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) bytes: Vec<u8>,
    pub(super) gate: Gate,
    /// If set, bytes are sent one at a time with this pause between two bytes.
    pub(super) pace: Option<Duration>,
    /// The request whose fate becomes `Forwarded` when the last byte has been sent.
    pub(super) number: Option<u64>,
    /// The end of the connection after this step.
    pub(super) end: Option<End>,
}

impl Step {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Step {
        Step { bytes: bytes.into(), gate: Gate::Open, pace: None, number: None, end: None }
    }

    pub(super) fn ending(bytes: impl Into<Vec<u8>>, end: End) -> Step {
        Step { end: Some(end), ..Step::new(bytes) }
    }
}

/// When a step may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// Waits for the release of the rule with this id.
    Held(u64),
    Until(Instant),
}

/// The event after the last byte of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The source has ended, so the sink is ended too.
    Finish,
    /// A rule cuts the connection.
    Cut,
}

/// The reason why a flush stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nothing to send before another event.
    Idle,
    /// The sink is full at this moment.
    Full,
    /// The next byte may leave at this moment.
    Until(Instant),
    Ended(End),
    Broken(io::Error),
}

/// The steps in line.
#[derive(Debug, Default)]
pub(super) struct Lane {
    steps: VecDeque<Step>,
    sent: usize,
}

impl Lane {
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    /// Inserts a step before the end of the source, if the end is already queued.
    pub(super) fn push_before_end(&mut self, step: Step) {
        let last = self.steps.back();
        let ends = last.is_some_and(|last| last.end == Some(End::Finish));
        self.steps.insert(self.steps.len() - usize::from(ends), step);
    }

    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.sent = 0;
    }

    pub(super) fn release(&mut self, rule: u64) {
        for step in &mut self.steps {
            if step.gate == Gate::Held(rule) {
                step.gate = Gate::Open;
            }
        }
    }

    pub(super) fn release_all(&mut self) {
        for step in &mut self.steps {
            step.gate = Gate::Open;
            step.pace = None;
        }
    }

    /// Sends every byte that may leave, and reports the number of each request sent completely.
    pub(super) fn flush(&mut self, mut sink: &TcpStream, now: Instant, mut left: impl FnMut(u64)) -> Stop {
        while let Some(step) = self.steps.front_mut() {
            match step.gate {
                Gate::Open => {}
                Gate::Until(moment) if moment <= now => step.gate = Gate::Open,
                Gate::Until(moment) => return Stop::Until(moment),
                Gate::Held(_) => return Stop::Idle,
            }
            let rest = &step.bytes[self.sent..];
            let part = if step.pace.is_some() { &rest[..rest.len().min(1)] } else { rest };
            if !part.is_empty() {
                match sink.write(part) {
                    Ok(0) => return Stop::Broken(ErrorKind::WriteZero.into()),
                    Ok(length) => self.sent += length,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Stop::Full,
                    Err(error) => return Stop::Broken(error),
                }
            }
            if self.sent < step.bytes.len() {
                if let Some(pace) = step.pace {
                    step.gate = Gate::Until(now + pace);
                }
                continue;
            }
            self.sent = 0;
            let (number, end) = (step.number, step.end);
            self.steps.pop_front();
            number.into_iter().for_each(&mut left);
            if let Some(end) = end {
                return Stop::Ended(end);
            }
        }
        Stop::Idle
    }
}
