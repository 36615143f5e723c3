//! The kind, the holders and the waiters of one name, as Redis has them.

use std::time::Duration;

use crate::listing::{LockKind, record};
use crate::token::FencingToken;

record! {
    /// What Redis knows of a name at one moment, as told by [`Client::inspect`](crate::Client::inspect).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let found = client.inspect("orders:42")?;
    /// for holder in found.holders() {
    ///     let host = holder.client().and_then(|client| client.host()).unwrap_or("an unknown host");
    ///     println!("{} is held by {} on {host} for {:?}", found.name(), holder.owner(), found.remaining());
    /// }
    /// println!("{} wait", found.waiting_clients());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(Default, PartialEq, Eq)]
    pub struct Inspection {
        /// Returns the name, with the prefix of the client.
        name: String => [&str],
        /// Returns the kind as far as Redis shows it; `None` where nothing is stored, or where
        /// [`without_rights`](Self::without_rights) names the command that would tell.
        ///
        /// Plain, non-reentrant and spin locks look alike: they are [`LockKind::Plain`]. A fair lock looks plain while
        /// nobody waits. A latch looks like a semaphore, and so do expiring permits while none is taken. Any other text
        /// looks like a token lock. A free fenced lock and an election without a leader leave their last token:
        /// [`LockKind::Fenced`].
        kind: Option<LockKind> => [Option<LockKind>],
        /// Returns the holders, at most 1,000; those of a semaphore are not stored.
        holders: Vec<InspectedHolder> => [&[InspectedHolder]],
        /// Returns the number of all holders; of more than 1,000 values of a group an estimate, which counts expired
        /// ones.
        holder_count: u64 => [u64],
        /// Returns the time until the whole key expires. `None` for a free lock, and for a key without expiry: a lock
        /// that is held so never frees itself.
        remaining: Option<Duration> => [Option<Duration>],
        /// Returns the queue of a fair lock in its order, at most 1,000 waiters. Other kinds do not store their
        /// waiters.
        waiters: Vec<InspectedWaiter> => [&[InspectedWaiter]],
        /// Returns how many connections listen for the release on the server of the lock, one for each listed waiter
        /// of a fair lock included. Waiters of spin and token locks do not listen, and threads of one client share a
        /// connection.
        waiting_clients: u64 => [u64],
        /// Returns the last fencing token of a fenced lock or an election, also of a free one.
        token: Option<FencingToken> => [Option<FencingToken>],
        /// Returns the free permits of a semaphore, expired ones among them, or the count of a latch.
        available: Option<i64> => [Option<i64>],
        /// Returns the text of the candidate that leads.
        leader: Option<String> => [Option<&str>],
        /// Returns for how long an election is led, or a fenced lock is held by a client of this library: its token is
        /// the time of the server at its grant, unless that clock was set back. Redis does not record since when others
        /// are held. A plain lock of the same name draws no token, and shows the age of the last one.
        held_for: Option<Duration> => [Option<Duration>],
        /// Returns the commands that the user may not run, as an ACL writes them, and the keys that the user may not
        /// read, with `~` in front. Their part is missing.
        without_rights: Vec<String> => [&[String]],
        /// Returns why no holder and no waiter has a [`client`](InspectedHolder::client), where the server did not
        /// list its connections for another reason than a missing right.
        without_clients: Option<String> => [Option<&str>],
    }

    /// A holder of what was inspected; see [`Inspection`].
    #[derive(Default, PartialEq, Eq)]
    pub struct InspectedHolder {
        /// Returns the owner id as stored: of a token lock its value, of a permit its id as
        /// [`PermitId`](crate::PermitId) shows it. A byte that is no text is shown as U+FFFD.
        owner: String => [&str],
        /// Returns the hold count; 1 where none is stored.
        hold_count: u64 => [u64],
        /// Returns the side of a read-write lock, [`LockKind::Read`] or [`LockKind::Write`]; `None` for other kinds.
        side: Option<LockKind> => [Option<LockKind>],
        /// Returns the field of a group's value, a hash of the value; the value itself is not stored.
        value: Option<String> => [Option<&str>],
        /// Returns the time until this hold expires, where the hold has a time of its own: a reader, a permit, a value
        /// of a group.
        remaining: Option<Duration> => [Option<Duration>],
        /// Returns a connection of the holder's client; `None` where the client is not connected to this server, or
        /// is one of Redisson.
        client: Option<ClientConnection> => [Option<&ClientConnection>],
    }

    /// A waiter in the queue of a fair lock; see [`Inspection`].
    #[derive(PartialEq, Eq)]
    pub struct InspectedWaiter {
        /// Returns the owner id of the future hold.
        owner: String => [&str],
        /// Returns a connection of the waiter's client, as [`InspectedHolder::client`] does.
        client: Option<ClientConnection> => [Option<&ClientConnection>],
    }

    /// A connection of a client, as `CLIENT LIST` shows it; see [`Inspection`].
    #[derive(PartialEq, Eq)]
    pub struct ClientConnection {
        /// Returns the address of the client as the server sees it.
        address: String => [&str],
        /// Returns the name of the connection.
        name: String => [&str],
        /// Returns the host name of the client, where the connection's name has it.
        host: Option<String> => [Option<&str>],
        /// Returns the id of the client's process on that host, where the connection's name has it.
        process_id: Option<u32> => [Option<u32>],
    }
}
