//! What a thread does while it has a lock, where leases, renewals and releases meet: it extends the hold, takes the lock
//! again for an inner section, ends sections in any order, lets another thread extend the hold.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockson::{Error, ErrorKind, Guard, Hold, Lock, PermitExpirableSemaphore, Semaphore};
use lockson_world::Nanos;
use lockson_world::system::thread;

use crate::scene::{PERMITS, Scene};

/// The sections of a thread in one lock, or in several.
struct Sections<'a> {
    /// The names of the locks, each with the number of its holder.
    inside: Vec<(&'a str, u64)>,
    hold: Hold,
    open: Vec<Section>,
    /// The end of what `extend()` has set.
    extended: Nanos,
    /// Whether a request had no outcome, so that a lease may be longer than promised.
    is_unsure: bool,
}

struct Section {
    guard: Guard,
    is_alone: bool,
    /// It ends by then; without an end the watchdog keeps it.
    until: Option<Nanos>,
}

/// The lease of a section.
#[derive(Clone, Copy, Debug)]
enum Term {
    Kept,
    Lease(Duration),
    MaxHold(Duration),
}

impl Term {
    fn of(self, lock: &Lock) -> Lock {
        match self {
            Self::Kept => lock.clone(),
            Self::Lease(lease) => lock.with_lease(lease),
            Self::MaxHold(most) => lock.with_max_hold(most),
        }
    }

    /// The end of a section that begins now.
    fn until(self, now: Nanos) -> Option<Nanos> {
        let after = |time: Duration| Some(now + u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX));
        match self {
            Self::Kept => None,
            Self::Lease(lease) => after(lease),
            Self::MaxHold(most) => after(most + WATCHDOG),
        }
    }
}

impl Scene {
    /// Takes the first of the locks, and does several things inside. An inner section takes any of them; each is taken
    /// alone or not.
    pub fn take_in_sections(&self, names: &[&str], wait: &str, locks: &[(Lock, bool)]) {
        let (term, (lock, is_alone)) = (self.term(), &locks[0]);
        let Some(guard) = self.granted(wait, |wait| term.of(lock).try_lock_for(wait)) else { return };
        let (hold, until) = (guard.hold().clone(), term.until(self.world.now()));
        // The servers of a red lock are no locks of their own.
        let is_one = |member: &&Hold, name: &str| name != "red" && member.name() == name;
        let of_name = |name| hold.members().iter().find(|member| is_one(member, name)).unwrap_or(&hold).clone();
        let inside = names.iter().map(|name| (*name, self.enter(name, *is_alone, of_name(name)))).collect();
        let open = vec![Section { guard, is_alone: *is_alone, until }];
        let mut sections = Sections { inside, hold, open, extended: 0, is_unsure: false };
        self.are_open(&sections);
        for _ in 0..1 + self.world.below(6) {
            match self.world.below(5) {
                0 => self.extend(&mut sections),
                1 => self.enter_again(locks, &mut sections),
                2 if sections.open.len() > 1 => self.end_one(&mut sections),
                3 => self.extend_beside(&mut sections),
                _ => self.stay(names[0]),
            }
            self.last_as_promised(&sections);
        }
        while sections.open.len() > 1 && self.world.below(2) == 0 {
            self.end_one(&mut sections);
            self.last_as_promised(&sections);
            self.stay(names[0]);
        }
        sections.inside.iter().for_each(|(name, number)| self.leave(name, *number));
        sections.open.into_iter().for_each(|section| self.given_back(|| section.guard.unlock()));
    }

    /// Takes a lock whose guard another thread gives back.
    pub fn take_for_another(&self, name: &str, wait: &str, lock: &Lock) {
        let term = self.term();
        let lock = term.of(lock).owned();
        let Some(guard) = self.granted(wait, |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter(name, true, guard.hold().clone());
        self.believe(&[(name, number)], term.until(0).is_none(), true);
        self.stay(name);
        self.leave(name, number);
        let releasing = thread::Builder::new().name("helper".to_owned()).spawn(move || guard.unlock());
        self.given_back(|| releasing.expect("a thread").join());
    }

    /// Takes permits that expire, and extends them; others may give one of them back by its id.
    pub fn take_expiring_in_sections(&self, semaphore: &PermitExpirableSemaphore) {
        let permits = 1 + self.world.below(u64::from(PERMITS));
        let count = u32::try_from(permits).unwrap_or(1);
        let Some(taken) = self.granted("expiring", |wait| semaphore.try_acquire_for(count, wait)) else { return };
        let hold = taken.hold().clone();
        let numbers: Vec<u64> = (0..permits).map(|_| self.enter("expiring", false, hold.clone())).collect();
        self.stay("expiring");
        let duration = Duration::from_millis(1_000 + self.world.below(40_000));
        let extending = thread::Builder::new().name("helper".to_owned()).spawn(move || hold.extend(duration));
        self.stay("expiring");
        numbers.into_iter().for_each(|number| self.leave("expiring", number));
        if self.world.below(4) == 0 {
            let outcome = semaphore.release_by_id(&taken.ids()[..1]);
            outcome.or_else(unless_not_held).unwrap_or_else(|error| self.expected(&error));
        }
        self.given_back(|| taken.release());
        extending.expect("a thread").join().or_else(unless_not_held).unwrap_or_else(|error| self.expected(&error));
    }

    /// Takes some permits, or all that are free, and gives them back by their number where each request is answered.
    pub fn take_permits(&self, semaphore: &Semaphore) {
        if self.is_quiet && (self.habits.close, self.faults.full) == (0, 0) && self.world.below(4) == 0 {
            let drained = semaphore.drain().unwrap_or_else(|error| self.world.fail(error));
            let drained = u32::try_from(drained).unwrap_or(u32::MAX);
            self.has_permits(drained);
            return semaphore.release(drained).unwrap_or_else(|error| self.world.fail(error));
        }
        let permits = u32::try_from(1 + self.world.below(u64::from(PERMITS))).unwrap_or(1);
        let Some(taken) = self.granted("permits", |wait| semaphore.try_acquire_for(permits, wait)) else { return };
        self.has_permits(permits);
        if self.is_quiet && self.world.below(2) == 0 {
            taken.leave_to_release();
            self.given_back(|| semaphore.release(permits));
        } else {
            self.given_back(|| taken.release());
        }
    }

    /// Is at work under permits of the semaphore.
    pub fn has_permits(&self, permits: u32) {
        self.takes();
        // A close gives back what its client has taken.
        if self.permits.fetch_add(permits, Ordering::Relaxed) + permits > PERMITS && self.habits.close == 0 {
            self.world.fail(format_args!("more than {PERMITS} permits are taken"));
        }
        self.stay("permits");
        self.permits.fetch_sub(permits, Ordering::Relaxed);
    }

    fn term(&self) -> Term {
        match self.world.below(4) {
            0 => Term::Lease(Duration::from_millis(1_000 + self.world.below(9_000))),
            1 => Term::MaxHold(Duration::from_millis(1_000 + self.world.below(20_000))),
            _ => Term::Kept,
        }
    }

    /// Raises the time to live by a request of this thread.
    fn extend(&self, sections: &mut Sections<'_>) {
        let duration = Duration::from_millis(1_000 + self.world.below(40_000));
        let (before, began) = (sections.hold.remaining(), self.world.now());
        let outcome = sections.hold.extend(duration);
        self.ended_in_time("an extension", began, Duration::ZERO);
        let took = Duration::from_nanos(self.world.now() - began);
        let left = sections.hold.remaining();
        self.world.tell(format_args!("extends {} by {duration:?}: {outcome:?}, {left:?} left", sections.inside[0].0));
        sections.extended = sections.extended.max(Term::Lease(duration).until(self.world.now()).unwrap_or(0));
        match outcome {
            Ok(()) if self.may_run_late() => {}
            Ok(()) => {
                let promised = before.max(duration - (duration / 10).max(MARGIN)).saturating_sub(took + MARGIN);
                if left < promised && sections.hold.lost().is_none() {
                    self.world.fail(format_args!("{duration:?} were granted, {left:?} are left, {before:?} before"));
                }
            }
            Err(error) => self.failed(error, sections),
        }
    }

    /// Whether a copy of an inner release may run late: no more time is believed in than that release left.
    fn may_run_late(&self) -> bool {
        !self.is_quiet && (self.faults.no_kill || self.faults.moves_slots() || !self.reds.is_empty())
    }

    fn failed(&self, error: Error, sections: &mut Sections<'_>) {
        sections.is_unsure = true;
        unless_not_held(error).unwrap_or_else(|error| self.expected(&error));
    }

    /// Takes one of the locks for an inner section.
    fn enter_again(&self, locks: &[(Lock, bool)], sections: &mut Sections<'_>) {
        let (lock, is_alone) = &locks[usize::try_from(self.world.below(locks.len() as u64)).unwrap_or(0)];
        let (term, began, name) = (self.term(), self.world.now(), sections.inside[0].0);
        let outcome = term.of(lock).try_lock();
        self.ended_in_time("a re-entry", began, Duration::ZERO);
        match outcome {
            Ok(Some(guard)) => {
                self.world.tell(format_args!("is inside {name} again: {term:?}"));
                let until = term.until(self.world.now());
                sections.open.push(Section { guard, is_alone: *is_alone, until });
                self.are_open(sections);
            }
            Ok(None) => {
                if !self.may_run_late()
                    && sections.hold.is_held()
                    && self.server.taken_away(sections.hold.owner()).is_none()
                {
                    self.world.fail(format_args!("no re-entry into {name}"));
                }
                sections.is_unsure = true;
            }
            // Who still reads, and no longer writes, may not write again.
            Err(error) if error.kind() == ErrorKind::AlreadyHeld && *is_alone && name == "shared" => {}
            Err(error) => self.failed(error, sections),
        }
    }

    /// Ends any of the sections.
    fn end_one(&self, sections: &mut Sections<'_>) {
        let place = usize::try_from(self.world.below(sections.open.len() as u64)).unwrap_or(0);
        let section = sections.open.remove(place);
        self.world.tell(format_args!("ends section {place} of {}", sections.inside[0].0));
        self.are_open(sections);
        let began = self.world.now();
        if self.world.below(6) == 0 {
            section.guard.keep_until_expiry();
            let end = section.until.or_else(|| Term::Lease(WATCHDOG).until(began)).unwrap_or(0);
            sections.extended = sections.extended.max(end);
        } else if let Err(error) = section.guard.unlock() {
            self.failed(error, sections);
        }
        self.ended_in_time("an inner release", began, Duration::ZERO);
    }

    /// Another thread extends the hold, while this one goes on.
    fn extend_beside(&self, sections: &mut Sections<'_>) {
        let (hold, duration) = (sections.hold.clone(), Duration::from_millis(1_000 + self.world.below(40_000)));
        let extending = thread::Builder::new().name("helper".to_owned()).spawn(move || hold.extend(duration));
        if sections.open.len() > 1 && self.world.below(2) == 0 {
            self.end_one(sections);
        } else {
            thread::sleep(Duration::from_micros(self.world.below(2_000)));
        }
        let outcome = extending.expect("a thread").join();
        self.world.tell(format_args!("another thread extended {} by {duration:?}: {outcome:?}", sections.inside[0].0));
        sections.extended = sections.extended.max(Term::Lease(duration).until(self.world.now()).unwrap_or(0));
        if let Err(error) = outcome {
            self.failed(error, sections);
        }
    }

    /// What these sections believe from now on.
    fn are_open(&self, sections: &Sections<'_>) {
        let is_kept = sections.open.iter().any(|section| section.until.is_none());
        let is_alone = sections.open.iter().any(|section| section.is_alone);
        self.believe(&sections.inside, is_kept, is_alone);
    }

    fn believe(&self, inside: &[(&str, u64)], is_kept: bool, is_alone: bool) {
        let mut all = self.inside.lock();
        for (name, number) in inside {
            if let Some(inside) = all.get_mut(*name).and_then(|all| all.iter_mut().find(|one| one.number == *number)) {
                (inside.is_kept, inside.is_alone) = (is_kept, is_alone);
            }
        }
    }

    /// A hold lasts no longer than its sections and extensions allow.
    fn last_as_promised(&self, sections: &Sections<'_>) {
        let ends = sections.open.iter().map(|section| section.until).collect::<Option<Vec<_>>>();
        let Some(ends) = ends.filter(|_| !sections.is_unsure) else { return };
        let until = ends.into_iter().max().unwrap_or(0).max(sections.extended);
        let left = sections.hold.remaining();
        if left > Duration::from_nanos(until.saturating_sub(self.world.now())) + MARGIN {
            self.world.fail(format_args!("{left:?} of {} are left, which ends before", sections.inside[0].0));
        }
    }
}

/// A hold may be given back while another thread extends it.
fn unless_not_held(error: Error) -> lockson::Result<()> {
    if error.kind() == ErrorKind::NotHeld { Ok(()) } else { Err(error) }
}

const WATCHDOG: Duration = Duration::from_secs(30);
/// A hold ends earlier than its lease by so much at least.
const MARGIN: Duration = Duration::from_millis(60);
