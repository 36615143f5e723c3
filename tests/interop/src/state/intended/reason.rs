//! The reasons for intended differences, in the document's words.

pub(super) const NEVER_SHORTENED: &str = "a time to live is raised and never lowered, so an inner call or a renewal \
                                          cannot cut what was promised before";
pub(super) const KEPT_LEASE: &str = "what remains lives for what the remaining holds were promised; Redisson sets the \
                                     last lease of the handle";
pub(super) const LEASE_OF_THE_HANDLE: &str = "a hold without a lease lives for the watchdog's time; Redisson takes the \
                                              last lease of the handle";
pub(super) const LOST_IS_LOST: &str = "an outer section that lost the lock must not run on as if nothing had happened: \
                                       the inner call fails; Redisson takes the lock anew";
pub(super) const CLOSE_GIVES_BACK: &str = "closing gives back what is held and wakes waiters; Redisson leaves it to its \
                                           time to live";
pub(super) const TOLD_OF_LOSS: &str = "who gives back what was lost is told so; Redisson reports success for a fair \
                                       lock that nobody holds";
pub(super) const SAYS_NOTHING: &str = "nothing was released, so nothing is announced";
pub(super) const SHORT_PATIENCE: &str = "a waiter asks each second and counts as gone after 5 s (settable) instead of \
                                         5 minutes, so a dead one does not block the queue; and a queue that all have \
                                         left disappears by itself";
pub(super) const STABLE_TOKEN: &str = "re-entry keeps the token of the hold; Redisson draws a new one each time";
pub(super) const NOT_ADDED_UP: &str = "re-entry raises the time to live to the lease; Redisson adds the two up";
pub(super) const ALL_READ_HOLDS: &str = "all read holds of one owner live for the longest promise it has; Redisson \
                                         lets each end by itself";
pub(super) const STEPS_DOWN_ALOUD: &str = "readers that wait are told that they may come in; Redisson lets them sleep";
pub(super) const NO_UPGRADE: &str = "a reader that wants to write would wait for itself: that is an error at once";
