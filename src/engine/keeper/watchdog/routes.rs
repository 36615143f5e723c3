//! Holds whose slot moves to another server: finds the server to ask, and hands the holds to its watchdog.

use std::sync::Arc;
use std::time::Duration;

use crate::conn::{Redirect, Route, Server};
use crate::engine::hold::HoldState;
use crate::engine::keeper::Keeper;
use crate::engine::keeper::watchdog::renewer::Detour;
use crate::error::{Refusal, Result};
use crate::script::look::Claim;
use crate::script::{Renewal, RenewalAnswer};
use crate::state::exchange::Bounds;
use crate::time::Instant;
use crate::transport::Confirmation;

impl Keeper {
    /// Learns from the refusal of a renewal or a check.
    pub(super) fn detour(&self, server: &Server, refusal: &Refusal) -> Detour {
        match self.sender.topology.redirect(server.number(), refusal) {
            Redirect::AsItSays => Detour::None,
            // No server has the slot, so no other way leads to an answer.
            Redirect::Later if refusal.word() == "CLUSTERDOWN" => Detour::None,
            Redirect::Elsewhere(Route { asking: false, .. }) => Detour::Moved,
            Redirect::Elsewhere(_) | Redirect::Later => Detour::ByKey,
        }
    }

    /// Renews a hold, or checks it without a renewal, over the way that its key has at present. A late renewal finds
    /// its owner or changes nothing, so it needs no fence.
    pub(super) fn ask_about_one(
        &self,
        hold: &HoldState,
        renewal: Option<Renewal>,
        claim: Claim,
        limit: Duration,
    ) -> Result<Vec<RenewalAnswer>> {
        let now = Instant::now();
        // A slot that moves may take longer than the watchdog can wait: the next round tries again.
        let bounds = Bounds { retry_until: now, repeat: false, fences: false, ..Bounds::within(now, limit, limit) };
        let Some(renewal) = renewal else {
            let look = hold.kind.look(&[claim]).following_its_key();
            let answer = self.sender.send(&look, bounds, None);
            return answer.map(|answer| answer.value).map_err(|failed| failed.error);
        };
        let confirmation = hold.confirmation(None);
        let is_renewed = |answers: &Vec<RenewalAnswer>| matches!(answers.first(), Some(RenewalAnswer::Renewed));
        let call = hold.kind.renew(&[renewal]).confirmed(confirmation.clone(), is_renewed);
        let answer = self.sender.send(&call, bounds, None).map_err(|failed| failed.error)?;
        if let Some(Confirmation { needs, .. }) = confirmation.filter(|_| is_renewed(&answer.value)) {
            let server = self.sender.server(&hold.name).label();
            let missing = needs.judge(answer.copies.as_ref(), &server, "its renewal does not count")?;
            self.sender.tell_missing(&hold.name, missing);
        }
        Ok(answer.value)
    }

    /// Has the watchdog of the hold's server renew the hold at once. Returns whether that watchdog runs.
    pub(super) fn watch_over(&self, hold: &Arc<HoldState>) -> bool {
        let server = self.sender.server(&hold.name);
        let watchdog = self.watchdog(&server);
        watchdog.put(|events| events.moved.push(Arc::downgrade(hold)));
        watchdog.granted(hold) || watchdog.start(self, &server)
    }
}
