//! The state in Redis is Redisson's, byte for byte.

use super::{Queue, leave, now_ms};
use crate::support::prelude::*;

#[test]
fn the_hash_the_list_and_the_sorted_set_are_redissons() {
    for name in [fresh("fair"), fresh("{tag}:fair"), fresh("a{b}c"), fresh("brace{")] {
        let server = RedisServer::shared();
        let queue = Queue { server, name: &name };
        let guard = client().get_fair_lock(&name).lock().unwrap();
        assert_eq!(fields(server, &name), [(guard.owner().to_owned(), "1".to_owned())]);
        assert!((29_000..=30_000).contains(&ttl_ms(server, &name)));
        assert!(queue.owners().is_empty() && queue.left_ms().is_empty(), "a holder does not wait");
        thread::scope(|scope| {
            let mut owners = vec![];
            let waiters = [(); 3].map(|()| {
                let waiter = queue.waiter(scope, client().get_fair_lock(&name), |guard| {
                    let owner = guard.owner().to_owned();
                    leave(guard);
                    owner
                });
                owners.push(queue.owners().pop().unwrap());
                waiter
            });
            let [list, set] = [queue.list(), queue.deadlines()].map(|key| server.query::<String>(&["TYPE", &key]));
            assert_eq!((list.as_str(), set.as_str()), ("list", "zset"));
            assert_eq!(queue.owners(), owners, "the last arrival is last in the queue");
            let left = queue.left_ms();
            assert_eq!(left.len(), 3, "{left:?}");
            let score: String = server.query(&["ZSCORE", &queue.deadlines(), &owners[0]]);
            assert!(score.bytes().all(|byte| byte.is_ascii_digit()), "epoch ms: {score}");
            guard.unlock().unwrap();
            let told = waiters.map(|waiter| joined(waiter).1);
            assert_eq!(told.to_vec(), owners, "the waiting owner becomes the holding owner");
        });
        queue.assert_gone();
    }
}

#[test]
fn each_waiter_is_promised_its_patience_in_any_queue() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let guard = client().get_fair_lock(&name).with_lease(ms(60_000)).lock().unwrap();
    thread::scope(|scope| {
        let waiters = [(); 3].map(|()| queue.waiter(scope, client().get_fair_lock(&name), leave));
        for _ in 0..50 {
            // The last question is a second old at most, and the machine may be busy.
            let left = queue.left_ms();
            assert!(left.len() == 3 && left.values().all(|left| (1_000..=5_000).contains(left)), "{left:?}");
            thread::sleep(ms(30));
        }
        guard.unlock().unwrap();
        waiters.into_iter().for_each(|waiter| _ = joined(waiter));
    });
}

#[test]
fn a_release_publishes_a_zero_to_the_first_one_alone() {
    for name in [fresh("fair"), fresh("{tag}:fair")] {
        let server = RedisServer::shared();
        let queue = Queue { server, name: &name };
        let mut stranger = server.connection();
        let mut messages = stranger.as_pubsub();
        messages.psubscribe("redisson_lock__channel:*").unwrap();
        let lock = client().get_fair_lock(&name);
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        let mut owners = vec![];
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| queue.waiter(scope, client().get_fair_lock(&name), leave));
            owners = queue.owners();
            inner.unlock().unwrap();
            outer.unlock().unwrap();
            waiters.into_iter().for_each(|waiter| _ = joined(waiter));
        });
        drop(lock.lock().unwrap());
        server.run(&["PUBLISH", &channel(&name), "end"]);
        // Other tests publish on other channels meanwhile.
        let mut heard = vec![];
        while heard.last() != Some(&(channel(&name), "end".to_owned())) {
            let message = messages.get_message().unwrap();
            let (from, text) = (message.get_channel_name().to_owned(), message.get_payload().unwrap());
            if from.starts_with(&channel(&name)) {
                heard.push((from, text));
            }
        }
        heard.pop();
        let expected: Vec<_> = owners.iter().map(|owner| (queue.channel_of(owner), "0".to_owned())).collect();
        assert_eq!(heard, expected, "each waiter was told once, in order, and no other: {name:?}");
    }
}

#[test]
fn no_request_brings_a_clients_time_of_day() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let proxy = Proxy::start(server.address());
    let seen = Client::connect(&proxy.url()).unwrap().get_fair_lock("job");
    let guard = seen.with_lease(ms(60_000)).lock().unwrap();
    thread::scope(|scope| {
        let before = now_ms(&server);
        let waiter = queue.waiter(scope, seen.clone(), leave);
        let patience = || server.query::<i64>(&["ZSCORE", &queue.deadlines(), &queue.owners()[0]]) - now_ms(&server);
        eventually(SOON, "the waiter is promised its patience by the server's clock", || {
            (0..=5_000).contains(&patience())
        });
        assert!(seen.owned().try_lock_for(ms(50)).unwrap().is_none());
        guard.unlock().unwrap();
        joined(waiter);
        let requests = proxy.fitting(&When::script());
        assert!(requests.len() >= 7, "{requests:?}");
        let a_day_ago = before / 1_000 - 86_400;
        let numbers = requests.iter().flat_map(|request| (0..request.arguments.len()).map(|at| request.text(at)));
        // Times in seconds or any smaller unit.
        let times: Vec<_> = numbers.filter(|text| text.parse::<i64>().is_ok_and(|number| number > a_day_ago)).collect();
        assert_eq!(times, Vec::<String>::new());
    });
}
