//! Differences in the queue of the fair locks.

use super::Difference;
use super::reason::{SHORT_PATIENCE, TOLD_OF_LOSS};

pub(super) const QUEUED: &[Difference] = &[
    Difference {
        label: "release after the end of the lease",
        rust: "not_owner | - | -",
        java: "ok | - | -",
        reason: TOLD_OF_LOSS,
    },
    Difference {
        label: "release after it was forced open",
        rust: "not_owner | - | -",
        java: "ok | - | -",
        reason: TOLD_OF_LOSS,
    },
    Difference {
        label: "another thread waits",
        rust: "- | `N` = {A: 1} for 30 s; `redisson_lock_alive:{N}` = {B: in 5 s} for 86400 s; `redisson_lock_queue:{N}` = [B] for 86405 s; `redisson_lock_timeout:{N}` = {B: in 5 s} for 86405 s | -",
        java: "- | `N` = {A: 1} for 30 s; `redisson_lock_queue:{N}` = [B]; `redisson_lock_timeout:{N}` = {B: in 330 s} | -",
        reason: SHORT_PATIENCE,
    },
    Difference {
        label: "one joins the queue",
        rust: "- | `N` = {A: 1} for 30 s; `redisson_lock_alive:{N}` = {B: in 5 s} for 86400 s; `redisson_lock_queue:{N}` = [B] for 86405 s; `redisson_lock_timeout:{N}` = {B: in 5 s} for 86405 s | -",
        java: "- | `N` = {A: 1} for 30 s; `redisson_lock_queue:{N}` = [B]; `redisson_lock_timeout:{N}` = {B: in 330 s} | -",
        reason: SHORT_PATIENCE,
    },
    Difference {
        label: "one gives up behind them",
        rust: "acquired=false | `N` = {A: 1} for 30 s; `redisson_lock_alive:{N}` = {B: in 5 s, C: in 5 s} for 86400 s; `redisson_lock_queue:{N}` = [B, C] for 86405 s; `redisson_lock_timeout:{N}` = {B: in 5 s, C: in 5 s} for 86405 s | -",
        java: "acquired=false | `N` = {A: 1} for 30 s; `redisson_lock_queue:{N}` = [B, C]; `redisson_lock_timeout:{N}` = {B: in 330 s, C: in 350 s} | -",
        reason: SHORT_PATIENCE,
    },
    Difference {
        label: "release and grant to the head",
        rust: "acquired=true | `N` = {B: 1} for 30 s; `redisson_lock_alive:{N}` = {C: in 5 s} for 86400 s; `redisson_lock_queue:{N}` = [C] for 86405 s; `redisson_lock_timeout:{N}` = {C: in 5 s} for 86405 s | `0` on `redisson_lock__channel:{N}:B`",
        java: "acquired=true | `N` = {B: 1} for 30 s; `redisson_lock_queue:{N}` = [C]; `redisson_lock_timeout:{N}` = {C: in 50 s} | `0` on `redisson_lock__channel:{N}:B`",
        reason: SHORT_PATIENCE,
    },
    Difference {
        label: "another joins with a limit of 20 s",
        rust: "- | `N` = {A: 1} for 30 s; `redisson_lock_alive:{N}` = {B: in 5 s, C: in 5 s} for 86400 s; `redisson_lock_queue:{N}` = [B, C] for 86405 s; `redisson_lock_timeout:{N}` = {B: in 5 s, C: in 5 s} for 86405 s | -",
        java: "- | `N` = {A: 1} for 30 s; `redisson_lock_queue:{N}` = [B, C]; `redisson_lock_timeout:{N}` = {B: in 330 s, C: in 350 s} | -",
        reason: SHORT_PATIENCE,
    },
];
