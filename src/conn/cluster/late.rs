//! Unanswered copies at members that do not store their key any more: fenced in the background.
//!
//! The member answers such a copy with `MOVED`, unless the slot comes back, or the member has not heard that it left.
//!
//! A copy is over when
//!
//! * its member has ended its connection;
//! * the member is gone for longer than the copy could matter.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::system::thread;
use crate::time::Instant;
use crate::transport::Identity;

/// Has a copy fenced in the background, at the member that got it.
pub(super) fn fence_later(shared: &Arc<Shared>, copy: Identity) {
    let mut state = shared.state.lock();
    if state.closed || state.late.iter().any(|(known, _)| *known == copy) {
        return;
    }
    if state.late.len() >= MOST_COPIES {
        state.late.remove(0);
    }
    state.late.push((copy, Instant::now().after(LONGEST)));
    // The thread lives as long as there are copies. Where none can be started, the next copy starts it.
    if !state.fences_late {
        let in_thread = Arc::clone(shared);
        let started = thread::Builder::new().name("lockson-fence".into()).spawn(move || work(&in_thread));
        state.fences_late = started.is_ok();
    }
}

fn work(shared: &Shared) {
    loop {
        let copies = shared.state.lock().late.clone();
        // A member that is gone must not delay the copies at the others.
        let (mut over, mut gone) = (vec![], vec![]);
        for (copy, _) in copies {
            if gone.contains(&copy.number) {
                continue;
            }
            let server = shared.state.lock().servers.get(copy.number.0).cloned();
            let deadline = Instant::now().after(shared.command_timeout);
            if server.is_none_or(|server| server.fence_afterwards(&copy, deadline).is_ok()) {
                over.push(copy);
            } else {
                gone.push(copy.number);
            }
        }
        let mut state = shared.state.lock();
        let (now, closed) = (Instant::now(), state.closed);
        state.late.retain(|(copy, until)| !closed && now < *until && !over.contains(copy));
        if state.late.is_empty() {
            state.fences_late = false;
            return;
        }
        drop(shared.closing.wait_for(state, PAUSE));
    }
}

const PAUSE: Duration = Duration::from_millis(500);
/// The locks of longer leases are released again and again until their lease is over.
const LONGEST: Duration = Duration::from_secs(5 * 60);
const MOST_COPIES: usize = 1_000;
