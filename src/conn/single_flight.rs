//! Asks a question that may block without limit in a thread of its own, for callers that each have a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::stream::timed_out;
use crate::sync::{Condvar, Mutex};
use crate::system::thread;
use crate::time::Instant;

/// Callers of the same time share one asking. An asking that outlives its caller goes on in its thread and serves later
/// callers, so a question that hangs blocks one thread instead of one thread for each caller.
pub(super) struct SingleFlight<T> {
    thread_name: &'static str,
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    /// The number of askings that were started.
    begun: u64,
    /// The last asking that was started because an answer was of no use.
    renewed: u64,
    /// The last asking that was started, until its end.
    under_way: Option<UnderWay>,
    /// The number and the answer of the last finished asking, while a caller waits for it.
    answer: Option<(u64, T)>,
    /// The number of callers that wait.
    waiting: usize,
}

#[derive(Clone, Copy)]
struct UnderWay {
    begun: Instant,
    /// The newest answer that was known to be of no use when the asking was started.
    after: u64,
}

impl<T: Clone + Send + 'static> SingleFlight<T> {
    pub(super) fn new(thread_name: &'static str) -> Self {
        let state = Mutex::new(State { begun: 0, renewed: 0, under_way: None, answer: None, waiting: 0 });
        Self { thread_name, shared: Arc::new(Shared { state, done: Condvar::new() }) }
    }

    /// Returns the number of an asking and its answer, by `deadline` or with the error `TimedOut`; any other error is that
    /// of a thread which could not be started. The answer number `after` is of no use to the
    /// caller: the asking was started with that knowledge. Numbers begin with 1.
    ///
    /// `question` is told whether the newest answers are of no use. They may be of use where another caller with an old
    /// answer was the first to say so.
    pub(super) fn ask(
        &self,
        after: u64,
        deadline: Instant,
        question: impl FnOnce(bool) -> T + Send + 'static,
    ) -> io::Result<(u64, T)> {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let after = if after < state.renewed { 0 } else { after };
        let is_joined = |asking: UnderWay| asking.begun.after(HOPELESS) > now && asking.after >= after;
        if !state.under_way.is_some_and(is_joined) {
            self.begin(&mut state, UnderWay { begun: now, after }, question)?;
        }
        let ours = state.begun;
        state.waiting += 1;
        let answer = loop {
            if let Some(answer) = state.answer.clone().filter(|(number, _)| *number >= ours) {
                break Ok(answer);
            }
            let left = Instant::now().until(deadline);
            if left.is_zero() {
                break Err(timed_out());
            }
            state = self.shared.done.wait_for(state, left);
        };
        state.waiting -= 1;
        let outdated = if state.waiting == 0 { state.answer.take() } else { None };
        drop(state);
        drop(outdated);
        answer
    }

    fn begin(
        &self,
        state: &mut State<T>,
        asking: UnderWay,
        question: impl FnOnce(bool) -> T + Send + 'static,
    ) -> io::Result<()> {
        let (shared, number) = (Arc::clone(&self.shared), state.begun + 1);
        thread::Builder::new().name(self.thread_name.into()).spawn(move || {
            let answer = question(asking.after > 0);
            let mut state = shared.state.lock();
            if state.begun == number {
                state.under_way = None;
            }
            let is_newest = state.answer.as_ref().is_none_or(|(last, _)| *last < number);
            // Without a caller nothing is kept: the answer may be a secret.
            let outdated = if state.waiting > 0 && is_newest {
                state.answer.replace((number, answer))
            } else {
                Some((number, answer))
            };
            shared.done.notify_all();
            drop(state);
            drop(outdated);
        })?;
        (state.begun, state.under_way) = (number, Some(asking));
        if asking.after > 0 {
            state.renewed = number;
        }
        Ok(())
    }
}

/// After this time an asking counts as stuck, and the next caller starts another one.
const HOPELESS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A question whose answers the test sends, and the number of its askings.
    struct Slow {
        flight: SingleFlight<u32>,
        answers: Receiver<u32>,
        asked: Arc<AtomicUsize>,
    }

    fn slow() -> (Arc<Slow>, Sender<u32>) {
        let (answer, answers) = unbounded();
        (Arc::new(Slow { flight: SingleFlight::new("test"), answers, asked: Arc::default() }), answer)
    }

    impl Slow {
        fn ask(&self, after: u64, limit: Duration) -> io::Result<(u64, u32)> {
            let (answers, asked) = (self.answers.clone(), Arc::clone(&self.asked));
            self.flight.ask(after, Instant::now().after(limit), move |_| {
                asked.fetch_add(1, Ordering::SeqCst);
                answers.recv().unwrap_or_default()
            })
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    fn is_late(answer: io::Result<(u64, u32)>) -> bool {
        answer.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn a_question_that_hangs_is_asked_once_for_all_callers() {
        let (slow, answer) = slow();
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let slow = Arc::clone(&slow);
                thread::spawn(move || slow.ask(0, Duration::from_millis(50)))
            })
            .collect();
        for caller in callers {
            assert!(is_late(caller.join().unwrap()));
        }
        assert_eq!(slow.asked(), 1);
        // The next caller gets the answer of the first asking, or of a later one if the first asking ended before.
        answer.send(1).unwrap();
        answer.send(2).unwrap();
        let (_, told) = slow.ask(0, SOON).unwrap();
        assert!(told == 1 || told == 2, "{told}");
        assert!(slow.asked() <= 2);
    }

    #[test]
    fn an_asking_without_end_is_left_for_another_one() {
        let (slow, answer) = slow();
        let start = Instant::now();
        let pretence = start.pretend();
        // Without any time left the call starts the asking and gives up.
        assert!(is_late(slow.ask(0, Duration::ZERO)));
        start.after(HOPELESS).comes();
        assert!(is_late(slow.ask(0, Duration::ZERO)));
        drop(pretence);
        // One answer for each asking, and one for a third asking in case both ended before the call.
        (0..3).for_each(|_| answer.send(7).unwrap());
        assert_eq!(slow.ask(0, SOON).unwrap().1, 7);
        assert!(slow.flight.shared.state.lock().begun >= 2);
    }

    #[test]
    fn only_the_newest_answers_are_told_to_be_of_no_use() {
        let flight = SingleFlight::new("test");
        let ask = |after| flight.ask(after, Instant::now().after(SOON), |are_useless| are_useless).unwrap();
        assert_eq!(ask(0), (1, false));
        assert_eq!(ask(0), (2, false));
        assert_eq!(ask(1), (3, true), "the second answer may be the same as the first one");
        assert_eq!(ask(1), (4, false));
        assert_eq!(ask(2), (5, false));
        assert_eq!(ask(3), (6, true));
        assert_eq!(ask(5), (7, false));
    }

    #[test]
    fn an_answer_of_no_use_is_asked_for_anew_and_shared() {
        let (slow, answer) = slow();
        answer.send(1).unwrap();
        assert_eq!(slow.ask(0, SOON).unwrap(), (1, 1));
        // An asking without the knowledge that answer 1 is of no use.
        assert!(is_late(slow.ask(0, Duration::ZERO)));
        assert!(is_late(slow.ask(1, Duration::ZERO)), "starts the third");
        assert!(is_late(slow.ask(1, Duration::ZERO)), "joins the third");
        assert!(is_late(slow.ask(0, Duration::ZERO)), "joins the third, too");
        assert_eq!(slow.flight.shared.state.lock().begun, 3);
    }

    #[test]
    fn no_answer_is_kept_without_a_caller() {
        let (slow, answer) = slow();
        answer.send(1).unwrap();
        slow.ask(0, SOON).unwrap();
        assert!(slow.flight.shared.state.lock().answer.is_none());
        assert!(slow.ask(0, Duration::ZERO).is_err());
        answer.send(2).unwrap();
        let begun = Instant::now();
        while slow.flight.shared.state.lock().under_way.is_some() {
            assert!(begun.until(Instant::now()) < SOON);
            thread::yield_now();
        }
        assert!(slow.flight.shared.state.lock().answer.is_none());
    }
}
