//! The numbers of the sale.

use std::time::Duration;

/// How many items there are to sell.
pub const STOCK: u32 = 2_000;

/// How many items there are to sell in the act without the lock.
pub const STOCK_WITHOUT_LOCK: u32 = 200;

/// How many processes sell.
pub const TILLS: u32 = 3;

/// How many threads each process has.
pub const SELLERS: u32 = 4;

/// The till with the long job, the till to kill, and the till that stops itself.
pub const WORKING: u32 = 1;
pub const CRASHING: u32 = 2;
pub const PAUSING: u32 = 3;

/// The till that takes the place of the killed one; the till in Java, if there is one.
pub const FRESH: u32 = 4;

/// The time to live of the lock in Redis without renewal. Two seconds make the demo short; the default is 30 seconds.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(2);

/// The interval of the watchdog. The default is 10 seconds.
pub const RENEWAL: Duration = Duration::from_millis(500);

/// The time that a seller takes between reading the stock and writing the stock.
pub const PACKING: Duration = Duration::from_millis(2);

/// How long the lock is kept at a stretch in the act of the long job.
pub const LONG_JOB: Duration = Duration::from_secs(4);

/// How long a process stands still at least in the act of the pause.
pub const PAUSE: Duration = Duration::from_secs(3);

/// How late the next holder may be after the time to live of a dead holder; the demo runs on busy machines.
pub const LATENESS: Duration = Duration::from_secs(1);

/// How many are sold when the long job, the crash and the pause begin.
pub const BEFORE_LONG_JOB: usize = 400;
pub const BEFORE_CRASH: usize = 700;
pub const BEFORE_PAUSE: usize = 1_000;

/// How long each single step may take before the demo gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);
