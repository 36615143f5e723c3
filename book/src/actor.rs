//! The child's side: a process that takes and releases a lock when the stage tells it over its pipe.

use std::time::{Duration, Instant};

use lockson_harness::helper;
use redis::{Connection, RedisResult};

use crate::Outcome;

/// A process with a recipe.
pub(crate) trait Actor {
    /// Tries once.
    fn lock(&mut self) -> Outcome<bool>;

    /// Releases the lock; false if the recipe noticed that the lock was not its own any more.
    fn unlock(&mut self) -> Outcome<bool>;

    /// The value by which the lock of this process is known in Redis.
    fn value(&self) -> String;

    /// Tries until the lock is held or the patience is over; returns the number of tries.
    fn lock_within(&mut self, patience: Duration) -> Outcome<(bool, u64)> {
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            tries += 1;
            if self.lock()? {
                return Ok((true, tries));
            }
            if began.elapsed() >= patience {
                return Ok((false, tries));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    /// Carries out a request that only this recipe knows.
    fn perform(&mut self, what: &str) -> Outcome<String> {
        Err(format!("this process cannot {what}").into())
    }
}

/// A process whose recipe is two functions, which get the value of the process.
pub(crate) struct Recipe {
    pub(crate) redis: Connection,
    pub(crate) value: String,
    pub(crate) lock: fn(&mut Connection, &str) -> RedisResult<bool>,
    pub(crate) unlock: fn(&mut Connection, &str) -> RedisResult<bool>,
}

impl Actor for Recipe {
    fn lock(&mut self) -> Outcome<bool> {
        Ok((self.lock)(&mut self.redis, &self.value)?)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok((self.unlock)(&mut self.redis, &self.value)?)
    }

    fn value(&self) -> String {
        self.value.clone()
    }
}

/// The arguments of a process.
pub(crate) struct Part {
    pub(crate) role: String,
    pub(crate) name: String,
    pub(crate) url: String,
    options: Vec<String>,
}

impl Part {
    /// The value of an option such as `lease=1000`.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn number(&self, name: &str) -> Outcome<Option<i64>> {
        Ok(self.option(name).map(str::parse).transpose()?)
    }

    pub(crate) fn connect(&self) -> RedisResult<Connection> {
        redis::Client::open(self.url.as_str())?.get_connection()
    }
}

/// Serves requests until the stage is gone.
pub(crate) fn serve(words: &[String], actor_of: fn(&Part) -> Outcome<Box<dyn Actor>>) -> Outcome<()> {
    let [role, name, url, options @ ..] = words else { return Err("a child needs role, name and URL".into()) };
    let part = Part { role: role.clone(), name: name.clone(), url: url.clone(), options: options.to_vec() };
    let mut actor = actor_of(&part)?;
    helper::say("ready");
    for request in helper::requests() {
        let answer = answer(actor.as_mut(), &request);
        helper::say(&answer.unwrap_or_else(|error| format!("error {error}").replace('\n', " ")));
    }
    Ok(())
}

fn answer(actor: &mut dyn Actor, request: &str) -> Outcome<String> {
    let began = Instant::now();
    let (held, tries) = match request.split_once(' ').unwrap_or((request, "")) {
        ("lock", "") => (actor.lock()?, 1),
        ("lock", patience) => actor.lock_within(Duration::from_millis(patience.parse()?))?,
        ("unlock", "") => return Ok(if actor.unlock()? { "released".into() } else { "not mine".into() }),
        _ => return actor.perform(request),
    };
    let word = if held { "held" } else { "busy" };
    Ok(format!("{word} {} {tries} {}", began.elapsed().as_millis(), actor.value()))
}

const BETWEEN_TRIES: Duration = Duration::from_millis(10);
