//! The model of a cluster beside a real one: the same members refuse the same requests while a slot moves.

use lockson_harness::{RedisCluster, RedisServer};
use lockson_simulate::{Cluster, Data, slot_of};
use redis::{Connection, Value};

/// Requests about keys of one slot: of `here` and `here too`, which have not moved, `gone`, which has, and of keys that
/// are at no member.
const REQUESTS: &[&str] = &[
    "GET {t}here",
    "GET {t}gone",
    "GET {t}none",
    "EXISTS {t}here",
    "EXISTS {t}here {t}here-too",
    "EXISTS {t}here {t}gone",
    "EXISTS {t}here {t}none",
    "EXISTS {t}gone {t}none",
    "EXISTS {t}none {t}nothing",
    "EXISTS {t}here {u}here",
    "EVAL X 1 {t}here",
    "EVAL X 1 {t}gone",
    "EVAL X 1 {t}none",
    "EVAL X 2 {t}here {t}here-too",
    "EVAL X 2 {t}here {t}none",
    "EVAL X 2 {t}gone {t}none",
    "EVAL X 2 {t}none {t}nothing",
    "EVAL X 2 {t}here {u}here",
    "SPUBLISH {t}none m",
    "PUBLISH {t}none m",
];

fn ask(connection: &mut Connection, words: &[&str]) -> Result<Value, redis::RedisError> {
    redis::cmd(words[0]).arg(&words[1..]).query(connection)
}

fn connect(server: &RedisServer) -> Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

#[test]
fn a_half_moved_slot_is_refused_where_a_real_one_is() {
    let real = RedisCluster::start(3, 0);
    let (slot, mut model, mut data) = (slot_of(b"{t}"), Cluster::default(), Data::default());
    let from = real.owner_of(slot);
    let (to, other) = ((from + 1) % 3, (from + 2) % 3);
    let places = model.begin_to_move(slot, 1);
    let at = |index: usize| connect(real.node(index));
    let mut source = at(from);
    for key in ["{t}here", "{t}here-too", "{t}gone"] {
        ask(&mut source, &["SET", key, "v"]).unwrap();
        data.run(&["SET", key, "v"].map(|word| word.as_bytes().to_vec()));
    }
    real.begin_move(slot, to);
    real.move_keys(slot, to, |key| key == b"{t}gone");
    model.arrive([b"{t}gone".to_vec()]);
    let mut refused = 0;
    for (index, place) in [(from, places[0]), (to, places[1]), (other, THIRD - places[0] - places[1])] {
        let mut member = at(index);
        for request in REQUESTS {
            for is_asking in [false, true] {
                let words: Vec<&str> =
                    request.split(' ').map(|word| if word == "X" { "return 1" } else { word }).collect();
                if is_asking {
                    ask(&mut member, &["ASKING"]).unwrap();
                }
                let reply = ask(&mut member, &words).err().map(|error| error.code().unwrap_or("ERR").to_owned());
                let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                let modelled = model.refusal(place, &bytes, is_asking, 0, &data);
                let modelled = modelled.map(|text| text.split(' ').next().unwrap_or_default().to_owned());
                assert_eq!(modelled, reply, "member {index} of {from} to {to}: {request}, asking: {is_asking}");
                refused += usize::from(reply.is_some());
            }
        }
    }
    assert!(refused > 60, "only {refused} were refused");
}

/// The sum of the places of all masters.
const THIRD: u64 = 8 + 9;
