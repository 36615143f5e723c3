//! What users do in callbacks and observers: they take locks, force them open, close the client, panic.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use lockson::{
    ErrorKind, HoldEnded, LockAcquired, LockLost, LockReleased, LocksRenewed, Observer, RenewalFailed, WaitGivenUp,
    WaitStarted,
};
use lockson_world::Nanos;
use parking_lot::Mutex;

use crate::scene::Scene;

/// The observer of all clients.
#[derive(Debug, Default)]
pub struct Eyes {
    /// How often the loss of each owner was told by an event.
    pub lost: Mutex<BTreeMap<String, u32>>,
    scene: OnceLock<Weak<Scene>>,
}

impl Eyes {
    /// From now on the observer does what users do.
    pub fn open(&self, scene: &Weak<Scene>) {
        let _ = self.scene.set(scene.clone());
    }

    fn sees(&self) {
        self.scene.get().into_iter().for_each(called_back);
    }
}

impl Observer for Eyes {
    fn lost(&self, event: &LockLost) {
        *self.lost.lock().entry(event.owner().to_owned()).or_default() += 1;
        self.sees();
    }

    fn waiting(&self, _: &WaitStarted) {
        self.sees();
    }

    fn gave_up(&self, _: &WaitGivenUp) {
        self.sees();
    }

    fn acquired(&self, _: &LockAcquired) {
        self.sees();
    }

    fn released(&self, _: &LockReleased) {
        self.sees();
    }

    fn hold_ended(&self, _: &HoldEnded) {
        self.sees();
    }

    fn renewed(&self, _: &LocksRenewed) {
        self.sees();
    }

    fn renewal_failed(&self, _: &RenewalFailed) {
        self.sees();
    }
}

thread_local! {
    /// Whether this thread is in a callback that does something.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The callbacks of this thread: the end of the last one, and the time that all have taken.
    static TOOK: Cell<(Nanos, Nanos)> = const { Cell::new((0, 0)) };
}

/// The library has called back: now and then users do something there.
pub fn called_back(scene: &Weak<Scene>) {
    let Some(scene) = scene.upgrade() else { return };
    let world = &scene.world;
    let often = scene.habits.within;
    if often == 0 || IS_INSIDE.get() || scene.is_over.load(Ordering::Relaxed) || world.below(often) > 0 {
        return;
    }
    if world.below(8) == 0 {
        world.tell("panics in a callback");
        resume_unwind(Box::new("a mistake of the user"));
    }
    IS_INSIDE.set(true);
    let began = world.now();
    scene.use_in_callback();
    let (last, took) = TOOK.get();
    TOOK.set((world.now().max(last), took + world.now() - began));
    IS_INSIDE.set(false);
}

/// The time that callbacks of this thread have taken since then, or more.
pub fn called_back_since(began: Nanos) -> Duration {
    let (last, took) = TOOK.get();
    TOOK.set((last, 0));
    if last >= began { Duration::from_nanos(took) } else { Duration::ZERO }
}

impl Scene {
    fn use_in_callback(&self) {
        let processes = self.processes.lock().clone();
        let process = &processes[usize::try_from(self.world.below(processes.len() as u64)).unwrap_or(0)];
        let client = &process.client;
        self.world.tell("does something in a callback");
        if self.world.below(4) == 0 {
            return self.interfere(process);
        }
        let (name, lock) = match self.world.below(4) {
            0 => ("fair", client.get_fair_lock("fair")),
            1 => ("spun", client.get_spin_lock("spun")),
            2 => ("shared", client.get_read_write_lock("shared").write()),
            _ => ("plain", client.get_lock("plain")),
        };
        match lock.try_lock_for(Duration::from_millis(self.world.below(50))) {
            Ok(Some(guard)) => {
                let number = self.enter(name, true, guard.hold().clone());
                self.leave(name, number);
                if let Err(error) = guard.unlock() {
                    self.expected(&error);
                }
            }
            Ok(None) => {}
            // This thread reads.
            Err(error) if error.kind() == ErrorKind::AlreadyHeld => {}
            Err(error) => self.expected(&error),
        }
    }
}
