//! Processes of several sorts at one hot lock, in virtual time; each thread takes the lock, holds it and waits again.
#![cfg(test)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// The way in which a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// This crate: threads queue, the first thread asks, and the process stands back.
    Lockson,
    /// This crate without standing back.
    Greedy,
    /// Redisson: a message wakes one thread, which asks 2 to 3 ms later; the releasing thread asks again at once.
    Redisson,
    /// Redisson on a busy machine: half of the woken threads ask after 3.6 ms, 5 % after 15 ms.
    SlowRedisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread wants the lock again.
    Come,
    /// A message arrived, or a pause ended.
    Wake,
    /// A request runs.
    Ask,
    Look,
    Release,
}

/// Time, a number that keeps the order, event, process, thread.
type Planned = (u64, u64, Event, usize, usize);

struct Process {
    sort: Sort,
    threads: usize,
    turns: Turns,
    /// The waiting threads, in the order in which they ask or are woken.
    line: VecDeque<usize>,
    grants: Vec<u64>,
    /// The start of the wait of each thread.
    since: Vec<u64>,
    longest_wait: u64,
}

pub(super) struct Scene {
    now: u64,
    hold: u64,
    /// The number of threads that may hold at a time. The owners of several permits cannot be seen.
    permits: usize,
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<Planned>>,
    next: u64,
    random: u64,
    holders: Vec<(usize, usize)>,
    freed: u64,
    /// The total time for which the lock was free.
    pub(super) idle: u64,
}

impl Scene {
    /// All threads start at once; a hold lasts `hold` us.
    pub(super) fn new(hold: u64, crowd: &[(Sort, usize)]) -> Self {
        let process = |&(sort, threads)| Process {
            sort,
            threads,
            turns: Turns::default(),
            line: VecDeque::new(),
            grants: vec![0; threads],
            since: vec![0; threads],
            longest_wait: 0,
        };
        let mut scene = Self {
            now: 0,
            hold,
            permits: 0,
            processes: crowd.iter().map(process).collect(),
            events: BinaryHeap::new(),
            next: 0,
            random: 1,
            holders: vec![],
            freed: 0,
            idle: 0,
        };
        for (process, (_, threads)) in crowd.iter().enumerate() {
            (0..*threads).for_each(|thread| scene.plan(10, Event::Come, process, thread));
        }
        scene
    }

    /// A scene of processes that want permits of a semaphore.
    pub(super) fn of_permits(permits: usize, hold: u64, crowd: &[(Sort, usize)]) -> Self {
        Self { permits, ..Self::new(hold, crowd) }
    }

    /// The grants of each process relative to its share by threads; 1 is the whole share.
    pub(super) fn shares(&mut self, grants: u64) -> Vec<f64> {
        while self.processes.iter().flat_map(|process| &process.grants).sum::<u64>() < grants {
            let Reverse((at, _, event, process, thread)) = self.events.pop().expect("somebody always wants the lock");
            self.now = at;
            self.happen(event, process, thread);
        }
        let threads: usize = self.processes.iter().map(|process| process.threads).sum();
        let share = |process: &Process| {
            let had = process.grants.iter().sum::<u64>() as f64 / grants as f64;
            had * threads as f64 / process.threads as f64
        };
        self.processes.iter().map(share).collect()
    }

    /// The longest wait of any thread.
    pub(super) fn longest_wait(&self) -> u64 {
        (0..self.processes.len()).map(|process| self.longest_wait_of(process)).max().unwrap_or_default()
    }

    /// The longest wait of any thread of a process, also of threads that still wait.
    pub(super) fn longest_wait_of(&self, process: usize) -> u64 {
        let process = &self.processes[process];
        let waiting = process.line.iter().map(|thread| self.now - process.since[*thread]).max();
        process.longest_wait.max(waiting.unwrap_or_default())
    }

    fn plan(&mut self, delay: u64, event: Event, process: usize, thread: usize) {
        self.next += 1;
        self.events.push(Reverse((self.now + delay, self.next, event, process, thread)));
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// The time from a message to the request of a thread of Redisson.
    fn waking(&mut self, sort: Sort) -> u64 {
        if sort == Sort::Redisson {
            return 2_000 + self.below(900);
        }
        let percent = self.below(100) as usize;
        let place = QUANTILES.partition_point(|(upto, _)| *upto <= percent);
        let ((from, least), (upto, most)) = (QUANTILES[place - 1], QUANTILES[place]);
        least + (most - least) * (percent - from) as u64 / (upto - from) as u64
    }

    fn happen(&mut self, event: Event, index: usize, thread: usize) {
        let now = at(self.now);
        let process = &mut self.processes[index];
        let is_ours = matches!(process.sort, Sort::Lockson | Sort::Greedy);
        match event {
            Event::Come => {
                process.since[thread] = self.now;
                process.line.push_back(thread);
                process.turns.with(&name(), |turn| turn.wanted(number(thread), now));
                if !is_ours {
                    self.plan(100, Event::Ask, index, thread);
                } else if process.line.len() == 1 {
                    self.plan(0, Event::Wake, index, thread);
                }
            }
            Event::Wake if is_ours => {
                let Some(&first) = process.line.front() else { return };
                let stands_back = process.sort == Sort::Lockson;
                let pause = process.turns.with(&name(), |turn| turn.pause(number(first), now)).flatten();
                match pause.filter(|_| stands_back) {
                    Some(pause) if pause.looks => self.plan(100, Event::Look, index, first),
                    Some(pause) => {
                        let until = u64::try_from(at(0).until(pause.until).as_micros()).unwrap();
                        self.plan(until.saturating_sub(self.now), Event::Wake, index, first);
                    }
                    None => self.plan(100, Event::Ask, index, first),
                }
            }
            Event::Wake => self.plan(0, Event::Ask, index, thread),
            Event::Look => {
                if self.permits > 0 {
                    process.turns.with(&name(), |turn| turn.cannot_look(now));
                } else {
                    let holder = self.holders.first().filter(|(other, _)| *other != index);
                    let owner = holder.map(|(process, thread)| format!("{process}:{thread}"));
                    process.turns.with(&name(), |turn| turn.looked(owner.as_deref(), now, now));
                }
                self.plan(0, Event::Wake, index, thread);
            }
            Event::Ask => self.ask(index, thread, is_ours),
            Event::Release => self.release(index, thread),
        }
    }

    fn ask(&mut self, index: usize, thread: usize, is_ours: bool) {
        let process = &mut self.processes[index];
        let Some(place) = process.line.iter().position(|waiter| *waiter == thread) else { return };
        if self.holders.len() >= self.permits.max(1) {
            if !is_ours {
                // Back to the end of the queue of threads that a message wakes.
                process.line.remove(place);
                process.line.push_back(thread);
            }
            return;
        }
        process.line.remove(place);
        process.turns.with(&name(), |turn| turn.granted(number(thread), at(self.now)));
        process.grants[thread] += 1;
        process.longest_wait = process.longest_wait.max(self.now - process.since[thread]);
        if is_ours && !process.line.is_empty() && self.permits > 1 {
            self.plan(20, Event::Wake, index, thread);
        }
        self.idle += self.now - self.freed;
        self.holders.push((index, thread));
        let hold = self.hold + 100;
        self.plan(hold, Event::Release, index, thread);
    }

    fn release(&mut self, index: usize, thread: usize) {
        let was_full = self.holders.len() == self.permits.max(1);
        self.holders.retain(|holder| *holder != (index, thread));
        self.freed = self.now;
        let now = at(self.now);
        let others = self.processes.iter().enumerate().filter(|(other, it)| *other != index && !it.line.is_empty());
        let rivals = if was_full { Rivals::Listen(others.count()) } else { Rivals::Unknown };
        for other in 0..self.processes.len() {
            let process = &mut self.processes[other];
            let mut goes_on = false;
            if other == index {
                goes_on = process.turns.released(&name(), rivals, now);
            } else {
                process.turns.with(&name(), |turn| turn.heard(now));
            }
            let Some(&first) = process.line.front() else { continue };
            let delay = match process.sort {
                Sort::Lockson | Sort::Greedy if goes_on => 20,
                Sort::Lockson | Sort::Greedy => 80 + self.below(80),
                sort => {
                    process.line.rotate_left(1);
                    self.waking(sort)
                }
            };
            self.plan(delay, Event::Wake, other, first);
        }
        let delay = 150 + self.below(100);
        self.plan(delay, Event::Come, index, thread);
    }
}

/// Percent of the woken threads of [`Sort::SlowRedisson`], and the time in us within which they ask.
const QUANTILES: [(usize, u64); 6] = [(0, 1_500), (25, 2_500), (50, 3_600), (75, 6_500), (95, 15_000), (100, 25_000)];

pub(super) fn name() -> LockName {
    LockName::new("n").unwrap()
}

pub(super) fn number(thread: usize) -> ThreadNumber {
    ThreadNumber(thread as u64)
}

pub(super) fn at(micros: u64) -> Instant {
    Instant::from_millis(1_000_000).after(Duration::from_micros(micros))
}
