//! The words of a member about the whole cluster: its replies to `CLUSTER INFO` and `CLUSTER SLOTS`, and redirections.

use std::collections::HashMap;

use redis::Value;

use crate::conn::address::Endpoint;
use crate::conn::frame::Largest;
use crate::conn::introduction::{Purpose, field_of};
use crate::conn::server::Server;
use crate::error::Stop;
use crate::reply::{command, field, list, text};
use crate::time::Instant;
use crate::transport::{Fault, Limits};

/// The map of the cluster as one member knows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MemberView {
    /// The last epoch that the member heard of; `None` where the member does not tell.
    pub(super) epoch: Option<u64>,
    /// Whether the member serves requests.
    pub(super) is_well: bool,
    pub(super) ranges: Vec<Range>,
    /// The ids of the nodes, as far as they are told.
    pub(super) ids: HashMap<Endpoint, String>,
}

/// Consecutive slots on one master.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Endpoint,
    pub(super) replicas: Vec<Endpoint>,
}

/// Asks one member for its map.
pub(super) fn ask(server: &Server, deadline: Instant) -> std::result::Result<MemberView, Fault> {
    let mut connection = server.dialer.dial_for(Purpose::Map, deadline)?;
    connection.buffer.largest = Largest::LONG;
    let spoke = server.dialer.host();
    let questions = ["INFO", "SLOTS"].map(|word| command("CLUSTER", word));
    connection.round_trips(Limits::by(deadline), false, |send| {
        let replies = send(&questions)?;
        let [info, slots] = &replies[..] else { return Err(Stop::NoReply) };
        Stop::at_a_refusal([slots])?;
        let (ranges, ids) = ranges(slots, spoke).ok_or(Stop::NoReply)?;
        // A user without the right to the first command takes the first map.
        let info = text(info);
        let field = |name| info.as_deref().map(|info| field_of(info, name));
        let epoch = field("cluster_current_epoch").flatten().and_then(|epoch| epoch.parse().ok());
        Ok(MemberView { epoch, is_well: field("cluster_state").is_none_or(|state| state == Some("ok")), ranges, ids })
    })
}

/// Reads the reply to `CLUSTER SLOTS`; `spoke` is the host that was asked. `None` for a reply of another shape.
fn ranges(reply: &Value, spoke: &str) -> Option<(Vec<Range>, HashMap<Endpoint, String>)> {
    let (mut all, mut ids) = (vec![], HashMap::new());
    for range in list(reply)? {
        let [Value::Int(first), Value::Int(last), master, replicas @ ..] = list(range)? else { return None };
        // A master whose address nobody knows is found by the next look at the map.
        let mut place = |node| {
            let (place, id) = place(node, spoke)?;
            ids.extend(id.map(|id| (place.clone(), id)));
            Some(place)
        };
        let Some(master) = place(master) else { continue };
        let replicas = replicas.iter().filter_map(place).collect();
        all.push(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, master, replicas });
    }
    Some((all, ids))
}

/// Reads address and id of a node: host, port, id, and further facts, among them the address where the host is unknown.
fn place(node: &Value, spoke: &str) -> Option<(Endpoint, Option<String>)> {
    let [host, Value::Int(port), rest @ ..] = list(node)? else { return None };
    let told = |part: Option<&Value>| part.and_then(text).filter(|part| !part.is_empty());
    let host = match (host, text(host).as_deref()) {
        // A node that does not know its own address is where the answer came from.
        (Value::Nil, _) | (_, Some("")) => spoke.to_owned(),
        (_, Some("?")) => told(field(rest.get(1)?, "ip"))?,
        (_, host) => host?.to_owned(),
    };
    let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
    Some((Endpoint::Tcp(host, port), told(rest.first())))
}

/// Reads the address in a redirection; `spoke` is the host that sent it. `None` where the host is not known.
pub(super) fn place_in(redirection: &str, spoke: &str) -> Option<Endpoint> {
    // An IPv6 address has colons and no brackets.
    let (host, port) = redirection.rsplit_once(':')?;
    match host {
        "?" => None,
        "" => Endpoint::at(spoke, port),
        host => Endpoint::at(host.trim_start_matches('[').trim_end_matches(']'), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reply: &str) -> Option<Vec<(u16, u16, Endpoint, usize)>> {
        let (ranges, _) = ranges(&redis::parse_redis_value(reply.as_bytes()).unwrap(), "spoke")?;
        Some(ranges.into_iter().map(|range| (range.first, range.last, range.master, range.replicas.len())).collect())
    }

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    #[test]
    fn a_map_names_masters_by_the_best_address_there_is() {
        let node = |host: &str| format!("*4\r\n{host}:7000\r\n$2\r\nid\r\n*2\r\n$2\r\nip\r\n$7\r\n1.2.3.4\r\n");
        let check = |host: &str, found: Option<&str>| {
            let reply = format!("*1\r\n*4\r\n:0\r\n:5\r\n{0}{0}", node(host));
            let found = found.map(|host| (0, 5, at(host, 7_000), 1));
            assert_eq!(read(&reply), Some(found.into_iter().collect()), "{host}");
        };
        check("$9\r\n127.0.0.1\r\n", Some("127.0.0.1"));
        check("$5\r\nhost1\r\n", Some("host1"));
        check("$3\r\n::1\r\n", Some("::1"));
        check("$0\r\n\r\n", Some("spoke"));
        check("$-1\r\n", Some("spoke"));
        check("$1\r\n?\r\n", Some("1.2.3.4"));
        assert_eq!(read("*1\r\n*3\r\n:0\r\n:5\r\n*3\r\n$1\r\n?\r\n:7000\r\n$2\r\nid\r\n"), Some(vec![]));
        assert_eq!(read("+OK\r\n"), None);
        assert_eq!(read("*1\r\n:1\r\n"), None);
    }

    #[test]
    fn a_redirection_names_a_place_in_every_form() {
        let check = |text: &str, place: Option<Endpoint>| assert_eq!(place_in(text, "spoke"), place, "{text}");
        check("127.0.0.1:7000", Some(at("127.0.0.1", 7_000)));
        check("node-1.example:7000", Some(at("node-1.example", 7_000)));
        check("::1:7000", Some(at("::1", 7_000)));
        check("[::1]:7000", Some(at("::1", 7_000)));
        check(":7000", Some(at("spoke", 7_000)));
        check("?:7000", None);
        check("host:0", None);
        check("host", None);
    }
}
