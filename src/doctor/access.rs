//! Findings about what the user may do, what stands between, and the own locks.

use super::Severity::{Danger, Note, Warning};
use super::{Finding, FindingKind};
use crate::error::Refusal;
use crate::script::examination::rights::{OF_KINDS, in_lists};
use crate::script::examination::{Examination, Reported, SETTINGS};

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let mut findings = vec![];
    findings.extend(proxy(examination));
    findings.extend(fencing(&examination.fence));
    findings.extend(tracking(&examination.tracking));
    findings.extend(examination.missing.as_ref().ok().and_then(|missing| rights(missing)));
    findings.extend(examination.endless.iter().flatten().map(|name| endless(name)));
    findings.extend(not_asked(examination));
    findings
}

fn proxy(examination: &Examination) -> Option<Finding> {
    let ids: Vec<i64> = examination.ids.iter().flatten().copied().chain(id_in_hello(examination)).collect();
    if ids.windows(2).any(|pair| pair[0] != pair[1]) {
        return Some(Finding::new(
            Danger,
            FindingKind::Proxy,
            format!("one connection has several ids: {ids:?}"),
            "a proxy shares connections between clients: fences end requests of others, and waiters are not woken",
            "connect to the server itself, or through a proxy that carries whole connections",
        ));
    }
    let refusal = examination.hello.as_ref().err()?;
    Some(Finding::new(
        Warning,
        FindingKind::Proxy,
        format!("HELLO is refused with {}", refusal.word()),
        "a proxy, or a renamed command: the client cannot see that a server has become a replica until a write fails",
        "connect to the server itself, or let HELLO pass",
    ))
}

fn id_in_hello(examination: &Examination) -> Option<i64> {
    examination.hello.as_ref().ok().copied().flatten()
}

fn fencing(fence: &Reported<i64>) -> Option<Finding> {
    let what = match fence {
        Ok(0) => return None,
        Ok(killed) => format!("CLIENT KILL of the own connection, which was to be spared, killed {killed}"),
        Err(refusal) => format!("CLIENT KILL is refused with {}", refusal.word()),
    };
    Some(Finding::new(
        Warning,
        FindingKind::Fencing,
        what,
        "a request whose answer was lost cannot be fenced: a late original may leave a lock without a holder for half \
         a second",
        "give the user +client|kill; some providers have no such command",
    ))
}

fn tracking(tracking: &Reported<()>) -> Option<Finding> {
    let refusal = tracking.as_ref().err()?;
    Some(Finding::new(
        Warning,
        FindingKind::Tracking,
        format!("CLIENT TRACKING is refused with {}", refusal.word()),
        "a lock that was deleted, flushed or taken is told to its holder at the next renewal, not at once",
        "give the user +client|tracking and &__redis__:invalidate",
    ))
}

/// One finding for all kinds: nobody needs all of them.
fn rights(missing: &[&str]) -> Option<Finding> {
    let lacks = |lists: &[&'static str]| {
        in_lists(lists).filter(|word| missing.contains(word)).map(|word| format!("+{word}")).collect::<Vec<_>>()
    };
    let kinds = OF_KINDS.iter().map(|(kind, lists)| (*kind, lacks(lists))).filter(|(_, lacks)| !lacks.is_empty());
    let kinds: Vec<(&str, Vec<String>)> = kinds.collect();
    if kinds.is_empty() {
        return None;
    }
    let list = kinds.iter().map(|(kind, lacks)| format!("{kind} ({})", lacks.join(" "))).collect::<Vec<_>>();
    let is_none_left = kinds.len() == OF_KINDS.len();
    Some(Finding::new(
        if is_none_left { Danger } else { Note },
        FindingKind::Rights,
        format!("the user lacks rights for: {}", list.join(", ")),
        "an operation on such a lock fails with NOPERM, or comes late",
        "give the user of these kinds the lines of docs/operations.md",
    ))
}

fn endless(name: &str) -> Finding {
    Finding::new(
        Danger,
        FindingKind::TimeToLive,
        format!("the lock {name:?}, which this client holds, has no time to live"),
        "it stays locked for ever if this process dies",
        "find out who ran PERSIST or wrote the key; releasing the lock mends it",
    )
}

fn not_asked(examination: &Examination) -> Vec<Finding> {
    let Examination { info, settings, clock, missing, endless, ids: [first, second], .. } = examination;
    let of_settings = format!("the settings {}", SETTINGS.join(", "));
    let questions = [
        ("version, memory, persistence, replicas and connections", info.as_ref().err(), "+info"),
        (&of_settings, settings.as_ref().err(), "+config|get"),
        ("the clock", clock.as_ref().err(), "+time"),
        ("the rights of the user for each kind of lock", missing.as_ref().err(), "+multi +discard"),
        ("the time to live of the own locks", endless.as_ref().err(), "+pttl"),
        ("whether a proxy shares connections", first.as_ref().err().or(second.as_ref().err()), "+client|id"),
    ];
    let about = |(question, refusal, right): (&str, Option<&Refusal>, &str)| {
        Some(Finding::new(
            Note,
            FindingKind::NotAsked,
            format!("{question} could not be asked: {}", refusal?.word()),
            "what it would show is not among these findings",
            &format!("let a user with {right} ask, or look at the console of the provider"),
        ))
    };
    questions.into_iter().filter_map(about).collect()
}
