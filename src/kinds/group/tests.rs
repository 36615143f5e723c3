//! The scripts of the group lock against a server.
#![cfg(test)]

use std::collections::BTreeMap;

use lockson_harness::RedisServer;

use crate::kinds::group::*;
use crate::kinds::tests as plain;
use crate::name::GivenName;
use crate::script::tests::{changes_nothing, heard, run, run_at, run_pipeline, url_of_user};

/// Values of a group, with an owner for each.
struct Values {
    names: Vec<LockName>,
    owners: Vec<OwnerId>,
    lease: Lease,
    skew_ms: u64,
}

impl Values {
    fn of(values: &[&str]) -> Self {
        Self::owned_by("me", values)
    }

    fn owned_by(client: &str, values: &[&str]) -> Self {
        let name = |value: &&str| GivenName::of_value(&GROUP.into(), value).checked().unwrap().clone();
        let owners = (1..=values.len()).map(|hold| OwnerId::encoded(format!("{client}:1.{hold}"))).collect();
        Self { names: values.iter().map(name).collect(), owners, lease: lease(30_000), skew_ms: 0 }
    }

    fn kind(&self) -> Group {
        Group { skew_ms: self.skew_ms }
    }

    fn acquire(&self) -> Call<BundleAttempt> {
        let part = |(name, owner)| AcquireArgs { name, owner, lease: self.lease, waits: true };
        self.kind().acquire_all(&self.names.iter().zip(&self.owners).map(part).collect::<Vec<_>>())
    }

    fn release(&self) -> Call<Vec<Released>> {
        let part = |(name, owner)| BundleRelease { name, owner, channel: Joined::of(CHANNEL) };
        self.kind().release_all(&self.names.iter().zip(&self.owners).map(part).collect::<Vec<_>>())
    }

    fn renew(&self) -> Call<Vec<RenewalAnswer>> {
        let raise = Raise { lease: self.lease, endless: self.lease };
        let renewal = |(name, owner): (&LockName, &OwnerId)| Renewal {
            name: name.clone(),
            owner: owner.clone(),
            raise,
            reads: 0,
        };
        self.kind().renew(&self.names.iter().zip(&self.owners).map(renewal).collect::<Vec<_>>())
    }

    fn look(&self) -> Call<Vec<RenewalAnswer>> {
        let claim =
            |(name, owner): (&LockName, &OwnerId)| Claim { name: name.clone(), owner: owner.clone(), left: self.lease };
        self.kind().look(&self.names.iter().zip(&self.owners).map(claim).collect::<Vec<_>>())
    }

    fn field(&self, value: usize) -> &str {
        self.names[value].field()
    }

    fn fields(&self) -> Vec<&str> {
        self.names.iter().map(LockName::field).collect()
    }
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).unwrap()
}

fn hash(server: &RedisServer) -> BTreeMap<String, String> {
    server.query(&["HGETALL", GROUP])
}

fn ttl(server: &RedisServer) -> i64 {
    server.query(&["PTTL", GROUP])
}

/// The time until the deadline of a hold, by the clock of the server.
fn left(server: &RedisServer, field: &str, owner: &str) -> i64 {
    let now: (i64, i64) = server.query(&["TIME"]);
    let deadline: i64 = server.query(&["HGET", GROUP, &format!("{field}:{owner}:expire_time")]);
    deadline - now.0 * 1_000 - now.1 / 1_000
}

fn is_granted(server: &RedisServer, values: &Values) -> bool {
    run(server, &values.acquire()) == BundleAttempt::Granted { token: None }
}

#[track_caller]
fn refused(attempt: BundleAttempt) -> Vec<PartState> {
    match attempt {
        BundleAttempt::Refused(states) => states,
        BundleAttempt::Granted { .. } => panic!("granted"),
    }
}

fn reenter(name: &LockName, owner: &OwnerId, lease: Lease, count: usize, skew_ms: u64) -> Call<Result<(), Loss>> {
    let counts = Counts { exclusive: count, shared: 0 };
    Group { skew_ms }.reenter(name, owner, Raise { lease, endless: lease }, counts)
}

fn release(name: &LockName, owner: &OwnerId, remaining: Option<(usize, Lease)>, skew_ms: u64) -> Call<Released> {
    let remaining = remaining.map(|(exclusive, lease)| (Counts { exclusive, shared: 0 }, lease));
    Group { skew_ms }.release(name, owner, remaining)
}

const NO_SKEW: Group = Group { skew_ms: 0 };
const GROUP: &str = "class:1000";
const CHANNEL: &str = "redisson_lock__channel:{class:1000}";
const NEARLY_30_S: std::ops::RangeInclusive<i64> = 25_000..=30_000;
const BUSY: fn(&PartState) -> bool =
    |state| matches!(state, PartState::Told(Attempt::Busy { ttl_ms: 25_000..=30_000 }));
const DONE: Released = Ok(Some(0));

#[test]
fn a_grant_writes_what_redisson_writes() {
    let server = RedisServer::start();
    let values = Values::of(&["student:001", "student:002"]);
    assert!(is_granted(&server, &values));
    let ours = hash(&server);
    assert_eq!(ours["DqvoYruF5eyLDrILcprmBw"], "me:1.1");
    assert_eq!(ours["Lcoy0ji/MncMvbqDj+KCvA:me:1.2:lock_count"], "1");
    for (field, owner) in values.fields().into_iter().zip(["me:1.1", "me:1.2"]) {
        assert!(NEARLY_30_S.contains(&left(&server, field, owner)));
    }
    assert!(NEARLY_30_S.contains(&ttl(&server)));
    assert_eq!(run(&server, &values.release()), [DONE, DONE]);
    assert!(server.keys().is_empty());
}

#[test]
fn one_busy_value_refuses_all_and_changes_nothing() {
    let server = RedisServer::start();
    assert!(is_granted(&server, &Values::owned_by("other", &["b"])));
    let states = refused(changes_nothing(&server, &Values::of(&["a", "b", "c"]).acquire()));
    assert!(BUSY(&states[1]), "{states:?}");
    assert_eq!([&states[0], &states[2]], [&PartState::Free; 2]);
    assert!(is_granted(&server, &Values::of(&["a", "c"])), "other values are other locks");
    // The key ends earlier than the deadline.
    server.run(&["PEXPIRE", GROUP, "5000"]);
    let states = refused(run(&server, &Values::of(&["b"]).acquire()));
    assert!(matches!(states[..], [PartState::Told(Attempt::Busy { ttl_ms: 1..=5_000 })]), "{states:?}");
}

#[test]
fn a_repeated_request_is_granted_again_and_lowers_nothing() {
    let server = RedisServer::start();
    let (values, mut shorter) = (Values::of(&["a", "b"]), Values::of(&["a", "b", "c"]));
    shorter.lease = lease(5_000);
    assert!(is_granted(&server, &values) && is_granted(&server, &shorter));
    assert!(NEARLY_30_S.contains(&left(&server, values.field(0), "me:1.1")) && NEARLY_30_S.contains(&ttl(&server)));
    assert!((1..=5_000).contains(&left(&server, shorter.field(2), "me:1.3")));
    let mut longer = Values::of(&["a", "b", "c"]);
    longer.lease = lease(60_000);
    assert!(is_granted(&server, &longer));
    assert!((50_000..=60_000).contains(&left(&server, values.field(0), "me:1.1")) && ttl(&server) > 50_000);
    let counts = hash(&server).into_iter().filter(|(field, _)| field.ends_with("lock_count"));
    assert_eq!(counts.map(|(_, count)| count).collect::<Vec<_>>(), ["1", "1", "1"]);
}

#[test]
fn no_request_lowers_the_time_to_live_of_the_group() {
    let server = RedisServer::start();
    let (long, mut short) = (Values::of(&["long"]), Values::owned_by("short", &["short"]));
    short.lease = lease(2_000);
    let is_long = || assert!(NEARLY_30_S.contains(&ttl(&server)), "{}", ttl(&server));
    assert!(is_granted(&server, &long) && is_granted(&server, &short));
    is_long();
    let (name, owner) = (&short.names[0], &short.owners[0]);
    assert_eq!(run(&server, &reenter(name, owner, lease(3_000), 2, 0)), Ok(()));
    is_long();
    assert_eq!(run(&server, &release(name, owner, Some((1, lease(2_000))), 0)), DONE);
    is_long();
    assert_eq!(run(&server, &short.renew()), [RenewalAnswer::Renewed]);
    is_long();
    assert_eq!(run(&server, &long.release()), [DONE]);
    assert!(ttl(&server) > 0 && (1..=2_000).contains(&left(&server, short.field(0), owner.as_str())));
    // Another client removed the expiry.
    server.run(&["PERSIST", GROUP]);
    assert!(is_granted(&server, &long));
    run(&server, &long.renew());
    assert_eq!(ttl(&server), -1);
}

#[test]
fn counts_and_deadlines_are_those_of_one_value() {
    let server = RedisServer::start();
    let values = Values::of(&["a", "b"]);
    assert!(is_granted(&server, &values));
    let (name, owner, field) = (&values.names[0], &values.owners[0], values.field(0));
    assert_eq!(run(&server, &reenter(name, owner, lease(90_000), 2, 0)), Ok(()));
    assert_eq!(hash(&server)[&format!("{field}:me:1.1:lock_count")], "2");
    assert!(left(&server, field, "me:1.1") > 80_000 && ttl(&server) > 80_000);
    assert!(NEARLY_30_S.contains(&left(&server, values.field(1), "me:1.2")));
    assert_eq!(run(&server, &reenter(name, owner, lease(1_000), 3, 0)), Ok(()));
    assert!(left(&server, field, "me:1.1") > 80_000, "a re-entry lowers nothing");
    // The inner hour ends with its guard.
    assert_eq!(changes_no_other(&server, &release(name, owner, Some((1, lease(20_000))), 0)), DONE);
    assert_eq!(hash(&server)[&format!("{field}:me:1.1:lock_count")], "1");
    assert!((15_000..=20_000).contains(&left(&server, field, "me:1.1")));
    assert_eq!(run(&server, &release(name, owner, None, 0)), DONE);
    assert_eq!(run(&server, &reenter(name, owner, lease(9_000), 2, 0)), Err(Loss::Gone));
    assert!(is_granted(&server, &Values::owned_by("other", &["a"])));
    assert_eq!(run(&server, &reenter(name, owner, lease(9_000), 2, 0)), Err(Loss::Taken));
    assert_eq!(run(&server, &values.renew()), [RenewalAnswer::Lost(Loss::Taken), RenewalAnswer::Renewed]);
}

/// Runs a call and expects no message.
fn changes_no_other<T>(server: &RedisServer, call: &Call<T>) -> T {
    let (answer, messages) = heard(server, "*", || run(server, call));
    assert_eq!(messages, []);
    answer
}

#[test]
fn a_release_of_several_values_publishes_once() {
    let server = RedisServer::start();
    let mut values = Values::of(&["gone", "a", "b", "taken"]);
    assert!(is_granted(&server, &values));
    for lost in ["gone", "taken"] {
        let name = Values::of(&[lost]).names[0].clone();
        assert!(run(&server, &NO_SKEW.force_release(&name)).unwrap());
    }
    assert!(is_granted(&server, &Values::owned_by("other", &["taken"])));
    let (answers, messages) = heard(&server, CHANNEL, || run(&server, &values.release()));
    assert_eq!(answers, [Err(Loss::Gone), Ok(Some(1)), Ok(Some(0)), Err(Loss::Taken)]);
    assert_eq!(messages, [(CHANNEL.to_owned(), "0".to_owned())]);
    values = Values::owned_by("other", &["taken"]);
    server.run(&["SET", GROUP, "text"]);
    assert_eq!(run(&server, &values.release()), [Err(Loss::Taken)]);
}

#[test]
fn a_difference_of_clocks_is_allowed_for_on_both_sides() {
    let server = RedisServer::start();
    let mut values = Values::of(&["a"]);
    (values.skew_ms, values.lease) = (60_000, lease(10_000));
    assert!(is_granted(&server, &values));
    let (name, owner) = (&values.names[0], &values.owners[0]);
    let is_longer = || (65_000..=70_000).contains(&left(&server, values.field(0), "me:1.1")) && ttl(&server) > 65_000;
    let ends_soon = || {
        server.run(&["HSET", GROUP, &format!("{}:me:1.1:expire_time", values.field(0)), "1"]);
        server.run(&["PEXPIRE", GROUP, "1000"]);
    };
    assert!(is_longer());
    ends_soon();
    run(&server, &reenter(name, owner, values.lease, 2, values.skew_ms)).unwrap();
    assert!(is_longer());
    ends_soon();
    run(&server, &release(name, owner, Some((1, values.lease)), values.skew_ms)).unwrap();
    assert!(is_longer());
    ends_soon();
    run(&server, &values.renew());
    assert!(is_longer());
    run(&server, &values.release()).remove(0).unwrap();

    // The machine of this one is behind by the skew.
    assert!(is_granted(&server, &Values::owned_by("other", &["a"])));
    server.run(&["HINCRBY", GROUP, &format!("{}:other:1.1:expire_time", values.field(0)), "-60000"]);
    let states = refused(run(&server, &values.acquire()));
    assert!(BUSY(&states[0]), "the hold goes on there: {states:?}");
    assert!(run(&server, &values.kind().hold(&values.names[0])).is_some());
    assert!(run(&server, &NO_SKEW.hold(&values.names[0])).is_none());
}

#[test]
fn keys_of_other_kinds_are_refused() {
    let server = RedisServer::start();
    let values = Values::of(&["a", "b"]);
    let other_kind = |server: &RedisServer| {
        let states = refused(changes_nothing(server, &values.acquire()));
        assert_eq!(states, [PartState::Told(Attempt::OtherKind), PartState::Told(Attempt::OtherKind)]);
        let (name, owner) = (&values.names[0], &values.owners[0]);
        let single = NO_SKEW.acquire(&AcquireArgs { name, owner, lease: values.lease, waits: true });
        assert_eq!(run(server, &single), Attempt::OtherKind);
    };
    let whole = values.names[0].whole();
    run(&server, &plain::acquire(&whole, &values.owners[0], values.lease));
    other_kind(&server);
    server.run(&["DEL", GROUP]);
    server.run(&["HSET", GROUP, "mode", "read", "someone", "1"]);
    other_kind(&server);
    server.run(&["SET", GROUP, "text"]);
    assert_eq!(run_at(&server.url(), &values.acquire()), Err("WRONGTYPE".to_owned()));
    assert!(matches!(&run(&server, &values.renew())[..], [RenewalAnswer::Lost(Loss::Taken), _]));
    // A group is no plain lock.
    server.run(&["DEL", GROUP]);
    assert!(is_granted(&server, &values));
    let attempt = run(&server, &plain::acquire(&whole, &OwnerId::encoded("other"), values.lease));
    assert_eq!(attempt, Attempt::OtherKind);
}

#[test]
fn a_user_without_a_right_takes_nothing() {
    for is_used in [false, true] {
        let server = RedisServer::start();
        let (values, other) = (Values::of(&["a", "b", "c"]), Values::owned_by("other", &["other"]));
        for denied in ["time", "hlen", "hget", "hset", "hdel", "pexpire", "pttl"] {
            if is_used {
                is_granted(&server, &other);
            }
            let before = hash(&server);
            let url = url_of_user(&server, &["~*", "+@all", &format!("-{denied}")]);
            assert_eq!(run_at(&url, &values.acquire()), Err("NOPERM".to_owned()), "without {denied}");
            // A user without the right to remove fields leaves holds that have expired.
            if denied == "hdel" && is_used {
                assert!(run(&server, &NO_SKEW.hold(&values.names[0])).is_none());
                assert!(is_granted(&server, &values));
                run(&server, &values.release());
            }
            assert_eq!(hash(&server), before, "without {denied}");
        }
    }
}

#[test]
fn a_full_memory_refuses_new_holds_and_no_others() {
    let server = RedisServer::start();
    let (values, held) = (Values::of(&["a", "b"]), Values::owned_by("other", &["c", "d"]));
    assert!(is_granted(&server, &held));
    let before = hash(&server);
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(run_at(&server.url(), &values.acquire()), Err("OOM".to_owned()));
    let mixed = Values::owned_by("other", &["c", "d", "e"]);
    assert_eq!(run_at(&server.url(), &mixed.acquire()), Err("OOM".to_owned()));
    assert_eq!(hash(&server), before);
    assert!(is_granted(&server, &held));
    let (name, owner) = (&held.names[0], &held.owners[0]);
    assert_eq!(run(&server, &reenter(name, owner, lease(60_000), 2, 0)), Ok(()));
    assert_eq!(run(&server, &release(name, owner, Some((1, lease(90_000))), 0)), DONE);
    let mut longer = Values::owned_by("other", &["c", "d"]);
    longer.lease = lease(120_000);
    assert_eq!(run(&server, &longer.renew()), [RenewalAnswer::Renewed, RenewalAnswer::Renewed]);
    assert!(left(&server, held.field(1), "other:1.2") > 110_000);
    assert_eq!(run(&server, &held.release()), [DONE, DONE]);
}

#[test]
fn forcing_a_value_open_leaves_the_others_and_publishes() {
    let server = RedisServer::start();
    let values = Values::of(&["a", "b"]);
    assert!(is_granted(&server, &values));
    let force = NO_SKEW.force_release(&values.names[0]);
    let (forced, messages) = heard(&server, CHANNEL, || [run(&server, &force), run(&server, &force)]);
    assert_eq!((forced, messages), ([Ok(true), Ok(false)], vec![(CHANNEL.to_owned(), "0".to_owned())]));
    assert_eq!(run_pipeline(&server, &values.look()), [RenewalAnswer::Lost(Loss::Gone), RenewalAnswer::Renewed]);
    assert_eq!(hash(&server).len(), 3);
}
