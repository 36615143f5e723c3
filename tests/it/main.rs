//! Lockson against real servers.

mod answers;
mod contract;
mod exactly_once;
mod fair;
mod fault_support;
mod faults_bounds;
mod faults_close;
mod faults_index;
mod faults_late;
mod faults_loss;
mod faults_misuse;
mod faults_refusals;
mod faults_storms;
mod faults_wakeup;
mod fenced;
mod non_reentrant;
mod other_process;
mod processes;
mod read_write;
mod reentrant;
mod servers;
mod soak;
mod spin;
mod support;
mod token;
mod token_peers;
