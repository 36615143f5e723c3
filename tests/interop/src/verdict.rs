//! The verdict of one check, and the count of all verdicts.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    NotDefined,
}

/// Counts the checks of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Score {
    passed: AtomicU32,
    failed: AtomicU32,
}

impl Verdict {
    /// Runs a check; a panic is a failure.
    pub(crate) fn of(check: impl FnOnce()) -> Self {
        match caught(check) {
            Ok(()) => Self::Passed,
            Err(story) => Self::Failed(story),
        }
    }

    /// Passed, unless there are faults.
    pub(crate) fn unless(wrong: Vec<String>) -> Self {
        if wrong.is_empty() { Self::Passed } else { Self::Failed(wrong.join("; ")) }
    }
}

impl Score {
    /// Counts a verdict and tells of a failure at once.
    pub(crate) fn count(&self, what: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed.fetch_add(1, Ordering::Relaxed),
            Verdict::Failed(story) => {
                println!("FAILED  {what}: {story}");
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
            Verdict::NotDefined => 0,
        };
    }

    /// Counts the checks of a part that has a score of its own.
    pub(crate) fn add(&self, part: &Self) {
        self.passed.fetch_add(part.passed.load(Ordering::Relaxed), Ordering::Relaxed);
        self.failed.fetch_add(part.failed(), Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The last line of a run.
    pub(crate) fn line(&self) -> String {
        format!("{} passed, {} failed", self.passed.load(Ordering::Relaxed), self.failed())
    }
}

/// Runs `work`; a panic becomes an error with its message and place.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = STORY.replace(Some(String::new()));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    let story = STORY.replace(outer).unwrap_or_default();
    outcome.map_err(|_| story)
}

/// Keeps the text of a caught panic; other panics are printed as usual.
pub(crate) fn keep_stories() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let kept = STORY.with(|story| match &mut *story.borrow_mut() {
            Some(story) => {
                let text = info.payload().downcast_ref::<String>().map(String::as_str);
                let message = text.or(info.payload().downcast_ref::<&str>().copied()).unwrap_or("a panic");
                let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
                *story = format!("{message}{}", place.unwrap_or_default());
                true
            }
            None => false,
        });
        if !kept {
            default(info);
        }
    }));
}

thread_local! {
    /// Present while a panic of this thread will be caught.
    static STORY: RefCell<Option<String>> = const { RefCell::new(None) };
}
