//! `lockson doctor`: what endangers locks on the servers.

use std::io::{self, Write as _};
use std::process::ExitCode;

use lockson_doctor::Severity;

use crate::args::{Connection, Output};
use crate::output::{json, shown};
use crate::{Failure, NO, connect};

/// Prints what the doctor finds.
pub(crate) fn doctor(connection: &Connection, output: Output) -> Result<ExitCode, Failure> {
    let findings = lockson_doctor::findings(&connect::builder(connection)?.connect()?)?;
    let mut out = io::stdout();
    for finding in &findings {
        if output.json {
            json(&serde_json::json!({
                "severity": finding.severity.to_string(),
                "kind": format!("{:?}", finding.kind),
                "server": finding.server,
                "what": finding.what,
                "consequence": finding.consequence,
                "remedy": finding.remedy,
            }))?;
        } else {
            writeln!(out, "{} at {}: {}", finding.severity, finding.server, shown(&finding.what))?;
            writeln!(out, "  so      {}", finding.consequence)?;
            writeln!(out, "  remedy  {}\n", finding.remedy)?;
        }
    }
    let dangers = findings.iter().filter(|finding| finding.severity == Severity::Danger).count();
    if !output.json {
        writeln!(out, "findings: {}, dangers: {dangers}", findings.len())?;
    }
    Ok(if dangers > 0 { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}
