//! What the modelled sentinels say beside what real ones say: what clients read has the same form.

use lockson_harness::SentinelSet;
use lockson_simulate::{Reply, Sentinels};

/// Questions, and the fields of the replies that clients read; without fields, they read all words.
const QUESTIONS: &[(&str, &[&str])] = &[
    ("MASTER", &["flags", "num-other-sentinels"]),
    ("MASTER", &["config-epoch"]),
    ("SENTINELS", &["ip", "port", "runid"]),
    ("GET-MASTER-ADDR-BY-NAME", &[]),
    ("MYID", &[]),
];

/// The words that are read: numbers of more than one digit, which are ports, and ids stand for all others.
fn read(words: &[String], fields: &[&str]) -> Vec<String> {
    let form = |word: &String| match word.len() {
        40 => "an id".to_owned(),
        2.. if word.parse::<u16>().is_ok() => "a port".to_owned(),
        _ => word.clone(),
    };
    if fields.is_empty() {
        return words.iter().map(form).collect();
    }
    let pairs = fields.iter().flat_map(|name| words.windows(2).filter(move |pair| pair[0] == *name));
    pairs.map(|pair| form(&pair[1])).collect()
}

fn words(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Bulk(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        Reply::List(all) => all.iter().flat_map(words).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sentinels_say_what_real_ones_say() {
    let (real, model) = (SentinelSet::start(1, 3), Sentinels::of(0));
    let sentinel = &real.sentinels()[0];
    for (question, fields) in QUESTIONS {
        let said = read(&words(&model.answer(Sentinels::PLACES[0], question, 0)), fields);
        assert!(!said.is_empty(), "{question}");
        let real: Vec<String> = match *question {
            "MYID" => vec![sentinel.query(&["SENTINEL", question])],
            "SENTINELS" => sentinel.query::<Vec<Vec<String>>>(&["SENTINEL", question, "mymaster"]).concat(),
            _ => sentinel.query(&["SENTINEL", question, "mymaster"]),
        };
        // The first master has another epoch here.
        let epoch =
            |words: Vec<String>| if *fields == ["config-epoch"] { vec![words.len().to_string()] } else { words };
        assert_eq!(epoch(said), epoch(read(&real, fields)), "{question} {fields:?}");
    }
}
