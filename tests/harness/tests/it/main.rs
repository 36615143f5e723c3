//! The promises of the harness, tested on real servers and processes.

mod process;
mod proxy;
mod proxy_faults;
mod proxy_late;
mod proxy_network;
mod server;
mod wire;
