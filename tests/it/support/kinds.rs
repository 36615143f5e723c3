//! The lock of a name, kind by kind, for the tables of tests.

use crate::support::prelude::*;

/// The lock of this name, of one kind.
pub(crate) type OfName = fn(&Client, &str) -> Lock;

/// Every kind whose holds are watched.
pub(crate) const WATCHED: [(&str, OfName); 8] = [
    ("plain", plain),
    ("fair", fair),
    ("spin", spin),
    ("fenced", fenced),
    ("non-reentrant", non_reentrant),
    ("read", read),
    ("write", write),
    ("token", token),
];

pub(crate) fn plain(client: &Client, name: &str) -> Lock {
    client.get_lock(name)
}

pub(crate) fn fair(client: &Client, name: &str) -> Lock {
    client.get_fair_lock(name)
}

pub(crate) fn spin(client: &Client, name: &str) -> Lock {
    client.get_spin_lock(name)
}

pub(crate) fn fenced(client: &Client, name: &str) -> Lock {
    client.get_fenced_lock(name).into()
}

pub(crate) fn read(client: &Client, name: &str) -> Lock {
    client.get_read_write_lock(name).read()
}

pub(crate) fn write(client: &Client, name: &str) -> Lock {
    client.get_read_write_lock(name).write()
}

pub(crate) fn non_reentrant(client: &Client, name: &str) -> Lock {
    client.get_non_reentrant_lock(name)
}

pub(crate) fn non_reentrant_fair(client: &Client, name: &str) -> Lock {
    client.get_non_reentrant_fair_lock(name)
}

/// A token lock that is given back by a transaction, and so has a lease.
pub(crate) fn token_transaction(client: &Client, name: &str) -> Lock {
    token_by(client, name, ReleaseBy::Transaction)
}

/// A token lock that is given back by the server's own command, and so has a lease.
pub(crate) fn token_server(client: &Client, name: &str) -> Lock {
    token_by(client, name, ReleaseBy::Server)
}

fn token_by(client: &Client, name: &str, release_by: ReleaseBy) -> Lock {
    client.get_token_lock_with(name, TokenOptions::new().with_release_by(release_by)).with_lease(SOON * 3)
}

pub(crate) fn token(client: &Client, name: &str) -> Lock {
    client.get_token_lock(name)
}
