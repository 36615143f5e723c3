//! The connections of holders and waiters, among all connections of a server.

use std::collections::HashMap;

use redis::Value;

use super::told;
use crate::error::Stop;
use crate::inspection::{ClientConnection, Inspection};
use crate::owner::is_client_id;
use crate::reply::{command, known, text};
use crate::script::Pipeline;

/// The connections of a server: those of clients of this library by the first digits of the client's id.
pub(crate) struct Connections {
    clients: HashMap<String, ClientConnection>,
    without_rights: Vec<String>,
    without_clients: Option<String>,
}

impl Connections {
    /// Asks for the list of all connections.
    pub(crate) fn ask(send: &mut Pipeline<'_>) -> Result<Self, Stop> {
        let list = command("CLIENT", "LIST");
        let reply = known(send(std::slice::from_ref(&list))?.pop())?;
        let mut without_rights = vec![];
        let clients = match told(reply, &list, &mut without_rights)? {
            Value::Nil => HashMap::new(),
            lines => connections(&known(text(&lines))?),
        };
        Ok(Self { clients, without_rights, without_clients: None })
    }

    /// A server did not tell.
    pub(crate) fn unknown(why: String) -> Self {
        Self { clients: HashMap::new(), without_rights: vec![], without_clients: Some(why) }
    }

    /// Adds to holders and waiters their connections, or why they have none.
    pub(crate) fn add_to(&self, found: &mut Inspection) {
        let client_of = |owner: &str| self.clients.get(&first_digits(owner)?).cloned();
        found.holders.iter_mut().for_each(|holder| holder.client = client_of(&holder.owner));
        found.waiters.iter_mut().for_each(|waiter| waiter.client = client_of(&waiter.owner));
        found.without_rights.extend_from_slice(&self.without_rights);
        found.without_clients.clone_from(&self.without_clients);
    }
}

/// The connections of clients of this library in a `CLIENT LIST`, by the first digits of the client's id.
fn connections(lines: &str) -> HashMap<String, ClientConnection> {
    let connection = |line: &str| {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let (name, address) = (field("name=")?, field("addr=")?);
        let parts: Vec<&str> = name.split(':').collect();
        let id = parts.iter().rposition(|part| is_client_id(part))?;
        let host = parts.get(id + 1).filter(|host| !host.is_empty()).map(|host| (*host).to_owned());
        let process_id = parts.get(id + 2).and_then(|id| id.parse().ok());
        let connection = ClientConnection { address: address.to_owned(), name: name.to_owned(), host, process_id };
        Some((first_digits(parts[id])?, connection))
    };
    lines.lines().filter_map(connection).collect()
}

/// The digits of a client's id with which its owners and the ids of its permits begin.
fn first_digits(owner: &str) -> Option<String> {
    let digits: String = owner.chars().filter(|letter| *letter != '-').take(DIGITS_OF_A_CLIENT).collect();
    (digits.len() == DIGITS_OF_A_CLIENT && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(digits)
}

const DIGITS_OF_A_CLIENT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_by_the_name_it_carries() {
        let id = "d57e342e-f1e6-4b24-b3b6-7551a58aea46";
        let of = |name: &str| {
            connections(&format!("id=3 addr=10.0.0.7:51584 name={name} flags=N\n")).remove("d57e342ef1e64b24")
        };
        let found = of(&format!("a:b:{id}:host-7:4711")).unwrap();
        assert_eq!((found.address(), found.host(), found.process_id()), ("10.0.0.7:51584", Some("host-7"), Some(4711)));
        let older = of(&format!("lockson:{id}")).unwrap();
        assert_eq!((older.host(), older.process_id()), (None, None));
        assert_eq!(of("lockson"), None);
        assert_eq!(first_digits(&format!("{id}:7.19")), first_digits("d57e342ef1e64b240000000000130000"));
        assert_eq!(first_digits("billing/1"), None);
    }
}
