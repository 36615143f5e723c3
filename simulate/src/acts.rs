//! What the threads of a story do: they take locks, and interfere as other users and operators do.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockson::{
    Cancel, Client, CountDownLatch, Election, ErrorKind, FencingToken, Hold, Lock, PermitExpirableSemaphore, Semaphore,
};
use lockson_world::system::thread;

use crate::kinds::{self, Kind};
use crate::process::Process;
use crate::scene::{DROP, Scene};

impl Scene {
    pub fn act(&self, process: &Process) {
        while self.taken.load(Ordering::Relaxed) < self.wanted && !process.is_closed() {
            self.goes_on();
            if self.world.below(16) == 0 {
                self.interfere(process);
            } else {
                self.take_any(process);
            }
            thread::sleep(Duration::from_micros(self.world.below(20_000)));
        }
    }

    /// Takes a lock of one of the kinds of this phase.
    fn take_any(&self, process: &Process) {
        let client = &process.client;
        let kinds = kinds::hot(&self.phases, self.taken.load(Ordering::Relaxed));
        match kinds[usize::try_from(self.world.below(kinds.len() as u64)).unwrap_or(0)] {
            kind if self.has_sections && self.world.below(2) == 0 => self.take_any_in_sections(kind, process),
            Kind::Plain => self.take("plain", true, &client.get_lock("plain")),
            Kind::Spin => self.take_as("spun", "spin", true, &client.get_spin_lock("spun")),
            Kind::Token => self.take_as("one value", "token", true, &client.get_token_lock("one value")),
            Kind::Election => self.lead(&client.get_election("jobs")),
            Kind::Fair => self.take("fair", true, &client.get_fair_lock("fair")),
            Kind::Shared if self.world.below(3) == 0 => {
                self.take("shared", true, &client.get_read_write_lock("shared").write());
            }
            Kind::Shared => self.take("shared", false, &client.get_read_write_lock("shared").read()),
            Kind::Fenced => self.take_fenced(&client.get_fenced_lock("fenced")),
            Kind::Permits => self.take_permit(&client.get_semaphore("permits")),
            Kind::Expiring => self.take_expiring(&client.get_permit_expirable_semaphore("expiring")),
            Kind::Multi if self.world.below(3) == 0 => self.take("plain", true, &client.get_lock("plain")),
            Kind::Multi => {
                let (other, lock) = match self.world.below(2) {
                    0 => ("fair", client.get_fair_lock("fair")),
                    // Both in one request.
                    _ => ("spun", client.get_lock("spun")),
                };
                self.take_several(&["plain", other], &Lock::multi([client.get_lock("plain"), lock]));
            }
            Kind::Latch => self.use_latch(&client.get_count_down_latch("latch")),
            Kind::Red => self.take("red", true, &process.red_lock()),
            Kind::Group => {
                let (names, lock) = self.seats(client);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.take_several(&names, &lock);
            }
        }
    }

    /// Some values of a group.
    fn seats(&self, client: &Client) -> (Vec<String>, Lock) {
        let seats = [&["1", "2"][..], &["2", "3"], &["3"]][self.world.below(3) as usize];
        (seats.iter().map(|seat| format!("seats[{seat}]")).collect(), client.get_group_lock("seats", seats))
    }

    /// Takes a lock of this kind for sections within each other, if the kind has guards of the common type.
    fn take_any_in_sections(&self, kind: Kind, process: &Process) {
        let client = &process.client;
        let alone = |name: &str, wait: &str, lock: Lock| self.take_in_sections(&[name], wait, &[(lock, true)]);
        let shared = client.get_read_write_lock("shared");
        match kind {
            Kind::Spin => alone("spun", "spin", client.get_spin_lock("spun")),
            Kind::Token => alone("one value", "token", client.get_token_lock("one value")),
            Kind::Fair => alone("fair", "fair", client.get_fair_lock("fair")),
            Kind::Red => alone("red", "red", process.red_lock().deref().clone()),
            // Whoever writes may read, and go on reading.
            Kind::Shared if self.world.below(3) == 0 => {
                self.take_in_sections(&["shared"], "shared", &[(shared.write(), true), (shared.read(), false)]);
            }
            Kind::Shared => self.take_in_sections(&["shared"], "shared", &[(shared.read(), false)]),
            Kind::Multi => {
                let both = Lock::multi([client.get_lock("plain"), client.get_lock("spun")]);
                self.take_in_sections(&["plain", "spun"], "several", &[(both, true)]);
            }
            Kind::Group => {
                let (names, lock) = self.seats(client);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.take_in_sections(&names, "several", &[(lock, true)]);
            }
            Kind::Permits => self.take_permits(&client.get_semaphore("permits")),
            Kind::Expiring => self.take_expiring_in_sections(&client.get_permit_expirable_semaphore("expiring")),
            _ if self.world.below(4) == 0 => self.take_for_another("plain", "plain", &client.get_lock("plain")),
            _ => alone("plain", "plain", client.get_lock("plain")),
        }
    }

    /// Does what other users and operators do.
    pub fn interfere(&self, process: &Process) {
        let client = &process.client;
        let happens = |once_in: u64| once_in > 0 && self.world.below(once_in) == 0;
        if happens(self.habits.force / 10) {
            let held = self.server.held();
            let name =
                held.get(usize::try_from(self.world.below(9)).unwrap_or(0) % held.len().max(1)).unwrap_or(&"plain");
            let outcome = match *name {
                "fair" => client.get_fair_lock(name).force_unlock(),
                "shared" if self.world.below(2) == 0 => client.get_read_write_lock(name).read().force_unlock(),
                "shared" => client.get_read_write_lock(name).write().force_unlock(),
                "one value" => client.get_token_lock(name).force_unlock(),
                "jobs" => client.get_election(name).depose(),
                _ => client.get_lock(name).force_unlock(),
            };
            self.world.tell(format_args!("forces {name:?} open: {outcome:?}"));
            outcome.inspect_err(|error| self.expected(error)).ok();
        }
        if happens(self.habits.cancel / 5) {
            let cancels = std::mem::take(&mut *self.cancels.lock());
            cancels.iter().for_each(Cancel::cancel);
        }
        if happens(self.habits.close / 10) {
            self.world.tell("closes the client");
            process.close();
        }
    }

    /// Leads for a while.
    fn lead(&self, election: &Election) {
        let candidate = election.candidate("somebody");
        let Some(leadership) = self.granted("jobs", |wait| candidate.campaign_for(wait)) else { return };
        let number = self.enter("jobs", true, leadership.hold().clone());
        self.grows("jobs", leadership.hold(), leadership.token());
        self.stay("jobs");
        self.leave("jobs", number);
        self.given_back(|| leadership.resign());
    }

    fn take(&self, name: &str, is_alone: bool, lock: &Lock) {
        self.take_as(name, name, is_alone, lock);
    }

    /// Takes a lock by a kind whose waiters hear of no release, where `wait` is not the name.
    fn take_as(&self, name: &str, wait: &str, is_alone: bool, lock: &Lock) {
        let cancel = Cancel::new();
        let lock = self.with_lease(lock);
        let lock = if self.habits.cancel > 0 && self.world.below(4) == 0 {
            self.cancels.lock().push(cancel.clone());
            lock.with_cancel(&cancel)
        } else {
            lock
        };
        let Some(guard) = self.granted(wait, |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter(name, is_alone, guard.hold().clone());
        self.stay(name);
        if self.world.below(4) == 0 {
            let (began, mut stays_on) = (self.world.now(), false);
            match lock.try_lock() {
                Ok(Some(again)) => {
                    self.check(name);
                    drop(again);
                    stays_on = self.world.below(2) == 0;
                }
                // A red lock that is held is re-entered where enough of its servers answer.
                Ok(None) if name != "red" && guard.is_held() && self.server.taken_away(guard.owner()).is_none() => {
                    self.world.fail(format_args!("no re-entry into {name}"))
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Refused && !self.faults.moves_slots() => {
                    self.world.fail(format_args!("a re-entry was refused: {error}"))
                }
                Err(error) => self.expected(&error),
            }
            self.ended_in_time("a re-entry", began, DROP);
            if stays_on {
                self.stay(name);
            }
        }
        self.leave(name, number);
        self.given_back(|| guard.unlock());
    }

    /// One of four acts has a lease.
    fn with_lease(&self, lock: &Lock) -> Lock {
        let lease = Duration::from_millis(1_000 + self.world.below(9_000));
        if self.world.below(4) == 0 { lock.with_lease(lease) } else { lock.clone() }
    }

    /// Takes several locks at once, each of which others take alone.
    fn take_several(&self, names: &[&str], lock: &Lock) {
        let lock = &self.with_lease(lock);
        let Some(guard) = self.granted("several", |wait| lock.try_lock_for(wait)) else { return };
        let of_name = |name: &str| guard.hold().members().iter().find(|member| member.name() == name);
        let hold = |name| of_name(name).unwrap_or(guard.hold()).clone();
        let inside: Vec<u64> = names.iter().map(|name| self.enter(name, true, hold(name))).collect();
        names.iter().for_each(|name| self.stay(name));
        names.iter().zip(inside).for_each(|(name, number)| self.leave(name, number));
        self.given_back(|| guard.unlock());
    }

    /// Takes a fenced lock: a later token is greater.
    fn take_fenced(&self, lock: &Lock<FencingToken>) {
        let Some(guard) = self.granted("fenced", |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter("fenced", true, guard.hold().clone());
        self.grows("fenced", guard.hold(), guard.token());
        self.stay("fenced");
        self.leave("fenced", number);
        self.given_back(|| guard.unlock());
    }

    /// The token of whoever holds a lock is the greatest one.
    fn grows(&self, name: &str, hold: &Hold, token: FencingToken) {
        let is_held = hold.is_held() && self.server.taken_away(hold.owner()).is_none();
        let (token, mut tokens) = (token.value(), self.tokens.lock());
        let last = tokens.entry(name.to_owned()).or_default();
        if is_held && token <= *last {
            self.world.fail(format_args!("token {token} of {name} after {last}"));
        }
        *last = token.max(*last);
    }

    /// Sets the latch, counts it down, or waits until it is open.
    fn use_latch(&self, latch: &CountDownLatch) {
        let began = self.world.now();
        let was_open = || self.server.free("latch").is_none_or(|free| free.since.is_some() || free.last.1 >= began);
        match self.world.below(6) {
            0 => {
                let count = u32::try_from(1 + self.world.below(3)).unwrap_or(1);
                latch.set_count_once(count).map(drop).unwrap_or_else(|error| self.expected(&error));
            }
            1..=3 => {
                self.count_downs[0].fetch_add(1, Ordering::Relaxed);
                let is_open = |free: crate::server::Free| free.since.is_some_and(|since| since <= began);
                match latch.count_down() {
                    Ok(()) if !was_open() => _ = self.count_downs[1].fetch_add(1, Ordering::Relaxed),
                    // An open latch is not counted down, but for a late copy that nobody may fence.
                    Ok(()) if !self.faults.no_kill && self.server.free("latch").is_some_and(is_open) => {
                        self.count_downs[0].fetch_sub(1, Ordering::Relaxed);
                    }
                    Ok(()) => {}
                    Err(error) => self.expected(&error),
                }
            }
            4 if self.world.below(4) == 0 => latch.delete().map(drop).unwrap_or_else(|error| self.expected(&error)),
            _ => {
                let is_open = |wait| latch.wait_for(wait).map(|is_open| is_open.then_some(()));
                if self.granted("latch", is_open).is_some() {
                    self.takes();
                    if !was_open() {
                        self.world.fail("a wait for the latch ends beside its count");
                    }
                }
            }
        }
        self.ended_in_time("a latch", began, Duration::from_secs(15));
    }

    fn take_permit(&self, semaphore: &Semaphore) {
        let Some(permit) = self.granted("permits", |wait| semaphore.try_acquire_for(1, wait)) else { return };
        self.has_permits(1);
        self.given_back(|| permit.release());
    }

    fn take_expiring(&self, semaphore: &PermitExpirableSemaphore) {
        let lease = Duration::from_millis(1_000 + self.world.below(9_000));
        let semaphore = if self.world.below(4) == 0 { &semaphore.with_lease(lease) } else { semaphore };
        let Some(permit) = self.granted("expiring", |wait| semaphore.try_acquire_for(1, wait)) else { return };
        let number = self.enter("expiring", false, permit.hold().clone());
        self.stay("expiring");
        self.leave("expiring", number);
        self.given_back(|| permit.release());
    }
}
