//! The scripts of the read-write lock on a cluster, while the slot of the lock migrates.
#![cfg(test)]

use lockson_harness::{RedisCluster, RedisServer, slot_of};
use redis::ConnectionLike;

use super::*;
use crate::script::tests::{run, run_at_cluster};
use crate::transport::PubSub;

const WRITE: ReadWrite = ReadWrite { side: Side::Exclusive, on_cluster: true };

/// A lock on a cluster of two masters, whose slot goes from one to the other.
struct Scene {
    cluster: RedisCluster,
    name: LockName,
    slot: u16,
    to: usize,
}

impl Scene {
    fn new() -> Self {
        let cluster = RedisCluster::start(2, 0);
        let name = LockName::new("n").unwrap();
        let to = 1 - cluster.node_of("n");
        Self { cluster, slot: slot_of("n"), name, to }
    }

    fn run<T>(&self, call: &Call<T>) -> Result<T, String> {
        run_at_cluster(&self.cluster, call)
    }

    fn take(&self, side: Side, owner: &OwnerId) -> Result<Attempt, String> {
        let args = AcquireArgs { name: &self.name, owner, lease: lease(600_000), waits: true };
        self.run(&ReadWrite { side, ..WRITE }.acquire(&args))
    }

    fn read(&self, owner: &OwnerId) -> Result<Attempt, String> {
        self.take(Side::Shared, owner)
    }

    fn write(&self, owner: &OwnerId) -> Result<Attempt, String> {
        self.take(Side::Exclusive, owner)
    }

    fn release(&self, owner: &OwnerId) -> Result<Released, String> {
        self.run(&WRITE.release(&self.name, owner, None))
    }

    fn renew(&self, owner: &OwnerId, reads: usize) -> Result<Vec<RenewalAnswer>, String> {
        let raise = Raise { lease: lease(1_200_000), endless: lease(1_200_000) };
        let renewal = Renewal { name: self.name.clone(), owner: owner.clone(), raise, reads };
        self.run(&WRITE.renew(&[renewal]))
    }

    /// Moves the hash of the lock, or the keys of its read holds.
    fn move_some(&self, hash: bool) {
        self.cluster.begin_move(self.slot, self.to);
        assert!(self.cluster.move_keys(self.slot, self.to, |key| (key == b"n") == hash) > 0);
    }

    fn finish(&self) {
        self.cluster.finish_move(self.slot, self.to);
    }
}

fn lease(millis: u64) -> Lease {
    Lease::new(std::time::Duration::from_millis(millis)).unwrap()
}

fn owner(name: &str) -> OwnerId {
    OwnerId::encoded(format!("client:{name}"))
}

fn is_granted(attempt: Result<Attempt, String>) -> bool {
    attempt == Ok(Attempt::Granted { token: None })
}

#[test]
fn a_reader_keeps_a_lock_whose_slot_migrates() {
    let check = |hash_first| {
        let (one, two, writer) = (owner("1"), owner("2"), owner("3"));
        let scene = Scene::new();
        assert!(is_granted(scene.read(&one)) && is_granted(scene.read(&two)));
        scene.move_some(hash_first);
        assert_eq!(scene.release(&one).unwrap_err(), "TRYAGAIN", "the other reader's key may be on the other server");
        assert!(!is_granted(scene.write(&writer)), "both readers hold");
        assert_eq!(scene.renew(&two, 1).unwrap_err(), "TRYAGAIN");
        scene.finish();
        assert_eq!(scene.renew(&two, 1), Ok(vec![RenewalAnswer::Renewed]));
        assert!(matches!(scene.release(&one), Ok(Ok(_))));
        assert!(matches!(scene.write(&writer), Ok(Attempt::Busy { ttl_ms: 600_001.. })), "the second reader holds");
        assert!(matches!(scene.release(&two), Ok(Ok(_))));
        assert!(is_granted(scene.write(&writer)));
    };
    // A cluster takes seconds to start.
    std::thread::scope(|scope| [true, false].map(|hash_first| drop(scope.spawn(move || check(hash_first)))));
}

#[test]
fn a_writer_is_released_at_either_side_of_a_migration() {
    let scene = Scene::new();
    let (one, two) = (owner("1"), owner("2"));
    assert!(is_granted(scene.write(&one)));
    scene.cluster.begin_move(scene.slot, scene.to);
    assert_eq!(scene.renew(&one, 0), Ok(vec![RenewalAnswer::Renewed]));
    assert!(matches!(scene.release(&one), Ok(Ok(_))));
    assert!(is_granted(scene.write(&two)), "at the target");
    assert!(matches!(scene.write(&one), Ok(Attempt::Busy { .. })));
    assert!(matches!(scene.release(&two), Ok(Ok(_))));
    scene.cluster.finish_move(scene.slot, scene.to);
    assert!(is_granted(scene.write(&one)));
}

#[test]
fn a_release_learns_of_every_other_reader() {
    let scene = Scene::new();
    let owners = ["1", "2", "3"].map(owner);
    for owner in &owners {
        assert!(is_granted(scene.read(owner)));
    }
    let counts = Counts { exclusive: 0, shared: 3 };
    let raise = Raise { lease: lease(50_000), endless: lease(50_000) };
    assert_eq!(scene.run(&WRITE.reenter(&scene.name, &owners[2], raise, counts)), Ok(Ok(())));
    assert!(matches!(scene.release(&owners[0]), Ok(Ok(_))));
    let others = release(&scene.name, &owners[1], None, Some(&[]));
    let Ok(Err(Readers(readers))) = scene.run(&others) else { panic!("nothing may be done") };
    assert_eq!(readers, [(owners[2].to_string(), 3)]);
    assert!(matches!(scene.release(&owners[1]), Ok(Ok(_))));
    assert!(matches!(scene.write(&owners[1]), Ok(Attempt::Busy { ttl_ms: 40_000.. })));
    assert!(matches!(scene.release(&owners[2]), Ok(Ok(_))));
    let master = scene.cluster.node(1 - scene.to);
    assert_eq!(master.keys(), <[&str; 0]>::default());
}

/// Where readers come all the time, a release that forgets some while it learns of others never ends.
#[test]
fn a_release_keeps_the_readers_it_knows_beside_a_new_one() {
    let (server, name) = (RedisServer::start(), LockName::new("n").unwrap());
    let [leaving, other, coming] = ["1", "2", "3"].map(owner);
    let read = |owner: &OwnerId| {
        let args = AcquireArgs { name: &name, owner, lease: lease(600_000), waits: true };
        assert!(run(&server, &ReadWrite { side: Side::Shared, ..WRITE }.acquire(&args)).is_granted());
    };
    read(&leaving);
    read(&other);
    let (mut connection, mut has_come) = (server.connection(), false);
    let release = WRITE.release(&name, &leaving, None);
    let outcome = release.round_trips().unwrap()(
        &mut |commands| {
            let replies: Vec<Value> = commands.iter().map(|one| connection.req_command(one).unwrap()).collect();
            if matches!(list(&replies[0]), Some([Value::Int(3), ..])) && !std::mem::replace(&mut has_come, true) {
                read(&coming);
            }
            Ok(replies)
        },
        PubSub::Plain,
    );
    assert!(has_come && matches!(outcome, Ok(Ok(_))), "{outcome:?}");
}
