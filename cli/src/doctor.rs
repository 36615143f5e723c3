//! `lockson doctor`: what endangers locks on the servers.

use std::process::ExitCode;

use lockson::Severity;

use crate::args::{Connection, Output};
use crate::output::json;
use crate::{Failure, NO, connect};

/// Prints what the doctor finds.
pub(crate) fn doctor(connection: &Connection, output: Output) -> Result<ExitCode, Failure> {
    let findings = connect::builder(connection)?.connect()?.doctor()?;
    for finding in &findings {
        if output.json {
            json(&serde_json::json!({
                "severity": finding.severity().to_string(),
                "kind": format!("{:?}", finding.kind()),
                "server": finding.server(),
                "what": finding.what(),
                "consequence": finding.consequence(),
                "remedy": finding.remedy(),
            }))?;
        } else {
            println!("{} at {}: {}", finding.severity(), finding.server(), finding.what());
            println!("  so      {}", finding.consequence());
            println!("  remedy  {}\n", finding.remedy());
        }
    }
    let dangers = findings.iter().filter(|finding| finding.severity() == Severity::Danger).count();
    if !output.json {
        println!("{} findings, {dangers} of them dangers", findings.len());
    }
    Ok(if dangers > 0 { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}
