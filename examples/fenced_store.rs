//! A store that refuses a late writer: a holder is paused until the lease has ended, and then writes.
//!
//! `cargo run --example fenced_store`

use std::error::Error;
use std::time::Duration;

use lockson::{ACCEPT_IF_NOT_OLDER, Client, FencingToken, Guard};
use lockson_harness::ExampleServer;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Any storage that keeps the greatest token beside the data.
trait Store {
    /// Writes and returns true, unless the store has seen a newer token: then returns false.
    fn write(&mut self, token: FencingToken, value: &str) -> Outcome<bool>;

    fn read(&mut self) -> Outcome<String>;
}

/// A store of one's own: a table, a file, a service.
#[derive(Debug, Default)]
struct Shelf {
    newest: Option<FencingToken>,
    value: String,
}

impl Store for Shelf {
    fn write(&mut self, token: FencingToken, value: &str) -> Outcome<bool> {
        if self.newest.is_some_and(|newest| token < newest) {
            return Ok(false);
        }
        self.newest = Some(token);
        value.clone_into(&mut self.value);
        Ok(true)
    }

    fn read(&mut self) -> Outcome<String> {
        Ok(self.value.clone())
    }
}

/// A value in Redis, written by the script that Lockson provides.
struct Key {
    redis: redis::Connection,
    name: &'static str,
}

impl Store for Key {
    fn write(&mut self, token: FencingToken, value: &str) -> Outcome<bool> {
        let newest = format!("{}:newest", self.name);
        let script = redis::Script::new(ACCEPT_IF_NOT_OLDER);
        let mut call = script.key(newest);
        Ok(call.key(self.name).arg(token.value()).arg(value).invoke(&mut self.redis)?)
    }

    fn read(&mut self) -> Outcome<String> {
        Ok(redis::cmd("GET").arg(self.name).query(&mut self.redis)?)
    }
}

fn main() -> Outcome<()> {
    let server = ExampleServer::open()?;
    let [first, second] = [Client::connect(server.url())?, Client::connect(server.url())?];

    println!("a store of one's own:");
    rehearse(&first, &second, &mut Shelf::default())?;

    println!("\na value in Redis:");
    let redis = redis::Client::open(server.url())?.get_connection()?;
    rehearse(&first, &second, &mut Key { redis, name: "lockson:example:price" })
}

/// Two machines set a price; the first machine is paused in the middle.
fn rehearse(first: &Client, second: &Client, store: &mut impl Store) -> Outcome<()> {
    let [first, second] = [first, second].map(|client| client.get_fenced_lock("lockson:example:pricing"));

    let paused = first.with_lease(Duration::from_millis(300)).lock()?;
    write(store, "first", &paused, "10", true)?;
    // ... and here the first machine pauses, as in a long garbage collection or a suspended machine ...
    let successor = second.try_lock_for(Duration::from_secs(5))?.ok_or("the lease ends")?;
    write(store, "second", &successor, "12", true)?;

    // The first machine wakes and goes on. Even a look at `is_held()` would not protect the write that follows the
    // look.
    println!("  the first machine goes on; is_held() says {}", paused.is_held());
    write(store, "first", &paused, "11", false)?;
    println!("  the price is {}", store.read()?);
    if store.read()? != "12" {
        return Err("the late writer has overwritten its successor".into());
    }
    successor.unlock()?;
    match paused.unlock() {
        Ok(()) => Err("the first machine should have learned of the loss".into()),
        Err(error) => {
            println!("  the first machine calls unlock(): {error}");
            Ok(())
        }
    }
}

fn write(store: &mut impl Store, who: &str, guard: &Guard<FencingToken>, value: &str, wanted: bool) -> Outcome<()> {
    let token = guard.token();
    let written = store.write(token, value)?;
    println!(
        "  the {who} machine writes {value} with token {token}: {}",
        if written { "accepted" } else { "rejected" }
    );
    if written == wanted { Ok(()) } else { Err("the store should have decided otherwise".into()) }
}
