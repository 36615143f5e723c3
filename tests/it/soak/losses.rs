//! Every holder that loses a lock learns of the loss in time, in every one of a thousand trials.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lockson::Client;
use lockson_harness::{Peer, RedisServer, Ticket, eventually};

use crate::campaign::Campaign;
use crate::faults::loss::{FAULTS, Trials, told_in_time};
use crate::support::{SOON, ms, open_peer};

#[test]
#[ignore = "make soak"]
fn loss_is_told_before_the_server_forgets() {
    let mut campaign = Campaign::start("losses to each of five faults, told before the server's expiry", 1_000, 28);
    const LOCKS: usize = 50;
    let excused = AtomicUsize::new(0);
    while campaign.goes_on() {
        let mut random = campaign.random();
        thread::scope(|scope| {
            let excused = &excused;
            for (name, fault, server_answers) in FAULTS {
                let before = ms(random.below(600));
                let trials = Trials { locks: LOCKS, leased: false, lease: ms(3_000), tick: ms(300), before };
                let thread = thread::Builder::new().name(name.to_owned());
                let run = move || excused.fetch_add(told_in_time(fault, server_answers, &trials), Ordering::Relaxed);
                thread.spawn_scoped(scope, run).unwrap();
            }
        });
        campaign.passed(LOCKS as u64);
    }
    campaign.end(format!(
        "every one told in time, by callback and by wait, but for {excused:?} of all five faults \
         in which this machine stood still for longer than the margin"
    ));
}

#[test]
#[ignore = "make soak"]
fn loss_is_what_a_stopped_process_sees_first() {
    const HOLDS: usize = 15;
    let mut campaign = Campaign::start("processes stopped for longer than the time to live", 1_000, 8);
    let server = RedisServer::start();
    let others = Client::connect(&server.url()).unwrap();
    let options = format!("address=redis://127.0.0.1:{} watchdog_ms=1000", server.port());
    let mut peers: Vec<Peer> = (0..4).map(|_| open_peer(&options)).collect();
    let name = |peer: usize, hold: usize| format!("job.{peer}.{hold}");
    let about =
        |verb: &str, peer: usize, hold: usize| format!("{verb} kind=plain name=job.{peer}.{hold} thread={hold}");
    while campaign.goes_on() {
        let mut random = campaign.random();
        for (number, peer) in peers.iter_mut().enumerate() {
            for hold in 0..HOLDS {
                let lease =
                    if hold % 2 == 0 { String::new() } else { format!(" lease_ms={}", 500 + random.below(500)) };
                peer.ask(&(about("lock", number, hold) + &lease)).expect_ok();
            }
        }
        thread::sleep(ms(random.below(400))); // another point of the interval each time
        peers.iter().for_each(Peer::stop);
        eventually(SOON, "all keys have expired", || server.keys().is_empty());
        // By the first look, another client holds half of the locks.
        let taken: Vec<_> = (0..peers.len()).map(|peer| others.get_lock(name(peer, 0)).lock().unwrap()).collect();
        let first_look = |(number, peer): (usize, &mut Peer)| -> Vec<Ticket> {
            (0..HOLDS).map(|hold| peer.send(&about("is_held", number, hold))).collect()
        };
        let looks: Vec<_> = peers.iter_mut().enumerate().map(first_look).collect();
        peers.iter().for_each(Peer::resume);
        for (number, (peer, looks)) in peers.iter_mut().zip(looks).enumerate() {
            for (hold, look) in looks.into_iter().enumerate() {
                let held = peer.answer(look, SOON).expect_ok().flag("held");
                assert!(!held, "{} is believed in", name(number, hold));
                let told = peer.ask(&about("unlock", number, hold));
                told.expect_failure("not_owner");
            }
        }
        assert!(taken.iter().all(|guard| guard.is_held()));
        taken.into_iter().for_each(|guard| guard.unlock().unwrap());
        campaign.passed((peers.len() * HOLDS) as u64);
    }
    campaign.end("the first look of every hold said lost");
}
