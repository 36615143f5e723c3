//! The open clients, and the meaning of the options of `open`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockson::{Client, ClientBuilder, Lock, RedLock};

use crate::answer::{Answer, Failure};
use crate::permits::Held;
use crate::request::Request;
use lockson_harness::percent;

/// Clients by the numbers in commands.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_number: Mutex<HashMap<u32, Client>>,
    permits: Held,
}

impl Clients {
    pub(crate) fn open(&self, request: &Request, answer: &mut Answer) -> Result<(), Failure> {
        let number = number_of(request)?;
        if self.all().contains_key(&number) {
            return Err(Failure::bad_input(format!("client {number} is open")));
        }
        let builder = builder(request)?;
        let client = answer.time(|| builder.connect())?;
        answer.put("client_id", client.id());
        self.all().insert(number, client);
        Ok(())
    }

    pub(crate) fn close(&self, request: &Request, answer: &mut Answer) -> Result<(), Failure> {
        request.allow_only(&["thread", "client"])?;
        let client = self.find(request)?;
        self.all().remove(&number_of(request)?);
        answer.time(|| client.close());
        Ok(())
    }

    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *self.all());
        all.values().for_each(Client::close);
    }

    /// Thread and owner are known only while this thread holds a lock: an owner here belongs to a hold.
    pub(crate) fn ids(&self, request: &Request, answer: &mut Answer) -> Result<(), Failure> {
        request.allow_only(&["thread", "client"])?;
        answer.put("client_id", self.find(request)?.id());
        Ok(())
    }

    /// The lock of a request.
    pub(crate) fn target(&self, request: &Request) -> Result<Lock, Failure> {
        match request.text("kind")?.as_str() {
            kind if SEVERAL.contains(&kind) => self.several(request, &request.texts("names")?),
            _ => self.lock(request, &request.text("name")?),
        }
    }

    /// Several locks, or values of a group, as one lock.
    pub(crate) fn several(&self, request: &Request, names: &[String]) -> Result<Lock, Failure> {
        if request.text("kind")? == "faster_multi" {
            return Ok(self.find(request)?.get_group_lock(request.text("name")?, names));
        }
        let kinds = one_for_each(request, "of", "plain", names.len())?;
        let clients = one_for_each(request, "clients", &number_of(request)?.to_string(), names.len())?;
        let mut locks = vec![];
        for ((name, kind), client) in names.iter().zip(kinds).zip(clients) {
            let number = client.parse().map_err(|_| Failure::bad_input(format!("no such client: '{client}'")))?;
            locks.push(one(&self.numbered(number)?, &kind, name)?);
        }
        match request.text("kind")?.as_str() {
            // The servers of a check are new.
            "red" => Ok(RedLock::new(locks).with_rejoin_after(Duration::ZERO).into()),
            _ => Ok(Lock::multi(locks)),
        }
    }

    /// A lock of one name.
    pub(crate) fn lock(&self, request: &Request, name: &str) -> Result<Lock, Failure> {
        one(&self.find(request)?, &request.text("kind")?, name)
    }

    /// The permits that this process has taken.
    pub(crate) fn permits(&self) -> &Held {
        &self.permits
    }

    pub(crate) fn find(&self, request: &Request) -> Result<Client, Failure> {
        self.numbered(number_of(request)?)
    }

    fn numbered(&self, number: u32) -> Result<Client, Failure> {
        let client = self.all().get(&number).cloned();
        client.ok_or_else(|| Failure::bad_input(format!("client {number} is not open")))
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Client>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn one(client: &Client, kind: &str, name: &str) -> Result<Lock, Failure> {
    match kind {
        "plain" => Ok(client.get_lock(name)),
        "fair" => Ok(client.get_fair_lock(name)),
        "spin" => Ok(client.get_spin_lock(name)),
        "non_reentrant" => Ok(client.get_non_reentrant_lock(name)),
        "non_reentrant_fair" => Ok(client.get_non_reentrant_fair_lock(name)),
        "fenced" => Ok(client.get_fenced_lock(name).into()),
        "read" => Ok(client.get_read_write_lock(name).read()),
        "write" => Ok(client.get_read_write_lock(name).write()),
        kind => Err(Failure::bad_input(format!("no such kind: '{kind}'"))),
    }
}

/// The items of a list that has one item for all names, or one for each.
fn one_for_each(request: &Request, key: &str, default: &str, names: usize) -> Result<Vec<String>, Failure> {
    let items = if request.has(key) { request.texts(key)? } else { vec![default.to_owned()] };
    match items.as_slice() {
        [item] => Ok(vec![item.clone(); names]),
        items if items.len() == names => Ok(items.to_vec()),
        _ => Err(Failure::bad_input(format!("{key} has neither one item nor one for each name"))),
    }
}

fn number_of(request: &Request) -> Result<u32, Failure> {
    Ok(request.optional_number("client")?.unwrap_or(0))
}

fn builder(request: &Request) -> Result<ClientBuilder, Failure> {
    request.allow_only(OPTIONS)?;
    let mut builder = Client::builder(&url(request)?);
    if let Some(millis) = request.optional_number("watchdog_ms")? {
        let timeout = Duration::from_millis(millis);
        builder = builder.watchdog(timeout, timeout / 3);
    }
    if let Some(most) = request.optional_number("watchdog_batch")? {
        builder = builder.watchdog_batch(most);
    }
    if let Some(millis) = request.optional_number("fair_wait_ms")? {
        builder = builder.fair_patience(Duration::from_millis(millis));
    }
    if let Some(prefix) = request.optional_text("name_prefix")? {
        builder = builder.name_prefix(&prefix);
    }
    if let Some(millis) = request.optional_number("timeout_ms")? {
        builder = builder.command_timeout(Duration::from_millis(millis));
    }
    if let Some(most) = request.optional_number("pool_size")? {
        builder = builder.max_connections(most);
    }
    builder = match request.optional_text("sharded")?.as_deref() {
        Some("on") => builder.sharded_pub_sub(true),
        Some("off") => builder.sharded_pub_sub(false),
        Some("auto") | None => builder,
        Some(_) => return Err(Failure::bad_input("sharded is neither auto nor on nor off")),
    };
    if let Some(name) = request.optional_text("client_name")? {
        builder = builder.client_name(&name);
    }
    Ok(builder)
}

/// The address with the given credentials, database and protocol.
fn url(request: &Request) -> Result<String, Failure> {
    let (mut scheme, mut servers) = (String::new(), vec![]);
    for address in request.texts("address")? {
        let Some((of_all, server)) = address.split_once("://") else {
            return Err(Failure::bad_input("an address is redis://host:port"));
        };
        of_all.clone_into(&mut scheme);
        servers.push(server.trim_end_matches('/').to_owned());
    }
    match request.optional_text("mode")?.as_deref() {
        Some("cluster") => scheme += "+cluster",
        Some("single") | None if servers.len() == 1 => {}
        Some("single") | None => return Err(Failure::bad_input("mode single takes one address")),
        Some(mode) => return Err(Failure::unsupported(format!("this library has no mode {mode}"))),
    }
    let mut url = format!("{scheme}://");
    if let Some(password) = request.optional_text("password")? {
        let user = request.optional_text("username")?.unwrap_or_default();
        url.push_str(&format!("{}:{}@", percent::encode(&user), percent::encode(&password)));
    }
    url.push_str(&servers.join(","));
    if let Some(database) = request.optional_text("database")? {
        url.push_str(&format!("/{database}"));
    }
    match request.optional_text("protocol")?.as_deref() {
        Some("resp3") => url.push_str("?protocol=resp3"),
        Some("resp2") | None => {}
        Some(_) => return Err(Failure::bad_input("protocol is neither resp2 nor resp3")),
    }
    Ok(url)
}

const OPTIONS: &[&str] = &[
    "thread",
    "client",
    "address",
    "mode",
    "username",
    "password",
    "database",
    "client_name",
    "protocol",
    "name_prefix",
    "watchdog_ms",
    "watchdog_batch",
    "fair_wait_ms",
    "timeout_ms",
    "pool_size",
    "sharded",
];
/// The kinds with several names.
pub(crate) const SEVERAL: &[&str] = &["multi", "red", "faster_multi"];
