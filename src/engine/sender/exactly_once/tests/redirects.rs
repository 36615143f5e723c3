//! Requests to a cluster whose members send them elsewhere, put them off, or do not answer.
#![cfg(test)]

use std::sync::OnceLock;

use super::*;

/// Two members, of which the map names the first one for all slots until it is told otherwise.
struct Pair {
    members: [Scripted; 2],
    /// The master of all slots in the map.
    master: Arc<AtomicUsize>,
    client: Client,
}

type Ports = Arc<OnceLock<[u16; 2]>>;

/// Members that answer requests about locks so: by their place, the purpose of the request and its number there.
fn pair(answer: impl Fn(usize, What, usize, &[u16; 2]) -> Reaction + Clone + Send + Sync + 'static) -> Pair {
    pair_within(PATIENCE, answer)
}

/// Members that answer so, and a client with this `command_timeout`.
fn pair_within(
    limit: Duration,
    answer: impl Fn(usize, What, usize, &[u16; 2]) -> Reaction + Clone + Send + Sync + 'static,
) -> Pair {
    let (ports, master) = (Ports::default(), Arc::new(AtomicUsize::new(0)));
    let members = [0, 1].map(|member| {
        let (ports, master, answer) = (Arc::clone(&ports), Arc::clone(&master), answer.clone());
        let counts: [AtomicUsize; 7] = Default::default();
        Scripted::start(move |seen| {
            let ports = ports.get().expect("no request comes before the start of the client");
            match (seen.words[0].as_str(), seen.words.get(1).map_or("", String::as_str)) {
                ("CLUSTER", "INFO") => text("$41\r\ncluster_state:ok\r\ncluster_current_epoch:1\r\n"),
                ("CLUSTER", _) => {
                    let port = ports[master.load(Ordering::SeqCst)];
                    text(&format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"))
                }
                ("ASKING", _) => text("+OK\r\n"),
                ("PUBSUB", _) => text("*0\r\n"),
                _ => {
                    let what = if seen.words[0] == "EVAL" { What::Acquire } else { what(seen) };
                    answer(member, what, counts[what as usize].fetch_add(1, Ordering::SeqCst), ports)
                }
            }
        })
    });
    let places = [0, 1].map(|member: usize| members[member].url().trim_start_matches("redis://").to_owned());
    ports.set(places.each_ref().map(|place| place.rsplit(':').next().unwrap().parse().unwrap())).unwrap();
    let url = format!("redis+cluster://{}", places.join(","));
    let client = Client::builder(&url).command_timeout(limit).drop_timeout(TIMEOUT).connect().unwrap();
    Pair { members, master, client }
}

fn text(reply: &str) -> Reaction {
    Reaction::Reply(reply.to_owned().leak())
}

impl Pair {
    /// The requests about locks that a member got, each by its first word.
    fn words(&self, member: usize) -> Vec<String> {
        let seen = self.members[member].seen();
        let words = seen.iter().map(|seen| seen.words[0].clone());
        words.filter(|word| ["ASKING", "EVALSHA", "EVAL"].contains(&word.as_str())).collect()
    }

    fn asked(&self, member: usize, about: What) -> usize {
        self.members[member].seen().iter().filter(|seen| what(seen) == about).count()
    }
}

#[test]
fn moved_is_followed_at_once_and_remembered() {
    let moved = |host: &'static str| {
        let pair = pair(move |member, what, _, ports| match member {
            0 => text(&format!("-MOVED 1234 {host}:{}\r\n", ports[1])),
            _ => usual(what),
        });
        pair.master.store(1, Ordering::SeqCst);
        let began = Instant::now();
        let guard = pair.client.get_lock("{moved}").try_lock().unwrap().expect("the second member grants it");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        guard.unlock().unwrap();
        assert_eq!(pair.asked(1, What::Acquire), 1);
        assert_eq!(pair.asked(1, What::Last), 1);
        // The slot in the answer is another one, so the map alone tells where later requests go.
        eventually("the map was looked at again", || {
            drop(pair.client.get_lock("{moved}").try_lock());
            let before = pair.words(0).len();
            drop(pair.client.get_lock("{moved}").try_lock());
            pair.words(0).len() == before
        });
    };
    moved("127.0.0.1");
    moved("");
}

#[test]
fn a_member_that_is_cut_off_from_the_others_is_left() {
    let pair = pair(|member, what, _, _| match (member, what) {
        (0, What::Acquire) => text("-CLUSTERDOWN The cluster is down\r\n"),
        (_, what) => usual(what),
    });
    pair.master.store(1, Ordering::SeqCst);
    drop(pair.client.get_lock("cut").try_lock_for(SOON).unwrap().expect("the second member grants it"));
}

#[test]
fn a_script_that_met_a_foreign_key_is_sent_again_later() {
    let refusal = "-ERR Script attempted to access a non local key in a cluster node script: x, on @user_script:1.\r\n";
    let pair = pair(move |_, what, number, _| match (what, number) {
        (What::Acquire, 0) => Reaction::Reply(refusal),
        _ => usual(what),
    });
    drop(pair.client.get_lock("later").try_lock_for(SOON).unwrap().expect("it is granted in the end"));
}

#[test]
fn members_that_name_each_other_get_few_requests() {
    let pair =
        pair_within(TIMEOUT, |member, _, _, ports| text(&format!("-MOVED 1234 127.0.0.1:{}\r\n", ports[1 - member])));
    let began = Instant::now();
    let error = pair.client.get_lock("storm").try_lock().unwrap_err();
    assert!(began.elapsed() < TIMEOUT * 2, "{:?}", began.elapsed());
    assert_eq!(error.redis_word(), Some("MOVED"), "{error}");
    assert!(error.to_string().contains("the slots of the cluster are moving"), "{error}");
    let requests = pair.words(0).len() + pair.words(1).len();
    assert!((6..60).contains(&requests), "{requests} requests in {TIMEOUT:?}");
}

#[test]
fn a_copy_at_a_dead_member_is_fenced_while_the_caller_goes_on() {
    let deaf = Arc::new(AtomicBool::new(true));
    let is_deaf = Arc::clone(&deaf);
    let pair = pair_within(PATIENCE / 4, move |member, what, _, _| match (member, what) {
        (0, What::Acquire) => Reaction::Mute,
        (0, What::Fence) if is_deaf.load(Ordering::SeqCst) => Reaction::Mute,
        (_, what) => usual(what),
    });
    pair.master.store(1, Ordering::SeqCst);
    let lock = pair.client.get_lock("left");
    let guard = lock.try_lock_for(SOON).unwrap().expect("the second member grants it");
    deaf.store(false, Ordering::SeqCst);
    assert_eq!(pair.asked(1, What::Fence), 0, "a fence there says nothing about the copy");
    let copies = pair.asked(0, What::Acquire);
    eventually("each copy is fenced where it went", || pair.asked(0, What::Fence) > copies);
    guard.unlock().unwrap();
    eventually("the release is repeated", || pair.asked(1, What::Last) > 1);
    assert_eq!(pair.asked(0, What::Last), 0);
}

/// A busy machine answers within a part of this time.
const PATIENCE: Duration = Duration::from_secs(8);
