//! One selling process: the threads sell item by item, each item under the lock.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lockson::{Client, Guard, Lock};
use lockson_harness::helper;
use rustix::process::{Signal, getpid, kill_process};

use crate::plan::{LONG_JOB, PACKING, PAUSE, RENEWAL, SELLERS, TIME_TO_LIVE};
use crate::report::{Look, Mark, Order, Receipt, Report};
use crate::shop::{Sale, Shop};
use crate::{Result, clock};

/// The first argument of a selling process.
pub const ROLE: &str = "till";

/// The line that opens the till.
pub const OPEN: &str = "open";

/// One selling thread.
struct Seller {
    till: u32,
    number: u32,
    lock: Lock,
    shop: Shop,
    orders: Arc<Mutex<Option<Order>>>,
}

impl Seller {
    /// Sells one item; returns false if nothing is left.
    fn sell(&mut self) -> Result<bool> {
        let asked_at = clock::now();
        let guard = self.lock.lock()?;
        let granted_at = clock::now();

        let item = self.shop.stock()?; // from here to the write no other seller may come between
        if item == 0 {
            guard.unlock()?;
            return Ok(false);
        }
        let (price, holds) = self.price(item)?;
        thread::sleep(PACKING);
        self.follow_orders(item, &guard)?;

        if !guard.is_held() {
            guard.unlock()?; // says Lost: the item was not sold by us
            return Ok(true);
        }
        let sale = Sale { item, till: self.till, seller: self.number, price };
        self.shop.write(&sale)?;
        let written_at = clock::now();
        let waited = granted_at - asked_at;
        say(&Report::Sold(Receipt { sale, waited, granted_at, written_at, holds }));
        guard.unlock()?;
        Ok(true)
    }

    /// Finds the price. The function takes the lock because other callers exist; here the thread re-enters the lock.
    fn price(&self, item: u32) -> Result<(u32, u64)> {
        let guard = self.lock.lock()?;
        let price = if item.is_multiple_of(100) { 100 } else { 1_999 }; // every hundredth one is a bargain
        let holds = self.lock.hold_count();
        guard.unlock()?;
        Ok((price, holds))
    }

    /// Sells until nothing is left.
    fn work(&mut self) -> Result<()> {
        loop {
            match self.sell() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => match error.downcast_ref::<lockson::Error>() {
                    // After a loss the seller goes on and takes the lock again.
                    Some(error) if error.loss().is_some() => say(&Report::Lost(error.to_string())),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Follows the manager's order for the current holder of the lock.
    fn follow_orders(&self, item: u32, guard: &Guard) -> Result<()> {
        let Some(order) = self.orders.lock().map_err(|_| "a seller panicked")?.take() else {
            return Ok(());
        };
        let since = clock::now();
        say(&Report::Marked(Mark { item, seller: self.number, at: since }));
        match order {
            Order::WorkLong => {
                thread::sleep(LONG_JOB);
                say(&Report::Worked(look(item, since, guard)));
            }
            Order::AwaitTheEnd => thread::sleep(Duration::MAX),
            Order::StopYourself => {
                stop_this_process()?;
                say(&Report::Continued(look(item, since, guard)));
            }
        }
        Ok(())
    }
}

/// Sells as a separate process; the arguments give the sale, the till, and whether there is a lock.
pub fn main(arguments: &[&str]) -> ExitCode {
    match run(arguments) {
        Ok(()) => {
            say(&Report::Done);
            loop {
                thread::park(); // until the manager closes the pipe, which ends this process
            }
        }
        Err(error) => {
            say(&Report::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let [name, number, has_lock] = arguments else {
        return Err("a till needs a sale, a number, and whether there is a lock".into());
    };
    let url = &std::env::var("REDIS_URL")?; // not an argument: everybody can read those, and it may hold a password
    let till = number.parse()?;
    let has_lock: bool = has_lock.parse()?;
    let requests = helper::requests(); // ends this process when the manager is gone
    let client = Client::builder(url).watchdog(TIME_TO_LIVE, RENEWAL).client_name("flash-sale-till").connect()?;
    let orders = Arc::new(Mutex::new(None));
    let mut sellers = vec![];
    for number in 1..=SELLERS {
        let whose = if has_lock { String::new() } else { format!("-of-{till}-{number}") };
        let lock = client.get_lock(format!("{name}:lock{whose}"));
        let shop = Shop::open(url, name)?;
        sellers.push(Seller { till, number, lock, shop, orders: Arc::clone(&orders) });
    }
    say(&Report::Ready(client.id().to_owned()));
    if requests.recv()? != OPEN {
        return Err("expected to be opened".into());
    }
    thread::spawn(move || {
        for line in requests {
            if let Ok(mut orders) = orders.lock() {
                *orders = Order::of(&line);
            }
        }
    });
    let threads: Vec<_> = sellers.into_iter().map(|mut seller| thread::spawn(move || seller.work())).collect();
    for thread in threads {
        thread.join().map_err(|_| "a seller panicked")??;
    }
    Ok(())
}

/// Stops all threads of this process; returns when another process has continued them.
fn stop_this_process() -> Result<()> {
    let mut before = clock::now();
    kill_process(getpid(), Signal::STOP)?;
    // This thread may run on for a while, until some thread of the process takes the signal: a jump of the clock shows
    // that the process was stopped.
    loop {
        thread::sleep(Duration::from_millis(1));
        let now = clock::now();
        if clock::between(before, now) > PAUSE / 2 {
            return Ok(());
        }
        before = now;
    }
}

fn look(item: u32, since: u64, guard: &Guard) -> Look {
    let is_held = guard.is_held();
    let loss = guard.lost().map_or_else(|| "none".into(), |loss| loss.to_string());
    Look { item, since, at: clock::now(), is_held, loss }
}

fn say(report: &Report) {
    helper::say(&report.line());
}
