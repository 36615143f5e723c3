//! How a server starts to refuse while its clients stay connected.

use super::scene::{Login, PLAIN, Scene, Way, refuses};
use crate::support::prelude::*;

pub(crate) const OOM: Way = Way {
    word: "OOM",
    when: "memory is full",
    advice: "free memory or raise `maxmemory`. Locks that are held are kept",
    fail: |scene| scene.run(&["CONFIG", "SET", "maxmemory", "1"]),
    heal: |scene| scene.run(&["CONFIG", "SET", "maxmemory", "0"]),
    ..PLAIN
};

pub(crate) const MISCONF: Way = Way {
    word: "MISCONF",
    when: "it cannot save",
    advice: "free its disk. Until then held locks expire",
    fail: |scene| {
        // A folder in place of the file: even root cannot write the file.
        fs::create_dir(scene.rig.server.data_folder().join("dump.rdb")).unwrap();
        scene.run(&["CONFIG", "SET", "save", "3600 1000000"]);
        scene.run(&["BGSAVE"]);
        let failed = || scene.rig.server.info("rdb_last_bgsave_status").as_deref() == Some("err");
        eventually(SOON, "the saving fails", failed);
    },
    heal: |scene| scene.run(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]),
    ..PLAIN
};

pub(crate) const NOREPLICAS: Way = Way {
    word: "NOREPLICAS",
    when: "`min-replicas-to-write`",
    advice: "bring replicas back. Until then held locks expire",
    fail: |scene| scene.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
    heal: |scene| scene.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ..PLAIN
};

pub(crate) const READONLY: Way = Way {
    word: "READONLY",
    when: "a replica",
    advice: "connect to the master",
    fail: |scene| scene.run(&["REPLICAOF", "127.0.0.1", "1"]),
    heal: |scene| scene.run(&["REPLICAOF", "NO", "ONE"]),
    ..PLAIN
};

pub(crate) const MASTERDOWN: Way = Way {
    word: "MASTERDOWN",
    when: "a replica without its master; `READONLY` on new connections",
    advice: "connect to the master; see why the replica lost it",
    fail: |scene| {
        scene.run(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        scene.run(&["REPLICAOF", "127.0.0.1", "1"]);
    },
    heal: |scene| scene.run(&["REPLICAOF", "NO", "ONE"]),
    ..PLAIN
};

pub(crate) const LOADING: Way = Way {
    word: "LOADING",
    when: "it reads its data",
    advice: "wait until it has",
    lines: &["rdbcompression no"],
    fail: |scene| {
        // The number of keys, the size of each, and the pause after each key in microseconds. An old server answers
        // only once in two megabytes of data, so old servers get keys of that size.
        let [count, size, delay] =
            if scene.version.is_old() { ["90", "2000000", "150000"] } else { ["100000", "100", "300"] };
        let mut connection = scene.rig.server.connection();
        connection.set_read_timeout(Some(SOON * 6)).unwrap(); // to write 180 MB takes long where others write, too
        let () = redis::cmd("SELECT").arg(1).query(&mut connection).unwrap();
        let () = redis::cmd("DEBUG").arg(&["POPULATE", count, "key", size]).query(&mut connection).unwrap();
        scene.run(&["CONFIG", "SET", "key-load-delay", delay]);
        thread::spawn(move || redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut connection));
        scene.wait_for_word("LOADING");
    },
    heal: |scene| {
        if !scene.version.is_old() {
            scene.run(&["CONFIG", "SET", "key-load-delay", "0"]);
        }
        eventually(Duration::from_secs(60), "it has its data", || !refuses(&scene.rig, "LOADING"));
    },
    ..PLAIN
};

pub(crate) const BUSY: Way = Way {
    word: "BUSY",
    when: "a script goes on and on",
    advice: "`SCRIPT KILL`, `FUNCTION KILL`",
    lines: &["lua-time-limit 20"],
    fail: |scene| {
        let mut connection = scene.rig.server.connection();
        thread::spawn(move || redis::cmd("EVAL").arg(&["while true do end", "0"]).query::<()>(&mut connection));
        scene.wait_for_word("BUSY");
    },
    heal: |scene| scene.run(&["SCRIPT", "KILL"]),
    ..PLAIN
};

pub(crate) const NO_SCRIPTS: Way = Way {
    word: "NOPERM",
    when: "no right to scripts",
    advice: "see Rights",
    login: Login::User,
    fail: |scene| scene.set_user(&["-evalsha", "-eval"]),
    heal: |scene| scene.set_user(&["+evalsha", "+eval"]),
    ..PLAIN
};

pub(crate) const NO_COMMAND: Way = Way {
    word: "NOPERM",
    when: "no right to the commands in the scripts",
    advice: "see Rights",
    login: Login::User,
    fail: |scene| scene.set_user(&["-exists", "-hexists", "-hrandfield"]),
    heal: |scene| scene.set_user(&["+exists", "+hexists", "+hrandfield"]),
    ..PLAIN
};

pub(crate) const NO_KEY: Way = Way {
    word: "NOPERM",
    when: "no right to the key",
    advice: "see Rights; is the prefix right?",
    login: Login::User,
    fail: |scene| scene.set_user(&["resetkeys"]),
    heal: |scene| scene.set_user(&["~*"]),
    ..PLAIN
};

pub(crate) const NO_CHANNEL: Way = Way {
    word: "NOPERM",
    when: "no right to the channel",
    advice: "see Rights",
    login: Login::User,
    fail: |scene| scene.set_user(&["resetchannels"]),
    heal: |scene| scene.set_user(&["&*"]),
    ..PLAIN
};

pub(crate) const NO_TEXT: Way = Way {
    word: "NOPERM",
    when: "scripts gone, and no right to `eval`",
    advice: "load them; see Rights",
    login: Login::User,
    fail: |scene| {
        scene.set_user(&["-eval"]);
        flush_scripts(scene);
    },
    heal: |scene| scene.set_user(&["+eval"]),
    ..PLAIN
};

pub(crate) const FLUSHED: Way = Way {
    word: "NOSCRIPT",
    when: "scripts gone",
    advice: "nothing: they are sent again",
    fail: flush_scripts,
    ..PLAIN
};

pub(crate) const WRONGTYPE: Way = Way {
    word: "WRONGTYPE",
    when: "something else under the name",
    advice: "another name",
    fail: |scene| {
        for name in ["free", "busy", "twice", "last", "forced"] {
            scene.run(&["SET", name, "precious"]);
        }
    },
    holds_stay: false,
    ..PLAIN
};

fn flush_scripts(scene: &Scene) {
    scene.run(&["SCRIPT", "FLUSH"]);
}
