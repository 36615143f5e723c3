//! An actor: a thread of a peer that takes, awaits and releases one object.

use std::cell::RefCell;
use std::time::Duration;

use crate::kind::{Family, Kind, Shape};
use crate::program::Seat;
use crate::stage::PATIENT;
use lockson_harness::percent::{encode, encode_all};
use lockson_harness::{Answer, Peer, Ticket};

/// An object to hold: a kind and a name.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: &'static Kind,
    /// The word of the protocol; a rival may use another kind of the same name.
    word: &'static str,
    pub(crate) name: String,
}

/// A thread of a peer, and the thread's object.
#[derive(Clone, Debug)]
pub(crate) struct Actor<'p> {
    peer: &'p RefCell<Peer>,
    pub(crate) seat: Seat,
    client: u32,
    thread: u32,
    pub(crate) object: Object,
    /// Ids of permits taken and not given back.
    permits: RefCell<Vec<String>>,
}

/// An acquire with a wait.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    actor: &'a Actor<'a>,
    ticket: Ticket,
    most: Duration,
}

impl Object {
    pub(crate) fn new(kind: &'static Kind, name: &str) -> Self {
        Self { kind, word: kind.word, name: name.to_owned() }
    }

    /// The object that a rival asks for, and that the holder must keep from the rival.
    pub(crate) fn rival_of(kind: &'static Kind, name: &str) -> Self {
        Self { word: kind.rival(), ..Self::new(kind, name) }
    }

    /// The object of a single name under another kind.
    pub(crate) fn of_kind(word: &'static str, kind: &'static Kind, name: &str) -> Self {
        Self { kind, word, name: name.to_owned() }
    }

    /// The object's words in a command.
    pub(crate) fn words(&self) -> String {
        let (word, name) = (self.word, &self.name);
        match self.kind.shape {
            Shape::Several if word == self.kind.word => {
                format!("kind={word} names={}", encode_all(&self.part_names()))
            }
            Shape::Group => format!("kind={word} name={} names=one,two", encode(name)),
            _ => format!("kind={word} name={}", encode(name)),
        }
    }

    /// The further words for a lock on independent servers: the client of each server.
    pub(crate) fn clients(&self, client: u32) -> String {
        let clients = CLIENTS_OF_SERVERS.map(|further| (client + further).to_string());
        if self.word == INDEPENDENT { format!(" clients={}", clients.join(",")) } else { String::new() }
    }

    /// Whether the object needs independent servers.
    pub(crate) fn is_independent(&self) -> bool {
        self.word == INDEPENDENT
    }

    /// The names of the locks in a multi-lock.
    pub(crate) fn part_names(&self) -> [String; 3] {
        ["a", "b", "c"].map(|part| format!("{}:{part}", self.name))
    }
}

impl<'p> Actor<'p> {
    pub(crate) fn new(peer: &'p RefCell<Peer>, seat: Seat, object: Object) -> Self {
        Self { peer, seat, client: PATIENT, thread: 0, object, permits: RefCell::default() }
    }

    /// The same through another client of the process.
    pub(crate) fn by_client(&self, client: u32) -> Self {
        Self { client, permits: RefCell::default(), ..self.clone() }
    }

    /// The same thread with another object.
    pub(crate) fn about(&self, object: &Object) -> Self {
        Self { object: object.clone(), permits: RefCell::default(), ..self.clone() }
    }

    /// Another thread of the same process.
    pub(crate) fn on_thread(&self, thread: u32) -> Self {
        Self { thread, permits: RefCell::default(), ..self.clone() }
    }

    /// Gives a semaphore its permits; other objects need nothing.
    pub(crate) fn prepare(&self, permits: u32) {
        if matches!(self.object.kind.family, Family::Semaphore | Family::Permits) {
            let set = self.ask("try_set_permits", &format!("permits={permits}")).expect_ok();
            assert!(set.flag("set"), "the name was in use");
        }
    }

    /// Takes the object, waiting without limit; closes a latch.
    #[track_caller]
    pub(crate) fn take(&self) -> Answer {
        let answer = match self.object.kind.family {
            Family::Lock => self.ask("lock", ""),
            Family::Semaphore | Family::Permits => self.ask("acquire", ""),
            Family::Latch => self.ask("try_set_count", "count=1"),
        };
        self.note(answer.expect_ok())
    }

    /// Takes the object with a lease.
    #[track_caller]
    pub(crate) fn take_for(&self, lease: Duration) -> Answer {
        let verb = if self.object.kind.family == Family::Lock { "lock" } else { "acquire" };
        self.note(self.ask(verb, &format!("lease_ms={}", lease.as_millis())).expect_ok())
    }

    /// Takes the object if the object is free.
    #[track_caller]
    pub(crate) fn attempt(&self) -> bool {
        let answer = match self.object.kind.family {
            Family::Lock => self.ask("try_lock", ""),
            Family::Semaphore | Family::Permits => self.ask("try_acquire", ""),
            Family::Latch => self.ask("await", "wait_ms=0"),
        };
        self.note(answer.expect_ok()).acquired()
    }

    /// Starts waiting for the object.
    #[track_caller]
    pub(crate) fn start_waiting(&self, most: Duration) -> Waiting<'_> {
        let verb = match self.object.kind.family {
            Family::Lock => "try_lock",
            Family::Semaphore | Family::Permits => "try_acquire",
            Family::Latch => "await",
        };
        let command = self.command(verb, &format!("wait_ms={}", most.as_millis()));
        Waiting { actor: self, ticket: self.peer.borrow_mut().send(&command), most }
    }

    /// Waits for the object and returns whether the object was granted.
    #[track_caller]
    pub(crate) fn wait(&self, most: Duration) -> bool {
        self.start_waiting(most).finish().acquired()
    }

    /// Releases the object; counts a latch down.
    pub(crate) fn give_back(&self) -> Answer {
        match self.object.kind.family {
            Family::Lock => self.ask("unlock", ""),
            Family::Semaphore => self.ask("release", ""),
            Family::Permits => {
                let id = self.permits.borrow_mut().pop().expect("a permit was taken");
                self.ask("release", &format!("id={id}"))
            }
            Family::Latch => self.ask("count_down", ""),
        }
    }

    /// Sends any question about the object.
    #[track_caller]
    pub(crate) fn ask(&self, verb: &str, more: &str) -> Answer {
        let command = self.command(verb, more);
        self.peer.borrow_mut().ask(&command)
    }

    /// Asks about other values of the group.
    #[track_caller]
    pub(crate) fn ask_values(&self, verb: &str, values: &str) -> Answer {
        let command = self.command(verb, "").replace("names=one,two", &format!("names={values}"));
        self.peer.borrow_mut().ask(&command)
    }

    fn command(&self, verb: &str, more: &str) -> String {
        let (client, thread) = (self.client, self.thread);
        let space = if more.is_empty() { "" } else { " " };
        let (words, clients) = (self.object.words(), self.object.clients(client));
        format!("{verb} client={client} thread={thread} {words}{clients}{space}{more}")
    }

    fn note(&self, answer: Answer) -> Answer {
        if let Some(ids) = answer.optional_text("ids") {
            self.permits.borrow_mut().extend(ids.split(',').map(str::to_owned));
        }
        answer
    }
}

impl Waiting<'_> {
    /// Waits until the grant or the end of the wait.
    #[track_caller]
    pub(crate) fn finish(self) -> Answer {
        let answer = self.actor.peer.borrow_mut().answer(self.ticket, self.most + GRACE);
        self.actor.note(answer)
    }
}

/// The kind whose locks are on independent servers.
const INDEPENDENT: &str = "red";
/// What the number of a client at each server has more than the number of the client at the first.
pub(crate) const CLIENTS_OF_SERVERS: [u32; 3] = [0, 10, 20];
/// The permitted delay of an answer.
const GRACE: Duration = Duration::from_secs(5);
