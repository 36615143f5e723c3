//! What a story is about: the kinds of lock that its threads take.

use lockson_world::World;

use crate::trouble::Faults;

/// A kind of lock that threads of a story take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Spin,
    Token,
    Election,
    Fair,
    Shared,
    Fenced,
    Permits,
    Expiring,
    Multi,
    Group,
    Latch,
    Red,
}

/// All kinds, by the names that `WITHOUT` knows.
pub const KINDS: &[(&str, Kind)] = &[
    ("plain", Kind::Plain),
    ("spin", Kind::Spin),
    ("token", Kind::Token),
    ("election", Kind::Election),
    ("fair", Kind::Fair),
    ("shared", Kind::Shared),
    ("fenced", Kind::Fenced),
    ("permits", Kind::Permits),
    ("expiring", Kind::Expiring),
    ("multi", Kind::Multi),
    ("group", Kind::Group),
    ("latch", Kind::Latch),
    ("red", Kind::Red),
];

/// Draws the kinds of each phase of a story: in most phases a few, so that these are hot (swarm testing, Groce and
/// others 2012), else all. Leaves out those of these names.
pub fn draw(world: &World, faults: Faults, has_red: bool, without: &[String]) -> Vec<Vec<Kind>> {
    let is_possible = |kind: Kind| match kind {
        // Without its counter there is no semaphore. Neither it nor a latch waits for replicas.
        Kind::Permits => !faults.lose_everything() && faults.lags == 0,
        Kind::Expiring => !faults.lose_everything(),
        Kind::Latch => faults.lags == 0,
        Kind::Red => has_red,
        _ => true,
    };
    let all: Vec<(&str, Kind)> = KINDS.iter().copied().filter(|(_, kind)| is_possible(*kind)).collect();
    let any = |_| all[usize::try_from(world.below(all.len() as u64)).unwrap_or(0)];
    let phase = |_| {
        let drawn = if world.below(4) == 0 { all.clone() } else { (0..1 + world.below(3)).map(any).collect() };
        let kept = drawn.iter().filter(|(name, _)| !without.iter().any(|other| other == name));
        kept.map(|(_, kind)| *kind).collect()
    };
    (0..PHASES).map(phase).collect()
}

/// Returns the kinds of the phase in which so many locks were taken.
pub fn hot(phases: &[Vec<Kind>], taken: u64) -> &[Kind] {
    let filled: Vec<&Vec<Kind>> = phases.iter().filter(|phase| !phase.is_empty()).collect();
    let phase = (taken / OF_A_PHASE) % filled.len().max(1) as u64;
    filled.get(usize::try_from(phase).unwrap_or(0)).map_or(&[], |phase| phase)
}

/// After so many phases they come again.
const PHASES: u64 = 10;
/// So many locks are taken in one.
const OF_A_PHASE: u64 = 40;
