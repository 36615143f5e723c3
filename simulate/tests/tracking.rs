//! The model of `CLIENT TRACKING` beside a real server of version 7.0: the same changes are told.

use std::io::{Read, Write};
use std::net::TcpStream;

use lockson_harness::RedisServer;
use lockson_simulate::{Data, Touch, Tracking};

struct Random(u64);

impl Random {
    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words[usize::try_from(self.0 >> 33).unwrap() % words.len()]
    }
}

/// A connection, and what it has heard.
struct Connection(TcpStream);

impl Connection {
    fn open(server: &RedisServer) -> Self {
        Self(TcpStream::connect(server.address()).unwrap())
    }

    /// Sends a command and reads until its reply has this end.
    fn send(&mut self, command: &str, end: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let request = redis::cmd(words[0]).arg(&words[1..]).get_packed_command();
        self.0.write_all(&request).unwrap();
        let (mut heard, mut bytes) = (String::new(), [0; 4_096]);
        while !heard.ends_with(end) {
            let length = self.0.read(&mut bytes).unwrap();
            heard += std::str::from_utf8(&bytes[..length]).unwrap();
        }
        heard
    }
}

const COMMANDS: &[&str] = &[
    "EXISTS K",
    "HEXISTS K f",
    "PTTL K",
    "HSET K f 1",
    "HSET K g 1",
    "HDEL K f",
    "HDEL K g",
    "DEL K",
    "PEXPIRE K 100000",
    "PEXPIRE K 0",
    "HINCRBY K f 1",
    "PERSIST K",
];

#[test]
fn the_model_tells_of_changes_as_a_server_does() {
    let server = RedisServer::start();
    let [mut watching, mut other, mut listener] = [(); 3].map(|()| Connection::open(&server));
    let id = listener.send("CLIENT ID", "\r\n").trim_matches([':', '\r', '\n']).to_owned();
    listener.send("SUBSCRIBE __redis__:invalidate", ":1\r\n");
    watching.send(&format!("CLIENT TRACKING ON REDIRECT {id} NOLOOP"), "\r\n");
    let (mut model, mut data, mut random) = (Tracking::default(), Data::default(), Random(1));
    model.begin(1, 9);
    let mut told = 0;
    for step in 0..3_000 {
        let is_watching = random.of(&["watching", "other"]) == "watching";
        let command = random.of(COMMANDS).replace('K', random.of(&["a", "b"]));
        let (number, connection) = if is_watching { (1, &mut watching) } else { (2, &mut other) };
        connection.send(&command, "\r\n");
        let words: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        data.run(&words);
        let mut expected = vec![];
        for touch in std::mem::take(&mut data.touched) {
            match touch {
                Touch::Read => model.read(number, &words[1..2]),
                Touch::Changed(key) => expected.extend(model.changed(&key, Some(number)).iter().map(|_| key.clone())),
                Touch::Expired(key) => expected.extend(model.changed(&key, None).iter().map(|_| key.clone())),
            }
        }
        let heard = listener.send("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        let heard: Vec<Vec<u8>> = heard
            .split("__redis__:invalidate\r\n*1\r\n$1\r\n")
            .skip(1)
            .map(|rest| rest.as_bytes()[..1].to_vec())
            .collect();
        assert_eq!(expected, heard, "step {step}: {command} by {number}");
        told += heard.len();
    }
    assert!(told > 100, "only {told} changes were told");
}
