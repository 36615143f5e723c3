//! Waits for replicas over the connection of the request that they must have.

use redis::{Cmd, Value};

use super::asking::asking;
use super::connection::Connection;
use super::trouble;
use crate::durability::Durability;
use crate::error::Refusal;
use crate::reply::number;
use crate::time::Instant;
use crate::transport::{Confirmation, Copies, Fault};

impl Connection {
    /// Waits until replicas or the disk have everything that was written so far, as long as the setting says. After a
    /// failure the connection must be dropped. `asks` where the request followed an `ASKING`.
    pub(super) fn confirm(&mut self, confirmation: &Confirmation, asks: bool) -> Result<Copies, Fault> {
        let wait = |needs: Durability| Cmd::new().arg(needs.words()).get_packed_command();
        let needs = confirmation.needs;
        // A late disk tells nothing of replicas whose disks are not needed.
        let first = needs.besides_disks();
        let mut packed = if asks { asking() } else { vec![] };
        packed.extend(&confirmation.touch);
        packed.extend(wait(first.unwrap_or(needs)));
        let (began, limit) = (Instant::now(), needs.bound());
        let deadline = began.after(limit);
        let sent = self.send(&packed, deadline);
        let replies = sent.and_then(|()| Ok([self.receive_one(asks, deadline)?, self.receive(deadline)?]));
        let copies = replies.and_then(|[touched, counted]| {
            let copies = read(&touched, &counted).ok_or_else(trouble::odd_reply)?;
            let rest = match &copies {
                Copies::Counted { .. } => first.map(|_| needs),
                Copies::Refused(refusal) if touched == Value::Int(1) && refusal.lacks_command() => {
                    first.map(|_| needs).or_else(|| needs.without_disk())
                }
                _ => None,
            };
            let Some(rest) = rest.map(|rest| rest.after(began.until(Instant::now()))) else { return Ok(copies) };
            self.send(&wait(rest), deadline)?;
            let more = read(&touched, &self.receive(deadline)?).ok_or_else(trouble::odd_reply)?;
            Ok(copies.and(more))
        });
        copies.map_err(|error| self.broke(error, limit))
    }
}

fn read(touched: &Value, counted: &Value) -> Option<Copies> {
    match (touched, counted) {
        (Value::ServerError(error), _) | (Value::Int(1), Value::ServerError(error)) => {
            let refusal = Refusal::new(error);
            // The server became a replica, or the slot moved: the request may be lost with its place.
            (!refusal.is_of_replica() && !refusal.is_of_routing()).then_some(Copies::Refused(refusal))
        }
        (Value::Int(0), _) => Some(Copies::Gone),
        (Value::Int(1), Value::Array(counts)) => {
            let [local, disks] = &counts[..] else { return None };
            let (local, disks) = (number(local)?, number(disks)?);
            Some(Copies::Counted { on_disk: local > 0, disks, replicas: disks })
        }
        (Value::Int(1), replicas) => Some(Copies::Counted { on_disk: false, disks: 0, replicas: number(replicas)? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::conn::Server;
    use crate::conn::scripted::{Reaction, Scripted};

    #[test]
    fn a_wait_in_two_parts_has_one_deadline() {
        let server = Scripted::start(|seen| match seen.words[0].as_str() {
            "WAIT" => {
                thread::sleep(Duration::from_millis(500));
                Reaction::Reply(":1\r\n")
            }
            "WAITAOF" => Reaction::Mute,
            _ => Reaction::Reply(":1\r\n"),
        });
        let mut connection = Server::for_test(&server.url()).dialer.dial(Instant::now().after(SOON)).unwrap();
        let disk = Durability::replicas(0).with_fsync().within(Duration::from_millis(100));
        let needs = disk.and(Durability::replicas(1).within(Duration::from_millis(100)));
        let touch = Cmd::new().arg("TOUCH").get_packed_command();
        let began = Instant::now();
        assert!(connection.confirm(&Confirmation { touch, needs }, false).is_err());
        let took = began.until(Instant::now());
        assert_eq!(server.seen().last().map(|seen| seen.words[0].clone()).as_deref(), Some("WAITAOF"));
        assert!(took < needs.bound() + Duration::from_millis(300), "{took:?}");
    }

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn each_pair_of_replies_is_read() {
        let error = |text: &str| redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        let counted = |on_disk, disks, replicas| Some(Copies::Counted { on_disk, disks, replicas });
        let (one, both) = (Value::Int(1), Value::Array(vec![Value::Int(1), Value::Int(2)]));
        assert_eq!(read(&one, &Value::Int(0)), counted(false, 0, 0));
        assert_eq!(read(&one, &both), counted(true, 2, 2));
        assert_eq!(read(&Value::Int(0), &Value::Int(3)), Some(Copies::Gone), "the wait was for nothing");
        assert!(matches!(read(&one, &error("NOPERM no")), Some(Copies::Refused(_))));
        assert!(matches!(read(&error("OOM no"), &one), Some(Copies::Refused(_))));
        for elsewhere in ["READONLY a replica", "MOVED 1 h:1", "ASK 1 h:1", "CLUSTERDOWN no"] {
            assert_eq!(read(&error(elsewhere), &one), None, "{elsewhere}");
        }
        assert_eq!(read(&one, &error("UNBLOCKED master -> replica?")), None, "the place is lost during the wait");
        assert_eq!(read(&one, &Value::Okay), None);
    }
}
