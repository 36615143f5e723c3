//! Differences of locks with several names.

use super::Difference;
use super::reason::{KEPT_LEASE, LEASE_OF_THE_HANDLE, LOST_IS_LOST, RELEASE_CHECKED, SILENT_PART};

pub(super) const GROUP: &[Difference] = &[
    Difference {
        label: "partial release",
        rust: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 30 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 30 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 30 s | -",
        java: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 30 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 30 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 30 s | `0` on `redisson_lock__channel:{N}`",
        reason: SILENT_PART,
    },
    Difference {
        label: "release the inner hold of 40 s",
        rust: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 40 s | -",
        java: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 40 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 40 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 40 s | `0` on `redisson_lock__channel:{N}`",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "release the inner hold of 5 s",
        rust: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 20 s | -",
        java: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 20 s | `0` on `redisson_lock__channel:{N}`",
        reason: SILENT_PART,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: "acquired=true | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, \
               EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 30 s, EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 2, \
               Ph/Z8+pF97YXC7Yyc2g0ug: A, Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 30 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 2} for 30 s | -",
        java: "acquired=true | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, \
               EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 2, \
               Ph/Z8+pF97YXC7Yyc2g0ug: A, Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 2} for 20 s | -",
        reason: LEASE_OF_THE_HANDLE,
    },
    Difference {
        label: "release the inner hold without a lease",
        rust: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 30 s | -",
        java: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 20 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 20 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 20 s | `0` on `redisson_lock__channel:{N}`",
        reason: SILENT_PART,
    },
    Difference {
        label: "release that inner hold of 5 s",
        rust: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 30 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 30 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 30 s | -",
        java: "ok | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 30 s, \
               EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, Ph/Z8+pF97YXC7Yyc2g0ug: A, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 30 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 30 s | `0` on `redisson_lock__channel:{N}`",
        reason: SILENT_PART,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | - | -",
        java: "acquired=true | `N` = {EEVdGbCeicdE4Q/nXLdQNA: A, \
               EEVdGbCeicdE4Q/nXLdQNA:A:expire_time: in 1 s, EEVdGbCeicdE4Q/nXLdQNA:A:lock_count: 1, \
               Ph/Z8+pF97YXC7Yyc2g0ug: A, Ph/Z8+pF97YXC7Yyc2g0ug:A:expire_time: in 1 s, \
               Ph/Z8+pF97YXC7Yyc2g0ug:A:lock_count: 1} for 1 s | -",
        reason: LOST_IS_LOST,
    },
];

pub(super) const RED: &[Difference] = &[Difference {
    label: "release by another thread",
    rust: "not_owner | `N:a` = {A: 1} for 20 s | -",
    java: "ok | `N:a` = {A: 1} for 20 s | -",
    reason: RELEASE_CHECKED,
}];
