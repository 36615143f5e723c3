//! The audit: compares the data in Redis with the records that the sellers wrote themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock;
use crate::crew::Books;
use crate::plan::{CRASHING, FRESH, LATENESS, LONG_JOB, PAUSING, STOCK, STOCK_WITHOUT_LOCK, TIME_TO_LIVE};
use crate::progress::thousands;
use crate::report::{Mark, Receipt};
use crate::sale::Sight;
use crate::shop::Sale;

/// Everything that the audit compares.
pub struct Audit<'a> {
    pub books: &'a Books,
    /// The stock in Redis at the end.
    pub stock: u32,
    pub records: Vec<Sale>,
    pub is_locked: bool,
    /// The events during the sale; `None` if the sale could not go on.
    pub acts: Option<Acts>,
}

/// The long job, the crash and the pause.
pub struct Acts {
    pub sights: Vec<Sight>,
    pub killed: Mark,
    pub killed_at: u64,
    pub paused: Mark,
}

/// The table on the screen, and the faults that the table shows.
#[derive(Default)]
struct Table {
    troubles: Vec<String>,
}

impl Audit<'_> {
    /// Prints the table; returns the faults.
    pub fn check(self) -> Vec<String> {
        let mut table = Table::default();
        self.check_sold(&mut table);
        self.check_receipts(&mut table);
        self.check_overlaps(&mut table);
        self.check_nesting(&mut table);
        self.show_waits();
        if let Some(acts) = &self.acts {
            self.check_long_job(&mut table, &acts.sights);
            self.check_crash(&mut table, acts);
            self.check_pause(&mut table, acts);
        }
        self.check_fresh(&mut table);
        let end = if self.is_locked { "still taken" } else { "released" };
        table.row("lock at the end", end, self.is_locked.then(|| "the lock was not given back".into()));
        table.troubles
    }

    fn check_sold(&self, table: &mut Table) {
        let times = times_sold(&self.records, STOCK);
        let items = |wanted: fn(usize) -> bool| -> Vec<u32> {
            times.iter().filter(|(_, times)| wanted(**times)).map(|(item, _)| *item).collect()
        };
        let (twice, never) = (items(|times| times > 1), items(|times| times == 0));
        let trouble = |items: &[u32], what: &str| {
            let first = items.last()?;
            Some(format!("{what}: {}, the first of them item {first}", thousands(items.len())))
        };
        let found = format!("{} of {}", thousands(self.records.len()), thousands(STOCK as usize));
        let wrong = self.records.len() != STOCK as usize;
        table.row("sold", &found, wrong.then(|| format!("sold {found}")));
        table.row("sold twice", &thousands(twice.len()), trouble(&twice, "sold more than once"));
        table.row("lost", &thousands(never.len()), trouble(&never, "never sold"));
        let left = thousands(self.stock as usize);
        let wrong = (self.stock != 0).then(|| format!("redis has a stock of {left} at the end"));
        table.row("stock left in Redis", &left, wrong);
    }

    /// The receipts went another way than the records, so both would have to be wrong alike.
    fn check_receipts(&self, table: &mut Table) {
        let mut receipts: Vec<Sale> = self.books.receipts.iter().map(|receipt| receipt.sale.clone()).collect();
        let mut records = self.records.clone();
        receipts.sort();
        records.sort();
        let same = receipts == records;
        let found = format!("{}, {}", thousands(receipts.len()), if same { "all alike" } else { "not alike" });
        let wrong = (!same).then(|| "the sellers' own receipts differ from the records in redis".into());
        table.row("receipts and Redis' records", &found, wrong);
    }

    /// By the machine's clock, no other till was granted the lock between a grant and the write.
    fn check_overlaps(&self, table: &mut Table) {
        let mut receipts: Vec<&Receipt> = self.books.receipts.iter().collect();
        receipts.sort_by_key(|receipt| receipt.granted_at);
        let overlap = |pair: &&[&Receipt]| pair[1].granted_at < pair[0].written_at;
        let overlaps: Vec<&[&Receipt]> = receipts.windows(2).filter(overlap).collect();
        let count = thousands(overlaps.len());
        let wrong = overlaps.first().map(|pair| {
            let who = |sale: &Sale| format!("thread {} of till {}", sale.seller, sale.till);
            let (first, second) = (who(&pair[0].sale), who(&pair[1].sale));
            format!("two held the lock at once: {count}, the first of them {first} and {second}")
        });
        table.row("two holders at once", &count, wrong);
    }

    fn check_fresh(&self, table: &mut Table) {
        let sold = self.books.receipts.iter().filter(|receipt| receipt.sale.till == FRESH).count();
        let wrong = (sold == 0).then(|| format!("till {FRESH} sold nothing"));
        table.row("sold by the fresh till", &thousands(sold), wrong);
    }

    fn check_nesting(&self, table: &mut Table) {
        let nested = self.books.receipts.iter().filter(|receipt| receipt.holds == 2).count();
        let wrong = nested != self.books.receipts.len();
        let wrong = wrong.then(|| "in the pricing step the lock was not held twice".into());
        table.row("locked again while pricing", &format!("{} times, without waiting", thousands(nested)), wrong);
    }

    fn show_waits(&self) {
        let calm: Vec<u64> =
            self.books.receipts.iter().filter(|receipt| self.is_calm(receipt)).map(|receipt| receipt.waited).collect();
        let all: Vec<u64> = self.books.receipts.iter().map(|receipt| receipt.waited).collect();
        let shown = |waits| format!("p50 {:.1?}, p99 {:.1?}", percentile(waits, 50), percentile(waits, 99));
        show("", "waits, while nothing went wrong", &shown(&calm));
        show("", "waits, all", &format!("{}, longest {:.1?}", shown(&all), percentile(&all, 100)));
    }

    /// Whether no long job, dead till or stopped till delayed this grant.
    fn is_calm(&self, receipt: &Receipt) -> bool {
        let asked_at = receipt.granted_at.saturating_sub(receipt.waited);
        let worked = self.books.worked.as_ref().map(|look| look.since);
        let lost = self.acts.iter().flat_map(|acts| [acts.killed.at, acts.paused.at]);
        worked.into_iter().chain(lost).all(|from| {
            let until = self.books.next_after(from).map_or(u64::MAX, |next| next.granted_at);
            receipt.granted_at < from || asked_at > until
        })
    }

    fn check_long_job(&self, table: &mut Table, sights: &[Sight]) {
        let label = "longest hold, by the watchdog";
        let Some(look) = &self.books.worked else {
            return table.row(label, "none", Some("the long job never ended".into()));
        };
        // Only observations before the look count; after the look the lock was free for other tills.
        let sights: Vec<&Sight> = sights.iter().filter(|sight| sight.at <= look.at).collect();
        let owners: BTreeSet<&str> = sights.iter().map(|sight| sight.owner.as_str()).collect();
        let shortest = sights.iter().map(|sight| sight.left).min().unwrap_or_default();
        let times = look.away().as_secs_f64() / TIME_TO_LIVE.as_secs_f64();
        let found = format!("{:.2?}, {times:.1} times its life; never under {shortest:.1?} left", look.away());
        let wrong = if look.away() < LONG_JOB || look.away() <= TIME_TO_LIVE {
            Some("the long job was not long".into())
        } else if !look.is_held {
            Some(format!("the lock was lost in the long job: {}", look.loss))
        } else if owners.len() != 1 {
            Some(format!("during the long job redis named {} owners", owners.len()))
        } else {
            None
        };
        table.row(label, &found, wrong);
    }

    fn check_crash(&self, table: &mut Table, acts: &Acts) {
        let label = "free again after the SIGKILL";
        let Some(next) = self.books.next_after(acts.killed_at) else {
            return table.row(label, "never", Some("no till got the lock after the crash".into()));
        };
        let late = clock::between(acts.killed_at, next.granted_at);
        let wrong = (late > TIME_TO_LIVE + LATENESS)
            .then(|| format!("the lock of the killed process was free only after {late:.2?}"));
        table.row(label, &format!("{late:.2?} later, with {TIME_TO_LIVE:?} to live at most"), wrong);
        self.check_in_hand(table, "the killed till's item in hand", &acts.killed, CRASHING);
    }

    fn check_pause(&self, table: &mut Table, acts: &Acts) {
        let label = "the stopped till's answer";
        let Some(look) = &self.books.continued else {
            return table.row(label, "nothing", Some("the stopped thread never looked".into()));
        };
        let found = format!("is_held() = {}, after {:.2?}", look.is_held, look.away());
        let wrong = if look.away() <= TIME_TO_LIVE {
            Some("the pause was shorter than the time to live".into())
        } else {
            look.is_held.then(|| "the stopped thread was told that it still held the lock".into())
        };
        table.row(label, &found, wrong);
        self.check_in_hand(table, "the stopped till's item in hand", &acts.paused, PAUSING);
        let others = self.books.lost.iter().filter(|(till, _)| *till != PAUSING).count();
        show("", "other noticed losses", &thousands(others));
    }

    /// No other sale came between, so the next item sold is the item that the lost holder had in hand.
    fn check_in_hand(&self, table: &mut Table, label: &str, mark: &Mark, till: u32) {
        let item = thousands(mark.item as usize);
        let Some(Sale { item: next, till: by, .. }) = self.books.next_after(mark.at).map(|receipt| &receipt.sale)
        else {
            return table.row(label, "never sold", Some(format!("no till sold item {item}")));
        };
        let both = self.books.has_sold(till, mark.item);
        let wrong = if both {
            Some(format!("item {item} was sold by till {till}, which had lost the lock"))
        } else {
            (*next != mark.item).then(|| format!("when till {till} was out, item {next} was sold, not {item}"))
        };
        let also = if both { format!(", and by till {till}") } else { " instead".into() };
        table.row(label, &format!("item {item}, sold by till {by}{also}"), wrong);
    }
}

/// Prints what went wrong without the lock; returns a fault if nothing did.
pub fn check_without_lock(records: &[Sale]) -> Vec<String> {
    let (sold, stock) = (records.len(), STOCK_WITHOUT_LOCK as usize);
    let twice = times_sold(records, STOCK_WITHOUT_LOCK).values().filter(|times| **times > 1).count();
    println!("  {} sales of {stock} items, {twice} of them sold more than once.", thousands(sold));
    println!("  {} customers have paid for nothing.", thousands(sold.saturating_sub(stock)));
    if sold > stock && twice > 0 { vec![] } else { vec!["without the lock nothing was sold twice".into()] }
}

/// How often each item of a stock was sold.
fn times_sold(records: &[Sale], stock: u32) -> BTreeMap<u32, usize> {
    let mut times: BTreeMap<u32, usize> = (1..=stock).map(|item| (item, 0)).collect();
    for sale in records {
        *times.entry(sale.item).or_default() += 1;
    }
    times
}

impl Table {
    fn row(&mut self, what: &str, found: &str, wrong: Option<String>) {
        show(if wrong.is_some() { "WRONG" } else { "ok" }, what, found);
        self.troubles.extend(wrong);
    }
}

fn show(verdict: &str, what: &str, found: &str) {
    println!("  {verdict:<5}  {what:<32}  {found}");
}

fn percentile(waits: &[u64], percent: usize) -> Duration {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let wait = sorted.get(sorted.len() * percent / 100).or(sorted.last());
    Duration::from_micros(wait.copied().unwrap_or(0))
}

impl Books {
    /// The first sale of a holder that was granted the lock after this moment.
    pub fn next_after(&self, moment: u64) -> Option<&Receipt> {
        self.receipts.iter().filter(|receipt| receipt.granted_at > moment).min_by_key(|receipt| receipt.granted_at)
    }

    /// How many sales were written between two moments.
    pub fn written_between(&self, from: u64, to: u64) -> usize {
        self.receipts.iter().filter(|receipt| (from..to).contains(&receipt.written_at)).count()
    }

    /// Whether a till has sold an item.
    pub fn has_sold(&self, till: u32, item: u32) -> bool {
        self.receipts.iter().any(|receipt| receipt.sale.till == till && receipt.sale.item == item)
    }

    /// Whether a till has finished its long job with an item, or has noticed the loss of the lock.
    pub fn has_acted(&self, till: u32, item: u32) -> bool {
        self.has_sold(till, item) || self.lost.iter().any(|(loser, _)| *loser == till)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sale_without_lock_must_be_oversold() {
        let sale = |item| Sale { item, till: 1, seller: 1, price: 1_999 };
        let once: Vec<Sale> = (1..=STOCK_WITHOUT_LOCK).map(sale).collect();
        assert_eq!(check_without_lock(&once), ["without the lock nothing was sold twice"]);
        let twice: Vec<Sale> = once.iter().cloned().chain([sale(7)]).collect();
        assert_eq!(check_without_lock(&twice), [""; 0]);
    }
}
