//! The selling processes as seen by the manager: starting, ordering, listening.

use std::process::Command;
use std::time::Duration;

use lockson_harness::HelperProcess;

use crate::Result;
use crate::plan::{FRESH, PATIENCE};
use crate::report::{Look, Mark, Order, Receipt, Report};
use crate::till;

/// All processes, and all their reports.
pub struct Crew {
    url: String,
    name: String,
    has_lock: bool,
    /// Whether the fresh till is the one in Java.
    pub with_java: bool,
    tills: Vec<Till>,
    pub books: Books,
}

/// All reports received.
#[derive(Default)]
pub struct Books {
    pub receipts: Vec<Receipt>,
    /// The order that a till is following now.
    pub mark: Option<Mark>,
    pub worked: Option<Look>,
    pub continued: Option<Look>,
    /// Noticed losses: the number of the till, and the error's text.
    pub lost: Vec<(u32, String)>,
}

struct Till {
    number: u32,
    /// The prefix of every owner id of this process.
    client: String,
    process: HelperProcess,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Selling,
    Done,
    Killed,
}

impl Crew {
    /// A crew without processes, for the sale of this name; without the lock every seller locks another name.
    pub fn new(url: &str, name: &str, has_lock: bool, with_java: bool) -> Self {
        Self { url: url.into(), name: name.into(), has_lock, with_java, tills: vec![], books: Books::default() }
    }

    /// Starts one more process: the same program in another role, or the till in Java.
    pub fn hire(&mut self, number: u32) -> Result<()> {
        let mut command =
            if self.with_java && number == FRESH { java()? } else { Command::new(std::env::current_exe()?) };
        let has_lock = self.has_lock.to_string();
        command.args([till::ROLE, &self.name, &number.to_string(), &has_lock]).env("REDIS_URL", &self.url);
        let process = HelperProcess::spawn_command(command); // dies with us, whatever happens to us
        let line = process.line(PATIENCE).ok_or_else(|| format!("till {number} is silent: {}", process.errors()))?;
        match Report::read(&line)? {
            Report::Ready(client) => self.tills.push(Till { number, client, process, state: State::Selling }),
            other => return Err(format!("till {number} did not open: {other:?}").into()),
        }
        Ok(())
    }

    /// Opens a till for business.
    pub fn open(&mut self, number: u32) -> Result<()> {
        self.till(number)?.process.send(till::OPEN);
        Ok(())
    }

    /// Gives an order to the next seller of this till that holds the lock.
    pub fn order(&mut self, number: u32, order: Order) -> Result<()> {
        self.books.mark = None;
        self.till(number)?.process.send(order.word());
        Ok(())
    }

    /// Kills a till without warning.
    pub fn kill(&mut self, number: u32) -> Result<()> {
        let till = self.till(number)?;
        till.process.kill();
        till.state = State::Killed;
        self.listen() // to what was on its way
    }

    /// Continues a till that has stopped itself.
    pub fn resume(&mut self, number: u32) -> Result<()> {
        self.till(number)?.process.resume();
        Ok(())
    }

    /// Records all reports that have arrived.
    pub fn listen(&mut self) -> Result<()> {
        for till in &mut self.tills {
            while let Some(line) = till.process.line(Duration::ZERO) {
                match Report::read(&line)? {
                    Report::Sold(receipt) => self.books.receipts.push(receipt),
                    Report::Marked(mark) => self.books.mark = Some(mark),
                    Report::Worked(look) => self.books.worked = Some(look),
                    Report::Continued(look) => self.books.continued = Some(look),
                    Report::Lost(text) => self.books.lost.push((till.number, text)),
                    Report::Done => till.state = State::Done,
                    Report::Failed(text) => return Err(format!("till {} failed: {text}", till.number).into()),
                    Report::Ready(_) => return Err(format!("till {} opened twice", till.number).into()),
                }
            }
            if till.state != State::Killed && !till.process.is_running() {
                return Err(format!("till {} ended by itself: {}", till.number, till.process.errors()).into());
            }
        }
        Ok(())
    }

    /// Whether all living tills have finished.
    pub fn is_done(&self) -> bool {
        self.tills.iter().all(|till| till.state != State::Selling)
    }

    /// Names the till of an owner id in Redis.
    pub fn whose(&self, owner: &str) -> String {
        let till = self.tills.iter().find(|till| owner.starts_with(&till.client));
        till.map_or_else(|| format!("a stranger, {owner}"), |till| format!("till {}", till.number))
    }

    /// Ends all tills; returns a fault for each till that did not end properly.
    pub fn dismiss(&mut self) -> Vec<String> {
        let mut misfits = vec![];
        for till in self.tills.iter_mut().filter(|till| till.state != State::Killed) {
            till.process.close_input();
            let status = till.process.wait(PATIENCE);
            if !status.success() {
                misfits.push(format!("till {} ended with {status}: {}", till.number, till.process.errors()));
            }
        }
        misfits
    }

    fn till(&mut self, number: u32) -> Result<&mut Till> {
        let till = self.tills.iter_mut().find(|till| till.number == number);
        till.ok_or_else(|| format!("there is no till {number}").into())
    }
}

/// The till in Java, with the Redisson that `make demo` has asked Maven for.
fn java() -> Result<Command> {
    let classpath = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/interop/redisson/target/classpath.txt");
    let classpath = std::fs::read_to_string(classpath).map_err(|error| format!("{classpath}: {error}"))?;
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath.trim()]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/Till.java"));
    Ok(command)
}
