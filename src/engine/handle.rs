//! The entry from a handle to its engine: every operation begins here, and a forked child is refused here.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;

use crate::engine::caller::closed;
use crate::engine::parts::Engine;
use crate::engine::request::Modifiers;
use crate::engine::sender::numbered::Numbered;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GivenName, LockName};
use crate::script::Call;
use crate::script::once::Once;
use crate::time::Lease;

/// The reference of clients, locks and holds to their engine.
///
/// The methods are the only entry to the engine. Each method checks first whether this process is a forked child:
/// there a mutex may be a copy that a thread of the parent had locked, and no thread exists to unlock the copy.
#[derive(Clone)]
pub(crate) struct Handle(Arc<LastHandle>);

/// What a client has by a name, such as a semaphore.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) handle: Handle,
    /// Tells errors what it is.
    noun: &'static str,
    pub(crate) name: GivenName,
    pub(crate) modifiers: Modifiers,
}

/// Closes the client when the last handle is dropped.
struct LastHandle(Arc<Engine>);

/// A running operation; `close()` waits for its end.
pub(crate) struct Operation<'a>(&'a Engine);

thread_local! {
    /// The engines whose operations run on this thread, by address: a callback may begin an operation inside another
    /// one, or close the client.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(vec![]) };
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self(Arc::new(LastHandle(engine)))
    }

    /// Begins an operation; fails on a closed client.
    pub(crate) fn begin(&self) -> Result<Operation<'_>> {
        let engine = self.here()?;
        if engine.life.begin() { Ok(Operation::of(engine)) } else { Err(closed()) }
    }

    /// Whether the operation belongs to the client.
    pub(crate) fn has_begun(&self, operation: &Operation<'_>) -> bool {
        ptr::eq(&*self.0.0, operation.0)
    }

    /// Begins an operation on an existing hold, which a closing client still runs.
    pub(crate) fn begin_to_end(&self) -> Result<Operation<'_>> {
        let engine = self.here()?;
        engine.life.begin_to_end();
        Ok(Operation::of(engine))
    }

    fn here(&self) -> Result<&Engine> {
        let text = "the client was opened before this process was forked; open another one";
        self.look().ok_or_else(|| Error::new(ErrorKind::Closed, text))
    }

    /// Whether keys of different slots are on different servers.
    pub(crate) fn has_slots(&self) -> bool {
        self.0.0.sender.topology.has_slots()
    }

    /// Returns the engine for what needs no operation; `None` in a forked child.
    pub(crate) fn look(&self) -> Option<&Engine> {
        (!self.0.0.life.is_forked()).then_some(&self.0.0)
    }

    /// The uuid at the start of every owner id.
    pub(crate) fn client_id(&self) -> &str {
        self.0.0.owners.client()
    }

    pub(crate) fn fair_patience(&self) -> Lease {
        self.0.0.fair_patience
    }

    /// The server of a lock as error texts show it; nothing in a forked child, whose takes fail.
    pub(crate) fn server_of(&self, name: &LockName) -> String {
        self.look().map_or_else(String::new, |engine| engine.sender.server(name).label())
    }

    /// The largest difference between the clocks of the server and of Redisson clients, in ms.
    pub(crate) fn peer_clock_skew_ms(&self) -> u64 {
        u64::try_from(self.0.0.config.peer_clock_skew.as_millis()).unwrap_or(u64::MAX)
    }

    /// What decides about the locks of the client, without the database: a server, or a whole cluster.
    pub(crate) fn authority(&self) -> &str {
        &self.0.0.authority
    }

    /// What has this name.
    pub(crate) fn named(&self, noun: &'static str, name: GivenName) -> Named {
        Named { handle: self.clone(), noun, name, modifiers: Modifiers::default() }
    }

    /// The name that stands in Redis.
    pub(crate) fn name(&self, name: &str) -> GivenName {
        self.in_one_slot(GivenName::new(self.0.0.full_name(name)), false)
    }

    /// The name of a latch that stands in Redis.
    pub(crate) fn name_of_latch(&self, name: &str) -> GivenName {
        self.in_one_slot(GivenName::new(self.0.0.full_name(name)), true)
    }

    /// The name of a value of the group.
    pub(crate) fn name_of_value(&self, group: &str, value: &str) -> GivenName {
        self.in_one_slot(GivenName::of_value(&self.0.0.full_name(group), value), false)
    }

    fn in_one_slot(&self, given: GivenName, is_latch: bool) -> GivenName {
        if self.has_slots() { given.in_one_slot(is_latch) } else { given }
    }
}

impl Named {
    /// A copy with changed modifiers.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Modifiers)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.modifiers);
        changed
    }

    /// Errors tell what they are about.
    pub(crate) fn about<A>(&self, result: Result<A>) -> Result<A> {
        result.map_err(|error| error.about_a(self.noun, self.name.as_str()))
    }

    /// Runs an operation.
    pub(crate) fn ask<A>(&self, ask: impl FnOnce(&Engine, &LockName) -> Result<A>) -> Result<A> {
        let name = self.name.checked()?;
        self.about(self.handle.begin().and_then(|engine| ask(&engine, name)))
    }

    /// Sends a request with an effect that must come once.
    pub(crate) fn once<A: Send>(&self, call: &dyn Fn(&LockName, &Once) -> Call<A>) -> Result<A> {
        self.ask(|engine, name| engine.sender.once_within(&Numbered::new(name, &|once| call(name, once))))
    }
}

impl Engine {
    /// The number of operations that the calling thread is in.
    pub(crate) fn own_operations(&self) -> usize {
        let own = |inside: &RefCell<Vec<usize>>| inside.borrow().iter().filter(|&&of| of == self.address()).count();
        INSIDE.try_with(own).unwrap_or(0)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// A panic in code of the caller leaves no data half changed, because no mutex is held while that code runs.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.client_id())
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        if self.0.life.is_forked() {
            // Dropping the copy would run destructors on data that threads of the parent were changing.
            std::mem::forget(Arc::clone(&self.0));
        } else {
            self.0.close();
        }
    }
}

impl Deref for Operation<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0
    }
}

impl<'a> Operation<'a> {
    /// A counted operation.
    fn of(engine: &'a Engine) -> Self {
        // A thread without its thread-local data runs no callback that could close the client.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(engine.address()));
        Self(engine)
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            let newest = inside.iter().rposition(|engine| *engine == self.0.address());
            newest.map(|newest| inside.swap_remove(newest))
        });
        self.0.life.end();
    }
}
