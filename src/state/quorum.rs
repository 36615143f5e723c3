//! What the members of several locks say about the hold of all at one moment.

use std::time::Duration;

use crate::error::Loss;

/// One member at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// Held, for certain for this time.
    Held(Duration),
    Lost(Loss),
    GivenBack,
}

/// Whether so many members as are needed are held.
pub(crate) fn is_held(members: impl Iterator<Item = Member>, needed: usize) -> bool {
    members.filter(|member| matches!(member, Member::Held(_))).count() >= needed
}

/// The time for which so many members as are needed are held for certain.
pub(crate) fn remaining(members: impl Iterator<Item = Member>, needed: usize) -> Duration {
    let time = |member: Member| if let Member::Held(time) = member { time } else { Duration::ZERO };
    let mut times: Vec<Duration> = members.map(time).collect();
    times.sort_unstable_by(|one, other| other.cmp(one));
    needed.checked_sub(1).and_then(|last| times.get(last)).copied().unwrap_or_default()
}

/// The loss after which too few members are left. A member that was given back is no loss. Of losses that are noticed
/// at one moment, the loss of an earlier member counts as the earlier loss.
pub(crate) fn loss(members: impl Iterator<Item = Member>, needed: usize) -> Option<Loss> {
    let loss = |member: Member| if let Member::Lost(loss) = member { Some(loss) } else { None };
    let losses: Vec<Option<Loss>> = members.map(loss).collect();
    let bearable = losses.len().saturating_sub(needed);
    losses.into_iter().flatten().nth(bearable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn live(millis: u64) -> Member {
        Member::Held(Duration::from_millis(millis))
    }

    fn answers(members: &[Member], needed: usize) -> (bool, Duration, Option<Loss>) {
        let members = || members.iter().copied();
        (is_held(members(), needed), remaining(members(), needed), loss(members(), needed))
    }

    #[test]
    fn all_means_the_least_time_and_the_first_loss() {
        let members = [live(30), live(10), live(20)];
        assert_eq!(answers(&members, 3), (true, Duration::from_millis(10), None));
        let members = [live(30), Member::Lost(Loss::Gone), Member::Lost(Loss::Taken)];
        assert_eq!(answers(&members, 3), (false, Duration::ZERO, Some(Loss::Gone)));
    }

    #[test]
    fn most_survives_the_loss_of_a_minority() {
        let members = [live(30), Member::Lost(Loss::Gone), live(10), live(20), Member::Lost(Loss::Taken)];
        assert_eq!(answers(&members, 3), (true, Duration::from_millis(10), None));
        let members =
            [live(30), Member::Lost(Loss::Gone), Member::Lost(Loss::Expired), live(20), Member::Lost(Loss::Taken)];
        assert_eq!(answers(&members, 3), (false, Duration::ZERO, Some(Loss::Taken)));
    }

    #[test]
    fn a_member_given_back_is_no_loss() {
        for needed in [3, 2] {
            assert_eq!(answers(&[Member::GivenBack; 3], needed), (false, Duration::ZERO, None));
        }
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let member = prop_oneof![
            3 => (1_u64..100).prop_map(live),
            1 => Just(Member::Lost(Loss::Gone)),
            1 => Just(Member::GivenBack),
        ];
        proptest::collection::vec(member, 1..8)
    }

    proptest! {
        #[test]
        fn the_answers_agree(members in members(), all: bool) {
            let needed = if all { members.len() } else { members.len() / 2 + 1 };
            let (is_held, remaining, loss) = answers(&members, needed);
            prop_assert_eq!(is_held, remaining > Duration::ZERO);
            prop_assert!(!(is_held && loss.is_some()));
            // So many members hold for that time, and not for longer.
            let holding = |time| members.iter().filter(|member| matches!(member, Member::Held(held) if *held > time)).count();
            prop_assert!(holding(remaining) < needed);
            // A further loss never brings the hold back.
            for index in 0..members.len() {
                let mut fewer = members.clone();
                fewer[index] = Member::Lost(Loss::Taken);
                let (_, less, lost) = answers(&fewer, needed);
                prop_assert!(less <= remaining && (loss.is_none() || lost.is_some()));
            }
        }
    }
}
