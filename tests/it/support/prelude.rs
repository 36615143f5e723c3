//! What about ten files of these tests and more name, for one line of `use` in each of them.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::Command;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use std::{fs, thread};

pub(crate) use crossbeam_channel::unbounded;
pub(crate) use lockson::{
    Cancel, Client, ClientBuilder, Error, ErrorKind, Guard, Lock, Loss, OwnedGuard, ReleaseBy, TokenOptions,
};
pub(crate) use lockson_harness::proxy::{Direction, Fate, NewConnections, Proxy, Request, Scope, Then, When};
pub(crate) use lockson_harness::{RedisCluster, RedisServer, eventually, slot_of};
pub(crate) use parking_lot::Mutex;

pub(crate) use super::faults::{PATIENCE, Rig};
pub(crate) use super::{
    Events, GRACE, Random, SCHEDULING, SOON, STANDSTILLS, TICK, TTL, alone, at_once, brisk, brisk_client, channel,
    client, elsewhere, fields, fresh, is_free, joined, kind_of, median, ms, open_peer, prefixed, timed, ttl_ms,
};
