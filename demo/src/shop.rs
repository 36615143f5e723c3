//! The data of the sale in Redis: the stock and the list of sale records, with no protection except the lock.

use std::fmt;
use std::str::FromStr;

use redis::Connection;

use crate::Result;

/// The keys with the data of one sale.
pub struct Shop {
    redis: Connection,
    stock: String,
    sales: String,
}

/// One sold item, as stored in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sale {
    /// An item's number is the stock before the sale: the first item is number 2,000.
    pub item: u32,
    pub till: u32,
    pub seller: u32,
    pub price: u32,
}

impl Shop {
    /// Opens the shop; all keys begin with the name of the sale.
    pub fn open(url: &str, name: &str) -> Result<Self> {
        let redis = redis::Client::open(url)?.get_connection()?;
        Ok(Self { redis, stock: format!("{name}:stock"), sales: format!("{name}:sales") })
    }

    /// Fills the shelves.
    pub fn fill(&mut self, stock: u32) -> Result<()> {
        Ok(redis::cmd("SET").arg(&self.stock).arg(stock).arg("EX").arg(KEPT_SECONDS).exec(&mut self.redis)?)
    }

    /// Reads how many items are left.
    pub fn stock(&mut self) -> Result<u32> {
        Ok(redis::cmd("GET").arg(&self.stock).query(&mut self.redis)?)
    }

    /// Writes the sale of one item in one MULTI: the stock minus one, and the record.
    ///
    /// A late writer would restore an old stock, and items would be sold twice.
    pub fn write(&mut self, sale: &Sale) -> Result<()> {
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("SET").arg(&self.stock).arg(sale.item - 1).arg("EX").arg(KEPT_SECONDS).ignore();
        pipe.cmd("RPUSH").arg(&self.sales).arg(sale.to_string()).ignore();
        pipe.cmd("EXPIRE").arg(&self.sales).arg(KEPT_SECONDS).ignore();
        Ok(pipe.exec(&mut self.redis)?)
    }

    /// Reads all sale records.
    pub fn sales(&mut self) -> Result<Vec<Sale>> {
        let records: Vec<String> = redis::cmd("LRANGE").arg(&self.sales).arg(0).arg(-1).query(&mut self.redis)?;
        records.iter().map(|record| record.parse()).collect()
    }

    /// Deletes all keys of the sale.
    pub fn clear(&mut self) -> Result<()> {
        Ok(redis::cmd("DEL").arg(&self.stock).arg(&self.sales).exec(&mut self.redis)?)
    }
}

impl fmt::Display for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { item, till, seller, price } = self;
        write!(f, "{item} {till} {seller} {price}")
    }
}

impl FromStr for Sale {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u32>, _>>()?;
        let [item, till, seller, price] = numbers[..] else {
            return Err(format!("{text:?} is no sale record").into());
        };
        Ok(Self { item, till, seller, price })
    }
}

/// The keys of an interrupted demo expire after this time.
const KEPT_SECONDS: u32 = 3_600;
