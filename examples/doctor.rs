//! What endangers locks on a server, with the consequence and the remedy of each finding.
//!
//! `cargo run --example doctor -- redis://localhost`; without a URL the server of `REDIS_URL`, or a throw-away one.
//! The program ends with 1 if a finding is a danger.

use std::error::Error;
use std::process::ExitCode;

use lockson::{Client, Severity};
use lockson_harness::ExampleServer;

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let (url, _server) = match std::env::args().nth(1) {
        Some(url) => (url, None),
        None => {
            let server = ExampleServer::open()?;
            (server.url().to_owned(), Some(server))
        }
    };
    let findings = Client::connect(&url)?.doctor()?;
    for finding in &findings {
        println!("{} at {}: {}", finding.severity(), finding.server(), finding.what());
        println!("  so      {}", finding.consequence());
        println!("  remedy  {}\n", finding.remedy());
    }
    println!("{} findings", findings.len());
    let is_danger = findings.iter().any(|finding| finding.severity() == Severity::Danger);
    Ok(if is_danger { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
