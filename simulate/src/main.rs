//! `lockson-simulate SEED STORIES STEPS [MISTAKE]` plays the stories of so many seeds, each until so many locks were
//! taken. A story that breaks a promise is shrunk and printed, with the command that plays it alone. The variable
//! `WITHOUT` names what may not go wrong, with commas.
//!
//! `lockson-simulate mistakes FROM TO STORIES STEPS` plants each of these mistakes, and plays stories until one finds it.
//! `lockson-simulate plant SRC` writes mistakes of the engine into a copy of the sources. The program that is built there
//! looks for each of them with `lockson-simulate engine STORIES STEPS`; their numbers follow those of the scripts.

use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use lockson_simulate::engine_mistakes::{ENGINE_MISTAKES, hot_kind, plant_all};
use lockson_simulate::kinds::KINDS;
use lockson_simulate::mistakes::MISTAKES;
use lockson_simulate::story::play;
use lockson_simulate::trouble::TROUBLES;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    match &arguments[..] {
        [story, rest @ ..] if story == STORY => {
            let [seed, steps, mistake @ ..] = rest else { panic!("SEED STEPS [MISTAKE]") };
            let mistake = mistake.first().map(|mistake| usize::try_from(number(mistake)).expect("a place"));
            let without = env::var(WITHOUT).unwrap_or_default();
            let without: Vec<String> = without.split(',').map(str::to_owned).collect();
            let is_noted = env::var(NOTED).as_deref() != Ok("no");
            let (report, taken) = play(number(seed), number(steps), is_noted, &without, mistake);
            println!("{taken} {:?} {} {:016x}", report.time, report.steps, report.fingerprint);
            ExitCode::SUCCESS
        }
        [mistakes, from, to, stories, steps] if mistakes == "mistakes" => {
            find(number(from)..number(to), number(stories), steps)
        }
        [engine, stories, steps] if engine == "engine" => {
            let first = MISTAKES.len() as u64;
            find(first..first + ENGINE_MISTAKES.len() as u64, number(stories), steps)
        }
        [plant, sources] if plant == "plant" => match plant_all(Path::new(sources)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("plant: {error}");
                ExitCode::FAILURE
            }
        },
        [seed, stories, steps, mistake @ ..] => play_all(number(seed), number(stories), steps, mistake),
        _ => panic!("SEED STORIES STEPS [MISTAKE]"),
    }
}

/// Plays the stories, one at a time on each processor.
fn play_all(first: u64, stories: u64, steps: &str, mistake: &[String]) -> ExitCode {
    let (next, taken, has_failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (began, without) = (Instant::now(), env::var(WITHOUT).unwrap_or_default());
    on_each_processor(|| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= stories || has_failed.load(Ordering::Relaxed) {
                return;
            }
            let seed = first + number;
            let output = story(seed, steps, false, &without, mistake);
            let said = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() {
                has_failed.store(true, Ordering::Relaxed);
                let (steps, without, output) = shrunk(seed, steps, &without, mistake);
                eprintln!("{}", String::from_utf8_lossy(&output.stderr));
                let mistake = mistake.iter().map(|number| format!(" MISTAKE={number}")).collect::<String>();
                eprintln!("again: make simulate SEED={seed} STORIES=1 STEPS={steps} WITHOUT={without}{mistake}");
                return;
            }
            taken
                .fetch_add(said.split(' ').next().and_then(|taken| taken.parse().ok()).unwrap_or(0), Ordering::Relaxed);
            if stories <= 10 || number % (stories / 10) == 0 {
                println!("simulate: seed {seed}: {}", said.trim());
            }
        }
    });
    let taken = taken.into_inner();
    let time = Duration::from_millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(0));
    println!("simulate: {taken} taken in {time:?}, {} a second", taken * 1_000 / (time.as_millis().max(1) as u64));
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Looks for each of the mistakes, one at a time on each processor.
fn find(mistakes: Range<u64>, stories: u64, steps: &str) -> ExitCode {
    let (next, has_failed) = (AtomicU64::new(mistakes.start), AtomicBool::new(false));
    on_each_processor(|| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= mistakes.end {
                return;
            }
            let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(MISTAKES.len()));
            let others = place.and_then(hot_kind).map_or(String::new(), without_others);
            let finds = |seed: u64| {
                let without = if seed.is_multiple_of(2) { &others } else { "" };
                let output = story(seed, steps, false, without, &[number.to_string()]);
                let last = String::from_utf8_lossy(&output.stderr).lines().last().map(str::to_owned);
                (!output.status.success()).then(|| (seed, last.unwrap_or_default()))
            };
            match FRUITFUL.iter().copied().chain(1..=stories).find_map(finds) {
                Some((seed, why)) => println!("mistake {number}: found by seed {seed}: {}", why.trim()),
                None => {
                    println!("mistake {number}: NOT FOUND by {stories} stories");
                    has_failed.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What every second story leaves out that looks for a mistake in one kind of lock.
fn without_others(kind: &str) -> String {
    let others = KINDS.iter().map(|(name, _)| *name).filter(|name| *name != kind);
    others.chain(["java"]).collect::<Vec<_>>().join(",")
}

fn on_each_processor(work: impl Fn() + Sync) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let work = &work;
    thread::scope(|scope| {
        for processor in 0..processors {
            scope.spawn(move || {
                stay_on(processor);
                work();
            });
        }
    });
}

/// Plays a story in a process of its own, which notes what happens or not.
fn story(seed: u64, steps: &str, is_noted: bool, without: &str, mistake: &[String]) -> Output {
    let mut story = Command::new(env::current_exe().expect("this program has a path"));
    let story = story.env(WITHOUT, without).env(NOTED, if is_noted { "yes" } else { "no" });
    let story = story.args([STORY, &seed.to_string(), steps]).args(mistake);
    story.output().expect("this program runs")
}

/// The shortest story of a seed, with the fewest troubles and kinds of lock, in which a promise still breaks.
fn shrunk(seed: u64, steps: &str, without: &str, mistake: &[String]) -> (String, String, Output) {
    let (mut steps, mut without) = (steps.to_owned(), without.to_owned());
    let mut output = story(seed, &steps, true, &without, mistake);
    for trouble in TROUBLES.iter().chain(KINDS.iter().map(|(name, _)| name)) {
        let fewer = format!("{without},{trouble}").trim_start_matches(',').to_owned();
        let smaller = story(seed, &steps, true, &fewer, mistake);
        if !smaller.status.success() {
            (without, output) = (fewer, smaller);
        }
    }
    while let Some(half) = steps.parse::<u64>().ok().map(|steps| (steps / 2).to_string()).filter(|half| half != "0") {
        let smaller = story(seed, &half, true, &without, mistake);
        if smaller.status.success() {
            break;
        }
        (steps, output) = (half, smaller);
    }
    (steps, without, output)
}

/// Threads of a story run one at a time, and the baton is passed faster on one processor.
#[cfg(target_os = "linux")]
fn stay_on(processor: usize) {
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(processor);
    let _ = rustix::thread::sched_setaffinity(None, &processors);
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) {}

/// The seeds of stories that find many mistakes, the fast ones first: they are played before the others.
const FRUITFUL: &[u64] = &[1, 2, 3, 25, 6, 33];
const STORY: &str = "story";
const WITHOUT: &str = "WITHOUT";
/// Whether a story notes what happens, which takes time.
const NOTED: &str = "NOTED";
