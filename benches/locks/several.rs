//! Several free locks at once, in times of one free lock.

use std::time::Duration;

use lockson::{Client, Lock, RedLock};
use lockson_harness::RedisServer;
use lockson_harness::proxy::{Proxy, Then, When};

use crate::figure::{Samples, Spread, in_short_turns, timed};
use crate::placement::in_each_mostly_apart;
use crate::plan::Plan;
use crate::report::Report;

/// A multi-lock of ten locks on one server, and of five on each of two servers.
pub(crate) fn multi(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = connect(&server.url());
    let locks = |client: &Client, count| (0..count).map(|n| client.get_lock(format!("bench:multi:{n}"))).collect();
    let one: Vec<Lock> = locks(&client, 1);
    compare("multi-10", &[server], &one[0], &Lock::multi(locks(&client, 10)), plan, report);

    let other_server = RedisServer::start();
    let other = connect(&other_server.url());
    let both = [locks(&client, 5), locks(&other, 5)].concat();
    compare("multi-10-two-servers", &[server, &other_server], &one[0], &Lock::multi(both), plan, report);
}

/// A red lock of five servers: in times of one free lock, and with two of the servers dead.
pub(crate) fn red(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let nodes: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let one = connect(&server.url()).get_lock("bench:red:one");
    let red = red_lock(nodes.iter().map(RedisServer::url));
    let all: Vec<&RedisServer> = [server].into_iter().chain(&nodes).collect();
    compare("red-5-on-one-machine", &all, &one, &red, plan, report);

    // The servers share the processors of this machine. Over a network they work side by side.
    let network: Vec<Proxy> = all.iter().map(|server| Proxy::start(server.address())).collect();
    for proxy in &network {
        proxy.rule(When::any().always(), Then::DelayRequest(NETWORK));
    }
    let one = connect(&network[0].url()).get_lock("bench:red:one");
    let far = red_lock(network[1..].iter().map(Proxy::url));
    let values = in_short_turns(plan.red_rounds, FAR_BATCH, &mut [&mut || pair(&far), &mut || pair(&one)]);
    report.ratio("red-5", ratio(&values, report));
    drop(network);
    with_two_dead(&red, &nodes, plan, report);
}

/// A lock on each of these servers. The servers were never used before, so they vote at once.
fn red_lock(urls: impl Iterator<Item = String>) -> RedLock {
    let clients: Vec<Client> = urls.map(|url| connect(&url)).collect();
    RedLock::new(clients.iter().map(|client| client.get_lock("bench:red"))).with_rejoin_after(Duration::ZERO)
}

fn with_two_dead(red: &Lock, nodes: &[RedisServer], plan: &Plan, report: &mut Report) {
    let p99 = |rounds: &Vec<Samples>| Samples::pooled(rounds).quantile(0.99);
    let run = || in_short_turns(plan.red_rounds, plan.pair_batch, &mut [&mut || pair(red)]).remove(0);
    let healthy = run();
    nodes[0].kill();
    // This server accepts connections and never answers.
    nodes[1].pause();
    let two_dead = run();
    let most = p99(&healthy) + NODE_TIMEOUT.as_micros() as f64;
    for (name, rounds) in [("healthy", &healthy), ("two of five dead", &two_dead)] {
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| Samples::pooled(rounds).quantile(part));
        report.figure(&format!("{name}: p50, p99, longest"), format!("{p50:.0}, {p99:.0}, {longest:.0}"), "us");
    }
    let by_rounds = Spread::of(two_dead.iter().map(|samples| samples.quantile(0.99) / most));
    report.ratio_of("red-5-two-dead-p99", p99(&two_dead) / most, by_rounds);
    nodes[1].resume();
}

/// Takes and releases both, one after the other.
fn compare(name: &str, servers: &[&RedisServer], one: &Lock, several: &Lock, plan: &Plan, report: &mut Report) {
    in_each_mostly_apart(servers, report, name, |placement, report| {
        let candidates: &mut [&mut dyn FnMut() -> u64] = &mut [&mut || pair(several), &mut || pair(one)];
        let values = in_short_turns(plan.pair_rounds, plan.pair_batch, candidates);
        let ratio = ratio(&values, report);
        report.ratio(&format!("{name}{}", placement.suffix()), ratio);
        ratio
    });
}

/// Prints the times of several locks and of one, and returns their ratio.
fn ratio(values: &[Vec<Samples>], report: &Report) -> Spread {
    for (candidate, rounds) in [("all", &values[0]), ("one lock", &values[1])] {
        let p50 = rounds.iter().map(|samples| samples.quantile(0.5));
        report.figure(&format!("{candidate}, p50"), Spread::of(p50), "us");
    }
    Spread::ratio(&values[0], &values[1], |samples| samples.quantile(0.5))
}

fn pair(lock: &Lock) -> u64 {
    timed(|| lock.lock().and_then(|guard| guard.unlock()).expect("works"))
}

fn connect(url: &str) -> Client {
    Client::connect(url).expect("redis is reached")
}

/// The time by which the network delays a request.
const NETWORK: Duration = Duration::from_millis(2);
/// The turns of a round over the network.
const FAR_BATCH: usize = 20;
/// The default of a red lock.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
