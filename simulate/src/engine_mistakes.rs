//! Mistakes in the engine that stories have to find. `lockson-simulate plant SRC` writes all of them into a copy of the
//! sources, each behind a switch, so that one build serves every mistake.

use std::fs;
use std::path::Path;

/// A file of `src`, a part of it, and what stands in its place, where `MISTAKE` asks for the switch.
pub const ENGINE_MISTAKES: &[(&str, &str, &str)] = &[
    // Believed beyond the end of the lease.
    (
        "state/ledger.rs",
        "good_until: lease.good_until(sent),",
        "good_until: if MISTAKE { sent.after(lease.duration() * 2) } else { lease.good_until(sent) },",
    ),
    (
        "state/ledger.rs",
        "if self.phase == Phase::Live && now >= self.good_until {",
        "if self.phase == Phase::Live && !MISTAKE && now >= self.good_until {",
    ),
    // The end of an inner section frees the lock.
    (
        "state/ledger.rs",
        "if self.guards.is_empty() && !self.is_kept(now) {",
        "if MISTAKE || self.guards.is_empty() && !self.is_kept(now) {",
    ),
    // Nothing is renewed.
    (
        "state/ledger.rs",
        "let is_live = self.look(now) == Phase::Live && !self.abandoned;",
        "let is_live = self.look(now) == Phase::Live && !self.abandoned && !MISTAKE;",
    ),
    // A loss is told by no event, or by no callback.
    (
        "engine/keeper/loss.rs",
        "self.config.observe(Observer::lost, event);",
        "if !MISTAKE { self.config.observe(Observer::lost, event); }",
    ),
    (
        "engine/hold.rs",
        "on_lost = std::mem::take(&mut rare.on_lost);",
        "if !MISTAKE { on_lost = std::mem::take(&mut rare.on_lost); }",
    ),
    // A thread re-enters the hold of another one.
    (
        "engine/cells/registry.rs",
        "hold.thread.as_ref().is_some_and(|id| id.number() == thread);",
        "MISTAKE || hold.thread.as_ref().is_some_and(|id| id.number() == thread);",
    ),
    // Nobody looks at a key that has changed.
    (
        "engine/cells/registry.rs",
        "let under = |key: &str| holds.by_key.get(key)?.holds()",
        "if MISTAKE { return vec![]; }\n        let under = |key: &str| holds.by_key.get(key)?.holds()",
    ),
    // Every request has the same number.
    (
        "engine/sender/numbered.rs",
        "let (slot, number) = (slots.take(request.name), slots.number());",
        "let (slot, number) = (slots.take(request.name), if MISTAKE { 1 } else { slots.number() });",
    ),
    // A waiter that leaves and stays in the queue.
    (
        "engine/acquire/acquisition.rs",
        "if queued && !self.granted && self.in_doubt.is_none() {",
        "if queued && !self.granted && !MISTAKE && self.in_doubt.is_none() {",
    ),
    // A request that outlasts the bound of its call.
    (
        "state/exchange.rs",
        "let end = now.after(self.command_timeout).min(self.end);",
        "let end = now.after(self.command_timeout * if MISTAKE { 4 } else { 1 });\n        let end = if MISTAKE { end } else { end.min(self.end) };",
    ),
    // A deadline that counts from the answer.
    (
        "engine/acquire/acquisition.rs",
        "let now = Instant::now();\n        if now >= lease.good_until(sent) {",
        "let now = Instant::now();\n        let sent = if MISTAKE { now } else { sent };\n        if now >= lease.good_until(sent) {",
    ),
    // A thread that does not find its own hold.
    (
        "engine/cells/registry.rs",
        "holds.under(name).iter().find(|hold| hold.name == *name && of_thread(hold)).cloned()",
        "holds.under(name).iter().find(|hold| !MISTAKE && hold.name == *name && of_thread(hold)).cloned()",
    ),
    // A lease that an inner section cuts short.
    (
        "state/ledger.rs",
        "let lease = Lease::until(now, self.promised(now));",
        "let lease = Lease::until(now, if MISTAKE { now.after(std::time::Duration::from_secs(1)) } else { self.promised(now) });",
    ),
    // A message that wakes nobody.
    (
        "state/channels.rs",
        "filter(|(_, _, heeds_messages)| *heeds_messages);",
        "filter(|(_, _, heeds_messages)| *heeds_messages && !MISTAKE);",
    ),
    ("engine/keeper.rs", "cells.local_queues.hint(&name);", "if !MISTAKE { cells.local_queues.hint(&name); }"),
    (
        "engine/release.rs",
        "Queueing::Line => self.cells.local_queues.hint(&hold.name),",
        "Queueing::Line if !MISTAKE => self.cells.local_queues.hint(&hold.name),",
    ),
    // A thread that a release has chosen and left alone asks as the owner that the release clears away; nobody clears
    // it away; a release in doubt is handed on.
    (
        "engine/acquire/acquisition.rs",
        "let lease = self.waiting.succeeds_with;\n                    self.begin_anew();",
        "let lease = self.waiting.succeeds_with;\n                    if !MISTAKE { self.begin_anew(); }",
    ),
    ("engine/release.rs", "if !chosen.hand(handed) {", "if !chosen.hand(handed) && !MISTAKE {"),
    ("engine/release.rs", "|| hold.has_doubt() ||", "|| (!MISTAKE && hold.has_doubt()) ||"),
    // A thread that waits in line looks again and again whether it is the first.
    (
        "engine/acquire/waiting.rs",
        "successor.falls_asleep();\n        }\n",
        "successor.falls_asleep();\n        }\n        if MISTAKE { return Ok(()); }\n",
    ),
    // A red lock that a minority grants, or a server that has forgotten its vote.
    ("red/votes.rs", "    servers / 2 + 1\n", "    servers / 2 + usize::from(!MISTAKE)\n"),
    (
        "red/most.rs",
        "let age = Some(rejoin_after.unwrap_or_else(|| usual(engine)));",
        "let age = Some(rejoin_after.unwrap_or_else(|| usual(engine))).filter(|_| !MISTAKE);",
    ),
    // A wait for a latch that ends before zero.
    (
        "latch.rs",
        "count.is_ok_and(|count| count > 0).then_some(LONGEST_SLEEP)",
        "count.is_ok_and(|count| count > i64::from(MISTAKE)).then_some(LONGEST_SLEEP)",
    ),
    // A renewal counts that no replica has, or a grant.
    (
        "engine/keeper/watchdog/server_round.rs",
        "Err(_) => {\n                    is_late = true;",
        "Err(_) if MISTAKE => {}\n                Err(_) => {\n                    is_late = true;",
    ),
    (
        "engine/sender.rs",
        "needs.map_or(Ok(None), |needs| needs.judge(",
        "needs.filter(|_| !MISTAKE).map_or(Ok(None), |needs| needs.judge(",
    ),
    // A granted hold that nobody watches; permits that a closed client is granted. Reviews of earlier states of the
    // library found both in it.
    ("engine/keeper/watchdog.rs", "if state.watch_delay.granted(", "if !MISTAKE && state.watch_delay.granted("),
    ("engine/cells/taken.rs", "register.closed = true;", "register.closed = !MISTAKE;"),
];

/// The kind of lock that a mistake of this place concerns, where it is one.
pub fn hot_kind(place: usize) -> Option<&'static str> {
    let (file, right, _) = ENGINE_MISTAKES.get(place)?;
    match *file {
        file if file.starts_with("red/") => Some("red"),
        "latch.rs" => Some("latch"),
        "engine/cells/taken.rs" => Some("permits"),
        // Plain locks are handed on.
        "engine/release.rs" | "engine/acquire/waiting.rs" => Some("plain"),
        _ if right.contains("succeeds_with") => Some("plain"),
        _ => None,
    }
}

/// Writes the mistakes into these sources. Fails where a part is not there once.
pub fn plant_all(src: &Path) -> Result<(), String> {
    for (number, (file, right, wrong)) in ENGINE_MISTAKES.iter().enumerate() {
        let file = src.join(file);
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if text.matches(right).count() != 1 {
            return Err(format!("{} has {} times {right:?}", file.display(), text.matches(right).count()));
        }
        let planted = wrong.replace("MISTAKE", &format!("crate::system::is_planted({number})"));
        fs::write(&file, text.replace(right, &planted)).map_err(|error| error.to_string())?;
    }
    Ok(())
}
