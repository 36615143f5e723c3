//! Where users of few rights do what they do: a server, its users, and how several deeds are done at once.

use std::fs;
use std::path::Path;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use lockson::{Client, ClientBuilder, Lock};
use lockson_harness::proxy::When;

use super::deeds::{Deed, Outcome, PASSWORD};
use super::users::User;
use super::{Version, own_command};
use crate::support::faults::Rig;
use crate::support::{SOON, TICK, joined, ms};

/// What became of a waiter that was not woken.
pub(crate) const LATE: &str = "up to a second late";

/// A server that knows all scripts, and a client that may do everything and is not seen by the proxy.
pub(crate) struct House {
    pub(crate) rig: Rig,
    pub(crate) bystander: Client,
    /// The server's own command that compares and deletes, if it has one.
    own_command: &'static str,
}

/// One user of a house, with names that no other one uses.
pub(crate) struct Stage<'a> {
    pub(crate) house: &'a House,
    pub(crate) user: &'a User,
    number: usize,
}

/// The end of a preparation: what follows is done with the rights in question.
pub(crate) struct Turn {
    ready: Sender<()>,
    go: Receiver<()>,
}

impl House {
    pub(crate) fn open(version: &Version) -> House {
        let rig = Rig::around(version.start());
        let bystander = rig.direct();
        let house = House { rig, bystander, own_command: own_command::word_of(version).unwrap_or_default() };
        house.load_scripts();
        house
    }

    /// Loads every script, so that the right to `eval` is needed for none.
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
    /// Does these deeds at once: each prepares with all the words of the line and goes on with `rights`.
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
            // One message from each, or none from one that panicked.
            for () in &is_ready {}
            stage.give(rights);
            drop(start);
            under_way.into_iter().map(|(deed, act)| (deed, joined(act))).collect()
        })
    }

    /// Makes these words the rights of the user, also on connections that stand.
    fn give(&self, words: &[String]) {
        let name = format!("user{}", self.number);
        let head = ["ACL", "SETUSER", &name, "reset"];
        // The document has Redis's word, and says what Valkey's is.
        let own = |word: &String| if word == "+delex" { format!("+{}", self.house.own_command) } else { word.clone() };
        let words: Vec<String> = words.iter().map(own).collect();
        let words: Vec<&str> = head.into_iter().chain(words.iter().map(String::as_str)).collect();
        self.house.rig.server.run(&words);
    }

    /// A name for this purpose, which the user's pattern covers.
    pub(crate) fn name(&self, what: &str) -> String {
        format!("app:{}:{what}", self.number)
    }

    /// The settings of the user's client. Its locks outlive all deeds, renewed or not.
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

    /// The lock of a client that may do everything, on the first side.
    pub(crate) fn of_bystander(&self, name: &str) -> Lock {
        (self.user.sides[0])(&self.house.bystander, name)
    }

    /// The keys whose names contain this one, without those that stay on purpose.
    pub(crate) fn keys_of(&self, name: &str) -> Vec<String> {
        let mut keys = self.house.rig.server.keys();
        keys.retain(|key| key.contains(name) && !key.starts_with("redisson_lock_token"));
        keys
    }

    /// Whether somebody listens for a release of this lock and has asked again since: then it sleeps.
    pub(crate) fn sleeps(&self, waiting: &Client, name: &str) -> bool {
        let rig = &self.house.rig;
        let Some(channel) = self.user.channel else { return !waiting.waiting().is_empty() };
        let listed = waiting.waiting();
        let Some(waiter) = listed.iter().find(|waiter| waiter.name() == name) else { return false };
        let listens = rig.server.channels().iter().any(|other| other.starts_with(&channel(name)));
        listens && rig.proxy.count(&When::script().containing(waiter.owner())) >= 2
    }

    /// Whether the question that was granted came sooner than an untold waiter's: that one sleeps for a second.
    pub(crate) fn was_woken(&self, owner: &str) -> Outcome {
        if self.user.channel.is_none() {
            return Ok(());
        }
        let asked = self.house.rig.proxy.fitting(&When::script().containing(owner));
        let [.., before, granted] = &asked[..] else { return Err("it did not wait".to_owned()) };
        if granted.at - before.at < ms(950) { Ok(()) } else { Err(LATE.to_owned()) }
    }
}

impl Turn {
    /// Says that all is prepared, and waits for the rights to change.
    pub(crate) fn comes(self) {
        self.ready.send(()).expect("the stage waits for all");
        drop(self.ready);
        let _ = self.go.recv();
    }
}
