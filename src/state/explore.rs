//! An exhaustive search through the states of a model, for tests.
#![cfg(test)]

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// A model: states, and the moves that lead from one state to the next.
pub(crate) trait Model: Sized {
    type State: Clone + Hash;
    type Move: Debug;

    fn starts(&self) -> Vec<Self::State>;

    /// Adds each possible move with the state after the move.
    fn moves(&self, state: &Self::State, moves: &mut Vec<(Self::Move, Self::State)>);

    /// Whether the move needs no bad luck, such as a fault or a time-out. Only such moves count as ways to the end.
    fn is_ordinary(&self, made: &Self::Move) -> bool;

    /// Returns what is wrong in this state.
    fn fault(&self, state: &Self::State) -> Option<String>;

    /// Whether this is a proper end. Each state must have a way to such an end.
    fn is_end(&self, state: &Self::State) -> bool;

    /// Fails at a fault in up to `most` states.
    #[track_caller]
    fn is_sound(&self, what: &str, most: usize) -> Extent {
        let began = std::time::Instant::now();
        match explore(self, most) {
            Ok(extent) => {
                println!("{what}: {extent:?} in {:?}", began.elapsed());
                extent
            }
            Err(Finding { fault, way }) => panic!("{what}: {fault}, after {way:#?}"),
        }
    }

    /// Fails unless the search finds this fault.
    #[track_caller]
    fn finds(&self, fault: &str) {
        let finding = explore(self, 1_000_000).expect_err("the mistake is found");
        assert_eq!(finding.fault, fault, "{:#?}", finding.way);
    }
}

/// The extent of a search without a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) states: usize,
    pub(crate) moves: usize,
    /// The number of moves to the farthest state.
    pub(crate) depth: usize,
    /// Whether the search saw all states.
    pub(crate) complete: bool,
}

/// A shortest way to a state that must not be.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) fault: String,
    pub(crate) way: Vec<String>,
}

/// The fault of a state without a way to an end.
pub(crate) const NO_WAY_OUT: &str = "there is no way to an end";

/// Searches all states breadth first, up to `most` states.
///
/// States are known by fingerprints of 64 bits: two of ten million states share one with a probability of one in
/// 300,000, and then a part of the states is not searched.
pub(crate) fn explore<M: Model>(model: &M, most: usize) -> Result<Extent, Finding> {
    let mut search = Search { model, known: HashMap::default(), from: vec![], prints: vec![] };
    let (mut ways, mut ends) = (Ways::default(), vec![]);
    let mut level: Vec<M::State> = vec![];
    for start in model.starts() {
        if search.add(&start, None).1 {
            level.push(start);
        }
    }
    let (mut depth, mut at, mut moves) = (0, 0, vec![]);
    while !level.is_empty() && search.from.len() < most {
        let mut next = vec![];
        for state in &level {
            if let Some(fault) = model.fault(state) {
                return Err(Finding { fault, way: search.way_to(at) });
            }
            ends.push(model.is_end(state));
            model.moves(state, &mut moves);
            for (made, state) in moves.drain(..) {
                let (number, is_new) = search.add(&state, Some(at));
                ways.add(number, model.is_ordinary(&made));
                if is_new {
                    next.push(state);
                }
            }
            ways.finish();
            at += 1;
        }
        depth += usize::from(!next.is_empty());
        level = next;
    }
    // A state that was not searched may have a way to an end.
    let complete = level.is_empty();
    ends.resize(search.from.len(), true);
    if let Some(stuck) = ways.without_end(ends) {
        return Err(Finding { fault: NO_WAY_OUT.to_owned(), way: search.way_to(stuck) });
    }
    Ok(Extent { states: search.from.len(), moves: ways.to.len(), depth, complete })
}

struct Search<'a, M> {
    model: &'a M,
    known: HashMap<u64, u32, BuildHasherDefault<Print>>,
    /// The state from which each state was found first.
    from: Vec<Option<u32>>,
    prints: Vec<u64>,
}

impl<M: Model> Search<'_, M> {
    /// Returns the number of the state, and whether the state is new.
    fn add(&mut self, state: &M::State, from: Option<usize>) -> (usize, bool) {
        let print = print(state);
        let number = self.from.len();
        let known = *self.known.entry(print).or_insert(u32::try_from(number).expect("fewer states"));
        if known as usize != number {
            return (known as usize, false);
        }
        self.from.push(from.map(|from| u32::try_from(from).expect("fewer states")));
        self.prints.push(print);
        (number, true)
    }

    /// Repeats the moves to a state. Only the states in progress are kept in full.
    fn way_to(&self, number: usize) -> Vec<String> {
        let mut numbers = vec![number];
        while let Some(from) = self.from[numbers[numbers.len() - 1]] {
            numbers.push(from as usize);
        }
        let mut prints = numbers.into_iter().rev().map(|number| self.prints[number]);
        let first = prints.next();
        let mut state = self.model.starts().into_iter().find(|start| Some(print(start)) == first).expect("a start");
        let mut way = vec![];
        for next in prints {
            let mut moves = vec![];
            self.model.moves(&state, &mut moves);
            let (made, after) = moves.into_iter().find(|(_, after)| print(after) == next).expect("a known move");
            way.push(format!("{made:?}"));
            state = after;
        }
        way
    }
}

/// The moves of all states, one state after the other.
#[derive(Default)]
struct Ways {
    to: Vec<u32>,
    ordinary: Vec<bool>,
    /// The number of moves after each state.
    until: Vec<usize>,
}

impl Ways {
    fn add(&mut self, to: usize, is_ordinary: bool) {
        self.to.push(u32::try_from(to).expect("fewer states"));
        self.ordinary.push(is_ordinary);
    }

    fn finish(&mut self) {
        self.until.push(self.to.len());
    }

    /// Returns the first state from which no ordinary moves lead to an end.
    fn without_end(&self, mut ends: Vec<bool>) -> Option<usize> {
        loop {
            let mut goes_on = false;
            // Backwards, because most moves lead to a later state.
            for state in (0..self.until.len()).rev().filter(|state| !ends[*state]).collect::<Vec<_>>() {
                let from = state.checked_sub(1).map_or(0, |before| self.until[before]);
                let leads = |way: usize| self.ordinary[way] && ends[self.to[way] as usize];
                if (from..self.until[state]).any(leads) {
                    ends[state] = true;
                    goes_on = true;
                }
            }
            if !goes_on {
                return ends.iter().position(|end| !end);
            }
        }
    }
}

fn print(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct Print(u64);

impl Hasher for Print {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }
}

mod tests {
    use super::*;

    /// A walk over numbers below ten; `stop` has no move, `bad` is a fault.
    struct Walk {
        stop: u8,
        bad: u8,
    }

    impl Model for Walk {
        type State = u8;
        type Move = i8;

        fn starts(&self) -> Vec<u8> {
            vec![0]
        }

        fn moves(&self, state: &u8, moves: &mut Vec<(i8, u8)>) {
            if *state < 9 && *state != self.stop {
                moves.push((1, state + 1));
                moves.push((2, (state + 2).min(9)));
                moves.push((-1, state.saturating_sub(1)));
            }
        }

        fn is_ordinary(&self, made: &i8) -> bool {
            *made == 1
        }

        fn fault(&self, state: &u8) -> Option<String> {
            (*state == self.bad).then(|| "bad".to_owned())
        }

        fn is_end(&self, state: &u8) -> bool {
            *state == 9
        }
    }

    #[test]
    fn a_search_sees_each_state_once() {
        let extent = explore(&Walk { stop: 99, bad: 99 }, 100).unwrap();
        assert_eq!(extent, Extent { states: 10, moves: 27, depth: 5, complete: true });
        let extent = explore(&Walk { stop: 99, bad: 99 }, 4).unwrap();
        assert!(!extent.complete && extent.states >= 4);
    }

    #[test]
    fn a_search_finds_the_shortest_way_to_a_fault() {
        let finding = explore(&Walk { stop: 99, bad: 5 }, 100).unwrap_err();
        assert_eq!((finding.fault.as_str(), finding.way.len()), ("bad", 3));
    }

    #[test]
    fn a_search_finds_states_without_a_way_to_an_end() {
        let finding = explore(&Walk { stop: 4, bad: 99 }, 100).unwrap_err();
        assert_eq!(finding.fault, NO_WAY_OUT);
        assert!(finding.way.is_empty(), "the first move already leads nowhere without luck");
    }
}
