//! Unanswered copies at members that do not store their key any more: fenced in the background.
//!
//! The member answers such a copy with `MOVED`, unless the slot comes back, or the member has not heard that it left.
//!
//! A copy is over when
//!
//! * its member has ended its connection;
//! * a later connection to the member has a smaller number, because then the member has restarted;
//! * the member is gone for longer than the copy could matter.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::system::thread;
use crate::time::Instant;
use crate::transport::Identity;

/// The copies to fence.
#[derive(Default)]
pub(super) struct Late {
    /// Each with the time from which it matters no more.
    pub(super) copies: Vec<(Identity, Instant)>,
    under_way: bool,
}

/// Has a copy fenced in the background, at the member that got it.
pub(super) fn fence_later(shared: &Arc<Shared>, copy: Identity) {
    let mut state = shared.state.lock();
    if state.closed {
        return;
    }
    let copies = &mut state.late.copies;
    if copies.iter().any(|(known, _)| *known == copy) {
        return;
    }
    if copies.len() >= MOST_COPIES {
        copies.remove(0);
    }
    copies.push((copy, Instant::now().after(LONGEST)));
    if std::mem::replace(&mut state.late.under_way, true) {
        return;
    }
    drop(state);
    let in_thread = Arc::clone(shared);
    if thread::Builder::new().name("lockson-fence".into()).spawn(move || work(&in_thread)).is_err() {
        shared.state.lock().late.under_way = false;
    }
}

fn work(shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        let now = Instant::now();
        state.late.copies.retain(|(_, until)| now < *until);
        let copies = state.late.copies.clone();
        if state.closed || copies.is_empty() {
            state.late.under_way = false;
            return;
        }
        drop(state);
        // A member that is gone must not delay the copies at the others.
        let mut gone = vec![];
        for (copy, _) in copies {
            if gone.contains(&copy.number) {
                continue;
            }
            let server = shared.state.lock().servers.get(copy.number.0).cloned();
            let deadline = Instant::now().after(shared.command_timeout);
            if server.is_none_or(|server| server.fence_afterwards(&copy, deadline).is_ok()) {
                shared.state.lock().late.copies.retain(|(known, _)| *known != copy);
            } else {
                gone.push(copy.number);
            }
        }
        let mut state = shared.state.lock();
        if !state.closed && !state.late.copies.is_empty() {
            shared.closing.wait_for(&mut state, PAUSE);
        }
    }
}

const PAUSE: Duration = Duration::from_millis(500);
/// The locks of longer leases are released again and again until their lease is over.
const LONGEST: Duration = Duration::from_secs(5 * 60);
const MOST_COPIES: usize = 1_000;
