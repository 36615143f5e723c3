//! Asks a question that may block without limit in a thread of its own, for callers that each have a deadline.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::stream::timed_out;
use crate::sync::{Condvar, Mutex};
use crate::system::thread;
use crate::time::{Instant, wait_until};

/// Callers of the same time share one asking. An asking that outlives its caller goes on in its thread and serves later
/// callers, so a question that hangs blocks one thread instead of one thread for each caller.
pub(super) struct SingleFlight<T> {
    thread_name: &'static str,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The number of askings that were started.
    begun: u64,
    /// The last asking that was started because an answer was of no use.
    renewed: u64,
    /// The last asking that was started. Without a caller its answer is not kept, because the answer may be a secret.
    newest: Weak<Asking<T>>,
}

struct Asking<T> {
    number: u64,
    begun: Instant,
    /// The newest answer that was known to be of no use when the asking was started.
    after: u64,
    answer: Mutex<Option<T>>,
    done: Condvar,
}

impl<T: Clone + Send + 'static> SingleFlight<T> {
    pub(super) fn new(thread_name: &'static str) -> Self {
        Self { thread_name, state: Mutex::new(State { begun: 0, renewed: 0, newest: Weak::new() }) }
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
        let asking = self.join(after, question)?;
        let answer = wait_until(&asking.done, asking.answer.lock(), deadline, Option::is_some);
        answer.clone().map(|answer| (asking.number, answer)).ok_or_else(timed_out)
    }

    /// Returns the asking under way if its answer is of use, and starts another one otherwise.
    fn join(&self, after: u64, question: impl FnOnce(bool) -> T + Send + 'static) -> io::Result<Arc<Asking<T>>> {
        let (mut state, begun) = (self.state.lock(), Instant::now());
        let after = if after < state.renewed { 0 } else { after };
        if let Some(asking) = state.newest.upgrade()
            && asking.begun.after(HOPELESS) > begun
            && asking.after >= after
            && asking.answer.lock().is_none()
        {
            return Ok(asking);
        }
        let number = state.begun + 1;
        let asking = Arc::new(Asking { number, begun, after, answer: Mutex::new(None), done: Condvar::new() });
        let in_thread = Arc::clone(&asking);
        thread::Builder::new().name(self.thread_name.into()).spawn(move || {
            let answer = question(after > 0);
            *in_thread.answer.lock() = Some(answer);
            in_thread.done.notify_all();
        })?;
        if after > 0 {
            state.renewed = number;
        }
        (state.begun, state.newest) = (number, Arc::downgrade(&asking));
        Ok(asking)
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
        assert!(slow.flight.state.lock().begun >= 2);
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
        assert_eq!(slow.flight.state.lock().begun, 3);
    }

    #[test]
    fn no_answer_is_kept_without_a_caller() {
        let (slow, answer) = slow();
        answer.send(1).unwrap();
        slow.ask(0, SOON).unwrap();
        let is_kept = || slow.flight.state.lock().newest.strong_count() > 0;
        let begun = Instant::now();
        let ends = || {
            while is_kept() {
                assert!(begun.until(Instant::now()) < SOON);
                thread::yield_now();
            }
        };
        ends();
        assert!(slow.ask(0, Duration::ZERO).is_err());
        assert!(is_kept(), "it is under way");
        answer.send(2).unwrap();
        ends();
    }
}
