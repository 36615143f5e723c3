//! The wait for replicas after several requests: one for all answers of a server.

use super::{Pipeline, Response};
use crate::conn::connection::Connection;
use crate::system::thread;
use crate::transport::{Confirmation, Fault};

/// The answers of one server that do not count so far.
#[derive(Default)]
pub(super) struct Unconfirmed {
    /// Their places among the outcomes.
    places: Vec<usize>,
    /// The step that confirms all of them.
    confirmation: Option<Confirmation>,
    /// Whether an `ASKING` precedes that step.
    asks: bool,
    /// The connection of the answers, when all of them have arrived.
    pub(super) connection: Option<Box<Connection>>,
}

impl Unconfirmed {
    pub(super) fn add(&mut self, place: usize, confirmation: &Confirmation, asks: bool) {
        self.places.push(place);
        match &mut self.confirmation {
            Some(known) => known.needs = known.needs.and(confirmation.needs),
            None => {
                self.confirmation = Some(confirmation.clone());
                self.asks = asks;
            }
        }
    }

    pub(super) fn needs_a_wait(&self) -> bool {
        self.confirmation.is_some()
    }

    /// Leaves the answers in doubt, because their connection is lost.
    pub(super) fn are_lost<T>(&mut self, outcomes: &mut [Response<T>], fault: &Fault) {
        self.confirmation = None;
        for place in std::mem::take(&mut self.places) {
            if let Some(outcome) = outcomes.get_mut(place) {
                outcome.answer = Err(fault.clone());
            }
        }
    }
}

impl<T> Pipeline<'_, T> {
    /// Waits for the replicas over the connection of the answers.
    pub(super) fn confirm(&mut self) {
        let Unconfirmed { confirmation, connection, places, asks } = &mut self.unconfirmed;
        let (Some(confirmation), Some(mut connection)) = (confirmation.take(), connection.take()) else { return };
        match connection.confirm(&confirmation, *asks) {
            Ok(copies) => {
                for place in std::mem::take(places) {
                    if let Some(outcome) = self.outcomes.get_mut(place) {
                        outcome.copies = Some(copies.clone());
                    }
                }
                self.end_with(connection);
            }
            Err(fault) => {
                self.unconfirmed.are_lost(&mut self.outcomes, &fault);
                self.server.put_away(connection, false);
            }
        }
    }
}

/// Waits for the replicas of all servers side by side.
pub(super) fn confirm_all<T: Send>(pipelines: &mut [Pipeline<'_, T>]) {
    let mut waiting: Vec<_> = pipelines.iter_mut().filter(|one| one.unconfirmed.connection.is_some()).collect();
    if let [others @ .., own] = &mut waiting[..] {
        thread::scope(|scope| {
            for pipeline in others {
                // A thread that cannot be started leaves its pipeline for later.
                let _ = thread::Builder::new().name("lockson-dial".into()).spawn_scoped(scope, || pipeline.confirm());
            }
            own.confirm();
        });
    }
    waiting.iter_mut().for_each(|pipeline| pipeline.confirm());
}
