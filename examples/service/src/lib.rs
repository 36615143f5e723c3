//! A ticket shop: several machines sell from one database, one ticket to one buyer, and one of them writes the accounts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockson::{Client, ErrorKind, Leadership};
use rusqlite::Connection;

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
pub enum Sale {
    Sold {
        left: u32,
    },
    SoldOut,
    Busy,
    /// The lock was lost, and the database refused the late write: nothing is sold.
    TooLate,
}

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Debug)]
pub struct Shop {
    pub client: Client,
    pub file: PathBuf,
}

impl Shop {
    pub fn open(client: Client, file: &Path) -> rusqlite::Result<Self> {
        let shop = Self { client, file: file.to_owned() };
        shop.database()?.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE IF NOT EXISTS show (name TEXT PRIMARY KEY, left INT NOT NULL, token INT NOT NULL DEFAULT 0);
             CREATE TABLE IF NOT EXISTS account (term INT PRIMARY KEY, writer TEXT NOT NULL, rows INT NOT NULL);",
        )?;
        Ok(shop)
    }

    pub fn database(&self) -> rusqlite::Result<Connection> {
        let database = Connection::open(&self.file)?;
        database.busy_timeout(Duration::from_secs(5))?;
        Ok(database)
    }

    /// Offers tickets of a show. A show that is there stays as it is.
    pub fn offer(&self, show: &str, tickets: u32) -> rusqlite::Result<bool> {
        let statement = "INSERT OR IGNORE INTO show (name, left) VALUES (?1, ?2)";
        Ok(self.database()?.execute(statement, (show, tickets))? == 1)
    }

    pub fn left(&self, show: &str) -> rusqlite::Result<u32> {
        self.database()?.query_row("SELECT left FROM show WHERE name = ?1", [show], |row| row.get(0))
    }

    /// Sells one ticket. `pay` is slow: it asks the bank of the buyer.
    pub fn sell(&self, show: &str, pay: impl FnOnce()) -> Outcome<Sale> {
        let lock = self.client.get_fenced_lock(format!("lock:show:{show}"));
        let Some(guard) = lock.try_lock_for(PATIENCE)? else { return Ok(Sale::Busy) };
        // The token guards the write, also after a loss, so the answer of the database is the outcome of the sale.
        let (sale, _protected) = guard.run(|guard| {
            let left = self.left(show)?;
            if left == 0 {
                return Ok(Sale::SoldOut);
            }
            pay();
            let statement = "UPDATE show SET left = ?2, token = ?3 WHERE name = ?1 AND token <= ?3";
            let written = self.database()?.execute(statement, (show, left - 1, i64::from(guard.token())))?;
            Ok(if written == 1 { Sale::Sold { left: left - 1 } } else { Sale::TooLate })
        });
        sale
    }

    /// Writes the accounts, again and again, on one machine of all, until the service ends.
    pub fn keep_accounts(&self, machine: &str, is_over: impl Fn() -> bool) -> Outcome<()> {
        let last_term = self.client.get_election("job:accounts").candidate(machine).lead(|leadership| {
            while leadership.is_held() && !is_over() {
                self.write_accounts(leadership, machine)?;
                thread::sleep(BETWEEN_ACCOUNTS);
            }
            Ok(())
        });
        match last_term {
            Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()), // another machine led until the end
            last => last?,
        }
    }

    fn write_accounts(&self, leadership: &Leadership, writer: &str) -> rusqlite::Result<()> {
        let statement = "INSERT INTO account (term, writer, rows) SELECT ?1, ?2, 1
                         WHERE NOT EXISTS (SELECT 1 FROM account WHERE term > ?1)
                         ON CONFLICT (term) DO UPDATE SET rows = rows + 1";
        let term = i64::from(leadership.token());
        self.database()?.execute(statement, (term, writer)).map(drop)
    }
}

const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN_ACCOUNTS: Duration = Duration::from_millis(100);
