//! Differences of semaphores and of expiring permits.

use super::Difference;
use super::reason::{COUNTS_ONLY, KEPT_PERMITS, NO_NEGATIVE_NUMBER, TELLS_WHAT_IS_FREE};

pub(super) const PERMITS: &[Difference] = &[
    Difference {
        label: "take 1 without a lease",
        rust: "acquired=true | `N` = 2; `{N}:timeout` = {permit 1: in 30 s} | -",
        java: "acquired=true | `N` = 2; `{N}:timeout` = {permit 1: never} | -",
        reason: KEPT_PERMITS,
    },
    Difference {
        label: "take 1 with a lease of 20 s",
        rust: "acquired=true | `N` = 1; `{N}:timeout` = {permit 1: in 30 s, permit 2: in 20 s} | -",
        java: "acquired=true | `N` = 1; `{N}:timeout` = {permit 1: never, permit 2: in 20 s} | -",
        reason: KEPT_PERMITS,
    },
    Difference {
        label: "attempt to take 2 of 1",
        rust: "acquired=false | `N` = 1; `{N}:timeout` = {permit 1: in 30 s, permit 2: in 20 s} | -",
        java: "acquired=false | `N` = 1; `{N}:timeout` = {permit 1: never, permit 2: in 20 s} | -",
        reason: KEPT_PERMITS,
    },
    Difference {
        label: "add 2",
        rust: "ok | `N` = 3; `{N}:timeout` = {permit 1: in 30 s, permit 2: in 20 s} | `3` on `redisson_sc:{N}`",
        java: "ok | `N` = 3; `{N}:timeout` = {permit 1: never, permit 2: in 20 s} | `2` on `redisson_sc:{N}`",
        reason: TELLS_WHAT_IS_FREE,
    },
    Difference {
        label: "set 9 in all",
        rust: "ok | `N` = 7; `{N}:timeout` = {permit 1: in 30 s, permit 2: in 20 s} | `7` on `redisson_sc:{N}`",
        java: "ok | `N` = 7; `{N}:timeout` = {permit 1: never, permit 2: in 20 s} | `9` on `redisson_sc:{N}`",
        reason: TELLS_WHAT_IS_FREE,
    },
    Difference {
        label: "count the free ones after a lease has ended",
        rust: "permits=1 | `N` = 0; `{N}:timeout` = {permit 1: in 0 s} | `1` on `redisson_sc:{N}`",
        java: "permits=1 | `N` = 1 | `1` on `redisson_sc:{N}`; `1` on `redisson_sc:{N}`",
        reason: COUNTS_ONLY,
    },
];

pub(super) const SEMAPHORE: &[Difference] = &[
    Difference {
        label: "take 6 off",
        rust: "ok | `N` = -6 | -",
        java: "ok | `N` = -6 | `-6` on `redisson_sc:{N}`",
        reason: NO_NEGATIVE_NUMBER,
    },
    Difference {
        label: "give 1 back below zero",
        rust: "ok | `N` = -5 | -",
        java: "ok | `N` = -5 | `-5` on `redisson_sc:{N}`",
        reason: NO_NEGATIVE_NUMBER,
    },
];
