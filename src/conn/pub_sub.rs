//! The kind of pub/sub of a client: chosen once, for all its servers and for its whole life.

use std::sync::OnceLock;

use redis::Value;

use super::connection::Connection;
use crate::error::Stop;
use crate::reply::{ask, command};
use crate::transport::{Fault, Limits, PubSub};

/// The choice between plain and sharded pub/sub, as soon as it is made.
///
/// A client that changed its mind would publish where its own waiters, and those of Redisson, do not listen.
pub(crate) type PubSubChoice = OnceLock<PubSub>;

/// The choice on a cluster: sharded where the first server that answers knows sharded pub/sub, as in Redisson.
/// `is_sharded` replaces the question.
pub(super) fn on_cluster(is_sharded: Option<bool>) -> PubSubChoice {
    is_sharded.map_or_else(OnceLock::new, |sharded| if sharded { PubSub::Sharded } else { PubSub::Plain }.into())
}

/// Returns the choice; asks the server over `connection` if no server has answered before.
pub(super) fn choose(choice: &PubSubChoice, connection: &mut Connection, limits: Limits) -> Result<PubSub, Fault> {
    if let Some(made) = choice.get() {
        return Ok(*made);
    }
    let answer = connection.round_trips(limits, false, |send| match ask(send, command("PUBSUB", "SHARDNUMSUB"))? {
        Value::Array(_) => Ok(()),
        _ => Err(Stop::NoReply),
    });
    let pub_sub = match answer {
        Ok(()) => PubSub::Sharded,
        // Redisson takes a missing right for a missing command, too.
        Err(Fault::Refused(refusal)) if !refusal.is_transient() => PubSub::Plain,
        // The question changes nothing, so a missing answer leaves no doubt.
        Err(Fault::Unanswered(_, error)) => return Err(Fault::NotSent(error)),
        Err(fault) => return Err(fault),
    };
    // Another thread may have been first, with the answer of a server of another version.
    Ok(*choice.get_or_init(|| pub_sub))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::conn::Server;
    use crate::conn::dialer::Dialer;
    use crate::conn::scripted::{Reaction, Scripted};
    use crate::time::Instant;

    /// Dials a server with this reply to the question, for a client that makes this choice. Returns how often it was
    /// asked, and the choice.
    fn dial(reply: Reaction, choice: &Arc<PubSubChoice>) -> (usize, Result<PubSub, Fault>) {
        let scripted = Scripted::start(move |seen| {
            assert_eq!(seen.words, ["PUBSUB", "SHARDNUMSUB"]);
            reply.clone()
        });
        let Server { dialer, .. } = Server::for_test(&scripted.url());
        let dialer = Dialer { pub_sub: Arc::clone(choice), ..dialer };
        let dialled = dialer.dial(Instant::now().after(Duration::from_millis(500)));
        (scripted.seen().len(), dialled.map(|connection| connection.pub_sub))
    }

    #[test]
    fn the_first_server_that_answers_decides_for_good() {
        let check = |reply, expected, other| {
            let choice = Arc::new(PubSubChoice::new());
            let (asked, chosen) = dial(Reaction::Reply(reply), &choice);
            assert_eq!((asked, chosen.unwrap()), (1, expected));
            let (asked, chosen) = dial(Reaction::Reply(other), &choice);
            assert_eq!((asked, chosen.unwrap()), (0, expected), "a server of another version changes nothing");
        };
        let (knows, knows_not) = ("*0\r\n", "-ERR Unknown PUBSUB subcommand or wrong number of arguments\r\n");
        check(knows, PubSub::Sharded, knows_not);
        check(knows_not, PubSub::Plain, knows);
        check("-NOPERM this user has no permissions to run the 'pubsub' command\r\n", PubSub::Plain, knows);
    }

    #[test]
    fn a_server_that_does_not_answer_decides_nothing() {
        let choice = Arc::new(PubSubChoice::new());
        let (_, mute) = dial(Reaction::Mute, &choice);
        assert!(matches!(mute, Err(Fault::NotSent(_))), "the question has no effect: {mute:?}");
        let (_, loading) = dial(Reaction::Reply("-LOADING it loads\r\n"), &choice);
        assert!(matches!(loading, Err(Fault::Refused(_))));
        assert_eq!(choice.get(), None);
    }

    #[test]
    fn a_setting_replaces_the_question() {
        let check = |setting, expected| assert_eq!(on_cluster(setting).get().copied(), expected);
        check(Some(true), Some(PubSub::Sharded));
        check(Some(false), Some(PubSub::Plain));
        check(None, None);
    }
}
