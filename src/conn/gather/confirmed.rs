//! The wait for replicas after several requests: one for all answers of a server.

use super::{Pipeline, Request, on_threads};
use crate::transport::Fault;

impl<T> Pipeline<'_, T> {
    /// Notes an answer, the next outcome, that counts only when it is confirmed.
    pub(super) fn wait_to_confirm(&mut self, request: &Request<'_, T>, answer: &T) {
        let Some(one) = request.call.confirmation(answer) else { return };
        self.unconfirmed.push(self.outcomes.len());
        match &mut self.confirmation {
            Some((all, _)) => all.needs = all.needs.and(one.needs),
            None => self.confirmation = Some((one.clone(), request.asking)),
        }
    }

    /// Leaves in doubt the answers that do not count so far, because their connection is lost.
    pub(super) fn unconfirmed_are_lost(&mut self, fault: &Fault) {
        for place in &self.unconfirmed {
            self.outcomes[*place].1.answer = Err(fault.clone());
        }
    }

    /// Waits for the replicas over the connection of the answers.
    pub(super) fn confirm(&mut self) {
        let Some((confirmation, asks)) = self.confirmation.take() else { return };
        let Some(mut connection) = self.connection.take() else { return };
        match connection.confirm(&confirmation, asks) {
            Ok(copies) => {
                for place in &self.unconfirmed {
                    if let Ok((_, reached)) = &mut self.outcomes[*place].1.answer {
                        *reached = Some(copies.clone());
                    }
                }
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
    let mut unconfirmed = pipelines.iter_mut().filter(|pipeline| pipeline.connection.is_some());
    if let Some(own) = unconfirmed.next() {
        on_threads(unconfirmed.collect(), Pipeline::confirm, || own.confirm());
    }
}
