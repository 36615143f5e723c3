//! The scenarios of each kind.

use super::scenario::{Scenario, Step};
use crate::kind::{Family, Kind, Reentry, Shape};

/// All scenarios of a kind, with distinct labels.
pub(crate) fn of(kind: &Kind) -> Vec<Scenario> {
    match (kind.family, kind.shape) {
        (Family::Semaphore, _) => SEMAPHORE.to_vec(),
        (Family::Permits, _) => PERMITS.to_vec(),
        (Family::Latch, _) => LATCH.to_vec(),
        (Family::Lock, Shape::Several) => COMPOSITE.to_vec(),
        (Family::Lock, _) => [lock(kind), special(kind)].concat(),
    }
}

fn lock(kind: &Kind) -> Vec<Scenario> {
    let taken = if kind.reentry == Reentry::Counted { COUNTED } else { UNCOUNTED };
    match kind.word {
        "read" => [taken, ENDS, READ].concat(),
        // A forced release does not report whether the value was held, and no outside question about a lock of values
        // exists.
        "faster_multi" => [taken, OTHERS].concat(),
        _ => [taken, ENDS, OTHERS].concat(),
    }
}

fn special(kind: &Kind) -> Vec<Scenario> {
    match kind.word {
        "fair" | "non_reentrant_fair" => FAIR.to_vec(),
        "write" => WRITE.to_vec(),
        _ => vec![],
    }
}

/// Several takes by one holder.
const COUNTED: &[Scenario] = &[
    &[
        Step::ask("acquire", "lock", ""),
        Step::ask("re-enter", "lock", ""),
        Step::ask("partial release", "unlock", ""),
        Step::ask("last release", "unlock", ""),
    ],
    &[
        Step::ask("acquire by one attempt", "try_lock", ""),
        Step::ask("re-enter by one attempt", "try_lock", ""),
        Step::ask("", "unlock", "").unseen(),
        Step::ask("", "unlock", "").unseen(),
    ],
    &[
        Step::ask("acquire with a lease of 20 s", "lock", "lease_ms=20000"),
        Step::ask("re-enter that with a lease of 40 s", "lock", "lease_ms=40000"),
        Step::ask("release the inner hold of 40 s", "unlock", ""),
        Step::ask("release the outer hold of 20 s", "unlock", ""),
    ],
    &[
        Step::ask("", "lock", "lease_ms=20000").unseen(),
        Step::ask("re-enter a lease of 20 s with one of 5 s", "lock", "lease_ms=5000"),
        Step::ask("release the inner hold of 5 s", "unlock", ""),
        Step::ask("", "unlock", "").unseen(),
    ],
    &[
        Step::ask("", "lock", "lease_ms=20000").unseen(),
        Step::ask("re-enter a lease of 20 s without a lease", "lock", ""),
        Step::ask("release the inner hold without a lease", "unlock", ""),
        Step::ask("", "unlock", "").unseen(),
    ],
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("re-enter a renewed hold with a lease of 5 s", "lock", "lease_ms=5000"),
        Step::ask("release that inner hold of 5 s", "unlock", ""),
        Step::ask("", "unlock", "").unseen(),
    ],
    &[
        Step::ask("", "lock", "lease_ms=600").unseen(),
        Step::pause(800),
        Step::ask("re-enter after the lease has ended", "lock", ""),
    ],
];

/// The same for kinds that can be taken once.
const UNCOUNTED: &[Scenario] = &[
    &[
        Step::ask("acquire", "lock", ""),
        Step::ask("acquire again by the holder", "lock", ""),
        Step::ask("attempt by the holder", "try_lock", ""),
        Step::ask("release", "unlock", ""),
    ],
    &[
        Step::ask("acquire by one attempt", "try_lock", ""),
        Step::ask("", "unlock", "").unseen(),
        Step::ask("acquire with a lease of 20 s", "lock", "lease_ms=20000"),
        Step::ask("release of a lease", "unlock", ""),
    ],
];

/// The continuation and the end of a hold.
const ENDS: &[Scenario] = &[
    &[Step::ask("", "lock", "").brisk().unseen(), Step::renewal("renewal (time to live of 3 s)")],
    &[
        Step::ask("", "lock", "").brisk().unseen(),
        Step::set_ttl(20_000),
        Step::renewal("renewal of a hold that somebody else gave 20 s"),
    ],
    &[
        Step::ask("", "lock", "lease_ms=600").unseen(),
        Step::pause(800),
        Step::look("end of a lease"),
        Step::ask("release after the end of the lease", "unlock", ""),
    ],
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("forced open by another thread", "force_unlock", "").by(1),
        Step::ask("release after it was forced open", "unlock", ""),
        Step::ask("forced open though free", "force_unlock", ""),
    ],
    &[Step::ask("", "lock", "").unseen(), Step::close("close of the client that holds")],
];

/// The acts of other clients.
const OTHERS: &[Scenario] = &[
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("attempt of another thread", "try_lock", "").by(1),
        Step::ask("wait of another thread, in vain", "try_lock", "wait_ms=150").by(1),
        Step::ask("release by another thread", "unlock", "").by(1),
        Step::ask("", "unlock", "").unseen(),
    ],
    &[
        Step::ask("", "lock", "").unseen(),
        Step::start("another thread waits", 1, "lock", ""),
        Step::ask("", "unlock", "").unseen(),
        Step::finish("release and grant to the waiter", 1),
        Step::ask("", "unlock", "").by(1).unseen(),
    ],
];

/// The queue of the fair locks.
const FAIR: &[Scenario] = &[
    &[
        Step::ask("", "lock", "").unseen(),
        Step::start("one joins the queue", 1, "lock", ""),
        Step::start("another joins with a limit of 20 s", 2, "try_lock", "wait_ms=20000"),
        Step::ask("one gives up behind them", "try_lock", "wait_ms=150").by(3),
        Step::ask("", "unlock", "").unseen(),
        Step::finish("release and grant to the head", 1),
        Step::ask("", "unlock", "").by(1).unseen(),
        Step::finish("release and grant to the last", 2),
        Step::ask("release with an empty queue", "unlock", "").by(2),
    ],
    &[
        Step::ask("", "lock", "").unseen(),
        Step::start("", 1, "lock", "").unseen(),
        Step::ask("", "force_unlock", "").by(2).unseen(),
        Step::finish("forced open, and grant to the head", 1),
        Step::ask("", "unlock", "").by(1).unseen(),
    ],
];

/// Readers beside each other and beside a writer.
const READ: &[Scenario] = &[
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("a second reader", "lock", "").by(1),
        Step::ask("a writer's attempt", "try_lock", "").of("write").by(2),
        Step::ask("release of one of two readers", "unlock", ""),
        Step::ask("release of the last reader", "unlock", "").by(1),
    ],
    &[
        Step::ask("", "lock", "").of("write").unseen(),
        Step::ask("a reader's attempt beside a writer", "try_lock", "").by(1),
        Step::ask("a reader's wait beside a writer, in vain", "try_lock", "wait_ms=150").by(1),
        Step::ask("", "unlock", "").of("write").unseen(),
    ],
];

/// A writer that also reads.
const WRITE: &[Scenario] = &[
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("the writer reads", "lock", "").of("read"),
        Step::ask("the writer steps down", "unlock", ""),
        Step::ask("what was a writer ends reading", "unlock", "").of("read"),
    ],
    &[
        Step::ask("", "lock", "").unseen(),
        Step::ask("", "lock", "").of("read").unseen(),
        Step::ask("the writer ends reading", "unlock", "").of("read"),
        Step::ask("the writer ends writing", "unlock", ""),
    ],
    &[
        Step::ask("", "lock", "").of("read").unseen(),
        Step::ask("attempt of the only reader to write", "try_lock", ""),
        Step::ask("", "unlock", "").of("read").unseen(),
    ],
];

/// Locks made of others.
const COMPOSITE: &[Scenario] = &[
    &[
        Step::ask("acquire", "lock", ""),
        Step::ask("re-enter", "lock", ""),
        Step::ask("partial release", "unlock", ""),
        Step::ask("last release", "unlock", ""),
    ],
    &[
        Step::ask("acquire with a lease of 20 s", "try_lock", "wait_ms=1000 lease_ms=20000"),
        Step::ask("attempt of another thread", "try_lock", "").by(1),
        Step::ask("release by another thread", "unlock", "").by(1),
        Step::ask("release of a lease", "unlock", ""),
    ],
];

const SEMAPHORE: &[Scenario] = &[
    &[
        Step::ask("set 3 permits", "try_set_permits", "permits=3"),
        Step::ask("set them again", "try_set_permits", "permits=9"),
        Step::ask("take 2", "acquire", "permits=2"),
        Step::ask("attempt to take 2 of 1", "try_acquire", "permits=2"),
        Step::ask("give 2 back", "release", "permits=2"),
        Step::ask("add 4", "add_permits", "permits=4"),
        Step::ask("drain", "drain", ""),
        Step::ask("take 6 off", "add_permits", "permits=-6"),
        Step::ask("give 1 back below zero", "release", ""),
        Step::ask("give 7 back if it is there", "release_if_exists", "permits=7"),
        Step::ask("delete", "delete", ""),
        Step::ask("give 1 back if it is there, but it is not", "release_if_exists", ""),
    ],
    &[
        Step::ask("set 2 permits for 20 s", "try_set_permits", "permits=2 ttl_ms=20000"),
        Step::ask("take 1", "acquire", ""),
    ],
];

const PERMITS: &[Scenario] = &[
    &[
        Step::ask("set 3 permits", "try_set_permits", "permits=3"),
        Step::ask("take 1 without a lease", "acquire", ""),
        Step::ask("take 1 with a lease of 20 s", "acquire", "lease_ms=20000"),
        Step::ask("attempt to take 2 of 1", "try_acquire", "permits=2"),
        Step::ask("add 2", "add_permits", "permits=2"),
        Step::ask("set 9 in all", "set_permits", "permits=9"),
        Step::ask("delete", "delete", ""),
    ],
    &[
        Step::ask("", "try_set_permits", "permits=1").unseen(),
        Step::ask("", "acquire", "lease_ms=300").unseen(),
        Step::pause(500),
        Step::ask("count the free ones after a lease has ended", "available", ""),
    ],
];

const LATCH: &[Scenario] = &[&[
    Step::ask("set the count 2", "try_set_count", "count=2"),
    Step::ask("set it again", "try_set_count", "count=5"),
    Step::ask("count down", "count_down", ""),
    Step::ask("count down to zero", "count_down", ""),
    Step::ask("count down below zero", "count_down", ""),
    Step::ask("", "try_set_count", "count=2").unseen(),
    Step::ask("delete", "delete", ""),
]];
