//! The manager: leads the sale through its acts and watches Redis meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock};
use lockson_harness::ExampleServer;

use crate::audit::{Acts, Audit, check_without_lock};
use crate::crew::{Books, Crew};
use crate::plan::{
    BEFORE_CRASH, BEFORE_LONG_JOB, BEFORE_PAUSE, CRASHING, FRESH, LONG_JOB, PATIENCE, PAUSE, PAUSING, RENEWAL, SELLERS,
    STOCK, STOCK_WITHOUT_LOCK, TILLS, TIME_TO_LIVE, WORKING,
};
use crate::progress::{Progress, thousands};
use crate::report::{Mark, Order};
use crate::shop::Shop;
use crate::{Result, clock};

/// The state of the lock in Redis at one moment: the owner and the time to live.
pub struct Sight {
    pub owner: String,
    pub left: Duration,
    pub at: u64,
}

struct Manager {
    crew: Crew,
    lock: Lock,
    progress: Progress,
    looked_at: Instant,
    /// The observations of the lock while an act records them.
    sights: Option<Vec<Sight>>,
}

/// Runs the sale without the lock and the sale with the lock; returns the faults.
pub fn run(with_java: bool) -> Result<Vec<String>> {
    println!("Flash sale: {TILLS} processes of {SELLERS} threads sell one stock.");
    let server = ExampleServer::open()?;
    let mut troubles = hold(server.url(), false, with_java)?;
    troubles.append(&mut hold(server.url(), true, with_java)?);
    Ok(troubles)
}

/// Holds one sale of a stock of its own, and clears it away.
fn hold(url: &str, has_lock: bool, with_java: bool) -> Result<Vec<String>> {
    let stock = if has_lock { STOCK } else { STOCK_WITHOUT_LOCK };
    let client = Client::connect(url)?;
    let name = format!("lockson:demo:{}", client.id().get(..8).unwrap_or("sale"));
    let mut shop = Shop::open(url, &name)?;
    shop.fill(stock)?;
    let mut manager = Manager {
        crew: Crew::new(url, &name, has_lock, with_java),
        lock: client.get_lock(format!("{name}:lock")),
        progress: Progress::new(stock),
        looked_at: Instant::now(),
        sights: None,
    };
    let troubles = if has_lock { manager.with_lock(&mut shop) } else { manager.without_lock(&mut shop) };
    manager.progress.settle();
    drop(manager); // and with it every process that still sells
    shop.clear()?;
    troubles
}

impl Manager {
    fn without_lock(&mut self, shop: &mut Shop) -> Result<Vec<String>> {
        println!("Act 1, without the lock. All threads do the same, again and again:");
        println!("    read the stock; pack the item; write the stock less one, and the sale.");
        self.open_the_doors()?;
        self.sell_out()?;
        let mut troubles = self.crew.dismiss();
        troubles.append(&mut check_without_lock(&shop.sales()?));
        Ok(troubles)
    }

    fn with_lock(&mut self, shop: &mut Shop) -> Result<Vec<String>> {
        let started = Instant::now();
        let mut troubles = vec![];
        let mut acts = None;
        let led = self.acts().and_then(|all| {
            acts = Some(all);
            self.sell_out()
        });
        if let Err(error) = led {
            troubles.push(error.to_string()); // the books may tell how that could be
        }
        troubles.append(&mut self.crew.dismiss());
        let is_locked = self.lock.is_locked()?;
        println!("\nThe books, after {:.0?}:", started.elapsed());
        let (stock, records) = (shop.stock()?, shop.sales()?);
        let audit = Audit { books: &self.crew.books, stock, records, is_locked, acts };
        troubles.append(&mut audit.check());
        Ok(troubles)
    }

    fn acts(&mut self) -> Result<Acts> {
        println!(
            "\nAct 2, with the lock: {} items, and the same threads. Now each of them does:",
            thousands(STOCK as usize)
        );
        println!("    lock; read the stock; find the price (locks again: re-entry); write; unlock.");
        self.crew.hire(FRESH)?; // a JVM takes its time
        self.open_the_doors()?;
        self.sell_until(BEFORE_LONG_JOB)?;
        let sights = self.long_job()?;
        let (killed, killed_at) = self.crash()?;
        let paused = self.pause()?;
        println!("\nThe rest. All tills sell until nothing is left.");
        Ok(Acts { sights, killed, killed_at, paused })
    }

    fn open_the_doors(&mut self) -> Result<()> {
        for number in 1..=TILLS {
            self.crew.hire(number)?;
        }
        for number in 1..=TILLS {
            self.crew.open(number)?;
        }
        Ok(())
    }

    fn long_job(&mut self) -> Result<Vec<Sight>> {
        println!("\nAct 3, a long job. A thread of till {WORKING} keeps the lock for {LONG_JOB:?}. It lives for");
        println!("  {TIME_TO_LIVE:?} in Redis, but a watchdog renews it every {RENEWAL:?} while its holder lives.");
        let mark = self.order(WORKING, Order::WorkLong)?;
        self.sights = Some(vec![]);
        self.until("the long job ends", |books| books.worked.is_some())?;
        let sights = self.sights.take().unwrap_or_default();
        self.until("the long job has its sale", |books| books.has_acted(WORKING, mark.item))?;
        self.show_last();
        match &self.crew.books.worked {
            Some(look) if look.is_held => {
                println!(
                    "  Then the seller asked is_held(): true. No other seller came between, and the item was sold."
                );
            }
            Some(look) => println!("  Then the seller asked is_held(): false. The reason given: {}.", look.loss),
            None => {}
        }
        self.sell_until(BEFORE_CRASH)?;
        Ok(sights)
    }

    fn crash(&mut self) -> Result<(Mark, u64)> {
        println!("\nAct 4, a crash. Till {CRASHING} gets SIGKILL while one of its threads holds the lock.");
        println!("  No release and no renewal follow: Redis removes the lock when its time to live is over.");
        let mark = self.order(CRASHING, Order::AwaitTheEnd)?;
        let killed_at = clock::now();
        self.crew.kill(CRASHING)?;
        self.until("a till sells after the crash", |books| books.next_after(killed_at).is_some())?;
        self.show_last();
        if let Some(next) = self.crew.books.next_after(killed_at) {
            let late = clock::between(killed_at, next.granted_at);
            println!("  {late:.2?} after the kill the lock was free again, and till {} had it.", next.sale.till);
        }
        let what = if self.crew.with_java { ": a JVM, which takes the same lock with Redisson" } else { "" };
        println!("  Till {FRESH} takes the place of the dead one{what}.");
        self.crew.open(FRESH)?;
        self.sell_until(BEFORE_PAUSE)?;
        Ok((mark, killed_at))
    }

    fn pause(&mut self) -> Result<Mark> {
        println!("\nAct 5, a pause. A thread of till {PAUSING} has read the stock. Before it writes, its");
        println!("  process is stopped (SIGSTOP), as if its machine were suspended, for longer");
        println!("  than the lock lives.");
        let mark = self.order(PAUSING, Order::StopYourself)?;
        self.until("the others sell on and the pause is over", |books| {
            let others = books.receipts.iter().filter(|receipt| receipt.granted_at > mark.at).count();
            others >= 20 && clock::between(mark.at, clock::now()) >= PAUSE
        })?;
        self.crew.resume(PAUSING)?;
        self.until("the stopped thread looks, and acts accordingly", |books| {
            books.continued.is_some() && books.has_acted(PAUSING, mark.item)
        })?;
        self.show_last();
        if let Some(look) = &self.crew.books.continued {
            let sold = self.crew.books.written_between(mark.at, look.at);
            let wrote = if self.crew.books.has_sold(PAUSING, mark.item) { "wrote" } else { "did not write" };
            println!("  Continued after {:.2?}; meanwhile the others had sold {sold}.", look.away());
            println!("  The seller asked is_held(): {}, and {wrote}. The reason given:", look.is_held);
            println!("  {}.", look.loss);
        }
        Ok(mark)
    }

    fn sell_out(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.crew.is_done() {
            self.step(started, "everything is sold")?;
        }
        self.show_last();
        Ok(())
    }

    /// Gives an order and waits until a seller that holds the lock follows the order.
    fn order(&mut self, till: u32, order: Order) -> Result<Mark> {
        self.crew.order(till, order)?;
        self.until("a seller follows the order", |books| books.mark.is_some())?;
        self.crew.books.mark.ok_or_else(|| "the mark was lost".into())
    }

    fn sell_until(&mut self, sold: usize) -> Result<()> {
        self.until("enough is sold", |books| books.receipts.len() >= sold)?;
        self.show_last();
        Ok(())
    }

    fn until(&mut self, what: &str, done: impl Fn(&Books) -> bool) -> Result<()> {
        let started = Instant::now();
        while !done(&self.crew.books) {
            if self.crew.is_done() {
                return Err(format!("everything was sold before {what}").into());
            }
            self.step(started, what)?;
        }
        Ok(())
    }

    fn step(&mut self, started: Instant, what: &str) -> Result<()> {
        if started.elapsed() > PATIENCE {
            return Err(format!("waited {PATIENCE:?} in vain until {what}").into());
        }
        self.crew.listen()?;
        if self.looked_at.elapsed() >= LOOKING {
            self.look();
        }
        thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    /// Reads the state of the lock from Redis, records the state if an act asks for records, and prints the state.
    fn look(&mut self) {
        let lock = match (self.lock.holder(), self.lock.remaining_time_to_live()) {
            (Ok(Some(holder)), Ok(Some(left))) => {
                let whose = self.crew.whose(holder.owner());
                if let Some(sights) = &mut self.sights {
                    sights.push(Sight { owner: holder.owner().to_owned(), left, at: clock::now() });
                }
                format!("locked by {whose}, {:.1} s to live", left.as_secs_f64())
            }
            (Err(error), _) | (_, Err(error)) => format!("redis says {error}"),
            _ => "not locked".into(),
        };
        self.looked_at = Instant::now();
        self.progress.update(self.crew.books.receipts.len(), &lock);
    }

    /// Prints the final progress of a part.
    fn show_last(&mut self) {
        self.look();
        self.progress.settle();
    }
}

/// How often the manager looks at the lock.
const LOOKING: Duration = Duration::from_millis(100);
