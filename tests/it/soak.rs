//! Long campaigns, each for a share of the given minutes: `make soak MINUTES=5`.
//!
//! A campaign repeats rounds until its time is up, prints its progress every few seconds, and fails at the first faulty
//! round. `LOCKSON_SOAK_SEED` repeats the random choices of a run.

mod leaks;
mod losses;
mod million;
mod storms;
mod told;
