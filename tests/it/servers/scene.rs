//! A server that refuses on purpose, a client of the server, and the start and end of the refusal.

use std::net::{IpAddr, UdpSocket};

use super::Version;
use crate::faults::answers::{Answers, NEWCOMER, PATIENCE, Trouble};
use crate::support::prelude::*;

/// One way in which a server refuses.
pub(crate) struct Way {
    /// Redis's own word.
    pub(crate) word: &'static str,
    /// The situation in which Redis sends the word.
    pub(crate) when: &'static str,
    /// The operator's remedy.
    pub(crate) advice: &'static str,
    /// Lines of the server's configuration.
    pub(crate) lines: &'static [&'static str],
    pub(crate) login: Login,
    /// Done before the first client comes.
    pub(crate) prepare: fn(&Scene),
    pub(crate) fail: fn(&Scene),
    pub(crate) heal: fn(&Scene),
    /// Whether holds survive the refusal.
    pub(crate) holds_stay: bool,
}

/// The login of the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login {
    Nobody,
    /// The user `app` with all rights, until some are taken away.
    User,
    /// The password `first`.
    Password,
}

/// The common parts of most ways.
pub(crate) const PLAIN: Way = Way {
    word: "",
    when: "",
    advice: "",
    lines: &[],
    login: Login::Nobody,
    prepare: |_| {},
    fail: |_| {},
    heal: |_| {},
    holds_stay: true,
};

impl Way {
    /// The answers of a server of this version to each call during the refusal.
    pub(crate) fn answers(&self, version: &Version) -> Answers {
        let scene = Scene::set(self, version);
        let client = scene.builder().connect().expect("the server still works");
        let trouble =
            Trouble { fail: &|| (self.fail)(&scene), heal: &|| (self.heal)(&scene), holds_stay: self.holds_stay };
        Answers::taken(&scene.rig, &client, || scene.builder().client_name(NEWCOMER).connect(), &trouble)
    }

    /// Whether this machine can produce the refusal.
    pub(crate) fn is_possible(&self) -> bool {
        self.word != "DENIED" || own_address().is_some()
    }
}

/// A server, and the client's path to the server.
pub(crate) struct Scene {
    pub(crate) rig: Rig,
    pub(crate) version: Version,
    /// Opened while every login is accepted.
    admin: Mutex<redis::Connection>,
    /// A second server that the first server depends on.
    pub(crate) other: Mutex<Option<RedisServer>>,
    login: Login,
}

impl Scene {
    fn set(way: &Way, version: &Version) -> Scene {
        let mut builder = version.builder();
        if !version.is_old() {
            builder = builder.config("enable-debug-command yes").config("loading-process-events-interval-bytes 1024");
        }
        if let Some(address) = own_address() {
            builder = builder.config(format!("bind 127.0.0.1 {address}")).config("protected-mode no");
        }
        for line in way.lines {
            builder = builder.config(*line);
        }
        if way.login == Login::Password {
            builder = builder.password("first");
        }
        let rig = Rig::around(builder.start());
        let admin = Mutex::new(rig.server.connection());
        let scene = Scene { rig, version: version.clone(), admin, other: Mutex::default(), login: way.login };
        if way.login == Login::User {
            scene.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]);
        }
        (way.prepare)(&scene);
        scene
    }

    /// The settings of the client under test.
    fn builder(&self) -> ClientBuilder {
        let login = match self.login {
            Login::Nobody => "",
            Login::User => "app:secret@",
            Login::Password => ":first@",
        };
        let url = format!("redis://{login}127.0.0.1:{}", self.rig.proxy.port());
        let builder = Client::builder(&url).command_timeout(PATIENCE).outage_limit(PATIENCE * 2);
        // An old server reads its data for 14 seconds, on a busy machine for more than the usual 30.
        builder.drop_timeout(PATIENCE / 2).watchdog(SOON * 18, SOON * 6)
    }

    /// Runs a command on the administrator's connection, opened at the start.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) {
        let mut command = redis::Cmd::new();
        let _: redis::Value = command.arg(words).query(&mut *self.admin.lock()).unwrap();
    }

    /// Narrows or widens the rights of the user.
    #[track_caller]
    pub(crate) fn set_user(&self, rules: &[&str]) {
        self.run(&[&["ACL", "SETUSER", "app"], rules].concat());
    }

    /// Closes all connections of the client, so that the client must connect again.
    pub(crate) fn send_away(&self) {
        self.rig.proxy.cut(Scope::All);
    }

    /// Waits until the server sends this word to every client. A server that loads its data writes them first, which
    /// takes long where others write, too.
    #[track_caller]
    pub(crate) fn wait_for_word(&self, word: &str) {
        eventually(SOON * 6, word, || refuses(&self.rig, word));
    }
}

/// Whether a plain question is refused with this word.
pub(crate) fn refuses(rig: &Rig, word: &str) -> bool {
    let answer = rig.server.try_query::<()>(&["EXISTS", "x"]);
    answer.is_err_and(|error| error.to_string().to_uppercase().contains(word) || error.code() == Some(word))
}

/// An address of this machine other than the loopback address, if the machine has one. No packet is sent.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?; // an address of documentation, routed as any other
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
