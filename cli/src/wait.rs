//! `lockson wait`: until a lock is free, without taking it.

use std::iter;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Inspection, LockKind};

use crate::args::Connection;
use crate::output::unless_hidden;
use crate::{Failure, TIMED_OUT, connect};

/// Asks until the lock is free. Asks again after a pause, since a message would not tell of an expired lock.
pub(crate) fn wait(
    connection: &Connection,
    name: &str,
    timeout: Option<Duration>,
    is_latch: bool,
) -> Result<ExitCode, Failure> {
    let client = connect::builder(connection)?.connect()?;
    if is_latch {
        let is_open = client.get_count_down_latch(name).wait_for(timeout.unwrap_or(Duration::MAX))?;
        return Ok(ExitCode::from(if is_open { 0 } else { TIMED_OUT }));
    }
    let began = Instant::now();
    // The list of connections is asked for once only, because nobody looks at it here.
    for inspection in client.inspect_all(iter::repeat(name)) {
        let inspection = inspection?;
        unless_hidden(&inspection)?;
        if is_open(&inspection) {
            return Ok(ExitCode::SUCCESS);
        }
        let left = timeout.map_or(PAUSE, |timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return Ok(ExitCode::from(TIMED_OUT));
        }
        thread::sleep(left.min(PAUSE));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a caller who asks now would be served.
fn is_open(inspection: &Inspection) -> bool {
    match (inspection.kind(), inspection.available()) {
        (Some(LockKind::Semaphore | LockKind::Permit), Some(available)) => available > 0,
        _ => inspection.holder_count() == 0,
    }
}

const PAUSE: Duration = Duration::from_millis(200);
