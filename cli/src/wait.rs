//! `lockson wait`: until a lock is free, without taking it.

use std::iter;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Inspection, LockKind};

use crate::args::Connection;
use crate::output::{Progress, shown, unless_hidden};
use crate::{Failure, TIMED_OUT, connect};

/// Asks until the lock is free. Asks again after a pause, since a message would not tell of an expired lock.
pub(crate) fn wait(
    connection: &Connection,
    name: &str,
    timeout: Option<Duration>,
    is_latch: bool,
) -> Result<ExitCode, Failure> {
    let client = connect::builder(connection)?.connect()?;
    let (began, mut progress) = (Instant::now(), Progress::new());
    let left = |most: Duration| timeout.map_or(most, |timeout| timeout.saturating_sub(began.elapsed()).min(most));
    let mut tell =
        |state: &str| progress.tell(|| format!("{} {state}, for {} s", shown(name), began.elapsed().as_secs()));
    if is_latch {
        let latch = client.get_count_down_latch(name);
        while !latch.wait_for(left(Duration::from_secs(1)))? {
            if left(PAUSE).is_zero() {
                return Ok(ExitCode::from(TIMED_OUT));
            }
            tell("is not open");
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The list of connections is asked for once only, because nobody looks at it here.
    for inspection in client.inspect_all(iter::repeat(name)) {
        let inspection = inspection?;
        unless_hidden(&inspection)?;
        if is_open(&inspection) {
            return Ok(ExitCode::SUCCESS);
        }
        if left(PAUSE).is_zero() {
            return Ok(ExitCode::from(TIMED_OUT));
        }
        tell(&match inspection.holders() {
            [] => "is not free".to_owned(),
            [first, ..] => format!("is held by {}", shown(first.owner())),
        });
        thread::sleep(left(PAUSE));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether nobody holds the lock, or a permit is free. In the queue of a fair lock others may be first.
fn is_open(inspection: &Inspection) -> bool {
    match (inspection.kind(), inspection.available()) {
        (Some(LockKind::Semaphore | LockKind::Permit), Some(available)) => available > 0,
        _ => inspection.holder_count() == 0,
    }
}

const PAUSE: Duration = Duration::from_millis(200);
