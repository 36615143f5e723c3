//! The scripts of the group lock, and those of Redisson.
#![cfg(test)]

mod java;
mod scripts;
