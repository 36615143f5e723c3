//! What goes wrong in a story, and what users do in it: drawn by the seed.

use lockson_world::World;

/// What may go wrong, each once in so many requests; zero is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The connection ends before the request runs.
    pub cut_before: u64,
    /// The connection ends after the request ran and before its answer.
    pub cut_after: u64,
    /// The request runs seconds later, also when its client has given up by then.
    pub late: u64,
    /// The answer comes seconds after the request ran.
    pub slow: u64,
    /// The server forgets its scripts.
    pub forgets: u64,
    /// The server restarts with its data: all connections end, scripts are forgotten.
    pub restarts: u64,
    /// A process is stopped for up to a minute.
    pub stops: u64,
    /// The user may not kill connections.
    pub no_kill: bool,
    /// The user may not watch keys.
    pub no_tracking: bool,
    /// Somebody deletes a lock.
    pub deletes: u64,
    /// Somebody deletes everything.
    pub flushes: u64,
    /// A restart loses the data, once in so many restarts.
    pub empties: u64,
    /// Memory is full for a while.
    pub full: u64,
    /// A slot of a cluster moves.
    pub moves: u64,
    /// A master of a cluster is replaced by its replica, which has all writes.
    pub replaces: u64,
    /// A copy lags, and may be all that is left: clients wait for copies.
    pub lags: u64,
    /// Disks may lag, too: clients wait for them.
    pub disks: bool,
    /// The clock of the server runs faster by so many millionths.
    pub drift: i64,
}

impl Faults {
    /// Whether each request is answered at once, and each message arrives.
    pub fn leave_the_network_alone(&self) -> bool {
        let Self { cut_before, cut_after, late, slow, restarts, stops, moves, replaces, lags, .. } = *self;
        [cut_before, cut_after, late, slow, restarts, stops, moves, replaces, lags] == [0; 9]
    }

    /// Whether all data may go at once.
    pub fn lose_everything(&self) -> bool {
        self.flushes > 0 || self.restarts > 0 && self.empties > 0
    }

    /// Whether a slot may be at no server for a while.
    pub fn moves_slots(&self) -> bool {
        [self.moves, self.replaces, self.lags] != [0; 3]
    }

    /// Draws the faults of a story.
    pub fn draw(world: &World) -> Self {
        // Some networks are quiet, so that the promises for those are seen, too.
        let is_quiet = world.below(3) == 0;
        let each = |is_of_network: bool| {
            if world.below(2) == 0 || is_of_network && is_quiet { 0 } else { 10 + world.below(150) }
        };
        Self {
            cut_before: each(true),
            cut_after: each(true),
            late: each(true),
            forgets: each(false),
            restarts: each(true) * 5,
            stops: each(true) * 3,
            no_kill: world.below(4) == 0,
            no_tracking: world.below(4) == 0,
            deletes: each(false),
            flushes: each(false) * u64::from(world.below(3) == 0),
            empties: if world.below(4) == 0 { 1 + world.below(3) } else { 0 },
            full: each(false) * u64::from(world.below(2) == 0) * 5,
            // Less than the margin of leases.
            drift: match world.below(3) {
                0 => 0,
                1 => i64::try_from(world.below(9_000)).unwrap_or(0),
                _ => -i64::try_from(world.below(50_000)).unwrap_or(0),
            },
            slow: each(true),
            moves: each(true) * 2,
            replaces: each(true) * 5,
            lags: each(true) * 2,
            disks: false,
        }
    }

    /// What requests and answers meet on their way.
    pub fn on_the_way(self) -> Self {
        let Self { cut_before, cut_after, late, slow, .. } = self;
        Self { cut_before, cut_after, late, slow, ..Self::default() }
    }

    /// The faults of a server that is no cluster. Its disk may lag.
    pub fn of_one_server(self) -> Self {
        Self { moves: 0, replaces: 0, lags: if self.disks { self.lags } else { 0 }, ..self }
    }

    /// The faults of a server that nobody else writes to: it loses its data by a restart only.
    pub fn of_one_of_several(self) -> Self {
        Self { deletes: 0, flushes: 0, stops: 0, ..self.of_one_server() }
    }

    /// The faults beside a Java client, which trusts the clock of its machine, and whose releases need memory.
    pub fn beside_java(self) -> Self {
        Self { drift: 0, full: 0, ..self }
    }

    /// Leaves out the faults of these names.
    pub fn without(mut self, names: &[String]) -> Self {
        for name in names {
            match &**name {
                "cut_before" => self.cut_before = 0,
                "cut_after" => self.cut_after = 0,
                "late" => self.late = 0,
                "slow" => self.slow = 0,
                "forgets" => self.forgets = 0,
                "restarts" => self.restarts = 0,
                "stops" => self.stops = 0,
                "no_kill" => self.no_kill = false,
                "no_tracking" => self.no_tracking = false,
                "deletes" => self.deletes = 0,
                "flushes" => self.flushes = 0,
                "empties" => self.empties = 0,
                "full" => self.full = 0,
                "moves" => self.moves = 0,
                "replaces" => self.replaces = 0,
                "lags" => self.lags = 0,
                "disks" => self.disks = false,
                "drift" => self.drift = 0,
                _ => {}
            }
        }
        self
    }
}

/// The names of what goes wrong in a story, and of what users do.
pub const TROUBLES: &[&str] = &[
    "cut_before",
    "cut_after",
    "late",
    "slow",
    "forgets",
    "restarts",
    "stops",
    "no_kill",
    "no_tracking",
    "deletes",
    "flushes",
    "empties",
    "full",
    "moves",
    "replaces",
    "lags",
    "disks",
    "cluster",
    "sentinels",
    "nodes",
    "drift",
    "force",
    "close",
    "cancel",
    "within",
    "sections",
    "java",
    "reentries",
];

/// What users do beside taking locks, each once in so many acts; zero is never.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub force: u64,
    pub close: u64,
    pub cancel: u64,
    /// In callbacks and observers.
    pub within: u64,
    /// They stay inside for longer than a time to live, which takes more of a story than all else.
    pub linger: u64,
}

impl Habits {
    /// Draws the habits of a story.
    pub fn draw(world: &World) -> Self {
        let each = |often: u64| if world.below(3) > 0 { 0 } else { often };
        Self {
            force: each(20),
            close: each(200),
            cancel: each(5),
            within: each(30),
            linger: if world.below(2) == 0 { 12 } else { 120 },
        }
    }

    /// Leaves out the habits of these names.
    pub fn without(self, names: &[String]) -> Self {
        let kept = |name: &str, often: u64| if names.iter().any(|other| other == name) { 0 } else { often };
        let Self { force, close, cancel, within, linger } = self;
        Self {
            force: kept("force", force),
            close: kept("close", close),
            cancel: kept("cancel", cancel),
            within: kept("within", within),
            linger,
        }
    }
}
