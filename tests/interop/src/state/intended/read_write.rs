//! Differences of the two sides of the read-write lock.

use super::Difference;
use super::reason::{
    ALL_READ_HOLDS, CLOSE_GIVES_BACK, KEPT_LEASE, LEASE_OF_THE_HANDLE, LOST_IS_LOST, NEVER_SHORTENED, NO_UPGRADE,
    NOT_ADDED_UP, SAYS_NOTHING, STEPS_DOWN_ALOUD,
};

pub(super) const READ: &[Difference] = &[
    Difference {
        label: "re-enter that with a lease of 40 s",
        rust: "acquired=true | `N` = {A: 2, mode: read} for 40 s; `{N}:A:rwlock_timeout:1` = 1 for 40 s; `{N}:A:rwlock_timeout:2` = 1 for 40 s | -",
        java: "acquired=true | `N` = {A: 2, mode: read} for 40 s; `{N}:A:rwlock_timeout:1` = 1 for 20 s; `{N}:A:rwlock_timeout:2` = 1 for 40 s | -",
        reason: ALL_READ_HOLDS,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: "acquired=true | `N` = {A: 2, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s; `{N}:A:rwlock_timeout:2` = 1 for 30 s | -",
        java: "acquired=true | `N` = {A: 2, mode: read} for 20 s; `{N}:A:rwlock_timeout:1` = 1 for 20 s; `{N}:A:rwlock_timeout:2` = 1 for 20 s | -",
        reason: LEASE_OF_THE_HANDLE,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | - | -",
        java: "acquired=true | `N` = {A: 1, mode: read} for 1 s; `{N}:A:rwlock_timeout:1` = 1 for 1 s | -",
        reason: LOST_IS_LOST,
    },
    Difference {
        label: "renewal of a hold that somebody else gave 20 s",
        rust: "- | `N` = {A: 1, mode: read} for 19 s; `{N}:A:rwlock_timeout:1` = 1 for 3 s | -",
        java: "- | `N` = {A: 1, mode: read} for 3 s; `{N}:A:rwlock_timeout:1` = 1 for 3 s | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release after the end of the lease",
        rust: "not_owner | - | -",
        java: "not_owner | - | `0` on `redisson_rwlock:{N}`",
        reason: SAYS_NOTHING,
    },
    Difference {
        label: "release after it was forced open",
        rust: "not_owner | `{N}:A:rwlock_timeout:1` = 1 for 30 s | -",
        java: "not_owner | `{N}:A:rwlock_timeout:1` = 1 for 30 s | `0` on `redisson_rwlock:{N}`",
        reason: SAYS_NOTHING,
    },
    Difference {
        label: "close of the client that holds",
        rust: "ok | - | `0` on `redisson_rwlock:{N}`",
        java: "ok | `N` = {A: 1, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s | -",
        reason: CLOSE_GIVES_BACK,
    },
];

pub(super) const WRITE: &[Difference] = &[
    Difference {
        label: "re-enter",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 30 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 60 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "re-enter by one attempt",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 30 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 60 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "re-enter that with a lease of 40 s",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 40 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 60 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "release the inner hold of 40 s",
        rust: "ok | `N` = {A:write: 1, mode: write} for 20 s | -",
        java: "ok | `N` = {A:write: 1, mode: write} for 40 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter a lease of 20 s with one of 5 s",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 20 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 25 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "release the inner hold of 5 s",
        rust: "ok | `N` = {A:write: 1, mode: write} for 20 s | -",
        java: "ok | `N` = {A:write: 1, mode: write} for 5 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 30 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 40 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "re-enter a renewed hold with a lease of 5 s",
        rust: "acquired=true | `N` = {A:write: 2, mode: write} for 30 s | -",
        java: "acquired=true | `N` = {A:write: 2, mode: write} for 35 s | -",
        reason: NOT_ADDED_UP,
    },
    Difference {
        label: "release that inner hold of 5 s",
        rust: "ok | `N` = {A:write: 1, mode: write} for 30 s | -",
        java: "ok | `N` = {A:write: 1, mode: write} for 5 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | - | -",
        java: "acquired=true | `N` = {A:write: 1, mode: write} for 1 s | -",
        reason: LOST_IS_LOST,
    },
    Difference {
        label: "renewal of a hold that somebody else gave 20 s",
        rust: "- | `N` = {A:write: 1, mode: write} for 19 s | -",
        java: "- | `N` = {A:write: 1, mode: write} for 3 s | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release after the end of the lease",
        rust: "not_owner | - | -",
        java: "not_owner | - | `1` on `redisson_rwlock:{N}`",
        reason: SAYS_NOTHING,
    },
    Difference {
        label: "release after it was forced open",
        rust: "not_owner | - | -",
        java: "not_owner | - | `1` on `redisson_rwlock:{N}`",
        reason: SAYS_NOTHING,
    },
    Difference {
        label: "close of the client that holds",
        rust: "ok | - | `1` on `redisson_rwlock:{N}`",
        java: "ok | `N` = {A:write: 1, mode: write} for 30 s | -",
        reason: CLOSE_GIVES_BACK,
    },
    Difference {
        label: "the writer steps down",
        rust: "ok | `N` = {A: 1, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s | `1` on `redisson_rwlock:{N}`",
        java: "ok | `N` = {A: 1, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s | -",
        reason: STEPS_DOWN_ALOUD,
    },
    Difference {
        label: "attempt of the only reader to write",
        rust: "already_held | `N` = {A: 1, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s | -",
        java: "acquired=false | `N` = {A: 1, mode: read} for 30 s; `{N}:A:rwlock_timeout:1` = 1 for 30 s | -",
        reason: NO_UPGRADE,
    },
];
