//! One story: clients with threads take locks of several kinds while things go wrong; promises are checked throughout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lockson::{Client, Durability};
use lockson_world::system::{plant, thread};
use lockson_world::{Report, World};
use parking_lot::Mutex;

use crate::java::Java;
use crate::kinds;
use crate::mistakes::MISTAKES;
use crate::process::{Process, connect, url_of};
use crate::reply::Reply;
use crate::scene::{PERMITS, Scene};
use crate::server::{Server, Servers, cluster_url, replicated_url, sentinel_url};
use crate::trouble::{Faults, Habits};

/// Plays the story of a seed until `wanted` locks were taken. A broken promise ends the process with the story.
///
/// `without` names what the seed may not draw, of [`TROUBLES`](crate::trouble::TROUBLES).
pub fn play(seed: u64, wanted: u64, is_noted: bool, without: &[String], mistake: Option<usize>) -> (Report, u64) {
    let servers: Vec<Arc<Server>> = (0..1 + MOST_REDS as u64).map(Server::new).collect();
    let server = Arc::clone(&servers[0]);
    match mistake.map(|mistake| MISTAKES.get(mistake).ok_or(mistake)) {
        Some(Ok((right, wrong))) => servers.iter().for_each(|server| server.plant(right, wrong)),
        Some(Err(in_engine)) => plant(in_engine - MISTAKES.len()),
        None => {}
    }
    let taken = Arc::new(AtomicU64::new(0));
    let report = World::run(seed, is_noted, Arc::new(Servers(servers.clone())), |world| {
        let faults = Faults::draw(world).without(without);
        let javas =
            if without.iter().any(|name| name == "java") { 0 } else { [0, 0, 0, 1, 2][world.below(5) as usize] };
        let is_left_out = |what: &str| without.iter().any(|name| name == what);
        let faults = if javas > 0 { faults.beside_java() } else { faults };
        let is_cluster = javas == 0 && world.below(3) == 0 && !is_left_out("cluster");
        // The seed says so without a draw, so that the other stories stay what they were. Java does not wait.
        let disks = javas == 0 && seed % 7 < 3 && !is_left_out("disks");
        let faults = Faults { disks, ..faults };
        let has_sentinels = is_cluster && seed % 5 == 4 && !is_left_out("sentinels");
        let has_nodes = is_cluster && seed % 5 == 3 && !is_left_out("nodes");
        let (faults, url) = match (is_cluster, has_sentinels, has_nodes) {
            (true, true, _) => (Faults { moves: 0, ..faults }, sentinel_url()),
            (true, _, true) => (Faults { moves: 0, ..faults }, replicated_url()),
            (true, ..) => (faults, cluster_url()),
            (false, ..) => (faults.of_one_server(), url_of(0)),
        };
        let durability = Durability::replicas(u8::from(is_cluster));
        let durability = if faults.disks { durability.with_fsync() } else { durability };
        let durability = (faults.lags > 0).then_some(durability);
        if is_cluster {
            server.become_cluster(world.below(2) == 0);
        }
        if has_sentinels || has_nodes {
            server.become_pair(has_sentinels);
        }
        if !is_cluster && durability.is_some() {
            server.become_durable();
        }
        let reds = servers[1..].iter().take([0, 0, 0, 0, 3, MOST_REDS][world.below(6) as usize]);
        let reds: Vec<(&Arc<Server>, Faults)> =
            reds.map(|server| (server, Faults::draw(world).without(without).of_one_of_several())).collect();
        let are_quiet = reds.iter().all(|(_, faults)| faults.leave_the_network_alone());
        let scene = Arc::new_cyclic(|me| Scene {
            me: me.clone(),
            world: Arc::clone(world),
            server: Arc::clone(&server),
            reds: reds.iter().map(|(server, _)| Arc::clone(server)).collect(),
            is_quiet: are_quiet && faults.leave_the_network_alone(),
            count_downs: [AtomicU64::new(0), AtomicU64::new(0)],
            inside: Mutex::default(),
            permits: AtomicU32::new(0),
            tokens: Mutex::default(),
            told: Mutex::default(),
            eyes: (world.below(2) == 0).then(Arc::default),
            cancels: Mutex::default(),
            habits: Habits::draw(world).without(without),
            taken: Arc::clone(&taken),
            last: AtomicU64::new(0),
            wanted,
            faults,
            processes: Mutex::default(),
            is_over: AtomicBool::new(false),
            has_java: javas > 0,
            // Without a draw, too.
            java_reenters: seed % 7 < 3 && !is_left_out("reentries"),
            has_sections: seed % 4 == 2 && !is_left_out("sections"),
            phases: kinds::draw(world, faults, !reds.is_empty(), without),
        });
        // Everything was left out.
        if scene.phases.iter().all(Vec::is_empty) {
            return;
        }
        // Each caller of a red lock asks all servers, again and again.
        let most = if reds.is_empty() { 3 } else { 2 };
        let processes: Vec<Process> = (0..1 + world.below(most))
            .map(|_| Process::open(scene.eyes.as_ref(), &url, durability, reds.len()))
            .collect();
        let first = &processes[0].client;
        first.get_semaphore("permits").set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        let expiring = |client: &Client| client.get_permit_expirable_semaphore("expiring");
        expiring(first).set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        if javas > 0 {
            server.let_queues_last();
        }
        server.set_faults(scene.faults);
        reds.iter().for_each(|(server, faults)| server.set_faults(*faults));
        world.tell(format_args!("{} clients, {:?}, {:?}, {:?}", processes.len(), scene.phases, faults, scene.habits));
        reds.iter().for_each(|(_, faults)| world.tell(format_args!("a server of the red lock: {faults:?}")));
        scene.eyes.iter().for_each(|eyes| eyes.open(&Arc::downgrade(&scene)));
        let mut threads = vec![];
        for (number, process) in processes.iter().enumerate() {
            scene.processes.lock().push(process.clone());
            // The client's background threads belong to it, as they are started by its own.
            for thread in 0..1 + world.below(most) {
                let (scene, process) = (Arc::clone(&scene), process.clone());
                let name = format!("client {number} thread {thread}");
                threads.push(
                    thread::Builder::new()
                        .name(name)
                        .spawn(move || {
                            scene.world.join_process(number + 1);
                            scene.act(&process);
                        })
                        .expect("a thread"),
                );
            }
        }
        for number in 0..javas {
            let java = Java::new(&scene);
            let java = thread::Builder::new().name(format!("java {number}")).spawn(move || java.act());
            threads.push(java.expect("a thread"));
        }
        threads.into_iter().for_each(thread::JoinHandle::join);
        scene.is_over.store(true, Ordering::Relaxed);
        scene.processes.lock().clear();
        // Clocks are no fault that ends.
        let ends = |faults: Faults| Faults { drift: faults.drift, ..Faults::default() };
        server.set_faults(ends(scene.faults));
        reds.iter().for_each(|(server, faults)| server.set_faults(ends(*faults)));
        // A close waits neither for what is late nor for a process that is stopped.
        thread::sleep(Duration::from_secs(100));
        if is_cluster {
            for process in processes.iter().filter(|process| !process.is_closed()) {
                match process.client.get_lock("plain").try_lock_for(Duration::from_secs(5)) {
                    Ok(Some(guard)) => guard.unlock().unwrap_or_else(|error| world.fail(error)),
                    other => world.fail(format_args!("a client is not served any more: {other:?}")),
                }
            }
        }
        processes.into_iter().for_each(|process| process.close());
        // Longer than any lease, and than the memory of requests of semaphores.
        thread::sleep(Duration::from_secs(800));
        let free = server.with_data(world, |data| data.run(&[b"GET".to_vec(), b"permits".to_vec()]));
        // What a close cannot give back in time stays taken.
        let fewer = scene.habits.close > 0 && !scene.faults.leave_the_network_alone();
        if !scene.faults.lose_everything()
            && !(if fewer { 0 } else { PERMITS }..=PERMITS).any(|number| free == Reply::text(number.to_string()))
        {
            world.fail(format_args!("of {PERMITS} permits there are {free:?}"));
        }
        let [begun, effective] = scene.count_downs.each_ref().map(|count| count.load(Ordering::Relaxed));
        // A server without its data may count a repeated request again.
        let (counted, most) = (server.counted_down(), if scene.faults.lose_everything() { u64::MAX } else { begun });
        if counted < effective || counted > most {
            world.fail(format_args!("of {begun} count-downs {effective} had an effect, and {counted} were seen"));
        }
        let last = connect(None, &url, durability);
        match expiring(&last).try_acquire(PERMITS) {
            Ok(None) if scene.faults.lose_everything() => {}
            Ok(Some(permits)) => permits.release().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("not all of {PERMITS} expiring permits are free: {other:?}")),
        }
        // What a close could not take out of a queue in time delays nobody, and goes with the next release.
        // A dead waiter of Java costs the patience.
        let longest = Duration::from_secs(if javas > 0 { 300 } else { 10 });
        match last.get_fair_lock("fair").try_lock_for(longest) {
            Ok(Some(guard)) => guard.unlock().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("the fair lock is not free: {other:?}")),
        }
        last.close();
        for (hold, told) in scene.told.lock().iter() {
            // So many looks at the clock without a sleep would be those of a thread that goes round and round.
            thread::sleep(Duration::ZERO);
            let (told, lost) = (told.load(Ordering::Relaxed), hold.lost());
            if told != u32::from(lost.is_some()) {
                world.fail(format_args!("the loss {lost:?} of {} was told {told} times", hold.owner()));
            }
            let seen = scene.eyes.as_ref().map(|eyes| eyes.lost.lock().get(hold.owner()).copied().unwrap_or(0));
            if seen.is_some_and(|seen| seen != told) && !hold.owner().is_empty() {
                world.fail(format_args!("{seen:?} events tell the loss of {}, and {told} callbacks", hold.owner()));
            }
        }
        // Java drops a waiter of ours from what it knows of the queue; the rest goes with our next waiter, or after a day.
        let stays_beside_java = |name: &str| javas > 0 && name.starts_with("redisson_lock_alive");
        let stays = |name: &String| {
            ["permits", "expiring", "latch"].contains(&&**name) || name.contains("token") || stays_beside_java(name)
        };
        let names = servers.iter().flat_map(|server| server.names(world));
        let left: Vec<String> = names.filter(|name| !stays(name)).collect();
        if !left.is_empty() {
            world.fail(format_args!("left in Redis: {left:?}"));
        }
    });
    (report, taken.load(Ordering::Relaxed))
}

/// The servers of a red lock.
const MOST_REDS: usize = 5;
