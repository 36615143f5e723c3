//! Clusters of scripted members: members that moved, are slow, are wrong, or belong elsewhere.
#![cfg(test)]

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::conn::dialer::Dialer;
use crate::conn::scripted::{Reaction, Scripted, Seen, port_of};
use crate::error::ErrorKind;
use crate::time::Instant;
use crate::transport::Limits;

/// A member, and what it tells of the cluster: the epoch, and the nodes of all slots, the master first.
struct Member {
    server: Scripted,
    port: u16,
    tells: Arc<Mutex<(u64, Vec<Node>)>>,
}

/// The port and the id of a node.
type Node = (u16, &'static str);

fn member() -> Member {
    member_that(|_| None)
}

/// A member that reacts otherwise to some requests.
fn member_that(react: impl Fn(&Seen) -> Option<Reaction> + Send + Sync + 'static) -> Member {
    let tells: Arc<Mutex<(u64, Vec<Node>)>> = Arc::default();
    let in_server = Arc::clone(&tells);
    let server = Scripted::start(move |seen| {
        if let Some(reaction) = react(seen) {
            return reaction;
        }
        let (epoch, nodes) = in_server.lock().clone();
        let words: Vec<&str> = seen.words.iter().map(String::as_str).collect();
        let reply = match &words[..] {
            ["CLUSTER", "INFO"] => {
                let info = format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n");
                format!("${}\r\n{info}\r\n", info.len())
            }
            ["CLUSTER", "SLOTS"] => {
                let node = |(port, id): &Node| format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n${}\r\n{id}\r\n", id.len());
                let nodes: Vec<_> = nodes.iter().map(node).collect();
                format!("*1\r\n*{}\r\n:0\r\n:16383\r\n{}", nodes.len() + 2, nodes.concat())
            }
            _ => "+OK\r\n".to_owned(),
        };
        Reaction::Reply(reply.leak())
    });
    let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
    Member { server, port, tells }
}

impl Member {
    fn tells(&self, epoch: u64, nodes: &[Node]) {
        *self.tells.lock() = (epoch, nodes.to_vec());
    }

    fn looks(&self) -> usize {
        self.server.seen().iter().filter(|seen| seen.words == ["CLUSTER", "SLOTS"]).count()
    }
}

/// The port of a machine that accepts connections and never answers.
fn mute() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn cluster(seeds: &[u16], command_timeout: Duration) -> Cluster {
    cluster_of(seeds, command_timeout, |address| Dialer::new(address, None, "test".into()))
}

fn cluster_of(
    seeds: &[u16],
    command_timeout: Duration,
    dialer: impl Fn(Address) -> Dialer + Send + Sync + 'static,
) -> Cluster {
    let seeds = seeds.iter().map(|port| Endpoint::Tcp("127.0.0.1".into(), *port)).collect();
    let login = Address::parse("redis://h").unwrap();
    Cluster::new(login, seeds, Arc::new(dialer), 2, Some(false), command_timeout)
}

fn routed(cluster: &Cluster) -> u16 {
    port_of(&cluster.route(b"k").server)
}

/// Asks a server anything over its pool.
fn ping(server: &Server, limit: Duration) -> std::result::Result<(), Fault> {
    let ping = [redis::cmd("PING")];
    server.questions(Limits::by(Instant::now().after(limit)), |send| send(&ping).map(drop))
}

fn refusal(reply: &str) -> Refusal {
    Refusal::in_reply(&redis::parse_redis_value(reply.as_bytes()).unwrap()).unwrap()
}

#[track_caller]
fn eventually(text: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.until(Instant::now()) < SOON, "{text}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_newer_map_is_kept_beside_a_member_with_an_older_one() {
    let (new, old) = (member(), member());
    new.tells(5, &[(new.port, "new"), (old.port, "old")]);
    old.tells(4, &[(old.port, "old"), (new.port, "new")]);
    let cluster = cluster(&[new.port, old.port], SOON);
    for _ in 0..4 {
        cluster.greet(SOON).unwrap();
        assert_eq!(routed(&cluster), new.port);
    }
}

#[test]
fn the_url_is_asked_although_all_members_are_mute() {
    let gone: Vec<_> = (0..8).map(|_| mute()).collect();
    let host = member();
    host.tells(1, &gone.iter().map(|(_, port)| (*port, "")).collect::<Vec<_>>());
    let cluster = cluster(&[host.port], LIMIT);
    cluster.greet(SOON).unwrap();
    assert_eq!(routed(&cluster), gone[0].1);
    // All members have new addresses, and the host of the URL is one of them.
    host.tells(2, &[(host.port, "")]);
    cluster.doubt(cluster.route(b"k").server.number());
    eventually("the host of the URL tells the new map", || routed(&cluster) == host.port);
}

#[test]
fn many_mute_members_leave_time_for_the_others() {
    let gone: Vec<_> = (0..9).map(|_| mute()).collect();
    let last = member();
    let ports: Vec<u16> = gone.iter().map(|(_, port)| *port).chain([last.port]).collect();
    let tell = |epoch, master: u16| {
        let others = ports.iter().filter(|port| **port != master).map(|port| (*port, ""));
        last.tells(epoch, &[(master, "")].into_iter().chain(others).collect::<Vec<_>>());
    };
    tell(1, ports[0]);
    let cluster = cluster(&ports, LIMIT);
    cluster.greet(LIMIT).unwrap();
    assert_eq!(routed(&cluster), ports[0]);
    tell(2, last.port);
    cluster.greet(LIMIT).unwrap();
    assert_eq!(routed(&cluster), last.port);
}

#[test]
fn the_hosts_of_the_url_are_asked_when_no_member_is_left() {
    let (host, new) = (member(), member());
    let (gone, port) = mute();
    host.tells(1, &[(port, "")]);
    let cluster = cluster(&[host.port], LIMIT);
    cluster.greet(SOON).unwrap();
    drop(gone);
    host.tells(2, &[(new.port, "")]);
    cluster.greet(SOON).unwrap();
    assert_eq!(routed(&cluster), new.port);
}

#[test]
fn a_link_that_needs_most_of_the_command_timeout_is_enough() {
    let slow = || {
        member_that(|seen| {
            if seen.words == ["CLUSTER", "SLOTS"] {
                thread::sleep(LIMIT * 2 / 3);
            }
            None
        })
    };
    let members: Vec<Member> = (0..6).map(|_| slow()).collect();
    let nodes: Vec<Node> = members.iter().map(|member| (member.port, "")).collect();
    members.iter().for_each(|member| member.tells(1, &nodes));
    let cluster = cluster(&[members[0].port], LIMIT);
    cluster.greet(SOON).unwrap();
    let (old, new) = (nodes[0].0, nodes[5].0);
    assert_eq!(routed(&cluster), old);
    members.iter().for_each(|member| member.tells(2, &[nodes[5], nodes[1]]));
    cluster.doubt(cluster.route(b"k").server.number());
    eventually("the new master is known", || routed(&cluster) == new);
}

#[test]
fn looks_go_on_until_a_mute_master_is_replaced() {
    let (_gone, port) = mute();
    let other = member();
    other.tells(1, &[(port, "old"), (other.port, "new")]);
    let cluster = cluster(&[other.port], Duration::from_secs(2));
    cluster.greet(SOON).unwrap();
    let master = cluster.route(b"k").server;
    let mute = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let began = Instant::now();
            assert!(ping(&master, SOON * 3).is_err());
            began.until(Instant::now())
        });
        cluster.doubt(master.number());
        eventually("the member is asked again", || other.looks() > 2);
        // No request fails from here on, and the replica takes over.
        other.tells(2, &[(other.port, "new")]);
        waits.join().unwrap()
    });
    assert!(mute < SOON * 2, "nobody ends the question to the former master");
    assert_eq!(routed(&cluster), other.port);
}

#[test]
fn looks_end_when_a_doubted_member_answers() {
    let member = member();
    member.tells(1, &[(member.port, "")]);
    let cluster = cluster(&[member.port], SOON);
    cluster.greet(SOON).unwrap();
    cluster.doubt(ServerNumber(0));
    eventually("looks end", || !cluster.0.state.lock().refreshing.under_way);
    assert!(member.looks() <= 3, "{}", member.looks());
}

#[test]
fn looks_are_a_second_apart() {
    let member = member();
    member.tells(1, &[(member.port, "")]);
    let cluster = cluster(&[member.port], SOON);
    cluster.greet(SOON).unwrap();
    let began = Instant::now();
    while began.until(Instant::now()) < Duration::from_millis(700) {
        cluster.doubt(ServerNumber(0));
        thread::sleep(Duration::from_millis(5));
    }
    let passed = began.until(Instant::now()).as_secs();
    assert!(member.looks() <= 2 + usize::try_from(passed).unwrap(), "{}", member.looks());
}

#[test]
fn a_look_that_panics_is_not_the_last_one() {
    let member = member();
    let cluster = cluster_of(&[member.port], SOON, |address| {
        assert!(address.endpoint != Endpoint::Tcp("127.0.0.1".into(), 1), "a mistake");
        Dialer::new(address, None, "test".into())
    });
    member.tells(1, &[(1, "")]);
    cluster.doubt(ServerNumber(0));
    eventually("the first look falls", || member.looks() == 1);
    member.tells(1, &[(member.port, "")]);
    eventually("the next look learns the map", || {
        cluster.doubt(ServerNumber(0));
        !cluster.0.state.lock().map.masters().is_empty()
    });
}

#[test]
fn a_redirection_without_a_host_leads_to_the_host_that_spoke() {
    let seeds = ["127.0.0.1", "localhost"].map(|host| Endpoint::Tcp(host.into(), 7_000));
    let dialer = |address| Dialer::new(address, None, "test".into());
    let login = Address::parse("redis://h").unwrap();
    let cluster = Cluster::new(login, seeds.into(), Arc::new(dialer), 1, None, LIMIT);
    let refusal = refusal("-ASK 5 :7001\r\n");
    let Redirect::Elsewhere(Route { server, asking: true }) = cluster.redirect(ServerNumber(1), &refusal) else {
        panic!()
    };
    assert_eq!(server.dialer.address.endpoint.to_string(), "localhost:7001");
    assert_eq!(cluster.0.state.lock().map.master(Slot(5)), None, "the slot has not moved");
}

#[test]
fn an_address_of_another_cluster_gets_no_request() {
    let ours = member();
    let reused = member_that(|seen| (seen.words[1..] == ["MYID"]).then_some(Reaction::Reply("$5\r\ntheir\r\n")));
    ours.tells(1, &[(reused.port, "dead"), (ours.port, "ours")]);
    reused.tells(9, &[(reused.port, "their")]);
    let cluster = cluster(&[ours.port], SOON);
    cluster.greet(SOON).unwrap();
    let Err(Fault::NotSent(error)) = ping(&cluster.route(b"k").server, SOON) else { panic!("it was asked") };
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("belongs to another node"), "{error}");
    // Its map is not believed either, however new it is, and although nobody else answers.
    for _ in 0..3 {
        cluster.greet(SOON).unwrap();
        assert!(cluster.0.state.lock().members.len() == 2);
    }
    assert!(!reused.server.seen().iter().any(|seen| seen.words == ["PING"]));
}

#[test]
fn a_node_made_anew_at_an_old_address_gets_what_is_sent_there() {
    let ours = member();
    let anew = member_that(|seen| (seen.words[1..] == ["MYID"]).then_some(Reaction::Reply("$3\r\nnew\r\n")));
    let cluster = cluster(&[ours.port], SOON);
    for (epoch, nodes) in [(1, &[(anew.port, "old"), (ours.port, "ours")][..]), (2, &[(ours.port, "ours")])] {
        ours.tells(epoch, nodes);
        cluster.greet(SOON).unwrap();
    }
    let asks = refusal(&format!("-ASK 5 127.0.0.1:{}\r\n", anew.port));
    let Redirect::Elsewhere(Route { server, .. }) = cluster.redirect(ServerNumber(0), &asks) else {
        panic!("the slot is half moved")
    };
    ping(&server, SOON).unwrap();
}

#[test]
fn a_member_without_slots_takes_no_member_away() {
    static IS_LATER: AtomicBool = AtomicBool::new(false);
    let later = |reaction: Reaction| IS_LATER.load(Ordering::SeqCst).then_some(reaction);
    let host = member_that(move |_| later(Reaction::HangUp));
    let reset =
        member_that(move |seen| later(Reaction::Reply("*0\r\n")).filter(|_| seen.words == ["CLUSTER", "SLOTS"]));
    let (_gone, master) = mute();
    host.tells(5, &[(master, "silent"), (reset.port, "reset")]);
    let cluster = cluster(&[host.port], LIMIT);
    cluster.greet(LIMIT).unwrap();
    IS_LATER.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let _ = cluster.greet(LIMIT);
        assert_eq!(routed(&cluster), master, "it may be back at any time, and nobody else tells its place");
    }
}

#[test]
fn a_cluster_made_anew_behind_the_url_is_followed() {
    let host = member();
    host.tells(7, &[(host.port, "old")]);
    let cluster = cluster(&[host.port], SOON);
    cluster.greet(SOON).unwrap();
    let new = member();
    host.tells(1, &[(new.port, "new")]);
    cluster.greet(SOON).unwrap();
    assert_eq!(routed(&cluster), new.port);
}

#[test]
fn a_slot_without_a_master_is_asked_for_at_a_member_of_the_map() {
    let new = member();
    let one_slot = format!("*1\r\n*3\r\n:0\r\n:0\r\n*3\r\n$9\r\n127.0.0.1\r\n:{}\r\n$3\r\nnew\r\n", new.port);
    let one_slot: &str = one_slot.leak();
    let host = member_that(move |seen| (seen.words == ["CLUSTER", "SLOTS"]).then_some(Reaction::Reply(one_slot)));
    new.tells(0, &[]);
    let cluster = cluster(&[host.port], SOON);
    for _ in 0..3 {
        cluster.greet(SOON).unwrap();
        assert_eq!(routed(&cluster), new.port, "the other one may be gone for long");
    }
}

#[test]
fn idle_connections_to_a_demoted_master_are_closed() {
    let (first, second) = (member(), member());
    let tell = |epoch, nodes: &[Node]| [&first, &second].map(|member| member.tells(epoch, nodes));
    tell(1, &[(first.port, ""), (second.port, "")]);
    let cluster = cluster(&[first.port], SOON);
    cluster.greet(SOON).unwrap();
    let server = cluster.route(b"k").server;
    ping(&server, SOON).unwrap();
    tell(2, &[(second.port, ""), (first.port, "")]);
    cluster.greet(SOON).unwrap();
    assert!(server.take_idle().unwrap().is_none(), "a replica needs no idle connection");
}

#[test]
fn a_late_copy_is_fenced_until_it_is_over() {
    let kills = |seen: &Seen| seen.words.get(1).is_some_and(|word| word == "KILL");
    let asked = AtomicUsize::new(0);
    let member = member_that(move |seen| {
        let is_first = kills(seen) && asked.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then_some(Reaction::HangUp).or_else(|| kills(seen).then_some(Reaction::Reply(":1\r\n")))
    });
    let (_gone, port) = mute();
    let cluster = cluster(&[port, member.port], LIMIT);
    let server = cluster.server(ServerNumber(1)).unwrap();
    let copy = server.dialer.dial(Instant::now().after(SOON)).unwrap().identity.unwrap();
    // A copy at a member that is gone delays no other one.
    cluster.leave_behind(Identity { number: ServerNumber(0), ..copy.clone() });
    cluster.leave_behind(copy.clone());
    let is_left = |of: ServerNumber| {
        let state = cluster.0.state.lock();
        state.late.iter().any(|(copy, _)| copy.number == of)
    };
    eventually("the copy is over", || !is_left(ServerNumber(1)));
    let killed = member.server.seen().iter().filter(|seen| kills(seen) && seen.words[3] == copy.id.to_string()).count();
    assert_eq!(killed, 2, "the first fence had no answer");
    assert!(is_left(ServerNumber(0)), "nobody knows about the copy there");
    // The process there is another one by now, which does not know the copy.
    member.server.becomes("127.0.0.1:1");
    cluster.leave_behind(Identity { id: copy.id + 1_000, ..copy });
    eventually("the process with the copy has ended", || !is_left(ServerNumber(1)));
    assert_eq!(member.server.seen().iter().filter(|seen| kills(seen)).count(), 2);
    cluster.close();
}

const LIMIT: Duration = Duration::from_millis(1_200);
const SOON: Duration = Duration::from_secs(10);
