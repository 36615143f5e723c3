//! `lockson ls` and `lockson top`: the locks of a prefix.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Error, ErrorKind, Inspection};

use crate::args::{Connection, Listing};
use crate::output::{
    Progress, end, first_end, json, json_of, kind, listening, millis, place, report, shown, state, table,
};
use crate::seen::{Look, Seen};
use crate::{Failure, connect};

/// Lists locks.
pub(crate) fn ls(connection: &Connection, beginning: &str, listing: Listing) -> Result<ExitCode, Failure> {
    let (client, beginning) = connect::of_whole_names(connection, beginning)?;
    let (found, is_cut) = look(&client, &beginning, listing)?;
    if let Some(why) = found.iter().find_map(Inspection::without_clients) {
        report(format_args!("the processes of holders are not known: {why}"));
    }
    if listing.output.json {
        found.iter().try_for_each(|inspection| json(&json_of(inspection)))?;
    } else {
        table(&TITLES, &found.iter().map(row).collect::<Vec<_>>())?;
    }
    if is_cut {
        report(format_args!("there may be more than {}; --limit shows more", listing.limit));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists locks again and again, with the time for which the holders are seen and how often they change.
pub(crate) fn top(
    connection: &Connection,
    beginning: &str,
    every: Duration,
    listing: Listing,
) -> Result<ExitCode, Failure> {
    let (client, beginning) = connect::of_whole_names(connection, beginning)?;
    let mut seen = Seen::new(Duration::MAX);
    loop {
        let asked = Instant::now();
        let (found, is_cut) = match look(&client, &beginning, listing) {
            Ok(looked) => looked,
            // What the user may not do now is not allowed later either.
            Err(failure) if failure.downcast_ref().and_then(Error::redis_word) == Some("NOPERM") => {
                return Err(failure);
            }
            Err(failure) => {
                report(&failure);
                thread::sleep(every.max(SHORTEST));
                continue;
            }
        };
        let now = Instant::now();
        seen.add(asked, now, found.iter().map(Look::of), is_cut);
        let figures = |lock: &Inspection| (seen.held_for(lock.name()), seen.hand_overs(lock.name(), now));
        if listing.output.json {
            for inspection in &found {
                let (held_for, rate) = figures(inspection);
                let mut line = json_of(inspection);
                line["seen_for_ms"] = millis(held_for).into();
                line["hand_overs_per_second"] = rate.into();
                json(&line)?;
            }
        } else {
            let rows = found.iter().map(|inspection| {
                let (held_for, rate) = figures(inspection);
                let held_for = held_for.map_or_else(|| "-".to_owned(), crate::output::time);
                [row(inspection), vec![held_for, format!("{rate:.1}")]].concat()
            });
            let rows: Vec<_> = rows.collect();
            if io::stdout().is_terminal() {
                write!(io::stdout(), "\x1b[H\x1b[2J")?;
            }
            table(&[&TITLES[..], &["SEEN FOR", "HAND-OVERS/S"]].concat(), &rows)?;
            writeln!(io::stdout())?;
        }
        io::stdout().flush()?;
        thread::sleep(every.max(SHORTEST));
    }
}

/// Looks at every lock of the prefix, with progress on a terminal. Returns whether the limit cut the list.
pub(crate) fn look(client: &Client, beginning: &str, listing: Listing) -> Result<(Vec<Inspection>, bool), Failure> {
    let names = client.scan(beginning, listing.limit)?;
    let (mut found, mut progress) = (vec![], Progress::new());
    for (index, inspection) in client.inspect_all(&names).enumerate() {
        progress.tell(|| format!("{index} of {} locks", names.len()));
        // A lock that is free by now, or data by now, is not listed.
        match inspection {
            Ok(inspection) if inspection.kind().is_some() => found.push(inspection),
            Err(error) if error.kind() != ErrorKind::OtherKind => return Err(error.into()),
            _ => {}
        }
    }
    Ok((found, names.len() == listing.limit))
}

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

const TITLES: [&str; 6] = ["NAME", "KIND", "STATE", "ENDS WITHIN", "LISTENING", "HELD AT"];

fn row(inspection: &Inspection) -> Vec<String> {
    let is_held = inspection.holder_count() > 0;
    vec![
        shown(inspection.name()),
        kind(inspection),
        state(inspection),
        if is_held { end(first_end(inspection)) } else { "-".to_owned() },
        listening(inspection, ""),
        place(inspection.holders().first().and_then(|holder| holder.client())),
    ]
}
