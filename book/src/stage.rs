//! The stage of a chapter: a server, processes, and a protocol of what happened with the time of each step.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lockson_harness::{Proxy, RedisServer, eventually, missing_server};

use crate::picture::{Column, Picture};
use crate::process::{BOUND, Names, Process};
use crate::redis_view::{InRedis, View};
use crate::{Chapter, Outcome};

/// The belief or the state of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Idle,
    Waits,
    /// The process believes that it holds the lock.
    Holds,
    Stopped,
    Dead,
    /// Holds one lock and waits for another.
    Both(&'static str),
    /// Is done, or has given up.
    Ended(&'static str),
}

/// The lines of a chapter in the summary.
pub(crate) struct Verdict {
    pub(crate) failure: String,
    pub(crate) lockson: String,
}

pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) number: usize,
    pub(crate) recipe: String,
    /// The protocol so far, as printed.
    pub(crate) text: String,
    pub(crate) pictures: Vec<Picture>,
    names: Names,
    views: Vec<View>,
    states: BTreeMap<String, State>,
    began: Instant,
    draws: bool,
}

impl Stage {
    /// Starts a server and prints the recipe.
    pub(crate) fn open(chapter: &Chapter) -> Self {
        let recipe = recipe_of(chapter.source);
        let mut stage = Self {
            server: RedisServer::start(),
            number: chapter.number,
            recipe: recipe.clone(),
            text: String::new(),
            pictures: vec![],
            names: Names::default(),
            views: vec![],
            states: BTreeMap::new(),
            began: Instant::now(),
            draws: false,
        };
        println!("\n==== Chapter {}: {} ====\n", chapter.number, chapter.recipe);
        for line in recipe.lines() {
            println!("    {line}");
        }
        stage.watch_key("lock");
        stage
    }

    /// Begins a scene in which the recipe fails; the scene gets a picture.
    pub(crate) fn failure(&mut self, what: &str, names: &[&str]) {
        let number = self.pictures.len() + 1;
        self.pictures.push(Picture::new(format!("{:02}-{number}", self.number), what));
        self.begin(&format!("Failure: {what}"), names);
        self.draws = true;
    }

    /// Begins a scene with what mends the recipe.
    pub(crate) fn mend(&mut self, what: &str, names: &[&str]) {
        self.begin(&format!("Mend: {what}"), names);
    }

    /// Begins a scene with Lockson.
    pub(crate) fn lockson(&mut self, what: &str, names: &[&str]) {
        self.begin(&format!("With Lockson: {what}"), names);
    }

    fn begin(&mut self, heading: &str, names: &[&str]) {
        if self.server.is_running() {
            let mut redis = self.server.connection();
            redis::cmd("FLUSHALL").exec(&mut redis).expect("the server answers");
        }
        self.names.borrow_mut().clear();
        self.states = names.iter().map(|name| ((*name).to_owned(), State::Idle)).collect();
        self.draws = false;
        self.say(&format!("\n{heading}\n"));
        self.say(&format!("{:>9}  {:<52} {:<8} {}", "time", "what happened", "holders", "Redis has"));
        self.began = Instant::now();
    }

    /// Starts a process of a scene.
    pub(crate) fn process(&self, name: &str, role: &str) -> Outcome<Process> {
        self.process_with(name, role, &[])
    }

    pub(crate) fn process_with(&self, name: &str, role: &str, options: &[String]) -> Outcome<Process> {
        self.process_at(&self.server, name, role, options)
    }

    pub(crate) fn process_at(
        &self,
        server: &RedisServer,
        name: &str,
        role: &str,
        options: &[String],
    ) -> Outcome<Process> {
        Process::start(role, name, Proxy::start(server.address()), options, &self.names)
    }

    /// Watches one key of the stage's server.
    pub(crate) fn watch_key(&mut self, key: &str) {
        self.views = vec![View::new("Redis", self.server.url(), key)];
    }

    pub(crate) fn watch(&mut self, views: Vec<View>) {
        self.views = views;
    }

    /// Counts the times from here on.
    pub(crate) fn start_clock(&mut self) {
        self.began = Instant::now();
    }

    /// Notes a step and the states of the processes since then; prints the state of Redis beside the step.
    pub(crate) fn step(&mut self, what: &str, states: &[(&str, State)]) {
        let at = self.began.elapsed();
        for (name, state) in states {
            self.states.insert((*name).to_owned(), state.clone());
        }
        let names = Rc::clone(&self.names);
        let redis: Vec<(String, InRedis)> =
            self.views.iter_mut().map(|view| (view.label.clone(), view.read(&names))).collect();
        let holders: Vec<&str> =
            self.states.iter().filter(|(_, state)| **state == State::Holds).map(|(name, _)| name.as_str()).collect();
        let holders = if holders.is_empty() { "-".into() } else { holders.join(" ") };
        let in_redis: Vec<String> = match redis.as_slice() {
            [(_, only)] => vec![only.in_words()],
            several => several.iter().map(|(label, state)| format!("{label}: {}", state.in_words())).collect(),
        };
        self.say(&format!("{:>6} ms  {what:<52} {holders:<8} {}", at.as_millis(), in_redis.join("; ")));
        if self.draws
            && let Some(picture) = self.pictures.last_mut()
        {
            picture.columns.push(Column { at, what: what.into(), states: self.states.clone(), redis });
        }
    }

    /// The third process asks once. Returns whether it has the lock.
    pub(crate) fn third_tries(&mut self, third: &mut Process) -> Outcome<bool> {
        let got_in = third.lock()?;
        if got_in {
            self.step("C takes the lock", &[("C", State::Holds)]);
        } else {
            self.step("C is refused", &[]);
        }
        Ok(got_in)
    }

    /// Says in numbers what was seen.
    pub(crate) fn seen(&mut self, what: &str) {
        let mut lines = vec!["\n   Seen:".to_owned()];
        for word in what.split(' ') {
            match lines.last_mut() {
                Some(line) if line.len() + word.len() < WIDTH => line.push_str(&format!(" {word}")),
                _ => lines.push(format!("         {word}")),
            }
        }
        self.say(&format!("{}.", lines.join("\n")));
    }

    pub(crate) fn say(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(crate) fn redis(&self) -> redis::Connection {
        self.server.connection()
    }

    /// The time to live of a key: -1 without an end, -2 without a key.
    pub(crate) fn time_to_live(&self, key: &str) -> Outcome<i64> {
        Ok(redis::cmd("PTTL").arg(key).query(&mut self.redis())?)
    }

    /// Waits until Redis has deleted the key at the end of its time to live.
    pub(crate) fn wait_until_expired(&self, key: &str) {
        let mut redis = self.redis();
        eventually(BOUND, "the lock expires", || {
            redis::cmd("EXISTS").arg(key).query::<bool>(&mut redis).is_ok_and(|exists| !exists)
        });
    }
}

/// An error unless a scene has come to the state from which it goes on.
pub(crate) fn given(so: bool, what: &str) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("the scene stopped: it is not so that {what}").into()) }
}

/// An error unless the failure of the recipe has happened.
pub(crate) fn failed_as_expected(so: bool, what: &str) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("the failure did not happen: {what}").into()) }
}

/// An error unless the mend worked.
pub(crate) fn mended(so: bool, what: &str) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("the mend did not work: {what}").into()) }
}

/// An error unless Lockson held.
pub(crate) fn lockson_held(so: bool, what: &str) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("Lockson did not hold: {what}").into()) }
}

/// Says why no server can be started.
pub(crate) fn check_server() -> Outcome<()> {
    missing_server().map_or(Ok(()), |advice| Err(advice.into()))
}

/// The lines of a file between the two marks, as a program of one file would have them.
fn recipe_of(source: &str) -> String {
    let recipe = source.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(recipe, _)| recipe);
    recipe.trim_matches('\n').replace("pub(crate) ", "")
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const WIDTH: usize = 110;
const BEGIN: &str = "// ---- the recipe ----\n";
const END: &str = "// ---- end of the recipe ----\n";
