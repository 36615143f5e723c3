//! Runs the bundled scripts in an embedded Lua 5.1.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use mlua::{Function, IntoLua, Lua, Table, Value, Variadic};
use parking_lot::Mutex;

use crate::data::Data;
use crate::reply::Reply;

/// The scripts that a server knows, and their interpreter.
pub struct Scripts {
    lua: Lua,
    by_hash: HashMap<String, Function>,
    /// The hashes of sources.
    hashes: HashMap<String, String>,
    /// The hashes that each server has not forgotten.
    known: BTreeSet<(u64, String)>,
    data: Arc<Mutex<Data>>,
    /// The hashes of scripts that take holds away.
    forcing: BTreeSet<String>,
    /// Parts of scripts and what stands in their place.
    planted: Vec<(String, String)>,
}

impl Scripts {
    pub fn new(data: Arc<Mutex<Data>>) -> Self {
        let lua = Lua::new();
        let api = lua.create_table().expect("a table");
        for (name, raises) in [("call", true), ("pcall", false)] {
            let data = Arc::clone(&data);
            let call = lua.create_function(move |lua, words: Variadic<Value>| {
                let words: Vec<Vec<u8>> = words.iter().map(word).collect();
                match data.lock().run(&words) {
                    Reply::Error(text) if raises => Err(mlua::Error::external(Raised(text))),
                    reply => to_lua(lua, reply),
                }
            });
            api.set(name, call.expect("a function")).expect("set");
        }
        for (name, field) in [("error_reply", "err"), ("status_reply", "ok")] {
            let make = lua.create_function(move |lua, text: mlua::String| {
                let table = lua.create_table()?;
                table.set(field, text)?;
                Ok(table)
            });
            api.set(name, make.expect("a function")).expect("set");
        }
        lua.globals().set("redis", api).expect("set");
        Self {
            lua,
            by_hash: HashMap::new(),
            hashes: HashMap::new(),
            known: BTreeSet::new(),
            data,
            forcing: BTreeSet::new(),
            planted: vec![],
        }
    }

    /// A server forgets its scripts.
    pub fn forget(&mut self, place: u64) {
        self.known.retain(|(of, _)| *of != place);
    }

    pub fn plant(&mut self, right: &str, wrong: &str) {
        self.planted.push((right.to_owned(), wrong.to_owned()));
    }

    /// Whether a request runs a script that takes a hold away.
    pub fn is_forced(&self, request: &[Vec<u8>]) -> bool {
        let [word, body, ..] = request else { return false };
        let body = || std::str::from_utf8(body).unwrap_or_default();
        let is_forcing = match word.as_slice() {
            b"EVAL" => is_forcing(body()),
            b"EVALSHA" => self.forcing.contains(body()),
            _ => false,
        };
        // That of the fair lock, the only one with four keys, has such a hold count behind keys and owner.
        is_forcing && (request[2] != b"4" || request[8] == b"-1")
    }

    /// A server answers `EVAL` and `EVALSHA`: `body` is source or hash.
    pub fn run(&mut self, place: u64, is_source: bool, words: &[Vec<u8>]) -> Reply {
        let [body, count, rest @ ..] = words else { return Reply::error("ERR wrong number of arguments") };
        let body = String::from_utf8_lossy(body).into_owned();
        let hash = match self.hashes.get(&body) {
            Some(hash) => hash.clone(),
            None if is_source => redis::Script::new(&body).get_hash().to_owned(),
            None => body.clone(),
        };
        if is_source && !self.by_hash.contains_key(&hash) {
            let planted = self.planted.iter().fold(body.clone(), |body, (right, wrong)| body.replace(right, wrong));
            let compiled = self.lua.load(&planted).into_function().expect("a bundled script compiles");
            self.by_hash.insert(hash.clone(), compiled);
            self.hashes.insert(body.clone(), hash.clone());
            if is_forcing(&body) {
                self.forcing.insert(hash.clone());
            }
        }
        if is_source {
            self.known.insert((place, hash.clone()));
        }
        let Some(script) = self.by_hash.get(&hash).filter(|_| self.known.contains(&(place, hash.clone()))) else {
            return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        };
        let count: usize = String::from_utf8_lossy(count).parse().expect("a number of keys");
        let globals = self.lua.globals();
        for (name, words) in [("KEYS", &rest[..count]), ("ARGV", &rest[count..])] {
            let words = words.iter().map(|word| self.lua.create_string(word).expect("a string"));
            globals.raw_set(name, self.lua.create_sequence_from(words).expect("a table")).expect("set");
        }
        match script.call::<Value>(()) {
            Ok(value) => from_lua(value),
            Err(error) => {
                let raised =
                    error.chain().find_map(|error| error.downcast_ref::<Raised>().map(|raised| raised.0.clone()));
                Reply::Error(raised.unwrap_or_else(|| panic!("a script fails: {error}")))
            }
        }
    }

    pub fn data(&self) -> &Arc<Mutex<Data>> {
        &self.data
    }
}

/// Whether a script can take holds away, or delete a counter.
fn is_forcing(body: &str) -> bool {
    let starts = |name: &str| body.starts_with(name);
    body.contains("/force_release.lua") || starts("-- fair/release.lua") || starts("-- once/delete.lua")
}

/// An error of `redis.call`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn word(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        // As `%.17g` for the numbers that scripts use.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => format!("{number:.0}").into_bytes(),
        Value::Number(number) => number.to_string().into_bytes(),
        other => panic!("no word: {other:?}"),
    }
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let table_of = |field: &str, text: String| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Nil | Reply::NoList => Ok(Value::Boolean(false)),
        Reply::Int(number) => number.into_lua(lua),
        Reply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Reply::Status(text) => table_of("ok", text.to_owned()),
        Reply::Error(text) => table_of("err", text),
        Reply::List(replies) => {
            let table = lua.create_table()?;
            for (place, reply) in replies.into_iter().enumerate() {
                table.set(place + 1, to_lua(lua, reply)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

fn from_lua(value: Value) -> Reply {
    match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        #[allow(clippy::cast_possible_truncation, reason = "as Redis does")]
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Table(table) => of_table(&table),
        other => panic!("no reply: {other:?}"),
    }
}

fn of_table(table: &Table) -> Reply {
    if let Ok(Value::String(text)) = table.raw_get::<Value>("err") {
        return Reply::Error(text.to_string_lossy());
    }
    if let Ok(Value::String(_)) = table.raw_get::<Value>("ok") {
        return Reply::Status("OK");
    }
    Reply::List(table.sequence_values::<Value>().map(|value| from_lua(value.expect("a value"))).collect())
}
