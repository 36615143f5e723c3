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
    stand_backs: Accounts,
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
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<Planned>>,
    next: u64,
    random: u64,
    holder: Option<(usize, usize)>,
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
            stand_backs: Accounts::default(),
            line: VecDeque::new(),
            grants: vec![0; threads],
            since: vec![0; threads],
            longest_wait: 0,
        };
        let mut scene = Self {
            now: 0,
            hold,
            processes: crowd.iter().map(process).collect(),
            events: BinaryHeap::new(),
            next: 0,
            random: 1,
            holder: None,
            freed: 0,
            idle: 0,
        };
        for (process, (_, threads)) in crowd.iter().enumerate() {
            (0..*threads).for_each(|thread| scene.plan(10, Event::Come, process, thread));
        }
        scene
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

    /// The longest wait of any thread, also of threads that still wait.
    pub(super) fn longest_wait(&self) -> u64 {
        let waiting = |process: &Process| process.line.iter().map(|thread| self.now - process.since[*thread]).max();
        let longest = |process: &Process| process.longest_wait.max(waiting(process).unwrap_or_default());
        self.processes.iter().map(longest).max().unwrap_or_default()
    }

    fn plan(&mut self, delay: u64, event: Event, process: usize, thread: usize) {
        self.next += 1;
        self.events.push(Reverse((self.now + delay, self.next, event, process, thread)));
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn happen(&mut self, event: Event, index: usize, thread: usize) {
        let now = at(self.now);
        let process = &mut self.processes[index];
        match (event, process.sort) {
            (Event::Come, sort) => {
                process.since[thread] = self.now;
                process.line.push_back(thread);
                if sort == Sort::Redisson {
                    self.plan(100, Event::Ask, index, thread);
                } else if process.line.len() == 1 {
                    self.plan(0, Event::Wake, index, thread);
                }
            }
            (Event::Wake, Sort::Lockson | Sort::Greedy) => {
                let Some(&first) = process.line.front() else { return };
                match process.stand_backs.pause(&name(), now).filter(|_| process.sort == Sort::Lockson) {
                    Some(pause) if pause.looks => self.plan(100, Event::Look, index, first),
                    Some(pause) => {
                        let until = u64::try_from(at(0).until(pause.until).as_micros()).unwrap();
                        self.plan(until.saturating_sub(self.now), Event::Wake, index, first);
                    }
                    None => self.plan(100, Event::Ask, index, first),
                }
            }
            (Event::Wake, Sort::Redisson) => self.plan(0, Event::Ask, index, thread),
            (Event::Look, _) => {
                let holder = self.holder.filter(|(other, _)| *other != index);
                let owner = holder.map(|(process, thread)| format!("{process}:{thread}"));
                process.stand_backs.looked(&name(), owner.as_deref(), now);
                self.plan(0, Event::Wake, index, thread);
            }
            (Event::Ask, _) => self.ask(index, thread),
            (Event::Release, _) => self.release(index, thread),
        }
    }

    fn ask(&mut self, index: usize, thread: usize) {
        let process = &mut self.processes[index];
        let Some(place) = process.line.iter().position(|waiter| *waiter == thread) else { return };
        if self.holder.is_some() {
            if process.sort == Sort::Redisson {
                // Back to the end of the queue of threads that a message wakes.
                process.line.remove(place);
                process.line.push_back(thread);
            }
            return;
        }
        process.line.remove(place);
        process.stand_backs.granted(&name(), at(self.now));
        process.grants[thread] += 1;
        process.longest_wait = process.longest_wait.max(self.now - process.since[thread]);
        self.idle += self.now - self.freed;
        self.holder = Some((index, thread));
        let hold = self.hold + 100;
        self.plan(hold, Event::Release, index, thread);
    }

    fn release(&mut self, index: usize, thread: usize) {
        (self.holder, self.freed) = (None, self.now);
        let now = at(self.now);
        let others = self.processes.iter().enumerate().filter(|(other, it)| *other != index && !it.line.is_empty());
        let others = others.count();
        for other in 0..self.processes.len() {
            let process = &mut self.processes[other];
            let waiting = process.line.len();
            let mut goes_on = false;
            if other == index {
                goes_on = process.stand_backs.released(&name(), Some(others), || waiting + 1, now);
            } else {
                process.stand_backs.heard(&name(), now);
            }
            let Some(&first) = process.line.front() else { continue };
            match process.sort {
                Sort::Lockson | Sort::Greedy => {
                    let delay = if goes_on { 20 } else { 80 + self.below(80) };
                    self.plan(delay, Event::Wake, other, first);
                }
                Sort::Redisson => {
                    self.processes[other].line.rotate_left(1);
                    let delay = 2_000 + self.below(900);
                    self.plan(delay, Event::Wake, other, first);
                }
            }
        }
        let delay = 150 + self.below(100);
        self.plan(delay, Event::Come, index, thread);
    }
}

pub(super) fn name() -> LockName {
    LockName::new("n").unwrap()
}

pub(super) fn at(micros: u64) -> Instant {
    Instant::from_millis(1_000_000).after(Duration::from_micros(micros))
}
