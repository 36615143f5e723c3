//! Work on several servers at once.

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
    let mut results: Vec<(&T, Option<R>)> = shares.iter().map(|share| (share, None)).collect();
    each_aside("lockson-aside", &mut results, |(share, result)| _ = result.get_or_insert_with(|| work(share)));
    results.into_iter().filter_map(|(_, result)| result).collect()
}

/// Works on all at once, each but the first on a thread of its own. Work that got no thread follows the others: `work`
/// does nothing where it was done.
pub(super) fn each_aside<T: Send>(thread_name: &str, all: &mut [T], work: impl Fn(&mut T) + Sync) {
    if let [own, others @ ..] = all {
        let work = &work;
        thread::scope(|scope| {
            for one in others {
                let _ = thread::Builder::new().name(thread_name.into()).spawn_scoped(scope, move || work(one));
            }
            work(own);
        });
    }
    all.iter_mut().for_each(work);
}
