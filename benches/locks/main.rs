//! Compares the library with the least work that Redis allows: `cargo bench --bench locks`.
//!
//! `-- --quick` makes the run short, `-- pair hot` runs only these two experiments. `docs/performance.md` explains each
//! figure.

mod announcements;
mod bare;
mod child;
mod counted;
mod distinct;
mod figure;
mod hand_over;
mod hot;
mod pair;
mod picture;
mod placement;
mod plan;
mod remote;
mod renewal;
mod report;
mod several;
mod usage;
mod waiting;
mod wire;

use lockson_harness::RedisServer;

use plan::Plan;
use report::Report;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == child::FLAG) {
        return child::run(&arguments[at + 1..]);
    }
    if arguments.is_empty() {
        // `cargo test --all-targets` starts this program without `--bench`: nothing is measured then.
        println!("measures with `cargo bench --bench locks`");
        return;
    }
    let quick = arguments.iter().any(|argument| argument == "--quick") || std::env::var_os(QUICK).is_some();
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|word| !EXPERIMENTS.iter().any(|(name, _)| name == *word)) {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no experiment {unknown:?}; there are: {}", names.join(" "));
        std::process::exit(2);
    }

    let server = RedisServer::start();
    let plan = if quick { Plan::quick() } else { Plan::full() };
    let mut report = Report::new(&server, quick);
    for (name, experiment) in EXPERIMENTS {
        if wanted.is_empty() || wanted.contains(name) {
            report.heading(name);
            experiment(&server, &plan, &mut report);
        }
    }
    report.close();
}

type Experiment = fn(&RedisServer, &Plan, &mut Report);

const EXPERIMENTS: &[(&str, Experiment)] = &[
    ("pair", pair::uncontended),
    ("pair-cluster", pair::on_a_cluster),
    ("re-entry", pair::reentry),
    #[cfg(feature = "tls")]
    ("pair-tls", pair::over_tls),
    ("semaphore-pair", counted::pair),
    ("semaphore-1000-waiters", counted::waiters),
    ("multi", several::multi),
    ("red", several::red),
    ("hand-over", hand_over::run),
    #[cfg(feature = "tls")]
    ("hand-over-tls", hand_over::over_tls),
    ("hot", hot::run),
    ("distinct", distinct::run),
    ("renewal", renewal::run),
    ("announcements", announcements::run),
    ("waiting", waiting::run),
    ("queue", waiting::in_a_queue),
    ("rest", waiting::at_rest),
];

/// When set, has the effect of `--quick`.
const QUICK: &str = "LOCKSON_BENCH_QUICK";
