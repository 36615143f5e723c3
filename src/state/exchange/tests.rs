//! Tests of one request until its reply: examples, and random replies against a model of the server.
#![cfg(test)]

use super::*;

const START: Instant = Instant::from_millis(1_000_000);
const TIMEOUT: Duration = Duration::from_millis(3_000);

fn at(millis: u64) -> Instant {
    START.after(Duration::from_millis(millis))
}

fn bounds() -> Bounds {
    Bounds::within(START, TIMEOUT, TIMEOUT)
}

fn begun(bounds: &Bounds) -> Exchange {
    Exchange::new(InDoubt::default(), *bounds, START)
}

fn mute() -> Error {
    Error::new(ErrorKind::Connection, "no answer in time")
}

fn unanswered(id: u64) -> Fault {
    Fault::Unanswered(Some(Box::new(Identity::new(id))), mute())
}

fn refused(word: &str) -> Fault {
    Fault::Refused(Refusal::for_test(word))
}

fn is_send(next: &Next) -> bool {
    matches!(next, Next::Send(_))
}

#[test]
fn pauses_grow_to_their_limit() {
    let mut exchange = begun(&bounds());
    let pauses: Vec<_> = (0..12).map(|_| exchange.next_pause()).collect();
    assert!(pauses[0] >= FIRST_PAUSE / 2 && pauses[0] <= FIRST_PAUSE, "{pauses:?}");
    assert!(pauses[11] >= LONGEST_PAUSE / 2 && pauses[11] <= LONGEST_PAUSE, "{pauses:?}");
}

#[test]
fn an_attempt_gets_a_third_to_a_half_of_the_bound() {
    let bounds = bounds();
    let parts: Vec<_> = (0..200).map(|step| bounds.part(START.after(Duration::from_nanos(step * step)))).collect();
    assert!(parts.iter().all(|part| (TIMEOUT / 3..=TIMEOUT / 2).contains(part)));
    // The values are spread: no tenth of the range contains more than a third.
    for tenth in 0..10 {
        let from = TIMEOUT / 3 + TIMEOUT / 60 * tenth;
        let many = parts.iter().filter(|part| (from..from + TIMEOUT / 60).contains(*part)).count();
        assert!(many < parts.len() / 3, "{many} of {} in one tenth", parts.len());
    }
}

#[test]
fn a_question_is_repeated_without_a_fence() {
    let bounds = Bounds { fences: false, ..bounds() };
    let mut exchange = begun(&bounds);
    exchange.failed(START, at(10), unanswered(7), false);
    assert!(is_send(&exchange.next(at(10))));
}

#[test]
fn a_script_that_was_cut_short_has_perhaps_had_its_effect() {
    let refusal = || Refusal::from_text("ERR Script attempted to access a non local key in a cluster node");
    let mut exchange = begun(&bounds());
    exchange.postponed(at(0), at(1), refusal());
    let Next::Rest(until) = exchange.next(at(1)) else { panic!("the slot is still moving") };
    exchange.rested(until, None);
    assert!(is_send(&exchange.next(until)), "nothing is to be fenced");
    assert!(exchange.is_repeated() && !exchange.is_unfenceable());
    let mut exchange = begun(&Bounds { repeat: false, ..bounds() });
    exchange.postponed(at(0), at(1), refusal());
    assert!(matches!(exchange.next(at(1)), Next::Over), "it is not repeated");
    let failed = exchange.give_up();
    assert!(failed.in_doubt.is_some() && failed.error.is_in_doubt());
}

#[test]
fn fences_without_an_answer_are_sent_at_growing_intervals() {
    let bounds = bounds();
    let mut exchange = begun(&bounds);
    exchange.failed(START, at(10), unanswered(7), false);
    exchange.fenced(at(20), Err(unanswered(8)));
    let Next::Rest(until) = exchange.next(at(20)) else { panic!("no rest") };
    assert!(until >= at(20 + 500), "half of a third of the bound at least: {until:?}");
    exchange.rested(until, None);
    assert!(matches!(exchange.next(until), Next::Fence(identity, _) if identity == Identity::new(7)));
}

#[test]
fn a_caller_that_is_interrupted_does_not_try_again() {
    let closed = Error::new(ErrorKind::Closed, "closed");
    let mut exchange = begun(&bounds());
    exchange.failed(START, at(10), Fault::NotSent(mute()), true);
    assert!(matches!(exchange.next(at(10)), Next::Rest(_)));
    exchange.rested(at(20), Some(closed));
    assert!(matches!(exchange.next(at(20)), Next::Over), "it goes on");
    assert_eq!(exchange.give_up().error.kind(), ErrorKind::Closed);
}

#[test]
fn five_redirections_are_followed_without_a_rest() {
    let mut exchange = begun(&bounds());
    for hop in 1..=5 {
        assert!(is_send(&exchange.next(START)), "hop {hop}");
        exchange.redirected(START, START, Refusal::for_test("MOVED"));
    }
    assert!(is_send(&exchange.next(START)));
    exchange.redirected(START, START, Refusal::for_test("MOVED"));
    let Next::Rest(until) = exchange.next(START) else { panic!("no rest") };
    exchange.rested(until, None);
    exchange.redirected(until, until, Refusal::for_test("MOVED"));
    assert!(is_send(&exchange.next(until)), "the count begins anew");
    assert!(!exchange.is_repeated(), "no copy had an effect");
}

/// The outcome of an attempt, and the used share of its time.
#[derive(Clone, Debug)]
enum Fate {
    Answered,
    Refused(&'static str),
    NotSent,
    Unanswered {
        identified: bool,
    },
    /// Another server runs the request; of a fence: another server stores the key by now.
    Elsewhere,
    /// No server runs the request now.
    Later,
}

fn fates() -> impl proptest::strategy::Strategy<Value = Vec<(Fate, Fate, u32)>> {
    use proptest::prelude::*;
    let fate = || {
        prop_oneof![
            2 => Just(Fate::Answered),
            1 => prop_oneof![Just("OOM"), Just("LOADING"), Just("NOPERM")].prop_map(Fate::Refused),
            2 => Just(Fate::NotSent),
            2 => Just(Fate::Elsewhere),
            1 => Just(Fate::Later),
            5 => prop_oneof![9 => Just(true), 1 => Just(false)].prop_map(|identified| Fate::Unanswered { identified }),
        ]
    };
    proptest::collection::vec((fate(), fate(), 0_u32..=100), 1..40)
}

proptest::proptest! {
    /// For any server: no copy is sent while the server can still run an earlier copy, unless that copy cannot be
    /// fenced; copies in doubt are returned; no call exceeds its bound, or follows many redirections without a rest.
    #[test]
    fn at_most_one_copy_is_ever_on_its_way(fates in fates(), repeat in proptest::bool::weighted(0.8)) {
        let bounds = Bounds { repeat, ..bounds() };
        let mut exchange = begun(&bounds);
        let mut fates = fates.into_iter().cycle();
        let mut now = START;
        // Copies that the server may still run, and copies that cannot be fenced.
        let (mut on_their_way, mut for_ever, mut sent, mut ids, mut hops) = (vec![], 0, 0, 0, 0);
        for _ in 0..1_000 {
            let (of_request, of_fence, share) = fates.next().unwrap();
            match exchange.next(now) {
                Next::Send(limits) => {
                    proptest::prop_assert!(on_their_way.is_empty(), "an earlier copy may still come");
                    proptest::prop_assert_eq!(exchange.is_unfenceable(), for_ever > 0);
                    proptest::prop_assert_eq!(exchange.is_repeated(), sent > 0);
                    proptest::prop_assert!(now < bounds.end, "sent after the end");
                    let begun = now;
                    now = begun.after(limits.of(begun.until(limits.end)) * share / 100);
                    match of_request {
                        Fate::Answered => return Ok(()),
                        Fate::Refused(word) => exchange.failed(begun, now, refused(word), false),
                        Fate::NotSent => exchange.failed(begun, now, Fault::NotSent(mute()), false),
                        Fate::Elsewhere => {
                            hops += 1;
                            proptest::prop_assert!(hops <= MOST_HOPS + 1, "a storm of requests");
                            exchange.redirected(begun, now, Refusal::for_test("MOVED"));
                        }
                        Fate::Later => exchange.postponed(begun, now, Refusal::for_test("TRYAGAIN")),
                        Fate::Unanswered { identified } => {
                            sent += 1;
                            proptest::prop_assert!(repeat || sent == 1, "sent again");
                            ids += 1;
                            if identified { on_their_way.push(ids) } else { for_ever += 1 }
                            let identity = identified.then(|| Identity::new(ids));
                            exchange.failed(begun, now, Fault::Unanswered(identity.map(Box::new), mute()), false);
                        }
                    }
                }
                Next::Fence(identity, limits) => {
                    proptest::prop_assert!(now < bounds.end, "fenced after the end");
                    if matches!(of_fence, Fate::Elsewhere) {
                        proptest::prop_assert_eq!(exchange.left_behind(), Some(identity.clone()));
                        on_their_way.retain(|id| Identity::new(*id) != identity);
                        for_ever += 1;
                        continue;
                    }
                    now = now.after(limits.of(now.until(limits.end)) * share / 100);
                    let outcome = match of_fence {
                        Fate::Answered => Ok(true),
                        Fate::Refused("LOADING") => Err(refused("LOADING")),
                        Fate::Refused(_) => Ok(false),
                        Fate::NotSent => Err(Fault::NotSent(mute())),
                        Fate::Unanswered { .. } | Fate::Elsewhere | Fate::Later => Err(unanswered(0)),
                    };
                    let fenced_at = outcome.is_ok().then_some(now);
                    if let Ok(fenced) = outcome {
                        let before = on_their_way.len();
                        on_their_way.retain(|id| Identity::new(*id) != identity);
                        proptest::prop_assert_eq!(on_their_way.len() + 1, before, "another one was fenced");
                        for_ever += usize::from(!fenced);
                    }
                    exchange.fenced(now, outcome);
                    proptest::prop_assert!(fenced_at.is_none_or(|at| exchange.clear_since == at));
                }
                Next::Rest(until) => {
                    proptest::prop_assert!(until > now && until <= bounds.end);
                    now = until;
                    hops = 0;
                    exchange.rested(now, None);
                }
                Next::Over => {
                    proptest::prop_assert!(now <= bounds.end);
                    let unanswered = sent > 0;
                    let failed = exchange.give_up();
                    proptest::prop_assert_eq!(failed.in_doubt.is_some(), unanswered);
                    proptest::prop_assert_eq!(failed.error.kind() == ErrorKind::Unknown, unanswered);
                    let in_doubt = failed.in_doubt.unwrap_or_default();
                    proptest::prop_assert_eq!(in_doubt.unfenceable, for_ever > 0);
                    proptest::prop_assert_eq!(in_doubt.fenceable.len(), on_their_way.len());
                    return Ok(());
                }
            }
        }
        proptest::prop_assert!(false, "it never ends");
    }
}
