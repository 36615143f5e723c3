//! Differences of the fenced lock.

use super::Difference;
use super::reason::{CLOSE_GIVES_BACK, KEPT_LEASE, LEASE_OF_THE_HANDLE, LOST_IS_LOST, NEVER_SHORTENED, STABLE_TOKEN};

pub(super) const FENCED: &[Difference] = &[
    Difference {
        label: "re-enter",
        rust: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "partial release",
        rust: "ok | `N` = {A: 1} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "ok | `N` = {A: 1} for 30 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "last release",
        rust: "ok | `redisson_lock_token:{N}` = token 1 | `0` on `redisson_lock__channel:{N}`",
        java: "ok | `redisson_lock_token:{N}` = token 2 | `0` on `redisson_lock__channel:{N}`",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "re-enter by one attempt",
        rust: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "re-enter that with a lease of 40 s",
        rust: "acquired=true | `N` = {A: 2} for 40 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 40 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "release the inner hold of 40 s",
        rust: "ok | `N` = {A: 1} for 20 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "ok | `N` = {A: 1} for 40 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "release the outer hold of 20 s",
        rust: "ok | `redisson_lock_token:{N}` = token 1 | `0` on `redisson_lock__channel:{N}`",
        java: "ok | `redisson_lock_token:{N}` = token 2 | `0` on `redisson_lock__channel:{N}`",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "re-enter a lease of 20 s with one of 5 s",
        rust: "acquired=true | `N` = {A: 2} for 20 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 5 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release the inner hold of 5 s",
        rust: "ok | `N` = {A: 1} for 20 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "ok | `N` = {A: 1} for 5 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 20 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: LEASE_OF_THE_HANDLE,
    },
    Difference {
        label: "release the inner hold without a lease",
        rust: "ok | `N` = {A: 1} for 20 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "ok | `N` = {A: 1} for 20 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: STABLE_TOKEN,
    },
    Difference {
        label: "re-enter a renewed hold with a lease of 5 s",
        rust: "acquired=true | `N` = {A: 2} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 2} for 5 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release that inner hold of 5 s",
        rust: "ok | `N` = {A: 1} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "ok | `N` = {A: 1} for 5 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | `redisson_lock_token:{N}` = token 1 | -",
        java: "acquired=true | `N` = {A: 1} for 1 s; `redisson_lock_token:{N}` = token 2 | -",
        reason: LOST_IS_LOST,
    },
    Difference {
        label: "renewal of a hold that somebody else gave 20 s",
        rust: "- | `N` = {A: 1} for 19 s; `redisson_lock_token:{N}` = token 1 | -",
        java: "- | `N` = {A: 1} for 3 s; `redisson_lock_token:{N}` = token 1 | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "close of the client that holds",
        rust: "ok | `redisson_lock_token:{N}` = token 1 | `0` on `redisson_lock__channel:{N}`",
        java: "ok | `N` = {A: 1} for 30 s; `redisson_lock_token:{N}` = token 1 | -",
        reason: CLOSE_GIVES_BACK,
    },
];
