//! The engine: takes, holds and releases locks of any kind.

pub(crate) mod acquire;
mod background;
pub(crate) mod caller;
mod cells;
mod closing;
mod examination;
mod handle;
mod hold;
mod inquiry;
mod keeper;
mod life;
mod parts;
mod per_server;
mod release;
mod request;
#[cfg(all(test, shuttle))]
mod schedules;
mod sender;
pub(crate) mod several;

pub(crate) use handle::{Handle, Named};
pub(crate) use hold::HoldState;
pub(crate) use parts::Engine;
pub(crate) use request::{AcquireRequest, Grant, Modifiers, Wait};
pub(crate) use sender::numbered::Numbered;
