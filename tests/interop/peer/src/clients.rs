//! The open clients, and the meaning of the options of `open`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockson::{Client, ClientBuilder, Lock, RedLock};

use crate::answer::{Answer, Failure};
use crate::permits::Held;
use crate::request::Request;

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
        let client = self.find(request)?;
        self.all().remove(&number_of(request)?);
        answer.time(|| client.close());
        Ok(())
    }

    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *self.all());
        all.values().for_each(Client::close);
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
        let own = number_of(request)?.to_string();
        let clients = if request.has("clients") { request.texts("clients")? } else { vec![own; names.len()] };
        if clients.len() != names.len() {
            return Err(Failure::bad_input("clients has not one item for each name"));
        }
        let mut locks = vec![];
        for (name, client) in names.iter().zip(clients) {
            let number = client.parse().map_err(|_| Failure::bad_input(format!("no such client: '{client}'")))?;
            locks.push(self.numbered(number)?.get_lock(name));
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

fn number_of(request: &Request) -> Result<u32, Failure> {
    Ok(request.optional_number("client")?.unwrap_or(0))
}

fn builder(request: &Request) -> Result<ClientBuilder, Failure> {
    let mut builder = Client::builder(&url(request)?);
    if let Some(millis) = request.optional_number("watchdog_ms")? {
        let timeout = Duration::from_millis(millis);
        builder = builder.watchdog(timeout, timeout / 3);
    }
    if let Some(millis) = request.optional_number("fair_wait_ms")? {
        builder = builder.fair_patience(Duration::from_millis(millis));
    }
    if let Some(millis) = request.optional_number("timeout_ms")? {
        builder = builder.command_timeout(Duration::from_millis(millis));
    }
    if let Some(name) = request.optional_text("client_name")? {
        builder = builder.client_name(&name);
    }
    Ok(builder)
}

/// The address of the server, or of the nodes of a cluster.
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
        None => {}
        Some(mode) => return Err(Failure::unsupported(format!("this library has no mode {mode}"))),
    }
    Ok(format!("{scheme}://{}", servers.join(",")))
}

/// The kinds with several names.
pub(crate) const SEVERAL: &[&str] = &["multi", "red", "faster_multi"];
