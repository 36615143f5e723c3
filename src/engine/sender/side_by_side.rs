//! Work on several servers at once.

use crate::system::thread;
use std::iter;
use std::panic::resume_unwind;

/// Works on all shares at once, each but the first on a thread of its own. Returns the results in order.
pub(crate) fn side_by_side<T: Sync, R: Send>(shares: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((own, others)) = shares.split_first() else { return vec![] };
    let work = &work;
    thread::scope(|scope| {
        let start = |share| thread::Builder::new().name(NAME.into()).spawn_scoped(scope, move || work(share));
        let started: Vec<_> = others.iter().map(|share| (share, start(share))).collect();
        let own = work(own);
        let others = started.into_iter().map(|(share, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => work(share),
        });
        iter::once(own).chain(others).collect()
    })
}

const NAME: &str = "lockson-aside";
