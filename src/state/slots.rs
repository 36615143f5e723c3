//! The idempotency keys of one client: a slot for each request under way, and numbers that only rise.

use std::collections::BTreeSet;

use crate::name::LockName;
use crate::system::HashMap;

/// A slot of a name.
pub(crate) type TakenSlot = (LockName, u32);

/// The slots in use, and the last number.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    last: u64,
    by_name: HashMap<LockName, OfName>,
}

/// The slots of a name: each below `next` is in use, or free.
#[derive(Debug, Default)]
struct OfName {
    next: u32,
    free: BTreeSet<u32>,
}

impl Slots {
    /// Takes the lowest free slot of a name, so that a name has as many slots as requests were ever under way at once.
    pub(crate) fn take(&mut self, name: &LockName) -> TakenSlot {
        let OfName { next, free } = self.by_name.entry(name.clone()).or_default();
        let slot = free.pop_first().unwrap_or(*next);
        *next = (*next).max(slot + 1);
        (name.clone(), slot)
    }

    /// Frees a slot after its request is over.
    pub(crate) fn free(&mut self, (name, slot): &TakenSlot) {
        let Some(slots) = self.by_name.get_mut(name) else { return };
        if u32::try_from(slots.free.len() + 1) == Ok(slots.next) {
            self.by_name.remove(name);
        } else {
            slots.free.insert(*slot);
        }
    }

    /// Returns a number that is greater than all earlier numbers.
    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[test]
    fn a_slot_is_used_by_one_request_at_a_time() {
        let mut slots = Slots::default();
        let (a, b) = (name("a"), name("b"));
        assert_eq!([&a, &a, &b, &a].map(|name| slots.take(name).1), [0, 1, 0, 2]);
        slots.free(&(a.clone(), 1));
        slots.free(&(a.clone(), 0));
        assert_eq!([&a, &a, &a].map(|name| slots.take(name).1), [0, 1, 3]);
    }

    #[test]
    fn numbers_rise_and_nothing_stays() {
        let mut slots = Slots::default();
        let slot = slots.take(&name("a"));
        let numbers = [slots.number(), slots.number(), slots.number()];
        assert!(numbers.is_sorted() && numbers[0] < numbers[1]);
        slots.free(&slot);
        assert!(slots.by_name.is_empty());
    }

    proptest::proptest! {
        /// No two requests under way have one slot, and a slot is never higher than it must be.
        #[test]
        fn slots_under_way_are_different(steps in proptest::collection::vec((0_usize..2, 0_usize..6), 1..60)) {
            let mut slots = Slots::default();
            let mut used: Vec<u32> = vec![];
            for (step, which) in steps {
                if step == 0 || used.is_empty() {
                    let (_, slot) = slots.take(&name("n"));
                    proptest::prop_assert!(!used.contains(&slot));
                    proptest::prop_assert!((0..slot).all(|lower| used.contains(&lower)));
                    used.push(slot);
                } else {
                    slots.free(&(name("n"), used.swap_remove(which % used.len())));
                }
            }
        }
    }
}
