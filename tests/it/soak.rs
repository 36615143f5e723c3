//! Long campaigns, each for its share of the minutes it is given: `make soak MINUTES=5`.
//!
//! A campaign goes on in rounds until its time is up, says every few seconds how far it is, and
//! fails at the first round that goes wrong. `LOCKSON_SOAK_SEED` repeats the random choices of a run.

mod campaign;
mod leaks;
mod losses;
mod storms;
mod told;
