//! The wait for replicas after several requests: one for all answers of a server.

use super::Pipeline;
use crate::system::thread;
use crate::transport::{Confirmation, Fault};

impl<T> Pipeline<'_, T> {
    /// The places of the answers that do not count so far, and the step that confirms all of them, after an `ASKING`
    /// or not.
    pub(super) fn to_confirm(&self) -> (Vec<usize>, Option<(Confirmation, bool)>) {
        let (mut places, mut all) = (vec![], None::<(Confirmation, bool)>);
        for (place, ((_, request), outcome)) in self.requests.iter().zip(&self.outcomes).enumerate() {
            let answer = outcome.answer.as_ref().ok();
            let Some(one) = answer.and_then(|answer| request.call.confirmation(answer)) else { continue };
            places.push(place);
            match &mut all {
                Some((known, _)) => known.needs = known.needs.and(one.needs),
                None => all = Some((one.clone(), request.asking)),
            }
        }
        (places, all)
    }

    /// Leaves in doubt the answers that do not count so far, because their connection is lost.
    pub(super) fn unconfirmed_are_lost(&mut self, fault: &Fault) {
        for place in self.to_confirm().0 {
            self.outcomes[place].answer = Err(fault.clone());
        }
    }

    /// Waits for the replicas over the connection of the answers.
    pub(super) fn confirm(&mut self) {
        let Some(mut connection) = self.unconfirmed.take() else { return };
        let (places, Some((confirmation, asks))) = self.to_confirm() else { return };
        match connection.confirm(&confirmation, asks) {
            Ok(copies) => {
                places.into_iter().for_each(|place| self.outcomes[place].copies = Some(copies.clone()));
                self.put_away(connection);
            }
            Err(fault) => {
                self.unconfirmed_are_lost(&fault);
                self.server.put_away(connection, false);
            }
        }
    }
}

/// Waits for the replicas of all servers side by side.
pub(super) fn confirm_all<T: Send>(pipelines: &mut [Pipeline<'_, T>]) {
    let mut waiting: Vec<_> = pipelines.iter_mut().filter(|one| one.unconfirmed.is_some()).collect();
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
