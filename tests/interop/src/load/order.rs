//! One queue of both languages: no waiter is overtaken.

use std::time::Duration;

use lockson_harness::{QueueStory, QueueWitness, RedisServer};

use super::{Loaded, open};
use crate::kind::Kind;
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::verdict::{Score, Verdict, caught};

/// Four threads of each language wait in one queue, while a witness watches through Redis alone.
pub(crate) fn order(server: &RedisServer, cast: &Cast, kind: &'static Kind, score: &Score) -> Loaded {
    let verdict = match caught(|| stand_in_line(server, cast, kind)) {
        Ok(story) => judge(kind, &story),
        Err(story) => Verdict::Failed(story),
    };
    let claim =
        format!("{THREADS} threads of each in one queue, {LEAST_GRANTS} grants and more: no waiter is overtaken");
    Loaded::new(format!("{}: {claim}", kind.title), verdict, score)
}

fn stand_in_line(server: &RedisServer, cast: &Cast, kind: &'static Kind) -> QueueStory {
    let name = format!("line-{}", kind.word);
    let witness = QueueWitness::of(server, &name);
    let mut peers = Seat::BOTH.map(|seat| open(Site::One(server), cast, seat, ""));
    let command = format!("cycle kind={} names={name} duration_ms={} hold_us=100", kind.word, STRETCH.as_millis());
    // A busy machine takes more stretches for as many grants.
    for _ in 0..MOST_STRETCHES {
        let started = peers.each_mut().map(|peer| {
            (0..THREADS).map(|thread| peer.send(&format!("{command} thread={thread}"))).collect::<Vec<_>>()
        });
        for (peer, tickets) in peers.iter_mut().zip(started) {
            for ticket in tickets {
                peer.answer(ticket, STRETCH + GRACE).expect_ok();
            }
        }
        if witness.grants() >= LEAST_GRANTS {
            break;
        }
    }
    witness.end()
}

fn judge(kind: &Kind, story: &QueueStory) -> Verdict {
    let QueueStory { grants, queued, purged, inversions, .. } = story;
    println!("order: {}: {grants} grants, {queued} of them through the queue", kind.title);
    let mut wrong: Vec<String> = inversions.iter().take(3).cloned().collect();
    if !purged.is_empty() {
        wrong.push(format!("{} live waiters lost their places", purged.len()));
    }
    if *grants < LEAST_GRANTS {
        wrong.push(format!("{grants} grants only"));
    }
    Verdict::unless(wrong)
}

const THREADS: u32 = 4;
const LEAST_GRANTS: u64 = 2_000;
const STRETCH: Duration = Duration::from_secs(8);
const MOST_STRETCHES: u32 = 5;
const GRACE: Duration = Duration::from_secs(40);
