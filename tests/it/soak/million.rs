//! A million locks held at once in one process, each renewed in time.

use crate::HEAP;
use crate::campaign::Campaign;
use crate::support::prelude::*;

/// In a sample each client holds as many as it can take in the time.
#[test]
#[ignore = "make soak"]
fn held_by_the_million_and_renewed_in_time() {
    let mut campaign = Campaign::start("locks held at once by 10 clients, renewed for a minute", CLIENTS * EACH, 28);
    campaign.goes_on();
    let end = campaign.end_of_time();
    let server = RedisServer::start();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server.url()).unwrap()).collect();
    let before = HEAP.current_usage();
    let take = |number: usize, client: &Client| -> Vec<OwnedGuard> {
        let names = (0..EACH).map(|count| format!("million:{number}:{count}"));
        names.take_while(|_| Instant::now() < end).map(|name| client.get_lock(name).owned().lock().unwrap()).collect()
    };
    let take = &take;
    let guards: Vec<Vec<OwnedGuard>> = thread::scope(|scope| {
        let takers = clients.iter().enumerate().map(|(number, client)| scope.spawn(move || take(number, client)));
        takers.collect::<Vec<_>>().into_iter().map(joined).collect()
    });
    let held = guards.iter().map(Vec::len).sum::<usize>();
    let heap = HEAP.current_usage().saturating_sub(before) / held;
    campaign.passed(held as u64);
    println!("soak: {held} held, {heap} bytes of heap each");
    assert_eq!(server.query::<usize>(&["DBSIZE"]), held);
    let (taken, mut lowest) = (Instant::now(), Duration::MAX);
    while taken.elapsed() < RENEWED {
        thread::sleep(Duration::from_secs(1));
        lowest = guards.iter().flatten().map(|guard| guard.remaining()).min().unwrap().min(lowest);
    }
    assert!(lowest > Duration::from_secs(10), "a lock had only {lowest:?} to live");
    assert!(heap <= 520, "a lock takes {heap} bytes of heap");
    campaign.end(format!("{heap} bytes of heap each, at least {lowest:?} to live"));
    // A million releases beside a million renewals would take minutes.
    guards.into_iter().flatten().for_each(OwnedGuard::keep_until_expiry);
}

const CLIENTS: u64 = 10;
const EACH: u64 = 100_000;
const RENEWED: Duration = Duration::from_secs(60);
