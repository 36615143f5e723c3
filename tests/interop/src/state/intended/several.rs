//! Differences of locks with several names.

use super::Difference;
use super::reason::{KEPT_LEASE, LEASE_OF_THE_HANDLE, LOST_IS_LOST, RELEASE_CHECKED, SILENT_PART};

/// The state of a group whose two values have the same deadline and hold count, and the time to live of its key.
macro_rules! both {
    ($deadline:literal, $count:literal, $ttl:literal) => {
        concat!(
            "`N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in ",
            $deadline,
            ", EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: ",
            $count,
            ", Ph/Z8+pF97YXC7Yyc2g0ug: A, Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in ",
            $deadline,
            ", Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: ",
            $count,
            "} for ",
            $ttl
        )
    };
}

pub(super) const GROUP: &[Difference] = &[
    Difference {
        label: "partial release",
        rust: concat!("ok | ", both!("30 s", "1", "30 s"), " | -"),
        java: concat!("ok | ", both!("30 s", "1", "30 s"), " | `0` on `redisson_lock__channel:{N}`"),
        reason: SILENT_PART,
    },
    Difference {
        label: "release the inner hold of 40 s",
        rust: concat!("ok | ", both!("20 s", "1", "40 s"), " | -"),
        java: concat!("ok | ", both!("40 s", "1", "40 s"), " | `0` on `redisson_lock__channel:{N}`"),
        reason: KEPT_LEASE,
    },
    Difference {
        label: "release the inner hold of 5 s",
        rust: concat!("ok | ", both!("20 s", "1", "20 s"), " | -"),
        java: concat!("ok | ", both!("20 s", "1", "20 s"), " | `0` on `redisson_lock__channel:{N}`"),
        reason: SILENT_PART,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: concat!("acquired=true | ", both!("30 s", "2", "30 s"), " | -"),
        java: concat!("acquired=true | ", both!("20 s", "2", "20 s"), " | -"),
        reason: LEASE_OF_THE_HANDLE,
    },
    Difference {
        label: "release the inner hold without a lease",
        rust: concat!("ok | ", both!("20 s", "1", "30 s"), " | -"),
        java: concat!("ok | ", both!("20 s", "1", "20 s"), " | `0` on `redisson_lock__channel:{N}`"),
        reason: SILENT_PART,
    },
    Difference {
        label: "release that inner hold of 5 s",
        rust: concat!("ok | ", both!("30 s", "1", "30 s"), " | -"),
        java: concat!("ok | ", both!("30 s", "1", "30 s"), " | `0` on `redisson_lock__channel:{N}`"),
        reason: SILENT_PART,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | - | -",
        java: concat!("acquired=true | ", both!("1 s", "1", "1 s"), " | -"),
        reason: LOST_IS_LOST,
    },
];

pub(super) const RED: &[Difference] = &[Difference {
    label: "release by another thread",
    rust: "not_owner | `N:a` = {A: 1} for 20 s | -",
    java: "ok | `N:a` = {A: 1} for 20 s | -",
    reason: RELEASE_CHECKED,
}];
