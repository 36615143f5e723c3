//! The cost of faults: one file for each family of `docs/reliability.md`.

mod abandoned;
pub(crate) mod answers;
mod bounds;
mod close;
mod counted;
pub(crate) mod exactly_once;
mod handing_on;
mod index;
mod keeping;
mod late;
mod leftovers;
pub(crate) mod loss;
mod misuse;
pub(crate) mod other_process;
pub(crate) mod processes;
mod refusals;
mod renewal;
mod several;
pub(crate) mod storms;
mod telling;
mod wakeup;
mod watching;
