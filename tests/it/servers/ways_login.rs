//! How a server starts to refuse new connections while open connections stay open.

use std::net::SocketAddr;

use super::scene::{Login, PLAIN, Way, own_address};

pub(crate) const MAXCLIENTS: Way = Way {
    word: "MAXCLIENTS",
    when: "too many connections; new ones only",
    advice: "raise `maxclients`, or close connections; see Sizes",
    fail: |scene| {
        scene.run(&["CONFIG", "SET", "maxclients", "1"]);
        scene.send_away();
    },
    heal: |scene| scene.run(&["CONFIG", "SET", "maxclients", "10000"]),
    ..PLAIN
};

pub(crate) const NOAUTH: Way = Way {
    word: "NOAUTH",
    when: "no password; new connections only",
    advice: "put user and password into the URL",
    fail: |scene| {
        scene.run(&["CONFIG", "SET", "requirepass", "secret"]);
        scene.send_away();
    },
    heal: |scene| scene.run(&["CONFIG", "SET", "requirepass", ""]),
    ..PLAIN
};

pub(crate) const WRONGPASS: Way = Way {
    word: "WRONGPASS",
    when: "another password, no such user, a user that is off; new connections only",
    advice: "correct user and password; `ACL LIST` shows who there is",
    login: Login::Password,
    fail: |scene| {
        scene.run(&["CONFIG", "SET", "requirepass", "second"]);
        scene.send_away();
    },
    heal: |scene| scene.run(&["CONFIG", "SET", "requirepass", "first"]),
    ..PLAIN
};

pub(crate) const DENIED: Way = Way {
    word: "DENIED",
    when: "protected mode, and neither password nor loopback (6.2: nor `bind`); new connections only",
    advice: "give the server a password",
    prepare: |scene| {
        let address = own_address().expect("the log was read before");
        scene.rig.proxy.retarget(SocketAddr::new(address, scene.rig.server.port()));
    },
    fail: |scene| {
        scene.run(&["CONFIG", "SET", "protected-mode", "yes"]);
        scene.send_away();
    },
    heal: |scene| scene.run(&["CONFIG", "SET", "protected-mode", "no"]),
    ..PLAIN
};
