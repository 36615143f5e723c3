//! The reasons for intended differences, in the document's words.

pub(super) const NEVER_SHORTENED: &str =
    "a time to live is raised and never lowered, so an inner call or a renewal cannot cut an earlier promise";
pub(super) const KEPT_LEASE: &str =
    "the remaining holds keep the time to live that they were promised; Redisson sets the last lease of the handle";
pub(super) const LEASE_OF_THE_HANDLE: &str = "a hold without a lease lives for the watchdog's time; Redisson takes the \
                                              last lease of the handle";
pub(super) const LOST_IS_LOST: &str =
    "an outer section that lost the lock must not go on unaware: the inner call fails; Redisson takes the lock again";
pub(super) const CLOSE_GIVES_BACK: &str =
    "closing releases all holds and wakes waiters; Redisson leaves the holds to their time to live";
pub(super) const TOLD_OF_LOSS: &str =
    "the release of a lost hold is an error; Redisson reports success for a fair lock without an owner";
pub(super) const SAYS_NOTHING: &str = "nothing was released, so no message is published";
pub(super) const RELEASE_CHECKED: &str =
    "a release without a hold is an error; Redisson ignores all errors of the release of a red lock";
pub(super) const SILENT_PART: &str = "no value is free after a partial release, so no message is published";
pub(super) const SHORT_PATIENCE: &str = "a waiter asks each second and counts as gone after 5 s (settable) instead of \
                                         5 minutes, so a dead waiter does not block the queue; and a queue without \
                                         live waiters expires by itself";
pub(super) const STABLE_TOKEN: &str = "re-entry keeps the token of the hold; Redisson draws a new token each time";
pub(super) const NOT_ADDED_UP: &str = "re-entry raises the time to live to the lease; Redisson adds both";
pub(super) const ALL_READ_HOLDS: &str =
    "all read holds of one owner live for the owner's longest promise; Redisson lets each hold end by itself";
pub(super) const STEPS_DOWN_ALOUD: &str = "a message wakes the waiting readers; Redisson lets them sleep";
pub(super) const NO_UPGRADE: &str = "a reader that wants to write would wait for itself: an error at once";
pub(super) const KEPT_PERMITS: &str =
    "a permit without a lease is renewed, so that it returns after a crash; that of Redisson never expires";
pub(super) const TELLS_WHAT_IS_FREE: &str =
    "the message is the number of free permits, as after a release; and permits without a lease are renewed";
pub(super) const COUNTS_ONLY: &str = "a question changes nothing: an expired permit counts as free, and the next take \
                                      makes it free; Redisson does so when it counts";
pub(super) const NO_NEGATIVE_NUMBER: &str =
    "nothing is free, so no message is published; Redisson's own listeners fail on a negative number";
