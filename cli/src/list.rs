//! `lockson ls` and `lockson top`: the locks of a prefix.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind, Inspection};

use crate::args::{Connection, Listing};
use crate::output::{end, json, json_of, kind, place, shown, state, table};
use crate::{Failure, connect};

/// Lists locks.
pub(crate) fn ls(connection: &Connection, beginning: &str, listing: Listing) -> Result<ExitCode, Failure> {
    let (connection, beginning) = connection.of_whole_names(beginning);
    let client = connect::builder(&connection)?.connect()?;
    let (found, is_cut) = look(&client, &beginning, listing)?;
    if let Some(why) = found.iter().find_map(Inspection::without_clients) {
        eprintln!("lockson: the processes of holders are not known: {why}");
    }
    if listing.output.json {
        found.iter().try_for_each(|inspection| json(&json_of(inspection)))?;
    } else {
        table(&TITLES, &found.iter().map(row).collect::<Vec<_>>())?;
    }
    if is_cut {
        eprintln!("lockson: there may be more than {}; --limit shows more", listing.limit);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists locks again and again, with the number of grants seen since the beginning.
pub(crate) fn top(
    connection: &Connection,
    beginning: &str,
    every: Duration,
    listing: Listing,
) -> Result<ExitCode, Failure> {
    let (connection, beginning) = connection.of_whole_names(beginning);
    let client = connect::builder(&connection)?.connect()?;
    let (began, mut seen) = (Instant::now(), Seen::default());
    loop {
        let found = match look(&client, &beginning, listing) {
            Ok((found, _)) => found,
            Err(failure) => {
                eprintln!("lockson: {failure}");
                thread::sleep(every.max(SHORTEST));
                continue;
            }
        };
        seen.forget_free(&found);
        let seconds = began.elapsed().as_secs_f64();
        if listing.output.json {
            found.iter().try_for_each(|inspection| json(&json_of(inspection)))?;
        } else {
            let rows = found.iter().map(|inspection| {
                let (held_for, hand_overs) = seen.update(inspection);
                let rate = format!("{:.1}", hand_overs as f64 / seconds.max(1.0));
                [row(inspection), vec![held_for.map_or_else(|| "-".to_owned(), crate::output::time), rate]].concat()
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

/// Since when the present holder of each lock is seen, and how often the holder changed.
#[derive(Default)]
struct Seen(BTreeMap<String, (String, Instant, u64)>);

impl Seen {
    /// Ends the holds of locks that are free by now.
    fn forget_free(&mut self, found: &[Inspection]) {
        for (name, (owner, ..)) in &mut self.0 {
            if found.iter().all(|inspection| inspection.name() != name) {
                owner.clear();
            }
        }
    }

    /// Returns how long the holder is seen, and the number of changes so far.
    fn update(&mut self, inspection: &Inspection) -> (Option<Duration>, u64) {
        let now = Instant::now();
        let owner = inspection.holders().first().map(|holder| holder.owner().to_owned()).unwrap_or_default();
        let (last, since, changes) =
            self.0.entry(inspection.name().to_owned()).or_insert_with(|| (owner.clone(), now, 0));
        if *last != owner {
            *changes += u64::from(!owner.is_empty());
            (*last, *since) = (owner.clone(), now);
        }
        ((!owner.is_empty()).then(|| since.elapsed()), *changes)
    }
}

/// Looks at every lock of the prefix, with progress on a terminal. Returns whether the limit cut the list.
pub(crate) fn look(client: &Client, beginning: &str, listing: Listing) -> Result<(Vec<Inspection>, bool), Failure> {
    let names = client.scan(beginning, listing.limit)?;
    let (mut found, mut told) = (vec![], Instant::now());
    for (index, inspection) in client.inspect_all(&names).enumerate() {
        if io::stderr().is_terminal() && told.elapsed() > Duration::from_secs(1) {
            eprint!("\r{index} of {} locks", names.len());
            told = Instant::now();
        }
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
    // Permits, values of a group and readers end one by one.
    let first = inspection.holders().iter().filter_map(|holder| holder.remaining()).min();
    vec![
        shown(inspection.name()),
        kind(inspection),
        state(inspection),
        if is_held { end(first.or(inspection.remaining())) } else { "-".to_owned() },
        inspection.waiting_clients().to_string(),
        place(inspection.holders().first().and_then(|holder| holder.client())),
    ]
}
