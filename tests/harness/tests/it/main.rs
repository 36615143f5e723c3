//! The promises of the harness, tested on real servers and processes.

mod process;
mod proxy;
mod server;
mod wire;
