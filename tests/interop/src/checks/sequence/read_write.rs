//! The two sides of the read-write lock.

use std::time::Duration;

use crate::actor::{Actor, Object};
use crate::checks::{PATIENCE, WOKEN, release_wakes};
use crate::kind::Kind;
use crate::program::Seat;
use crate::stage::Stage;

/// Readers of both languages share; the last reader's release admits a writer; a writer's release admits all.
pub(crate) fn readers(stage: &Stage<'_>, kind: &'static Kind) {
    for writing in Seat::BOTH {
        let name = stage.fresh(kind.word);
        let (read, write) = (Object::of_kind("read", kind, &name), Object::of_kind("write", kind, &name));
        let [rust, java] = Seat::BOTH.map(|seat| stage.actor(seat, &read));
        let writer = stage.actor(writing, &write).on_thread(5);
        rust.take();
        assert!(java.attempt(), "a reader kept a reader out");
        assert!(!writer.attempt(), "a writer got in beside two readers");
        java.give_back().expect_ok();
        assert!(!writer.attempt(), "a writer got in beside a reader");
        release_wakes(stage, &rust, &writer);
        all_get_in(stage, &writer, &read);
    }
}

/// Three readers of each language wait; one release admits all readers, before any reader releases.
fn all_get_in(stage: &Stage<'_>, writer: &Actor<'_>, read: &Object) {
    let readers: Vec<Actor<'_>> = (10..16)
        .map(|thread| stage.actor(if thread % 2 == 0 { Seat::Rust } else { Seat::Java }, read).on_thread(thread))
        .collect();
    let waiting: Vec<_> = readers.iter().map(|reader| reader.start_waiting(PATIENCE)).collect();
    stage.until_waiting(&readers[0]);
    stage.until_waiting(&readers[1]);
    let released = writer.give_back().expect_ok();
    for (reader, waiting) in readers.iter().zip(waiting) {
        let granted = waiting.finish();
        assert!(granted.acquired(), "a {} reader never got in beside the others", reader.seat.name());
        let delay = granted.millis_after(released.started());
        assert!(delay <= WOKEN.as_secs_f64() * 1e3, "a {} reader got in {delay:.1} ms late", reader.seat.name());
    }
    readers.iter().for_each(|reader| drop(reader.give_back().expect_ok()));
}

/// A writer may read, keeps others out meanwhile, and admits readers when the writer gives up writing.
pub(crate) fn downgrade(stage: &Stage<'_>, kind: &'static Kind) {
    for seat in Seat::BOTH {
        let name = stage.fresh(kind.word);
        let (read, write) = (Object::of_kind("read", kind, &name), Object::of_kind("write", kind, &name));
        let (writer, own_reader) = (stage.actor(seat, &write), stage.actor(seat, &read));
        let [other_reader, other_writer] = [&read, &write].map(|object| stage.actor(seat.other(), object));
        writer.take();
        own_reader.take();
        assert!(!other_reader.attempt(), "a reader was granted beside a writer that reads");
        let_in_by_stepping_down(stage, &writer, &other_reader);
        assert!(!other_writer.on_thread(1).attempt(), "a writer got in beside readers");
        own_reader.give_back().expect_ok();
        other_reader.give_back().expect_ok();
        assert!(other_writer.attempt(), "a writer was kept out though all was given back");
        other_writer.give_back().expect_ok();
    }
}

/// Redisson publishes nothing when a writer steps down: a waiter of Lockson then asks again by itself, a waiter of
/// Redisson sleeps on.
fn let_in_by_stepping_down(stage: &Stage<'_>, writer: &Actor<'_>, reader: &Actor<'_>) {
    if stage.is_rehearsal() {
        writer.give_back().expect_ok();
        assert!(reader.attempt(), "a reader was kept out by a reader");
        return;
    }
    let waiting = reader.start_waiting(PATIENCE);
    stage.until_waiting(reader);
    let stepped = writer.give_back().expect_ok();
    let granted = waiting.finish();
    assert!(granted.acquired(), "the waiting reader never got in beside a reader");
    let delay = granted.millis_after(stepped.started());
    let most = if writer.seat == Seat::Rust { WOKEN } else { ASKING };
    assert!(delay <= most.as_secs_f64() * 1e3, "the waiting reader got in {delay:.1} ms after the writer stepped down");
}

/// The longest wait of a Lockson waiter without a message.
const ASKING: Duration = Duration::from_millis(1_700);
