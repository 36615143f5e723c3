//! `lockson show` and `lockson waiters`: all that Redis knows of one lock.

use std::io::{self, Write as _};
use std::process::ExitCode;

use lockson::{InspectedHolder, Inspection, LockKind};

use crate::args::{Connection, Output};
use crate::output::{end, first_end, json, json_of, kind, listening, place, shown, state, table, time};
use crate::{Failure, connect};

/// Shows a lock.
pub(crate) fn show(connection: &Connection, name: &str, output: Output) -> Result<ExitCode, Failure> {
    let inspection = connect::builder(connection)?.connect()?.inspect(name)?;
    if output.json {
        json(&json_of(&inspection))?;
        return Ok(ExitCode::SUCCESS);
    }
    let facts = facts(&inspection).into_iter().map(|(fact, value)| vec![fact.to_owned(), value]);
    table(&["NAME", &shown(inspection.name())], &facts.collect::<Vec<_>>())?;
    if !inspection.holders().is_empty() {
        writeln!(io::stdout())?;
        let rows: Vec<_> = inspection.holders().iter().map(|holder| row(&inspection, holder)).collect();
        table(&["HOLDER", "TIMES", "PART", "ENDS WITHIN", "WHERE"], &rows)?;
    }
    print_waiters(&inspection)
}

/// Lists the waiters of a lock.
pub(crate) fn waiters(connection: &Connection, name: &str, output: Output) -> Result<ExitCode, Failure> {
    let inspection = connect::builder(connection)?.connect()?.inspect(name)?;
    if output.json {
        let all = json_of(&inspection);
        json(&serde_json::json!({
            "name": all["name"],
            "waiters": all["waiters"],
            "waiting_clients": all["waiting_clients"],
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if inspection.waiters().is_empty() {
        writeln!(io::stdout(), "{}", listeners(&inspection))?;
    }
    print_waiters(&inspection)
}

fn print_waiters(inspection: &Inspection) -> Result<ExitCode, Failure> {
    if !inspection.waiters().is_empty() {
        writeln!(io::stdout())?;
        let rows = inspection
            .waiters()
            .iter()
            .enumerate()
            .map(|(index, waiter)| vec![(index + 1).to_string(), shown(waiter.owner()), place(waiter.client())]);
        table(&["", "WAITER", "WHERE"], &rows.collect::<Vec<_>>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The facts about the lock as a whole.
fn facts(inspection: &Inspection) -> Vec<(&'static str, String)> {
    let mut facts = vec![("kind", kind(inspection)), ("state", state(inspection))];
    if inspection.kind() == Some(LockKind::Semaphore) {
        facts.push(("holders", "not recorded for semaphores and latches".to_owned()));
    } else if inspection.holder_count() > 0 {
        facts.extend(inspection.held_for().map(|held_for| ("held for", time(held_for))));
        let title = if inspection.holder_count() > 1 { "first ends within" } else { "ends within" };
        facts.push((title, end(first_end(inspection))));
    }
    facts.push(("waiters", listeners(inspection)));
    facts.extend(inspection.token().map(|token| ("last token", i64::from(token).to_string())));
    facts.extend(inspection.leader().map(|leader| ("leader", shown(leader))));
    let hidden = inspection.holder_count().saturating_sub(inspection.holders().len() as u64);
    if hidden > 0 {
        facts.push(("not shown", format!("{hidden} holders")));
    }
    if !inspection.without_rights().is_empty() {
        let rights = shown(&inspection.without_rights().join(", "));
        facts.push(("missing", format!("what {rights} would tell: the user lacks the right")));
    }
    let unlisted = |why: &str| ("missing", format!("the processes of holders and waiters: {}", shown(why)));
    facts.extend(inspection.without_clients().map(unlisted));
    facts
}

fn listeners(inspection: &Inspection) -> String {
    listening(inspection, " clients listen for a release")
}

fn row(inspection: &Inspection, holder: &InspectedHolder) -> Vec<String> {
    let part = holder.side().map(|side| side.to_string());
    vec![
        shown(holder.owner()),
        holder.hold_count().to_string(),
        part.or_else(|| holder.value().map(shown)).unwrap_or_else(|| "-".to_owned()),
        end(holder.remaining().or(inspection.remaining())),
        place(holder.client()),
    ]
}
