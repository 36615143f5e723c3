//! The model of a server beside a real one: the same commands, the same replies.

use lockson_harness::RedisServer;
use lockson_simulate::{Data, Reply};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// A command: its words, where `K` is a key, `F` a field or member, `N` a small number, `S` a score.
const COMMANDS: &[&str] = &[
    "EXISTS K",
    "EXISTS K K",
    "DEL K",
    "TYPE K",
    "PEXPIRE K 100000",
    "PEXPIRE K 0",
    "PEXPIRE K -1",
    "PERSIST K",
    "GET K",
    "GETRANGE K 0 N",
    "GETRANGE K N -1",
    "SET K N",
    "SET K N NX",
    "SET K N XX",
    "SET K N GET",
    "SET K N PX 100000 GET",
    "SET K N KEEPTTL",
    "INCRBY K N",
    "DECRBY K N",
    "HSET K F N",
    "HSET K F N F N",
    "HGET K F",
    "HINCRBY K F N",
    "HEXISTS K F",
    "HMGET K F F",
    "HDEL K F",
    "HLEN K",
    "HGETALL K",
    "RPUSH K F",
    "LPOP K",
    "LLEN K",
    "LINDEX K N",
    "LINDEX K -1",
    "LRANGE K 0 -1",
    "LRANGE K N N",
    "LPOS K F",
    "LPOS K F MAXLEN 1",
    "ZADD K XX S F",
    "LREM K N F",
    "LREM K 0 F",
    "ZADD K S F",
    "ZINCRBY K S F",
    "HKEYS K",
    "ZSCORE K F",
    "ZMSCORE K F F",
    "ZREM K F",
    "ZCARD K",
    "ZCOUNT K S +inf",
    "ZCOUNT K (S S",
    "ZRANGE K 0 -1 WITHSCORES",
    "ZREVRANGE K 0 0",
    "ZRANGEBYSCORE K -inf S",
    "ZRANGEBYSCORE K (S +inf WITHSCORES LIMIT 0 1",
];

/// The words of a command, drawn by chance.
fn draw(random: &mut Random) -> Vec<String> {
    let drawn = |word: &str, random: &mut Random| match word {
        "K" => random.of(&["a", "b"]).to_owned(),
        "F" => random.of(&["f", "g", "h"]).to_owned(),
        "N" => random.of(&["0", "1", "2", "7"]).to_owned(),
        "S" => random.of(&["1", "2", "2.5", "1780000000123"]).to_owned(),
        "(S" => format!("({}", random.of(&["1", "2"])),
        word => word.to_owned(),
    };
    random.of(COMMANDS).split(' ').map(|word| drawn(word, random)).collect()
}

/// Three commands of a script, when memory is full.
#[test]
fn a_full_memory_refuses_in_the_model_what_a_server_refuses() {
    let server = RedisServer::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1", "maxmemory-policy", "noeviction"])
        .exec(&mut connection)
        .unwrap();
    let (mut random, mut refused) = (Random(1), 0);
    for round in 0..3_000 {
        let commands = [(); 3].map(|()| draw(&mut random));
        let call = |words: &Vec<String>| {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            format!("local reply = redis.pcall({})\nlist[#list + 1] = is_refused(reply)\n", words.join(","))
        };
        let script = format!(
            "local list = {{}}\nlocal function is_refused(reply)\n  return type(reply) == 'table' and reply.err and \
             string.sub(reply.err, 1, 3) == 'OOM' and 1 or 0\nend\n{}return list",
            commands.iter().map(call).collect::<String>()
        );
        let real: Vec<u32> = redis::Script::new(&script).invoke(&mut connection).unwrap();
        let mut data = Data::default();
        data.is_full = true;
        data.begin();
        let modelled = commands.each_ref().map(|words| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
            u32::from(matches!(data.run(&words), Reply::Error(text) if text.starts_with("OOM")))
        });
        assert_eq!(modelled.as_slice(), real, "round {round}: {commands:?}");
        refused += modelled.iter().sum::<u32>();
    }
    assert!(refused > 1_000, "only {refused} were refused");
}

#[test]
fn the_model_replies_as_a_server_does() {
    let server = RedisServer::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    for seed in 1..=200 {
        let (mut random, mut data) = (Random(seed), Data::default());
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        for _ in 0..100 {
            let words = draw(&mut random);
            let mut real = redis::cmd(&words[0]);
            words[1..].iter().for_each(|word| _ = real.arg(word));
            let real = real.query::<redis::Value>(&mut connection);
            let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
            let modelled = data.run(&bytes);
            let modelled = match &modelled {
                Reply::Error(text) => Err(text.split(' ').next().unwrap_or_default().to_owned()),
                reply => {
                    let mut wire = vec![];
                    reply.write(&mut wire);
                    Ok(redis::parse_redis_value(&wire).unwrap())
                }
            };
            let real = real.map_err(|error| error.code().unwrap_or("ERR").to_owned());
            assert_eq!(modelled, real, "seed {seed}: {words:?}");
        }
    }
}
