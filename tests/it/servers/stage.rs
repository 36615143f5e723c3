//! The place where users with few rights act: a server, its users, and several deeds at once.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::deeds::{Deed, Outcome, PASSWORD};
use super::users::User;
use super::{Version, own_command};
use crate::support::prelude::*;

/// The outcome of a waiter that was not woken.
pub(crate) const LATE: &str = "up to a second late";

/// A server that knows all scripts, and a client with all rights, past the proxy.
pub(crate) struct House {
    pub(crate) rig: Rig,
    pub(crate) bystander: Client,
    /// The server's own command that compares and deletes, if there is such a command.
    own_command: &'static str,
}

/// One user of a house, with names of its own.
pub(crate) struct Stage<'a> {
    pub(crate) house: &'a House,
    pub(crate) user: &'a User,
    number: usize,
}

/// The end of a preparation: the rest is done with the rights under test.
pub(crate) struct Turn {
    ready: Sender<()>,
    go: Receiver<()>,
}

impl House {
    pub(crate) fn open(version: &Version) -> House {
        let (rig, bystander) = Rig::around(version.start()).and(Rig::direct);
        let house = House { rig, bystander, own_command: own_command::word_of(version).unwrap_or_default() };
        house.load_scripts();
        house
    }

    /// Loads every script, so that no call needs the right to `eval`.
    pub(crate) fn load_scripts(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        for kind in fs::read_dir(folder).expect("lua/ can be read") {
            for script in fs::read_dir(kind.expect("an entry").path()).expect("a folder for each kind") {
                let text = fs::read_to_string(script.expect("an entry").path()).expect("a script is text");
                self.rig.server.run(&["SCRIPT", "LOAD", &text]);
            }
        }
    }
}

impl Stage<'_> {
    /// Runs these deeds at once: each deed prepares with all words of the line and goes on with `rights`.
    pub(crate) fn perform(
        house: &House,
        user: &User,
        number: usize,
        rights: &[String],
        deeds: &[&'static Deed],
    ) -> Vec<(&'static Deed, Outcome)> {
        let stage = Stage { house, user, number };
        stage.give(&user.documented_line());
        let ((ready, is_ready), (start, go)) = (unbounded(), bounded(0));
        thread::scope(|scope| {
            let begin = |deed: &&'static Deed| {
                let (stage, turn) = (&stage, Turn { ready: ready.clone(), go: go.clone() });
                let (deed, act) = (*deed, deed.act);
                (deed, scope.spawn(move || act(stage, turn)))
            };
            let under_way: Vec<_> = deeds.iter().map(begin).collect();
            drop(ready);
            // One message from each deed, or none from a deed that panicked.
            for () in &is_ready {}
            stage.give(rights);
            drop(start);
            under_way.into_iter().map(|(deed, act)| (deed, joined(act))).collect()
        })
    }

    /// Makes these words the rights of the user, also for open connections.
    fn give(&self, words: &[String]) {
        let name = format!("user{}", self.number);
        let head = ["ACL", "SETUSER", &name, "reset"];
        // The document has the word of Redis and mentions the word of Valkey.
        let own = |word: &String| if word == "+delex" { format!("+{}", self.house.own_command) } else { word.clone() };
        let words: Vec<String> = words.iter().map(own).collect();
        let words: Vec<&str> = head.into_iter().chain(words.iter().map(String::as_str)).collect();
        self.house.rig.server.run(&words);
    }

    /// A name for this purpose, covered by the user's pattern.
    pub(crate) fn name(&self, what: &str) -> String {
        format!("app:{}:{what}", self.number)
    }

    /// The settings of the user's client. The locks outlive all deeds, even without renewal.
    pub(crate) fn builder(&self, rest: &str) -> ClientBuilder {
        let (number, port) = (self.number, self.house.rig.proxy.port());
        let url = format!("redis://user{number}:{PASSWORD}@127.0.0.1:{port}/{rest}");
        Client::builder(&url).watchdog(SOON * 3, TICK).drop_timeout(ms(50))
    }

    pub(crate) fn client(&self) -> Client {
        self.builder("").connect_lazily().expect("the URL is good")
    }

    /// The user's locks of this name, one for each side.
    pub(crate) fn locks(&self, what: &str) -> Vec<Lock> {
        let client = self.client();
        let lock =
            |(side, lock): (usize, &fn(&Client, &str) -> Lock)| lock(&client, &self.name(&format!("{what}{side}")));
        self.user.sides.iter().enumerate().map(lock).collect()
    }

    /// The lock of a client with all rights, on the first side.
    pub(crate) fn of_bystander(&self, name: &str) -> Lock {
        (self.user.sides[0])(&self.house.bystander, name)
    }

    /// The keys whose names contain `name`, without keys that stay on purpose.
    pub(crate) fn keys_of(&self, name: &str) -> Vec<String> {
        let mut keys = self.house.rig.server.keys();
        keys.retain(|key| key.contains(name) && !key.starts_with("redisson_lock_token"));
        keys
    }

    /// Whether a waiter listens for a release of this lock and has asked again since: then the waiter sleeps.
    pub(crate) fn sleeps(&self, waiting: &Client, name: &str) -> bool {
        let rig = &self.house.rig;
        let Some(channel) = self.user.channel else { return !waiting.waiting().is_empty() };
        let listed = waiting.waiting();
        let Some(waiter) = listed.iter().find(|waiter| waiter.name() == name) else { return false };
        let listens = rig.server.channels().iter().any(|other| other.starts_with(&channel(name)));
        listens && rig.proxy.count(&When::script().containing(waiter.owner())) >= 2
    }

    /// Whether the granted request came sooner than the request of a waiter without a message, which sleeps for a
    /// second.
    pub(crate) fn was_woken(&self, owner: &str) -> Outcome {
        if self.user.channel.is_none() {
            return Ok(());
        }
        let asked = self.house.rig.proxy.fitting(&When::script().containing(owner));
        let [.., before, granted] = &asked[..] else { return Err("the client did not wait".to_owned()) };
        if granted.at - before.at < ms(950) { Ok(()) } else { Err(LATE.to_owned()) }
    }
}

impl Turn {
    /// Reports that all is prepared, and waits for the rights to change.
    pub(crate) fn comes(self) {
        self.ready.send(()).expect("the stage waits for all");
        drop(self.ready);
        let _ = self.go.recv();
    }
}
