//! Every holder that loses a lock learns of the loss in time, in every one of a thousand trials.

use crate::campaign::Campaign;
use crate::faults::loss::{FAULTS, Trials, told_in_time};
use crate::support::prelude::*;

#[test]
#[ignore = "make soak"]
fn loss_is_told_before_the_server_forgets() {
    let mut campaign = Campaign::start("losses to each of five faults, told before the server's expiry", 1_000, 28);
    const LOCKS: usize = 50;
    let excused = AtomicUsize::new(0);
    while campaign.goes_on() {
        let mut random = campaign.random();
        thread::scope(|scope| {
            let excused = &excused;
            for (name, fault, server_answers) in FAULTS {
                let before = ms(random.below(600));
                let trials = Trials { locks: LOCKS, leased: false, lease: ms(3_000), tick: ms(300), before };
                let thread = thread::Builder::new().name(name.to_owned());
                let run = move || excused.fetch_add(told_in_time(fault, server_answers, &trials), Ordering::Relaxed);
                thread.spawn_scoped(scope, run).unwrap();
            }
        });
        campaign.passed(LOCKS as u64);
    }
    campaign.end(format!(
        "every one told in time, by callback and by wait, but for {excused:?} of all five faults \
         in which this machine stood still for longer than the margin"
    ));
}
