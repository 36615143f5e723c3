//! A till's reports to the manager and the manager's orders: one line each, through pipes.

use std::str::FromStr;
use std::time::Duration;

use crate::Result;
use crate::shop::Sale;

/// A task for the next seller that holds the lock, between reading the stock and writing the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Keep the lock for a long job.
    WorkLong,
    /// Hold on until the process is killed.
    AwaitTheEnd,
    /// Stop the whole process.
    StopYourself,
}

/// A report of a till.
#[derive(Clone, Debug)]
pub enum Report {
    /// The till is connected, as the client of this id.
    Ready(String),
    /// A seller wrote a sale and still holds the lock.
    Sold(Receipt),
    /// A seller holds the lock, has read the stock, and now follows an order.
    Marked(Mark),
    /// A seller did the long job; sent before the sale is written.
    Worked(Look),
    /// A seller was stopped and continued, and looked.
    Continued(Look),
    /// A seller lost the lock without an order to do so.
    Lost(String),
    /// Everything is sold, and all sellers have ended.
    Done,
    /// The till cannot go on.
    Failed(String),
}

/// A seller's own record of a sale, beside the record in Redis.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub sale: Sale,
    /// How long the lock took to get, in microseconds.
    pub waited: u64,
    /// When the lock was granted, and when the sale was written, by the machine's clock.
    pub granted_at: u64,
    pub written_at: u64,
    /// How often the lock was held in the pricing step.
    pub holds: u64,
}

/// The moment at which an order was followed.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub item: u32,
    pub seller: u32,
    pub at: u64,
}

/// A seller's answer from `is_held()` after a long time.
#[derive(Clone, Debug)]
pub struct Look {
    pub item: u32,
    pub since: u64,
    pub at: u64,
    pub is_held: bool,
    /// The loss, in the words of the library.
    pub loss: String,
}

impl Look {
    /// The time between the mark and the look.
    pub fn away(&self) -> Duration {
        crate::clock::between(self.since, self.at)
    }
}

impl Order {
    /// The order as a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::WorkLong => "work-long",
            Self::AwaitTheEnd => "await-the-end",
            Self::StopYourself => "stop-yourself",
        }
    }

    /// The order in this line.
    pub fn of(word: &str) -> Option<Self> {
        [Self::WorkLong, Self::AwaitTheEnd, Self::StopYourself].into_iter().find(|order| order.word() == word)
    }
}

impl Report {
    /// The report as a line.
    pub fn line(&self) -> String {
        let look = |word, look: &Look| {
            let Look { item, since, at, is_held, loss } = look;
            format!("{word} {item} {since} {at} {is_held} {loss}")
        };
        match self {
            Self::Ready(id) => format!("ready {id}"),
            Self::Sold(Receipt { sale, waited, granted_at, written_at, holds }) => {
                format!("sold {waited} {granted_at} {written_at} {holds} {sale}")
            }
            Self::Marked(Mark { item, seller, at }) => format!("marked {item} {seller} {at}"),
            Self::Worked(seen) => look("worked", seen),
            Self::Continued(seen) => look("continued", seen),
            Self::Lost(text) => format!("lost {text}"),
            Self::Done => "done".into(),
            Self::Failed(text) => format!("failed {}", text.replace('\n', " ")),
        }
    }

    /// The report in this line.
    pub fn read(line: &str) -> Result<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = Words(rest);
        Ok(match word {
            "ready" => Self::Ready(rest.to_owned()),
            "sold" => Self::Sold(Receipt {
                waited: words.next()?,
                granted_at: words.next()?,
                written_at: words.next()?,
                holds: words.next()?,
                sale: words.0.parse()?,
            }),
            "marked" => Self::Marked(Mark { item: words.next()?, seller: words.next()?, at: words.next()? }),
            "worked" => Self::Worked(words.look()?),
            "continued" => Self::Continued(words.look()?),
            "lost" => Self::Lost(rest.to_owned()),
            "done" => Self::Done,
            "failed" => Self::Failed(rest.to_owned()),
            _ => return Err(format!("a till said {line:?}").into()),
        })
    }
}

/// The words of a line that are still unread.
struct Words<'a>(&'a str);

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word.parse().map_err(|_| format!("a till sent {word:?} in the wrong place").into())
    }

    fn look(&mut self) -> Result<Look> {
        let (item, since, at, is_held) = (self.next()?, self.next()?, self.next()?, self.next()?);
        Ok(Look { item, since, at, is_held, loss: self.0.to_owned() })
    }
}
