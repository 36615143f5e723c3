//! `lockson bench`: how long an acquisition and its release take on this server.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::args::{Connection, Output};
use crate::output::{Progress, json, table};
use crate::{Failure, connect};

/// Takes and releases a free lock again and again.
pub(crate) fn bench(connection: &Connection, time: Duration, output: Output) -> Result<ExitCode, Failure> {
    let client = connect::builder(connection)?.connect()?;
    let lock = client.get_lock(format!("lockson:bench:{}", client.id()));
    let (began, mut taken, mut progress) = (Instant::now(), vec![], Progress::new());
    while began.elapsed() < time || taken.is_empty() {
        let start = Instant::now();
        lock.lock()?.unlock()?;
        taken.push(start.elapsed());
        progress.tell(|| format!("{} pairs in {} s of {time:?}", taken.len(), began.elapsed().as_secs()));
    }
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    taken.sort_unstable();
    let share = |of_thousand: usize| taken[(taken.len() - 1) * of_thousand / 1_000].as_secs_f64() * 1e6;
    let (rate, [half, most, rare]) = (taken.len() as f64 / seconds, [500, 990, 999].map(share));
    if output.json {
        json(&serde_json::json!({
            "pairs_per_second": rate, "p50_us": half, "p99_us": most, "p999_us": rare, "pairs": taken.len(),
        }))?;
    } else {
        let row = [rate, half, most, rare].map(|figure| format!("{figure:.0}"));
        table(&["PAIRS/S", "P50 us", "P99 us", "P99.9 us"], &[row.to_vec()])?;
    }
    Ok(ExitCode::SUCCESS)
}
