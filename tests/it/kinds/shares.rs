//! Two processes at one hot lock: neither is passed over, however many threads the other process has.

use lockson_harness::RedisServer;

use crate::support::{Peer, SCHEDULING, SOON, encode, ms};

/// The shares of two processes in one lock: grants, and the longest wait of any thread in milliseconds.
struct Fight {
    grants: [i64; 2],
    longest_wait_ms: i64,
}

/// Each thread takes the lock, holds the lock for 10 ms, releases and asks again.
fn fight(kind: &str, threads: [usize; 2]) -> Fight {
    let server = RedisServer::start();
    let mut peers = [0, 1].map(|_| Peer::open(&format!("address={}", encode(&server.url()))));
    let cycle = format!("cycle kind={kind} names=hot duration_ms=3000 hold_us=10000");
    let start = |(peer, threads): (&mut Peer, usize)| -> Vec<u64> {
        (0..threads).map(|thread| peer.send(&format!("{cycle} thread={thread}"))).collect()
    };
    let running: Vec<_> = peers.iter_mut().zip(threads).map(start).collect();
    let mut fight = Fight { grants: [0; 2], longest_wait_ms: 0 };
    for ((peer, loops), grants) in peers.iter_mut().zip(running).zip(&mut fight.grants) {
        for id in loops {
            let told = peer.answer(id, SOON).expect_ok();
            assert_eq!((told.number("errors"), told.number("lost")), (0, 0), "{told:?}");
            *grants += told.number("grants");
            fight.longest_wait_ms = fight.longest_wait_ms.max(told.number("longest_wait_ns") / 1_000_000);
        }
    }
    fight
}

#[test]
fn each_process_gets_its_part_of_a_hot_lock() {
    for (kind, threads) in [("plain", [4, 1]), ("plain", [1, 4]), ("write", [1, 4]), ("non_reentrant", [4, 4])] {
        let Fight { grants, longest_wait_ms } = fight(kind, threads);
        let what = format!("{kind}, {threads:?} threads: {grants:?} grants, longest wait {longest_wait_ms} ms");
        let (all, all_threads) = (grants.iter().sum::<i64>(), threads.iter().sum::<usize>() as i64);
        for (grants, threads) in grants.into_iter().zip(threads) {
            assert!(
                grants * all_threads * 2 >= all * threads as i64,
                "one process had less than half of its part: {what}"
            );
        }
        assert!(ms(longest_wait_ms.try_into().expect("no time is negative")) <= SCHEDULING, "{what}");
    }
}
