//! The least rights of users on a Redis Cluster and at sentinels: the words in `docs/operations.md` are enough, and least.

use lockson_harness::SentinelSet;

use crate::servers::deeds::{told, within};
use crate::servers::rights::documented_words;
use crate::support::kinds::{self, OfName};
use crate::support::prelude::*;
use crate::support::some_at_once;

type Outcome = Result<(), String>;

/// A kind with the name of its user in the document.
struct Kind {
    user: &'static str,
    lock: OfName,
    listens: bool,
    /// Whether a slot that moves leads to both of its masters: of several keys some are missing on either.
    follows: bool,
}

const KINDS: &[Kind] = &[
    Kind { user: "plain", lock: kinds::plain, listens: true, follows: true },
    Kind { user: "fair", lock: kinds::fair, listens: true, follows: false },
    Kind { user: "fenced", lock: kinds::fenced, listens: true, follows: false },
    Kind { user: "read-write", lock: kinds::write, listens: true, follows: false },
    Kind { user: "spin", lock: kinds::spin, listens: false, follows: true },
    Kind { user: "token", lock: kinds::token, listens: false, follows: true },
    Kind { user: "token-transaction", lock: kinds::token_transaction, listens: false, follows: true },
];

/// A promise of a kind on a cluster.
type Deed = fn(&Stage<'_>) -> Outcome;

const DEEDS: &[(&str, Deed)] = &[
    ("take and give back", take_and_give_back),
    ("wait", wait),
    ("wake others", wake_others),
    ("leave the channel", leave_channel),
    ("take while the slot moves", take_while_the_slot_moves),
];

#[test]
fn the_rights_on_a_cluster_are_enough_and_least() {
    let cluster =
        RedisCluster::start_with(2, 0, |builder| builder.config("appendonly yes").config("appendfsync always"));
    let (cluster, bystander) = (&cluster, &Client::connect(&cluster.url()).unwrap());
    let (any, messages) =
        (documented_words("| a Redis Cluster | `"), documented_words("| a Redis Cluster with sharded pub/sub | `"));
    let mut trials = vec![];
    for kind in KINDS {
        let all = if kind.listens { [&any[..], &messages].concat() } else { any.clone() };
        trials.push((kind, all.clone(), None));
        for left_out in all.iter().filter(|word| *word != "+asking" || kind.follows) {
            let rest = all.iter().filter(|word| *word != left_out).cloned().collect();
            trials.push((kind, rest, Some(left_out.clone())));
        }
    }
    some_at_once(WORKERS, trials, |(kind, added, left_out)| {
        let stage = Stage::open(cluster, bystander, kind, &added);
        let failed = DEEDS.iter().find_map(|(what, deed)| Some((*what, deed(&stage).err()?)));
        match left_out {
            None => assert_eq!(failed, None, "{}: with all words", kind.user),
            Some(word) => assert!(failed.is_some(), "{}: nothing fails without {word}", kind.user),
        }
    });
    for (member, answers) in bystander.examine().unwrap() {
        assert_eq!(answers.unwrap().missing.unwrap(), [""; 0], "{member}: the rights of a user for everything");
    }
}

/// One user of the cluster.
struct Stage<'a> {
    cluster: &'a RedisCluster,
    bystander: &'a Client,
    kind: &'a Kind,
    user: String,
}

impl<'a> Stage<'a> {
    fn open(cluster: &'a RedisCluster, bystander: &'a Client, kind: &'a Kind, added: &[String]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let user = format!("user{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let line = documented_words(&format!("ACL SETUSER {} ", kind.user));
        let rights: Vec<String> = line.into_iter().chain(added.iter().cloned()).collect();
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        for node in cluster.nodes() {
            node.run(&[&["ACL", "SETUSER", &user], &rights[..]].concat());
        }
        Self { cluster, bystander, kind, user }
    }

    fn name(&self, what: &str) -> String {
        format!("app:{}:{what}", self.user)
    }

    fn client(&self) -> Result<Client, String> {
        let url = self.cluster.url().replace("://", &format!("://{}:PASSWORD@", self.user));
        let builder = Client::builder(&url).watchdog(SOON * 3, TICK).command_timeout(SOON / 4).outage_limit(ms(500));
        builder.drop_timeout(ms(50)).connect().map_err(|error| error.to_string())
    }

    fn lock(&self, client: &Client, name: &str) -> Lock {
        (self.kind.lock)(client, name)
    }

    /// The clients that listen for a release of this lock, by sharded pub/sub.
    fn listeners(&self, name: &str) -> usize {
        let channels = |index: usize| -> Vec<String> {
            self.cluster.node(index).query(&["PUBSUB", "SHARDCHANNELS", &format!("*{name}*")])
        };
        (0..self.cluster.nodes().len()).map(|index| channels(index).len()).sum()
    }
}

fn take_and_give_back(stage: &Stage<'_>) -> Outcome {
    let lock = stage.lock(&stage.client()?, &stage.name("taken"));
    told(lock.lock().and_then(Guard::unlock))
}

/// The user waits for a release of another client.
fn wait(stage: &Stage<'_>) -> Outcome {
    hand_over(stage, &stage.name("waited"), stage.bystander, &stage.client()?)
}

/// Another client waits for a release of the user.
fn wake_others(stage: &Stage<'_>) -> Outcome {
    hand_over(stage, &stage.name("woken"), &stage.client()?, stage.bystander)
}

/// A waiter that no message wakes asks once a second, so it comes half a second after an early release or later.
fn hand_over(stage: &Stage<'_>, name: &str, holder: &Client, waiter: &Client) -> Outcome {
    if !stage.kind.listens {
        return Ok(());
    }
    let mut late = vec![];
    // A channel of an earlier round would say nothing about the waiter of this one.
    for round in 0..3 {
        let name = format!("{name}:{round}");
        let (held, awaited) = (stage.lock(holder, &name), stage.lock(waiter, &name));
        let guard = told(held.lock())?;
        let begun = Instant::now();
        let (released, taken) = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let taken = told(awaited.try_lock_for(SOON))?;
                let at = Instant::now();
                told(taken.ok_or("never woken")?.unlock())?;
                Ok::<_, String>(at)
            });
            within(SECOND / 2, || stage.listeners(&name) == 1 || thread.is_finished());
            // The waiter asks once more when it listens, and then sleeps.
            thread::sleep(ms(100));
            let released = Instant::now();
            let given = told(guard.unlock());
            (released, given.and(joined(thread)))
        });
        let taken = taken?;
        // On a busy machine the release may come when the waiter asks anyway.
        if released - begun < SECOND / 2 {
            late.push(taken.saturating_duration_since(released));
        }
        if late.iter().any(|late| *late < SECOND / 4) {
            return Ok(());
        }
    }
    Err(format!("{late:?} late"))
}

fn leave_channel(stage: &Stage<'_>) -> Outcome {
    let (client, name) = (stage.client()?, stage.name("left"));
    if !stage.kind.listens {
        return Ok(());
    }
    let held = told(stage.lock(stage.bystander, &name).lock())?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| told(stage.lock(&client, &name).try_lock_for(SOON).map(drop)));
        // A channel that nobody listens to yet would count as left.
        within(SOON, || stage.listeners(&name) == 1 || waiter.is_finished());
        told(held.unlock()).and(joined(waiter))
    })?;
    // A channel is left a second after its last waiter, the connection three seconds after its last channel.
    let is_left = within(ms(2_500), || stage.listeners(&name) == 0);
    if is_left { Ok(()) } else { Err("still subscribed".to_owned()) }
}

fn take_while_the_slot_moves(stage: &Stage<'_>) -> Outcome {
    if !stage.kind.follows {
        return Ok(());
    }
    let (client, name) = (stage.client()?, stage.name("moved"));
    // A cluster is well again when no slot moves.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let (slot, from) = (slot_of(&name), stage.cluster.node_of(&name));
    stage.cluster.begin_move(slot, 1 - from);
    let outcome = told(stage.lock(&client, &name).lock().and_then(Guard::unlock));
    stage.cluster.finish_move(slot, 1 - from);
    outcome
}

const SECOND: Duration = Duration::from_secs(1);
const WORKERS: usize = 8;

/// The user of the sentinels has no right beside those that the document lists.
#[test]
fn the_rights_at_sentinels_are_enough_and_least() {
    let set = SentinelSet::start(0, 3);
    // The client finds the other two, without which there is no majority.
    let first = set.sentinels()[0].address();
    let service = set.url();
    let service = service.rsplit_once('/').expect("the URL names the service").1;
    let connects = |user: &str, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for sentinel in set.sentinels() {
            sentinel.run(&[&["ACL", "SETUSER", user, "on", ">PASSWORD", "-@all"], &words[..]].concat());
        }
        let url = format!("redis+sentinel://{first}/{service}?sentinel_user={user}&sentinel_pass=PASSWORD");
        let client = Client::builder(&url).command_timeout(ms(500)).connect();
        client.map(drop).map_err(|error| error.to_string())
    };
    let all = documented_words("| a sentinel, for its own user | `");
    assert_eq!(connects("whole", &all), Ok(()));
    for (number, left_out) in all.iter().enumerate() {
        let rest: Vec<String> = all.iter().filter(|word| *word != left_out).cloned().collect();
        assert!(connects(&format!("user{number}"), &rest).is_err(), "nothing fails without {left_out}");
    }
}
