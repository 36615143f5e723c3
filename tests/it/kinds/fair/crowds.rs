//! Crowds of threads and processes that come, give up and die at random: no waiter is ever overtaken.

use std::collections::HashSet;

use lockson_harness::QueueWitness;

use super::{Queue, hasty_client};
use crate::faults::other_process::{OtherProcess, crowd};
use crate::support::prelude::*;

#[test]
fn no_waiter_is_overtaken_while_others_leave_and_die() {
    no_waiter_is_overtaken(3_000);
}

/// Watches `wanted` grants in a crowd, and checks that each grant went to the first of the queue.
pub(crate) fn no_waiter_is_overtaken(wanted: u64) {
    let server = RedisServer::start();
    let witness = QueueWitness::of(&server, "job");
    let ended = AtomicBool::new(false);
    let mut processes = vec![OtherProcess::start(&server), OtherProcess::start(&server)];
    let mut killed = HashSet::new();
    let start = |process: &mut OtherProcess| (0..3).for_each(|lane| process.send(lane, "crowd fair job"));
    processes.iter_mut().for_each(start);
    thread::scope(|scope| {
        for number in 1..=8 {
            let client = hasty_client(&server);
            let ended = &ended;
            scope.spawn(move || crowd(&client.get_fair_lock("job"), number, || ended.load(Ordering::Acquire)));
        }
        // One process dies in each quarter; a dead head costs all others up to 2 s.
        let mut deaths = (1..4).map(|quarter| wanted * quarter / 4);
        let mut next_death = deaths.next();
        let mut seen = (0, Instant::now());
        loop {
            let grants = witness.grants();
            if grants > seen.0 {
                seen = (grants, Instant::now());
            }
            assert!(seen.1.elapsed() < 2 * SOON, "no more grants after {grants} grants");
            if grants >= wanted {
                break;
            }
            if next_death.is_some_and(|at| grants >= at) {
                next_death = deaths.next();
                let mut victim = processes.remove(0);
                victim.kill();
                killed.insert(victim.client_id().to_owned());
                let mut successor = OtherProcess::start(&server);
                start(&mut successor);
                processes.push(successor);
            }
            thread::sleep(ms(5));
        }
        ended.store(true, Ordering::Release);
        processes.iter_mut().for_each(OtherProcess::end_crowds);
    });
    for process in &mut processes {
        (0..3).for_each(|lane| assert_eq!(process.answer(lane), "ended"));
    }
    Queue { server: &server, name: "job" }.assert_gone();
    let story = witness.end();
    let of_the_dead = |owner: &String| killed.iter().any(|client| owner.starts_with(client));
    let alive: Vec<_> = story.purged.iter().filter(|owner| !of_the_dead(owner)).collect();
    assert_eq!(story.inversions, Vec::<String>::new(), "{} grants", story.grants);
    assert_eq!(alive, Vec::<&String>::new(), "live waiters lost their places");
    assert!(story.grants >= wanted && story.given_up > 0 && story.queued > wanted / 4, "{story:?}");
}
