//! One story: clients with threads take locks of several kinds while things go wrong; promises are checked throughout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lockson::Client;
use lockson_world::system::{plant, thread};
use lockson_world::{Report, World};
use parking_lot::Mutex;

use crate::callbacks::Eyes;
use crate::kinds;
use crate::mistakes::MISTAKES;
use crate::reply::Reply;
use crate::scene::{PERMITS, Scene};
use crate::server::{OneServer, Server};
use crate::trouble::{Faults, Habits};

/// Plays the story of a seed until `wanted` locks were taken. A broken promise ends the process with the story.
///
/// `without` names what the seed may not draw, of [`TROUBLES`](crate::trouble::TROUBLES).
pub fn play(seed: u64, wanted: u64, without: &[String], mistake: Option<usize>) -> (Report, u64) {
    let server = Server::new();
    match mistake.map(|mistake| MISTAKES.get(mistake).ok_or(mistake)) {
        Some(Ok((right, wrong))) => server.plant(right, wrong),
        Some(Err(in_engine)) => plant(in_engine - MISTAKES.len()),
        None => {}
    }
    let taken = Arc::new(AtomicU64::new(0));
    let report = World::run(seed, Arc::new(OneServer(Arc::clone(&server))), |world| {
        let faults = Faults::draw(world).without(without);
        let scene = Arc::new_cyclic(|me| Scene {
            me: me.clone(),
            world: Arc::clone(world),
            server: Arc::clone(&server),
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
            clients: Mutex::default(),
            is_over: AtomicBool::new(false),
            phases: kinds::draw(world, faults, without),
        });
        // Everything was left out.
        if scene.phases.iter().all(Vec::is_empty) {
            return;
        }
        let clients: Vec<Client> = (0..1 + world.below(3)).map(|_| connect(scene.eyes.as_ref())).collect();
        clients[0].get_semaphore("permits").set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        let expiring = |client: &Client| client.get_permit_expirable_semaphore("expiring");
        expiring(&clients[0]).set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        server.set_faults(scene.faults);
        world.tell(format_args!("{} clients, {:?}, {:?}, {:?}", clients.len(), scene.phases, faults, scene.habits));
        scene.eyes.iter().for_each(|eyes| eyes.open(&Arc::downgrade(&scene)));
        let mut threads = vec![];
        for (number, client) in clients.iter().enumerate() {
            let is_closed = Arc::new(AtomicBool::new(false));
            scene.clients.lock().push((client.clone(), Arc::clone(&is_closed)));
            // The client's background threads belong to it, as they are started by its own.
            for thread in 0..1 + world.below(3) {
                let (scene, client, is_closed) = (Arc::clone(&scene), client.clone(), Arc::clone(&is_closed));
                let name = format!("client {number} thread {thread}");
                threads.push(
                    thread::Builder::new()
                        .name(name)
                        .spawn(move || {
                            scene.world.join_process(number + 1);
                            scene.act(&client, &is_closed);
                        })
                        .expect("a thread"),
                );
            }
        }
        threads.into_iter().for_each(thread::JoinHandle::join);
        scene.is_over.store(true, Ordering::Relaxed);
        scene.clients.lock().clear();
        // Clocks are no fault that ends.
        server.set_faults(Faults { drift: scene.faults.drift, ..Faults::default() });
        clients.into_iter().for_each(|client| client.close());
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
        let last = connect(None);
        match expiring(&last).try_acquire(PERMITS) {
            Ok(None) if scene.faults.lose_everything() => {}
            Ok(Some(permits)) => permits.release().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("not all of {PERMITS} expiring permits are free: {other:?}")),
        }
        // What a close could not take out of a queue in time delays nobody, and goes with the next release.
        match last.get_fair_lock("fair").try_lock_for(Duration::from_secs(10)) {
            Ok(Some(guard)) => guard.unlock().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("the fair lock is not free: {other:?}")),
        }
        last.close();
        for (hold, told) in scene.told.lock().iter() {
            let (told, lost) = (told.load(Ordering::Relaxed), hold.lost());
            if told != u32::from(lost.is_some()) {
                world.fail(format_args!("the loss {lost:?} of {} was told {told} times", hold.owner()));
            }
            let seen = scene.eyes.as_ref().map(|eyes| eyes.lost.lock().get(hold.owner()).copied().unwrap_or(0));
            if seen.is_some_and(|seen| seen != told) && !hold.owner().is_empty() {
                world.fail(format_args!("{seen:?} events tell the loss of {}, and {told} callbacks", hold.owner()));
            }
        }
        let left: Vec<String> = server
            .names(world)
            .into_iter()
            .filter(|name| name != "permits" && name != "expiring" && !name.contains("token"))
            .collect();
        if !left.is_empty() {
            world.fail(format_args!("left in Redis: {left:?}"));
        }
    });
    (report, taken.load(Ordering::Relaxed))
}

fn connect(eyes: Option<&Arc<Eyes>>) -> Client {
    let builder = Client::builder("redis://127.0.0.1:6379");
    let builder = eyes.map_or(builder.clone(), |eyes| builder.observer(Arc::clone(eyes)));
    builder.connect().expect("no faults so far")
}
