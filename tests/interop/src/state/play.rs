//! Plays a scenario in one language on a separate server.

use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::{Answer, Peer, RedisServer, Ticket};

use super::normal::Normal;
use super::record::{Observer, Record};
use super::scenario::{Action, Command, Scenario};
use crate::actor::{CLIENTS_OF_SERVERS, Object};
use crate::kind::Kind;
use crate::program::Program;
use crate::site::Site;
use crate::stage::{BRISK, PATIENT, open_at};

/// The records after each step with a label.
pub(crate) type Seen = Vec<(&'static str, Record)>;

/// A peer of one language, and a server for this peer alone.
pub(crate) struct Player {
    server: RedisServer,
    observer: Observer,
    peer: Peer,
    /// Servers for locks on independent servers; the records have the first server only.
    others: Vec<RedisServer>,
    /// The number of scenarios so far; each scenario has fresh names and threads.
    played: u32,
}

/// One scenario in one language, in progress.
struct Play<'p> {
    player: &'p mut Player,
    kind: &'static Kind,
    name: String,
    first_thread: u32,
    started: Vec<(u32, Ticket)>,
}

impl Player {
    pub(crate) fn new(program: &Program) -> Self {
        let server = RedisServer::start();
        let observer = Observer::new(&server);
        let mut player = Self { server, observer, peer: Peer::launch(program.command()), others: vec![], played: 0 };
        player.open(PATIENT);
        player.open(BRISK);
        player
    }

    pub(crate) fn play(&mut self, kind: &'static Kind, scenario: Scenario) -> Seen {
        self.played += 1;
        if Object::new(kind, "").is_independent() {
            self.open_other_servers();
        }
        self.observer.clear();
        let (name, first_thread) = (format!("state-{}-", self.played), self.played * 10);
        let mut normal = Normal::new(&name);
        let mut play = Play { player: self, kind, name, first_thread, started: vec![] };
        let mut seen = vec![];
        for step in scenario {
            let answer = play.act(&step.action);
            match step.label {
                Some(label) => seen.push((label, play.player.observer.record(answer.as_ref(), &mut normal))),
                None => play.player.observer.learn(&mut normal),
            }
        }
        seen
    }

    /// The processes of the scenario.
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.server.pid(), self.peer.pid()]
    }

    fn open(&mut self, client: u32) {
        open_at(&mut self.peer, Site::One(&self.server), client, (client == BRISK).then_some(TTL));
    }

    fn open_other_servers(&mut self) {
        for further in CLIENTS_OF_SERVERS.iter().skip(1 + self.others.len()) {
            let server = RedisServer::start();
            open_at(&mut self.peer, Site::One(&server), PATIENT + further, None);
            open_at(&mut self.peer, Site::One(&server), BRISK + further, Some(TTL));
            self.others.push(server);
        }
    }
}

impl Play<'_> {
    fn act(&mut self, action: &Action) -> Option<Answer> {
        match action {
            Action::Ask(command) => {
                let words = self.words(command);
                return Some(self.player.peer.ask(&words));
            }
            Action::Start(command) => {
                let words = self.words(command);
                let before = self.player.observer.waiters(&self.name);
                let ticket = self.player.peer.send(&words);
                self.started.push((command.thread, ticket));
                let end = Instant::now() + JOINING;
                while self.player.observer.waiters(&self.name) == before && Instant::now() < end {
                    thread::sleep(Duration::from_millis(2));
                }
                thread::sleep(SETTLING);
            }
            Action::Finish { thread } => {
                let place = self.started.iter().position(|(started, _)| started == thread);
                let (_, ticket) = self.started.swap_remove(place.expect("the thread was started"));
                return Some(self.player.peer.answer(ticket, PATIENCE));
            }
            Action::Pause { millis } => thread::sleep(Duration::from_millis(*millis)),
            Action::Renewal => self.await_renewal(),
            Action::SetTtl { millis } => {
                drop(self.player.observer.redis(redis::cmd("PEXPIRE").arg(&self.name).arg(millis)))
            }
            Action::Close => {
                let answer = self.player.peer.ask(&format!("close client={PATIENT}"));
                self.player.open(PATIENT);
                return Some(answer);
            }
        }
        None
    }

    fn words(&self, command: &Command) -> String {
        let object = match command.kind {
            Some(word) => Object::of_kind(word, self.kind, &self.name),
            None => Object::new(self.kind, &self.name),
        };
        let client = if command.brisk { BRISK } else { PATIENT };
        let thread = self.first_thread + command.thread;
        let space = if command.more.is_empty() { "" } else { " " };
        let (words, clients) = (object.words(), object.clients(client));
        format!("{} client={client} thread={thread} {words}{clients}{space}{}", command.verb, command.more)
    }

    /// Waits until the time to live does not just run down, or until a renewal would have come.
    fn await_renewal(&mut self) {
        let end = Instant::now() + RENEWING;
        let mut last = self.player.observer.left_ms(&self.name);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
            let left = self.player.observer.left_ms(&self.name);
            if left > last || left < last - JUMP_MS {
                return;
            }
            last = left;
        }
    }
}

/// The time to live through the brisk client, renewed after each third.
const TTL: Duration = Duration::from_secs(3);
const RENEWING: Duration = Duration::from_millis(1_250);
const JUMP_MS: i64 = 1_000;
/// From a command with a wait to the waiter's first trace in Redis; a polling waiter leaves no trace.
const JOINING: Duration = Duration::from_millis(500);
/// From a place in the queue to a subscription, and to the end of the request that follows.
const SETTLING: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(10);
