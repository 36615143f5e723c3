//! Differences that several of the exclusive locks share.

use super::Difference;
use super::reason::{CLOSE_GIVES_BACK, KEPT_LEASE, LEASE_OF_THE_HANDLE, LOST_IS_LOST, NEVER_SHORTENED};

pub(super) const COUNTED: &[Difference] = &[
    Difference {
        label: "release the inner hold of 40 s",
        rust: "ok | `N` = {A: 1} for 20 s | -",
        java: "ok | `N` = {A: 1} for 40 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter a lease of 20 s with one of 5 s",
        rust: "acquired=true | `N` = {A: 2} for 20 s | -",
        java: "acquired=true | `N` = {A: 2} for 5 s | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release the inner hold of 5 s",
        rust: "ok | `N` = {A: 1} for 20 s | -",
        java: "ok | `N` = {A: 1} for 5 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter a lease of 20 s without a lease",
        rust: "acquired=true | `N` = {A: 2} for 30 s | -",
        java: "acquired=true | `N` = {A: 2} for 20 s | -",
        reason: LEASE_OF_THE_HANDLE,
    },
    Difference {
        label: "re-enter a renewed hold with a lease of 5 s",
        rust: "acquired=true | `N` = {A: 2} for 30 s | -",
        java: "acquired=true | `N` = {A: 2} for 5 s | -",
        reason: NEVER_SHORTENED,
    },
    Difference {
        label: "release that inner hold of 5 s",
        rust: "ok | `N` = {A: 1} for 30 s | -",
        java: "ok | `N` = {A: 1} for 5 s | -",
        reason: KEPT_LEASE,
    },
    Difference {
        label: "re-enter after the lease has ended",
        rust: "not_owner | - | -",
        java: "acquired=true | `N` = {A: 1} for 1 s | -",
        reason: LOST_IS_LOST,
    },
];

pub(super) const RENEWED: &[Difference] = &[Difference {
    label: "renewal of a hold that somebody else gave 20 s",
    rust: "- | `N` = {A: 1} for 19 s | -",
    java: "- | `N` = {A: 1} for 3 s | -",
    reason: NEVER_SHORTENED,
}];

pub(super) const CLOSED_ALOUD: &[Difference] = &[Difference {
    label: "close of the client that holds",
    rust: "ok | - | `0` on `redisson_lock__channel:{N}`",
    java: "ok | `N` = {A: 1} for 30 s | -",
    reason: CLOSE_GIVES_BACK,
}];

pub(super) const CLOSED_IN_SILENCE: &[Difference] = &[Difference {
    label: "close of the client that holds",
    rust: "ok | - | -",
    java: "ok | `N` = {A: 1} for 30 s | -",
    reason: CLOSE_GIVES_BACK,
}];
