//! What is counted: requests whose effect must come once, and threads that wait for a part of a count.

pub(super) mod numbered;
pub(super) mod taken;
mod wait;

pub(crate) use numbered::Numbered;
pub(crate) use taken::{Taken, Ticket};
pub(crate) use wait::{CountedRequest, Reply};
