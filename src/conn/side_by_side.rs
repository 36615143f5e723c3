//! Work on several servers at once.

use std::iter;
use std::panic::resume_unwind;
use std::sync::Arc;

use super::server::Server;
use crate::system::thread;

/// Sorts by server. The order of what one server has stays.
pub(crate) fn by_server<T>(all: impl IntoIterator<Item = (Arc<Server>, T)>) -> Vec<(Arc<Server>, Vec<T>)> {
    let mut shares: Vec<(Arc<Server>, Vec<T>)> = vec![];
    for (server, one) in all {
        match shares.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &server)) {
            Some((_, share)) => share.push(one),
            None => shares.push((server, vec![one])),
        }
    }
    shares
}

/// Works on all shares at once, each but the first on a thread of its own. Returns the results in order.
pub(crate) fn side_by_side<T: Sync, R: Send>(shares: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((own, others)) = shares.split_first() else { return vec![] };
    let work = &work;
    thread::scope(|scope| {
        let start =
            |share| thread::Builder::new().name("lockson-aside".into()).spawn_scoped(scope, move || work(share));
        let started: Vec<_> = others.iter().map(|share| (share, start(share))).collect();
        let own = work(own);
        let others = started.into_iter().map(|(share, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => work(share),
        });
        iter::once(own).chain(others).collect()
    })
}
