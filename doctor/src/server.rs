//! Findings about the settings and the state of a server.

use std::collections::BTreeMap;
use std::time::Duration;

use lockson::Examination;

use super::Severity::{Danger, Note, Warning};
use super::{Finding, FindingKind};

type Fields = BTreeMap<String, String>;

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let client = &examination.client;
    let mut findings = vec![];
    if let Ok(info) = &examination.info {
        findings.extend(version(info));
        findings.extend(eviction(info));
        findings.extend(memory(info));
        findings.extend(persistence(info, examination.settings.as_ref().ok()));
        findings.extend(writes(info));
        findings.extend(cluster(info));
        findings.extend(replicas(info));
        findings.extend(connections(info, client.connections));
        findings.extend(client.sharded_pub_sub.and_then(|is_sharded| pub_sub(info, is_sharded)));
    }
    if let Ok(settings) = &examination.settings {
        findings.extend(idle_timeout(settings, client.watchdog_interval));
        findings.extend(output_buffer(settings));
    }
    if let Ok(clock) = &examination.clock
        && clock.apart >= CLOCKS_DIFFER
    {
        let side = if clock.server_is_ahead { "ahead of" } else { "behind" };
        findings.push(Finding::new(
            Warning,
            FindingKind::Clock,
            format!("its clock is {:.1?} {side} that of this machine", clock.apart),
            "this crate does not compare the two, but Redisson's fair and group locks do, and a step that corrects the \
             clock of the server ends leases early or late",
            "synchronise both clocks, and slew them",
        ));
    }
    findings
}

fn version(info: &Fields) -> Option<Finding> {
    if let Some(version) = info.get("dragonfly_version") {
        return Some(Finding::new(
            Warning,
            FindingKind::Version,
            format!("it is Dragonfly {version}, which this crate is not tested with"),
            "what scripts, fences and tracked keys do there is not known",
            "use Redis 6.2 or later, or Valkey 8 or later",
        ));
    }
    let (name, version, least) = match info.get("valkey_version") {
        Some(version) => ("Valkey", version, [8, 0]),
        None => ("Redis", info.get("redis_version")?, [6, 2]),
    };
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let numbers = [numbers.next()?, numbers.next().unwrap_or(0)];
    (numbers < least).then(|| {
        Finding::new(
            Danger,
            FindingKind::Version,
            format!("it is {name} {version}"),
            "commands that locks need are missing or work differently",
            "use Redis 6.2 or later, or Valkey 8 or later",
        )
    })
}

/// On a cluster all clients of a lock must use the same kind of pub/sub.
fn pub_sub(info: &Fields, is_sharded: bool) -> Option<Finding> {
    info.get("cluster_enabled").filter(|is_enabled| *is_enabled == "1")?;
    // Redis 7.0 brought sharded pub/sub; a Valkey tells a version of Redis that has it.
    let major = info.get("redis_version")?.split('.').next()?.parse::<u32>().ok()?;
    match (is_sharded, major >= 7) {
        (false, true) => Some(Finding::new(
            Warning,
            FindingKind::PubSub,
            "this client uses plain pub/sub on a cluster that knows sharded pub/sub",
            "each message goes to all members, and clients that listen by sharded pub/sub, as Redisson from 3.28 on does \
             here by default, are not woken",
            "leave out sharded_pub_sub(false) unless all clients are set so or older, and give the user +ssubscribe and \
             +spublish",
        )),
        (true, false) => Some(Finding::new(
            Danger,
            FindingKind::PubSub,
            "this client uses sharded pub/sub, which this member does not know",
            "releases there fail, and nobody is woken",
            "upgrade the member to Redis 7.0, or set sharded_pub_sub(false) for all clients",
        )),
        _ => None,
    }
}

fn eviction(info: &Fields) -> Option<Finding> {
    let policy = info.get("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
    let is_limited = number(info, "maxmemory").is_some_and(|limit| limit > 0);
    let (severity, when) =
        if is_limited { (Danger, "at the limit of its memory") } else { (Warning, "once maxmemory is set") };
    Some(Finding::new(
        severity,
        FindingKind::Eviction,
        format!("maxmemory-policy is {policy}"),
        &format!("{when} it may evict a held lock, volatile-* included, and another owner takes it"),
        "set maxmemory-policy noeviction, and keep what may be evicted on another server",
    ))
}

fn memory(info: &Fields) -> Option<Finding> {
    let (limit, used) = (number(info, "maxmemory")?, number(info, "used_memory")?);
    (limit > 0 && used / 9 >= limit / 10).then(|| {
        Finding::new(
            Warning,
            FindingKind::Memory,
            format!("{used} of {limit} bytes of maxmemory are in use"),
            "when memory is full, locks are refused with OOM; held locks can still be renewed and released",
            "free memory or raise maxmemory",
        )
    })
}

fn persistence(info: &Fields, settings: Option<&Fields>) -> Option<Finding> {
    let setting = |name: &str| settings.and_then(|settings| settings.get(name)).map(String::as_str);
    let has_log = info.get("aof_enabled")? == "1";
    let always = "set appendonly yes and appendfsync always; or start the server again only after one watchdog timeout";
    let (severity, what, consequence) = match (has_log, setting("appendfsync"), setting("save")) {
        (true, Some("always") | None, _) => return None,
        (true, Some("no"), _) => (
            Warning,
            "appendfsync is no",
            "a crash of the machine loses what the system had not written, about half a minute",
        ),
        (true, Some(how), _) => {
            (Note, &*format!("appendfsync is {how}"), "a crash of the machine loses the locks of the last second")
        }
        (false, _, Some("")) => {
            let consequence =
                "a restart frees all locks while their holders work on, for up to a second until they are told";
            (Warning, "it persists nothing", consequence)
        }
        (false, ..) => {
            let consequence = "a restart loses the locks since the last snapshot, and brings back released ones until \
                               their time to live ends";
            (Warning, "it persists snapshots at most", consequence)
        }
    };
    Some(Finding::new(severity, FindingKind::Persistence, what, consequence, always))
}

fn writes(info: &Fields) -> Option<Finding> {
    let failed = |field: &str| info.get(field).is_some_and(|status| status == "err");
    let what = match (failed("aof_last_write_status"), failed("rdb_last_bgsave_status")) {
        (true, _) => "its last write to the append-only file failed",
        (_, true) => "its last snapshot failed",
        _ => return None,
    };
    Some(Finding::new(
        Danger,
        FindingKind::Writes,
        what,
        "unless it is told otherwise, it refuses writes with MISCONF: locks cannot be taken, and held ones expire",
        "free its disk, and look into its log",
    ))
}

fn cluster(info: &Fields) -> Option<Finding> {
    info.get("cluster_state").filter(|state| *state != "ok")?;
    Some(Finding::new(
        Danger,
        FindingKind::Cluster,
        "its cluster is down",
        "every lock there fails with CLUSTERDOWN, and held locks expire",
        "start or replace the master of the missing slots; cluster-require-full-coverage no keeps the locks of the others",
    ))
}

fn replicas(info: &Fields) -> Vec<Finding> {
    let replicas: Vec<&String> =
        (0..).map_while(|number| info.get(&format!("slave{number}"))).take(MOST_REPLICAS).collect();
    if replicas.is_empty() {
        return vec![];
    }
    let mut findings = vec![];
    // The field is there only if `min-replicas-to-write` is set.
    if !info.contains_key("min_slaves_good_slaves") {
        findings.push(Finding::new(
            Warning,
            FindingKind::Replicas,
            format!("replicas copy from it: {}; min-replicas-to-write is 0", replicas.len()),
            "a fail-over loses the locks that were not copied yet, and a master that is cut off goes on granting locks",
            "set min-replicas-to-write 1 and min-replicas-max-lag 10; take locks with Durability; where a loss must do no harm, use fencing tokens",
        ));
    }
    for replica in replicas {
        let field = |name: &str| replica.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
        if field("state") == Some("online") && lag <= LONGEST_LAG {
            continue;
        }
        let place = format!("{}:{}", field("ip").unwrap_or("?"), field("port").unwrap_or("?"));
        findings.push(Finding::new(
            Warning,
            FindingKind::Replicas,
            format!("the replica {place} is {}, {lag} s behind", field("state").unwrap_or("in an unknown state")),
            "a fail-over to it loses locks",
            "look into the log of the replica, and at the network between the two",
        ));
    }
    findings
}

fn connections(info: &Fields, needed: usize) -> Option<Finding> {
    let (most, used) = (number(info, "maxclients")?, number(info, "connected_clients")?);
    (most.saturating_sub(used) < u64::try_from(needed).unwrap_or(u64::MAX)).then(|| {
        Finding::new(
            Warning,
            FindingKind::Connections,
            format!("{used} of {most} connections are open, and this client may open {needed}"),
            "a connection that is refused makes requests wait, and holders lose locks that cannot be renewed",
            "raise maxclients, or lower max_connections()",
        )
    })
}

fn idle_timeout(settings: &Fields, interval: Duration) -> Option<Finding> {
    let seconds = number(settings, "timeout").filter(|seconds| *seconds > 0)?;
    (Duration::from_secs(seconds) <= interval).then(|| {
        Finding::new(
            Note,
            FindingKind::IdleTimeout,
            format!("timeout is {seconds} s, no longer than the interval of the watchdog ({interval:?})"),
            "the connection that renews is closed before each round: all holds are renewed over a new one each time",
            "set timeout 0, or above the interval of the watchdog",
        )
    })
}

/// Reads "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60".
fn output_buffer(settings: &Fields) -> Option<Finding> {
    let setting = settings.get("client-output-buffer-limit")?;
    let (_, limits) = setting.split_once("pubsub ")?;
    let mut limits = limits.split(' ').map_while(|limit| limit.parse::<u64>().ok());
    let (hard, soft) = (limits.next()?, limits.next()?);
    [hard, soft].into_iter().any(|limit| limit > 0 && limit < SMALLEST_BUFFER).then(|| {
        Finding::new(
            Note,
            FindingKind::OutputBuffer,
            format!("client-output-buffer-limit pubsub is {hard} {soft}"),
            "a burst of messages closes the listening connections of clients, and waiters ask once a second meanwhile",
            "set client-output-buffer-limit \"pubsub 32mb 8mb 60\", the default",
        )
    })
}

fn number(fields: &Fields, name: &str) -> Option<u64> {
    fields.get(name)?.parse().ok()
}

/// Below this difference the clocks count as synchronised.
const CLOCKS_DIFFER: Duration = Duration::from_millis(500);
const SMALLEST_BUFFER: u64 = 1024 * 1024;
/// The value of `min-replicas-max-lag` by default, in seconds.
const LONGEST_LAG: u64 = 10;
const MOST_REPLICAS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    fn fields(text: &str) -> Fields {
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn a_replica_that_lags_is_found() {
        let check = |lag: u64, found: usize| {
            let info = format!("min_slaves_good_slaves:1\nslave0:ip=::1,port=7,state=online,offset=9,lag={lag}");
            assert_eq!(replicas(&fields(&info)).len(), found, "{lag} s");
        };
        check(0, 0);
        check(LONGEST_LAG, 0);
        check(LONGEST_LAG + 1, 1);
    }

    #[test]
    fn both_kinds_of_pub_sub_are_judged_by_the_version_on_a_cluster() {
        let check = |is_cluster: u8, version: &str, is_sharded: bool, severity: Option<Severity>| {
            let info = fields(&format!("cluster_enabled:{is_cluster}\nredis_version:{version}"));
            assert_eq!(pub_sub(&info, is_sharded).map(|finding| finding.severity), severity, "{is_cluster} {version}");
        };
        check(1, "7.0.15", true, None);
        check(1, "7.0.15", false, Some(Warning));
        check(1, "6.2.14", false, None);
        check(1, "6.2.14", true, Some(Danger));
        check(0, "7.0.15", false, None);
    }

    #[test]
    fn a_version_is_compared_by_numbers() {
        let check = |info: &str, found: bool| assert_eq!(version(&fields(info)).is_some(), found, "{info}");
        check("redis_version:6.2.0", false);
        check("redis_version:10.0", false);
        check("redis_version:6.1.9", true);
        check("redis_version:5.0.14", true);
        check("redis_version:7.2.4\nvalkey_version:8.0.1", false);
        check("redis_version:255.255.255", false);
        check("redis_version:unstable", false);
    }
}
