//! Several processes at one lock: exclusion by a witness without Redis, and killed and stopped holders.

use lockson_harness::{Peer, Ticket, Witness};

use crate::faults::other_process::OtherProcess;
use crate::support::encode;
use crate::support::prelude::*;

/// The time to live in the peers of these tests.
const TTL: Duration = Duration::from_millis(2_000);

#[test]
fn three_processes_of_eight_threads_exclude_each_other() {
    let mut scene = Scene::new();
    let mut peers = [scene.peer(), scene.peer(), scene.peer()];
    let running = peers.each_mut().map(|peer| scene.start_loops(peer, "duration_ms=1000 hold_us=100"));
    let mut grants = 0;
    for (peer, loops) in peers.iter_mut().zip(running) {
        let before = grants;
        for id in loops {
            let told = peer.answer(id, SOON).expect_ok();
            assert_eq!(
                [told.number("violations"), told.number("takeovers"), told.number("lost"), told.number("errors")],
                [0; 4],
                "{told:?}"
            );
            grants += told.number("grants");
        }
        assert!(grants >= before + 8, "{grants} grants after {before}");
    }
    assert_eq!(scene.counter(), grants, "an update was lost");
    Witness::at(&scene.folder).assert_no_violation();
    assert!(scene.server.keys().is_empty());
}

#[test]
fn killed_holders_leave_no_overlap_and_no_lost_update() {
    kills(3);
}

#[test]
fn killed_holders_of_one_permit_leave_no_overlap() {
    let mut scene = Scene { kind: "permits", ..Scene::new() };
    let permits = Client::connect(&scene.server.url()).unwrap().get_permit_expirable_semaphore("job");
    permits.set_permits(1).unwrap();
    kills_in(&mut scene, 3);
    let counts = (permits.available().unwrap(), permits.acquired().unwrap());
    assert_eq!(counts, (1, 0), "no permit was lost or invented");
}

/// Kills this number of processes while they are inside, with others waiting.
pub(crate) fn kills(kills: i64) {
    kills_in(&mut Scene::new(), kills);
}

fn kills_in(scene: &mut Scene, kills: i64) {
    let how = "duration_ms=60000 hold_us=3000";
    let start_one = |scene: &mut Scene| {
        let mut peer = scene.peer();
        let loops = scene.start_loops(&mut peer, how);
        (peer, loops)
    };
    let mut peers: Vec<_> = (0..3).map(|_| start_one(scene)).collect();
    for _ in 0..kills {
        let victim = kill_the_process_inside(scene, &mut peers);
        let killed = Instant::now();
        eventually(SOON, "another thread is inside", || scene.inside().is_some_and(|pid| pid != victim));
        assert!(killed.elapsed() <= TTL + ms(1_000) + SCHEDULING, "{:?}", killed.elapsed());
        peers.retain(|(peer, _)| peer.pid() != victim);
        peers.push(start_one(scene));
    }
    let mut takeovers = 0;
    for (peer, loops) in &mut peers {
        (0..8).for_each(|thread| drop(peer.ask(&format!("interrupt thread={thread}")).expect_ok()));
        for id in loops {
            let told = peer.answer(*id, SOON).expect_ok();
            takeovers += told.number("takeovers");
            assert_eq!((told.number("errors"), told.number("lost")), (0, 0), "{told:?}");
        }
    }
    assert!(takeovers >= 1, "the survivors found a dead process inside");
    // A killed process may have counted without writing its line, never the other way round.
    let lines = scene.grants();
    assert!((lines..=lines + kills).contains(&scene.counter()), "{lines} lines, counted {}", scene.counter());
    Witness::at(&scene.folder).assert_no_violation();
}

#[test]
fn a_killed_holder_frees_the_lock_with_its_time_to_live() {
    let (server, client) = alone();
    let lock = client.get_lock("job");
    for round in 0..3 {
        let mut peer = open_peer(&options(&server, "victim"));
        peer.ask("lock kind=plain name=job").expect_ok();
        // Long enough for a renewal; each round kills at another point of the renewal interval.
        assert!(lock.try_lock_for(TTL + ms(100 * round)).unwrap().is_none());
        peer.kill();
        eventually(SOON, "redis has executed all requests of the victim", || server.clients_named("victim") == 0);
        let asked = Instant::now();
        let left = Duration::from_millis(ttl_ms(&server, "job").try_into().expect("the key still exists"));
        let guard = lock.try_lock_for(SOON).unwrap().expect("the key expires");
        let after = asked.elapsed();
        assert!(after + ms(2) >= left, "granted after {after:?} with {left:?} left");
        assert!(after <= left + GRACE + SCHEDULING, "granted after {after:?} with {left:?} left");
        assert!(left <= TTL);
        guard.unlock().unwrap();
    }
}

#[test]
fn a_holder_stopped_beyond_its_ttl_learns_it_at_first_look() {
    at_once(["", " lease_ms=1000"], |lease| {
        let (server, client) = alone();
        let lock = client.get_lock("job");
        let mut peer = open_peer(&options(&server, "stopped"));
        peer.ask(&format!("lock kind=plain name=job{lease}")).expect_ok();
        peer.stop();
        let guard = lock.try_lock_for(SOON).unwrap().expect("the time to live ends while the process stands still");
        let before = fields(&server, "job");
        // The first call of the continued process: look, take again, release.
        let [look, again, back, anew] =
            ["is_held", "try_lock", "unlock", "try_lock"].map(|verb| peer.send(&format!("{verb} kind=plain name=job")));
        peer.resume();
        assert!(!peer.answer(look, SOON).expect_ok().flag("held"), "the first look reports the loss");
        for id in [again, back] {
            let told = peer.answer(id, SOON);
            let message = told.expect_failure("not_owner");
            assert!(message.contains("Lost(Expired)") || message.contains("Lost(Taken)"), "{message}");
        }
        assert!(!peer.answer(anew, SOON).expect_ok().flag("acquired"), "the process waits like any other");
        assert!(guard.is_held());
        assert_eq!(fields(&server, "job"), before, "the new holder is untouched");
        guard.unlock().unwrap();
        assert!(peer.ask("try_lock kind=plain name=job").expect_ok().flag("acquired"));
    });
}

#[test]
fn a_holder_stopped_for_less_than_its_time_to_live_holds_on() {
    let (server, client) = alone();
    let lock = client.get_lock("job");
    let mut peer = open_peer(&options(&server, "stopped").replace("watchdog_ms=2000", "watchdog_ms=3000"));
    peer.ask("lock kind=plain name=job").expect_ok();
    for _ in 0..2 {
        peer.stop();
        // Two thirds of the time to live at most are left after a renewal was due and missed.
        assert!(lock.try_lock_for(ms(1_200)).unwrap().is_none());
        let look = peer.send("is_held kind=plain name=job");
        peer.resume();
        assert!(peer.answer(look, SOON).expect_ok().flag("held"));
        assert!(lock.try_lock_for(ms(1_800)).unwrap().is_none(), "the hold is renewed again");
    }
    assert!(peer.ask("is_held kind=plain name=job").expect_ok().flag("held"));
    peer.ask("unlock kind=plain name=job").expect_ok();
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_killed_waiter_leaves_nothing_and_delays_no_other() {
    let (server, client) = alone();
    let guard = client.get_lock("job").lock().unwrap();
    let (mut doomed, mut patient) = (open_peer(&options(&server, "doomed")), open_peer(&options(&server, "patient")));
    let _unanswered = doomed.send("lock kind=plain name=job");
    let waiting = patient.send("try_lock kind=plain name=job wait_ms=10000");
    eventually(SOON, "both listen", || server.subscribers(&channel("job")) == 2);
    doomed.kill();
    eventually(SOON, "one listens", || server.subscribers(&channel("job")) == 1);
    let released = Instant::now();
    guard.unlock().unwrap();
    assert!(patient.answer(waiting, SOON).expect_ok().flag("acquired"));
    assert!(released.elapsed() <= SCHEDULING, "{:?}", released.elapsed());
}

#[test]
fn a_forked_child_touches_nothing_of_its_parent() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).client_name("another").connect().unwrap();
    let mut parent = OtherProcess::start(&server);
    let connections = || {
        let clients = server.clients().into_iter().filter(|client| client["name"].starts_with("lockson:"));
        clients.map(|client| client["id"].clone()).collect::<BTreeSet<_>>()
    };
    for round in 0..2 {
        parent.ask(0, "lock plain job");
        eventually(SOON, "the lock is watched", || connections().len() == 3);
        let (before, held) = (connections(), fields(&server, "job"));
        let asked = Instant::now();
        assert_eq!(parent.ask(0, "fork plain other"), "child 0", "the child's copy of the client is closed");
        assert!(asked.elapsed() < SCHEDULING, "round {round}: {:?}", asked.elapsed());
        assert_eq!(fields(&server, "job"), held, "dropping the child's copy of the guard released nothing");
        assert_eq!(connections(), before, "the parent's connections are unchanged");
        // The parent goes on: its hold is renewed beyond the time to live, released, and taken again.
        assert!(client.get_lock("job").try_lock_for(ms(1_500)).unwrap().is_none());
        assert_eq!(parent.ask(0, "unlock"), "unlocked");
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_process_that_ends_in_order_gives_its_locks_back() {
    let (server, client) = alone();
    let mut peer = open_peer(&options(&server, "leaving").replace("watchdog_ms=2000", "watchdog_ms=30000"));
    for thread in 0..3 {
        peer.ask(&format!("lock kind=plain name=job{thread} thread={thread}")).expect_ok();
    }
    peer.ask("quit").expect_ok();
    for thread in 0..3 {
        assert!(client.get_lock(format!("job{thread}")).try_lock().unwrap().is_some());
    }
    assert!(server.keys().is_empty());
}

/// A server, the folder of the witness, and the files of all processes.
struct Scene {
    server: RedisServer,
    folder: PathBuf,
    /// How many loops were started.
    loops: usize,
    /// What the loops take.
    kind: &'static str,
}

impl Scene {
    fn new() -> Self {
        let server = RedisServer::start();
        let folder = server.data_folder().join("witness");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("counter"), "0").unwrap();
        Self { server, folder, loops: 0, kind: "plain" }
    }

    fn peer(&self) -> Peer {
        open_peer(&options(&self.server, "loops"))
    }

    /// Starts eight loops in a process, all on one lock, each with its own file of grants.
    fn start_loops(&mut self, peer: &mut Peer, how: &str) -> Vec<Ticket> {
        let folder = encode(self.folder.to_str().unwrap());
        let start_one = |thread: usize| {
            self.loops += 1;
            let files =
                format!("witness_dir={folder} counter={folder}%2Fcounter path={folder}%2F{}.grants", self.loops);
            peer.send(&format!("cycle kind={} names=job thread={thread} {files} {how}", self.kind))
        };
        (0..8).map(start_one).collect()
    }

    /// The process that is inside, according to the witness.
    fn inside(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join("job.inside")).ok()?.trim().parse().ok()
    }

    fn counter(&self) -> i64 {
        fs::read_to_string(self.folder.join("counter")).unwrap().trim().parse().unwrap()
    }

    /// How many grants all processes have recorded. The last line of a killed process may be cut.
    fn grants(&self) -> i64 {
        let files = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "grants"));
        logs.map(|path| fs::read_to_string(path).unwrap().matches('\n').count() as i64).sum()
    }
}

/// Stops processes until a process stands still inside, and kills the process inside.
fn kill_the_process_inside(scene: &Scene, peers: &mut [(Peer, Vec<Ticket>)]) -> u32 {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < SOON, "no process was caught inside");
        let Some(pid) = scene.inside() else { continue };
        let Some((peer, _)) = peers.iter_mut().find(|(peer, _)| peer.pid() == pid) else { continue };
        peer.stop();
        if scene.inside() == Some(pid) {
            peer.kill();
            return pid;
        }
        peer.resume();
    }
}

fn options(server: &RedisServer, name: &str) -> String {
    format!("address=redis://127.0.0.1:{} watchdog_ms=2000 client_name={name}", server.port())
}
