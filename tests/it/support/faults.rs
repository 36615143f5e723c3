//! The shared parts of the fault tests: a server behind a proxy, clients with short limits, names of scripts.

use std::borrow::Borrow;

use crate::support::prelude::*;

/// A server, of its own or the shared one, and a proxy in front of the server.
pub(crate) struct Rig<S = RedisServer> {
    pub(crate) server: S,
    pub(crate) proxy: Proxy,
    hashes: BTreeMap<&'static str, String>,
}

impl Rig {
    pub(crate) fn start() -> Rig {
        Rig::around(RedisServer::start())
    }
}

impl Rig<&'static RedisServer> {
    /// A proxy in front of the shared server.
    pub(crate) fn shared() -> Self {
        Rig::around(RedisServer::shared())
    }
}

impl<S: Borrow<RedisServer>> Rig<S> {
    pub(crate) fn around(server: S) -> Self {
        let running: &RedisServer = server.borrow();
        let proxy = Proxy::start(running.address());
        let load = |(verb, text): (&'static str, &str)| (verb, running.query(&["SCRIPT", "LOAD", text]));
        let hashes = SCRIPTS.into_iter().map(load).collect();
        Rig { server, proxy, hashes }
    }

    /// The rig, and what is made with it.
    pub(crate) fn and<T>(self, make: impl FnOnce(&Self) -> T) -> (Self, T) {
        let made = make(&self);
        (self, made)
    }

    /// A client through the proxy, with default settings.
    pub(crate) fn client(&self) -> Client {
        self.builder().connect().expect("the proxy forwards the request")
    }

    /// The settings of a client through the proxy.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(&self.proxy.url())
    }

    /// The settings of a client through the proxy with short limits.
    pub(crate) fn impatient(&self) -> ClientBuilder {
        self.builder().command_timeout(PATIENCE).outage_limit(PATIENCE * 2).drop_timeout(PATIENCE / 2)
    }

    /// A client past the proxy.
    pub(crate) fn direct(&self) -> Client {
        Client::connect(&self.server.borrow().url()).expect("the server answers")
    }

    /// Calls of one script, by hash or by text.
    pub(crate) fn script(&self, verb: &'static str) -> When {
        let hash = self.hashes[verb].clone();
        let head = format!("-- plain/{verb}.lua");
        When::script().that(move |request| request.text(0) == hash || request.text(0).starts_with(&head))
    }

    /// Calls of the script with this text, by hash or by text.
    pub(crate) fn script_of(&self, text: &'static str) -> When {
        let hash: String = self.server.borrow().query(&["SCRIPT", "LOAD", text]);
        When::script().that(move |request| request.text(0) == hash || request.text(0) == text)
    }

    /// Releases that leave holds, or releases of the last hold.
    pub(crate) fn release(&self, partial: bool) -> When {
        let hash = self.hashes["release"].clone();
        When::script().that(move |request| request.text(0) == hash && (request.text(4) != "0") == partial)
    }

    /// The lock in Redis: owners and hold counts.
    #[track_caller]
    pub(crate) fn fields(&self, name: &str) -> BTreeMap<String, String> {
        self.server.borrow().query(&["HGETALL", name])
    }

    /// The time to live according to the server, in ms.
    #[track_caller]
    pub(crate) fn time_to_live(&self, name: &str) -> i64 {
        self.server.borrow().query(&["PTTL", name])
    }

    #[track_caller]
    pub(crate) fn assert_held_by(&self, name: &str, owner: &str, count: u64) {
        let wanted = BTreeMap::from([(owner.to_owned(), count.to_string())]);
        assert_eq!(self.fields(name), wanted);
    }

    #[track_caller]
    pub(crate) fn assert_no_keys(&self) {
        assert_eq!(self.server.borrow().keys(), Vec::<String>::new());
    }

    #[track_caller]
    pub(crate) fn eventually_no_keys(&self, limit: Duration) {
        eventually(limit, "no key is left", || self.server.borrow().keys().is_empty());
    }

    /// Waits until a waiter has slept its second and has asked: without a wake-up, the next request follows a second
    /// later. The waiter's first requests come in quick succession, before and after the subscription.
    pub(crate) fn has_asked_after_its_second(&self, question: &When) {
        let mut asked = self.proxy.wait_for_since(self.proxy.mark(), question, SOON);
        loop {
            let next = self.proxy.wait_for_since(asked.number + 1, question, SOON);
            let had_slept = next.at - asked.at > ms(500);
            asked = next;
            if had_slept {
                break;
            }
        }
        self.proxy.wait_fate(&asked, SOON);
    }

    /// The command that fences this request: an answered kill of the connection that sent the request.
    pub(crate) fn fence_of(&self, request: &Request) -> Option<Request> {
        let hello = self.proxy.fitting(&When::command("HELLO").on_connection(request.connection)).pop()?;
        let Fate::Answered(reply) = self.proxy.fate(&hello) else { return None };
        let reply = String::from_utf8_lossy(&reply);
        let id = reply.split_once("\r\nid\r\n:")?.1.split_once("\r\n")?.0.to_owned();
        let kills = fences().that(move |sent| sent.text(0) == "KILL" && sent.text(1) == "ID" && sent.text(2) == id);
        let mut kills = self.proxy.fitting_since(request.number, &kills).into_iter();
        kills.find(|kill| matches!(self.proxy.fate(kill), Fate::Answered(_)))
    }

    /// Checks that the first fitting request since the mark was fenced before the repetition.
    #[track_caller]
    pub(crate) fn assert_fenced_before_repeat(&self, mark: u64, when: &When) {
        let sent = self.proxy.fitting_since(mark, when);
        assert!(sent.len() >= 2, "sent {} times", sent.len());
        let fence = self.fence_of(&sent[0]).expect("the original is fenced");
        assert!(fence.number < sent[1].number, "repeated before the fence");
    }
}

/// A rig with a user that may not kill connections.
pub(crate) fn rig_without_fences() -> Rig {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "meek", "on", ">secret", "~*", "&*", "+@all", "-client|kill"]);
    Rig::around(server)
}

/// The URL of that user.
pub(crate) fn meek(rig: &Rig) -> String {
    format!("redis://meek:secret@127.0.0.1:{}", rig.proxy.port())
}

/// A client of that user.
pub(crate) fn without_fences(rig: &Rig) -> Client {
    Client::builder(&meek(rig)).command_timeout(PATIENCE).drop_timeout(PATIENCE).connect().unwrap()
}

/// Requests that kill connections.
pub(crate) fn fences() -> When {
    When::command("CLIENT").that(|sent| sent.text(0) == "KILL")
}

/// The command timeout of an impatient client.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

const SCRIPTS: [(&str, &str); 8] = [
    ("acquire", include_str!("../../../lua/plain/acquire.lua")),
    ("reenter", include_str!("../../../lua/plain/reenter.lua")),
    ("release", include_str!("../../../lua/plain/release.lua")),
    ("hand_on", include_str!("../../../lua/plain/hand_on.lua")),
    ("renew", include_str!("../../../lua/plain/renew.lua")),
    ("acquire_all", include_str!("../../../lua/plain/acquire_all.lua")),
    ("release_all", include_str!("../../../lua/plain/release_all.lua")),
    ("force_release", include_str!("../../../lua/plain/force_release.lua")),
];
