//! The alarms of `docs/alarms.yml` in a real Prometheus, which scrapes a program with real faults.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use ::metrics::set_global_recorder;
use lockson_harness::HelperProcess;
use lockson_telemetry::MetricsObserver;

use super::recorder::Values;
use crate::support::prelude::*;

const RULES: &str = include_str!("../../../docs/alarms.yml");
/// Longer than the wait of which `LocksonWaitsAreLong` tells.
const LONG: Duration = Duration::from_secs(7);

#[test]
#[ignore = "needs Prometheus: `make habits` runs it"]
fn each_alarm_fires_in_a_real_prometheus() {
    let values = Values::default();
    set_global_recorder(values.clone()).map_err(|_| "another recorder is there").unwrap();
    let observer = MetricsObserver::new();
    let [rig, unrenewed, unheard, unwatched] = [(); 4].map(|()| Rig::start());
    let connect = |rig: &Rig, ttl| rig.builder().watchdog(ttl, ms(100)).observer(observer.clone()).connect().unwrap();
    let client = connect(&rig, Duration::from_secs(2));
    let scraped = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = scraped.local_addr().unwrap().to_string();
    let (sampler, sampled) = (observer.clone(), client.clone());
    thread::spawn(move || serve(&scraped, &values, || sampler.sample([&sampled])));
    let fair = client.get_fair_lock(fresh("alarm"));
    let theirs = rig.direct().get_lock(fair.name()).lock().unwrap();
    assert!(fair.try_lock().unwrap().is_none(), "a series begins before its rate is seen");
    let (_prometheus, port) = prometheus(&rig, &at);
    let query = |query: &str| get(port, &format!("/api/v1/query?query={query}"));
    eventually(SOON, "Prometheus scrapes", || {
        query("count_over_time(lockson_wait_seconds_count[1m])>2").contains("kind")
    });
    let before = query("ALERTS");
    assert!(before.contains("\"result\":[]"), "{before}");

    let lost = client.get_lock(fresh("alarm")).lock().unwrap();
    rig.server.run(&["DEL", lost.name()]);
    let abandoned = client.get_lock(fresh("alarm"));
    thread::scope(|scope| scope.spawn(|| abandoned.lock().unwrap().leave_to_unlock()).join().unwrap());
    unrenewed.proxy.rule(unrenewed.script("renew").always(), Then::CutBeforeRequest);
    let _unrenewed = connect(&unrenewed, SOON * 6).get_lock(fresh("alarm")).owned().lock().unwrap();
    unheard.proxy.rule(When::command("SUBSCRIBE").always(), Then::CutBeforeRequest);
    let held = unheard.direct().get_lock(fresh("alarm")).lock().unwrap();
    let listener = connect(&unheard, SOON * 6).get_lock(held.name());
    unwatched.server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let _unwatched = connect(&unwatched, SOON * 6).get_lock(fresh("alarm")).owned().lock().unwrap();
    let busy = client.get_spin_lock(theirs.name());
    thread::scope(|scope| {
        let waits = [&fair, &listener].map(|lock| scope.spawn(|| assert!(lock.try_lock_for(LONG).unwrap().is_none())));
        let mut missing: BTreeSet<&str> =
            RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(missing.len() > 5, "{missing:?}");
        let began = Instant::now();
        while !missing.is_empty() {
            assert!(began.elapsed() < SOON * 3, "no alarm: {missing:?}");
            assert!(busy.try_lock().unwrap().is_none());
            let firing = query("ALERTS%7Balertstate=%22firing%22%7D");
            missing.retain(|alarm| !firing.contains(&format!("\"alertname\":\"{alarm}\"")));
            thread::sleep(ms(100));
        }
        waits.into_iter().for_each(joined);
    });
}

/// Starts Prometheus on the rules, whose minutes become seconds. Returns its port.
fn prometheus(rig: &Rig, target: &str) -> (HelperProcess, u16) {
    let folder = rig.server.data_folder();
    let window = RULES.replace("[10m]", "[15s]").replace("[5m]", "[15s]").replace("[2m]", "[15s]");
    let rules = window.replace("offset 10m", "offset 15s").replace("for: 10m", "for: 1s").replace("for: 5m", "for: 1s");
    fs::write(folder.join("alarms.yml"), rules.replace("for: 1m", "for: 1s")).unwrap();
    let settings = format!(
        "{{global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}, rule_files: [alarms.yml], \
         scrape_configs: [{{job_name: till, static_configs: [{{targets: ['{target}']}}]}}]}}"
    );
    fs::write(folder.join("prometheus.yml"), settings).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(env::var("LOCKSON_PROMETHEUS").expect("LOCKSON_PROMETHEUS names the program"));
    command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--log.level=error");
    (HelperProcess::spawn_command(command), port)
}

/// Answers each scrape with all values in the text format of Prometheus.
fn serve(listener: &TcpListener, values: &Values, sample: impl Fn()) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        sample();
        let mut text = String::new();
        for (series, values) in values.0.lock().iter().filter(|(series, _)| series.starts_with("lockson")) {
            let (name, labels) = series.split_once(' ').unwrap_or((series, ""));
            let labels =
                labels.split_whitespace().map(|label| label.replace('=', "=\"") + "\"").collect::<Vec<_>>().join(",");
            let sum: f64 = values.iter().sum();
            text += &match name {
                "lockson_wait_seconds" | "lockson_hold_seconds" => {
                    format!("{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {}\n", values.len())
                }
                name if name.ends_with("_total") => format!("{name}{{{labels}}} {sum}\n"),
                _ => format!("{name}{{{labels}}} {}\n", values.last().unwrap_or(&0.0)),
            };
        }
        let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n{text}");
    }
}

/// The answer of Prometheus; nothing while it starts.
fn get(port: u16, path: &str) -> String {
    let mut answer = String::new();
    let ask = |answer: &mut String| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(answer)
    };
    ask(&mut answer).map_or_else(|_| String::new(), |_| answer)
}
