//! How many members a hold of several locks needs, and what the members say about the hold at one moment.

use std::time::Duration;

use crate::error::Loss;

/// The members that must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    All,
    /// So many members.
    Most(usize),
}

/// One member at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Whether the member is held: neither lost nor given back.
    pub(crate) is_live: bool,
    /// The time for which the member is held for certain.
    pub(crate) remaining: Duration,
    pub(crate) loss: Option<Loss>,
}

impl Rule {
    /// More than half of the members, so that two owners cannot both have them.
    pub(crate) fn majority(members: usize) -> Self {
        Self::Most(members / 2 + 1)
    }

    /// Returns the number of members that must be held.
    pub(crate) fn needs(self, members: usize) -> usize {
        match self {
            Self::All => members,
            Self::Most(most) => most,
        }
    }

    pub(crate) fn is_held(self, members: &[Member]) -> bool {
        let live = members.iter().filter(|member| member.is_live).count();
        !members.is_empty() && live >= self.needs(members.len())
    }

    /// Returns the time for which enough members are held for certain.
    pub(crate) fn remaining(self, members: &[Member]) -> Duration {
        let time = |member: &Member| if member.is_live { member.remaining } else { Duration::ZERO };
        let mut times: Vec<Duration> = members.iter().map(time).collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        let last = self.needs(members.len()).checked_sub(1);
        last.and_then(|last| times.get(last)).copied().unwrap_or_default()
    }

    /// Returns the loss after which too few members are left. A member that was given back is no loss. Of losses that
    /// are noticed at one moment, those of earlier members count as the earlier ones.
    pub(crate) fn loss(self, members: &[Member]) -> Option<Loss> {
        let bearable = members.len().saturating_sub(self.needs(members.len()));
        members.iter().filter_map(|member| member.loss).nth(bearable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn live(millis: u64) -> Member {
        Member { is_live: true, remaining: Duration::from_millis(millis), loss: None }
    }

    fn lost(loss: Loss) -> Member {
        Member { is_live: false, remaining: Duration::ZERO, loss: Some(loss) }
    }

    const GIVEN_BACK: Member = Member { is_live: false, remaining: Duration::ZERO, loss: None };

    #[test]
    fn a_majority_is_more_than_half() {
        let needs = |members| Rule::majority(members).needs(members);
        assert_eq!([1, 2, 3, 4, 5, 6].map(needs), [1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn all_means_the_least_time_and_the_first_loss() {
        let members = [live(30), live(10), live(20)];
        assert!(Rule::All.is_held(&members));
        assert_eq!((Rule::All.remaining(&members), Rule::All.loss(&members)), (Duration::from_millis(10), None));
        let members = [live(30), lost(Loss::Gone), lost(Loss::Taken)];
        assert!(!Rule::All.is_held(&members));
        assert_eq!((Rule::All.remaining(&members), Rule::All.loss(&members)), (Duration::ZERO, Some(Loss::Gone)));
    }

    #[test]
    fn most_survives_the_loss_of_a_minority() {
        let most = Rule::majority(5);
        let members = [live(30), lost(Loss::Gone), live(10), live(20), lost(Loss::Taken)];
        assert!(most.is_held(&members));
        assert_eq!((most.remaining(&members), most.loss(&members)), (Duration::from_millis(10), None));
        let members = [live(30), lost(Loss::Gone), lost(Loss::Expired), live(20), lost(Loss::Taken)];
        assert!(!most.is_held(&members));
        assert_eq!((most.remaining(&members), most.loss(&members)), (Duration::ZERO, Some(Loss::Taken)));
    }

    #[test]
    fn a_member_given_back_is_no_loss() {
        let members = [GIVEN_BACK, GIVEN_BACK, GIVEN_BACK];
        for rule in [Rule::All, Rule::majority(3)] {
            assert!(!rule.is_held(&members));
            assert_eq!((rule.remaining(&members), rule.loss(&members)), (Duration::ZERO, None));
        }
    }

    #[test]
    fn nothing_is_not_held() {
        for rule in [Rule::All, Rule::majority(0)] {
            assert!(!rule.is_held(&[]));
            assert_eq!((rule.remaining(&[]), rule.loss(&[])), (Duration::ZERO, None));
        }
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let member = prop_oneof![
            3 => (1_u64..100).prop_map(live),
            1 => Just(lost(Loss::Gone)),
            1 => Just(GIVEN_BACK),
        ];
        proptest::collection::vec(member, 1..8)
    }

    proptest! {
        #[test]
        fn the_answers_agree(members in members(), all: bool) {
            let rule = if all { Rule::All } else { Rule::majority(members.len()) };
            let remaining = rule.remaining(&members);
            prop_assert_eq!(rule.is_held(&members), remaining > Duration::ZERO);
            prop_assert!(!(rule.is_held(&members) && rule.loss(&members).is_some()));
            // So many members hold for that time, and not for longer.
            let holding = |time| members.iter().filter(|member| member.is_live && member.remaining > time).count();
            prop_assert!(holding(remaining) < rule.needs(members.len()));
            // A further loss never brings the hold back.
            for index in 0..members.len() {
                let mut fewer = members.clone();
                fewer[index] = lost(Loss::Taken);
                prop_assert!(rule.remaining(&fewer) <= remaining);
                prop_assert!(rule.loss(&members).is_none() || rule.loss(&fewer).is_some());
            }
        }
    }
}
