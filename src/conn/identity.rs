//! What identifies a connection on the server: the text of `CLIENT INFO`, and the command that ends the connection.

use redis::Cmd;

use crate::reply::command;
use crate::transport::Identity;

impl Identity {
    /// The command that ends this connection on the server, so that the server runs no further request of it.
    pub(super) fn kill(&self) -> Cmd {
        let mut kill = command("CLIENT", ("KILL", "ID", self.id));
        if let Some(address) = &self.address {
            kill.arg("ADDR").arg(address);
        }
        kill
    }

    /// Reads the text of `CLIENT INFO`. The path of a Unix socket may contain spaces.
    pub(super) fn read(info: &str) -> Option<Self> {
        let id = info.strip_prefix("id=")?.split(' ').next()?.parse().ok()?;
        let part = |name, ends: &[&str]| {
            let (_, part) = info.split_once(name)?;
            ends.iter().find_map(|end| Some(part.split_once(end)?.0.to_owned()))
        };
        let (address, server) = (part(" addr=", &[" laddr=", " fd="]), part(" laddr=", &[" fd="]));
        Some(Self { address, server, ..Self::new(id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_names_number_and_address() {
        let identity = Identity { address: Some("127.0.0.1:50188".into()), ..Identity::new(7) };
        let words: Vec<_> = identity
            .kill()
            .args_iter()
            .map(|word| match word {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            })
            .collect();
        assert_eq!(words, ["CLIENT", "KILL", "ID", "7", "ADDR", "127.0.0.1:50188"]);
    }

    #[test]
    fn the_number_is_read_where_nothing_else_told_it() {
        let id = |info| Identity::read(info).map(|identity| identity.id);
        assert_eq!(id("id=12 addr=127.0.0.1:50188 fd=8"), Some(12));
        assert_eq!(id("addr=127.0.0.1:50188 id=12"), None);
    }

    #[test]
    fn the_address_is_read_whole() {
        let check = |info, address: Option<&str>| {
            assert_eq!(Identity::read(info).unwrap().address.as_deref(), address, "{info}");
        };
        check("id=3 addr=127.0.0.1:50188 laddr=127.0.0.1:6379 fd=8 name=addr=x", Some("127.0.0.1:50188"));
        check("id=4 addr=/run/my redis.sock:0 laddr=/run/my redis.sock:0 fd=9 name=", Some("/run/my redis.sock:0"));
        check("id=5 addr=[::1]:7 fd=9 name=", Some("[::1]:7"));
        check("id=6", None);
    }
}
