//! Tests Lockson against real Redisson and against other lock libraries, and writes the results.

mod actor;
mod checks;
mod command_line;
mod document;
mod kind;
mod lanes;
mod load;
mod matrix;
mod names;
mod options;
mod program;
mod site;
mod stage;
mod starved;
mod state;
mod subscribed;
mod token;
mod verdict;

use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::{Peer, RedisCluster, RedisServer};

use document::Results;
use kind::{Column, Family, Kind, Shape};
use options::Options;
use site::Site;
use verdict::{Score, Verdict, caught};

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let started = Instant::now();
    verdict::keep_stories();
    let score = Arc::new(Score::default());
    let shares = if options.all_shares { ALL_SHARES } else { Duration::ZERO };
    end_in_time(&score, LIMIT + 3 * options.soak + shares);
    let results = run(&options, &score);
    if options.all_shares {
        score.attempt("the shares in docs/compatibility.md", || {
            document::write_shares(&results.fairness).expect("the document can be written");
        });
    }
    if options.is_whole() && !options.brief {
        score.attempt("docs/compatibility.md", || document::write(&results).expect("the document can be written"));
    }
    println!("{:.0} s", started.elapsed().as_secs_f64());
    println!("{}", score.line());
    if score.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the chosen parts, one after the other.
fn run(options: &Options, score: &Score) -> Results {
    let server = RedisServer::start();
    let one = Site::One(&server);
    let cast = options.cast(NEWEST);
    let chosen = |wanted: fn(&Kind) -> bool| -> Vec<&'static Kind> {
        options.kinds().iter().copied().filter(|kind| wanted(kind)).collect()
    };
    let mut results = Results::default();
    let part = |name: &str, work: &mut dyn FnMut()| {
        if options.wants(name) {
            score.attempt(name, work);
        }
    };
    part("matrix", &mut || results.matrix = matrix::fill(one, &cast, options.kinds(), Column::ALL, score, "matrix"));
    part("redisson3", &mut || {
        let kinds = chosen(|kind| kind.with_redisson3);
        results.matrix_of_3 = matrix::fill(one, &options.cast(OLDER), &kinds, Column::ALL, score, "Redisson 3");
    });
    part("names", &mut || results.names = names::fill(one, &cast, options.kinds(), score));
    part("state", &mut || results.states = state::compare(&cast, options.kinds(), score));
    part("handover", &mut || {
        for kind in chosen(|kind| kind.is_timed) {
            results.loads.extend(load::handover(&server, &cast, kind, score));
        }
    });
    part("fairness", &mut || {
        results.fairness = load::fairness(&server, &cast, &chosen(|_| true), options, score);
    });
    part("order", &mut || {
        for kind in chosen(|kind| kind.is_queue) {
            results.loads.push(load::order(&server, &cast, kind, score));
        }
    });
    part("soak", &mut || {
        let (singles, others): (Vec<_>, Vec<_>) = chosen(|kind| kind.is_soaked)
            .into_iter()
            .partition(|kind| kind.family == Family::Lock && kind.shape == Shape::Single);
        if !singles.is_empty() {
            results.loads.push(load::soak(one, &cast, &singles, options.soak, score));
        }
        // The threads of a kind of several names, or of one with permits, meet each other all the time.
        for kind in others {
            results.loads.push(load::soak(one, &cast, &[kind], options.soak / 2, score));
        }
    });
    let on_cluster = Score::default();
    if options.wants("cluster") {
        on_cluster.attempt("cluster", || {
            let cluster = RedisCluster::start(3, 0);
            let cluster = Site::Cluster(&cluster);
            results.matrix_on_cluster =
                matrix::fill(cluster, &cast, options.kinds(), Column::ON_CLUSTER, &on_cluster, "cluster");
            let singles: Vec<_> =
                chosen(|kind| kind.is_soaked && kind.family == Family::Lock && kind.shape == Shape::Single);
            if !singles.is_empty() {
                results.loads_on_cluster.push(load::soak(cluster, &cast, &singles, options.soak / 3, &on_cluster));
            }
        });
        println!("cluster: {}", on_cluster.line());
        score.add(&on_cluster);
    }
    part("commands", &mut || command_line::check(&cast, options.kinds(), score));
    if options.wants_token() {
        score.attempt("token", || results.token = token::run(&server, score));
    }
    if options.is_whole() {
        results.versions =
            [NEWEST, OLDER].map(|profile| Peer::launch(options.cast(profile).java.command()).version().to_owned());
    }
    results
}

/// Ends the process with a failure after the time limit; the peers and servers end too.
fn end_in_time(score: &Arc<Score>, limit: Duration) {
    let score = Arc::clone(score);
    thread::spawn(move || {
        thread::sleep(limit);
        score.count("the whole", &Verdict::Failed(format!("the run did not end within {limit:?}")));
        println!("{}", score.line());
        process::exit(1);
    });
}

impl Score {
    /// Does work other than a check; a panic counts as a failure.
    fn attempt(&self, what: &str, work: impl FnOnce()) {
        if let Err(story) = caught(work) {
            self.count(what, &Verdict::Failed(story));
        }
    }
}

const NEWEST: &str = "redisson4";
const OLDER: &str = "redisson3";
/// The further time for every cell of the table of shares.
const ALL_SHARES: Duration = Duration::from_secs(1_800);
/// The limit of everything but the soaks.
const LIMIT: Duration = Duration::from_secs(740);
