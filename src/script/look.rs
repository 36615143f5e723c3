//! Checks whether holds still exist in Redis, by plain commands that write nothing.

use redis::{Cmd, Value};

use super::Call;
use super::answer::RenewalAnswer;
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::reply::{command, known};
use crate::time::Lease;

/// A hold to check.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    /// The time to live that the holder counts on.
    pub(crate) left: Lease,
}

/// Checks hashes: a hold exists if the field of its owner exists.
pub(crate) fn fields(claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
    let claims = claims.to_vec();
    Call::with_round_trips(&claims[0].name.clone(), move |send, _| {
        // Many locks that come into question together are often gone together: then one request tells all.
        let all = || exist(claims.iter().map(|claim| &claim.name));
        if claims.len() >= MANY && known(send(&[all()])?.first())? == &Value::Int(0) {
            return Ok(vec![RenewalAnswer::Lost(Loss::Gone); claims.len()]);
        }
        // The key comes last: its presence tells a hold that is gone from a hold whose lock another owner has.
        let of_field = |Claim { name, owner, .. }: &Claim| command("HEXISTS", (name.key(), owner.to_string()));
        let questions = claims.iter().flat_map(|claim| [of_field(claim), exist([&claim.name])]);
        let replies = send(&questions.collect::<Vec<_>>())?;
        known(replies.chunks(2).map(by_field).collect())
    })
}

/// The answer to the questions for the field of a hold and for the key.
fn by_field(replies: &[Value]) -> Option<RenewalAnswer> {
    match replies {
        [Value::Int(0), Value::Int(there)] => {
            Some(RenewalAnswer::Lost(if *there == 0 { Loss::Gone } else { Loss::Taken }))
        }
        [Value::Int(0), refusal @ Value::ServerError(_)] => RenewalAnswer::read(refusal),
        [Value::Int(0), _] => None,
        [found, _] => RenewalAnswer::read(found),
        _ => None,
    }
}

/// Checks each hold by one question.
pub(crate) fn each(
    claims: &[Claim],
    question: fn(&Claim) -> Cmd,
    answer: fn(&Claim, &Value) -> Option<RenewalAnswer>,
) -> Call<Vec<RenewalAnswer>> {
    let claims = claims.to_vec();
    Call::with_round_trips(&claims[0].name.clone(), move |send, _| {
        let replies = send(&claims.iter().map(question).collect::<Vec<_>>())?;
        known(claims.iter().zip(&replies).map(|(claim, reply)| answer(claim, reply)).collect())
    })
}

/// Compares the owner with the value that Redis has: a hold exists if both are equal.
pub(crate) fn by_owner(claim: &Claim, reply: &Value) -> Option<RenewalAnswer> {
    match reply {
        Value::BulkString(value) if claim.owner.with_bytes(|owner| value == owner) => Some(RenewalAnswer::Renewed),
        Value::BulkString(_) => Some(RenewalAnswer::Lost(Loss::Taken)),
        Value::Nil => Some(RenewalAnswer::Lost(Loss::Gone)),
        other => RenewalAnswer::read(other),
    }
}

/// The request that counts the keys with these names.
fn exist<'a>(names: impl IntoIterator<Item = &'a LockName>) -> Cmd {
    command("EXISTS", names.into_iter().map(LockName::key).collect::<Vec<_>>())
}

/// For fewer locks, one more round trip costs more than it may save.
const MANY: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Stop;
    use crate::transport::PubSub;

    const LOST: fn(Loss) -> RenewalAnswer = RenewalAnswer::Lost;

    /// Runs the call against a server with these replies to each write, apart by `|`. Returns the commands of each
    /// write, and the outcome.
    fn look(
        call: &Call<Vec<RenewalAnswer>>,
        mut replies: impl FnMut(&[String]) -> String,
    ) -> (Vec<Vec<String>>, Result<Vec<RenewalAnswer>, Stop>) {
        let mut asked = vec![];
        let outcome = call.round_trips().unwrap()(
            &mut |commands| {
                let word = |argument: redis::Arg<&[u8]>| match argument {
                    redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    _ => panic!("a plain argument"),
                };
                let words = |command: &Cmd| command.args_iter().map(word).collect::<Vec<_>>().join(" ");
                asked.push(commands.iter().map(words).collect::<Vec<_>>());
                let reply = |reply: &str| redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap();
                Ok(replies(&asked[asked.len() - 1]).split('|').map(reply).collect())
            },
            PubSub::Plain,
        );
        (asked, outcome)
    }

    fn claims(names: &[&str]) -> Vec<Claim> {
        let (owner, left) = (OwnerId::encoded("me"), Lease::new(std::time::Duration::from_secs(1)).unwrap());
        let claim = |name: &&str| Claim { name: LockName::new(name).unwrap(), owner: owner.clone(), left };
        names.iter().map(claim).collect()
    }

    /// Asks for one field of each name.
    fn one_field(names: &[&str]) -> Call<Vec<RenewalAnswer>> {
        fields(&claims(names))
    }

    /// Asks for values, one for each name.
    fn values(names: &[&str]) -> Call<Vec<RenewalAnswer>> {
        each(&claims(names), |claim| command("GET", claim.name.key()), by_owner)
    }

    #[test]
    fn a_field_is_there_gone_taken_or_refused() {
        let replies = ":1|:1|:0|:0|:0|:1|-WRONGTYPE no hash|:1|:0|-NOPERM no";
        let (asked, answers) = look(&one_field(&["a", "b", "c", "d", "e"]), |_| replies.to_owned());
        assert_eq!(
            (asked.len(), &asked[0][..3]),
            (1, &["HEXISTS a me", "EXISTS a", "HEXISTS b me"].map(String::from)[..])
        );
        let answers = answers.unwrap();
        assert_eq!(answers[..4], [RenewalAnswer::Renewed, LOST(Loss::Gone), LOST(Loss::Taken), LOST(Loss::Taken)]);
        assert!(matches!(&answers[4], RenewalAnswer::Refused(refusal) if refusal.word() == "NOPERM"));
    }

    #[test]
    fn one_question_finds_many_fields_gone() {
        let names: Vec<_> = (0..MANY).map(|number| format!("n{number}")).collect();
        let call = one_field(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let all = vec![format!("EXISTS {}", names.join(" "))];
        let (asked, answers) = look(&call, |_| ":0".to_owned());
        assert_eq!((asked, answers.unwrap()), (vec![all.clone()], vec![LOST(Loss::Gone); MANY]));
        // A hold that is left, or no right to a key: each is asked about.
        for first in [":1", "-NOPERM no"] {
            let each = |commands: &[String]| vec![":1"; commands.len()].join("|");
            let reply = |commands: &[String]| if commands.len() == 1 { first.to_owned() } else { each(commands) };
            let (asked, answers) = look(&call, reply);
            assert_eq!((&asked[0], asked[1].len()), (&all, 2 * MANY));
            assert_eq!(answers.unwrap(), vec![RenewalAnswer::Renewed; MANY]);
        }
    }

    #[test]
    fn a_value_is_ours_or_not() {
        let (_, answers) = look(&values(&["a", "b", "c"]), |_| "$2\r\nme|$3\r\nyou|$-1".to_owned());
        assert_eq!(answers.unwrap(), [RenewalAnswer::Renewed, LOST(Loss::Taken), LOST(Loss::Gone)]);
    }

    #[test]
    fn a_look_that_follows_its_key_ends_at_another_server() {
        let ends = |call: Call<Vec<RenewalAnswer>>, replies: &str| match look(&call, |_| replies.to_owned()).1 {
            Err(Stop::Refused(refusal)) => Some(refusal.word().to_owned()),
            _ => None,
        };
        for word in ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"] {
            let reply = format!("-{word} 5 127.0.0.1:1");
            for (call, replies) in [(one_field as fn(&[&str]) -> _, format!("{reply}|{reply}")), (values, reply)] {
                assert_eq!(ends(call(&["a"]).following_its_key(), &replies).as_deref(), Some(word));
                assert_eq!(ends(call(&["a"]), &replies), None, "the refusal is the answer for one of several");
            }
        }
        let follows = |replies| ends(one_field(&["a"]).following_its_key(), replies);
        assert_eq!(follows("-WRONGTYPE no|:1"), None);
        assert_eq!(follows(":0|-ASK 5 127.0.0.1:1").as_deref(), Some("ASK"));
    }

    #[test]
    fn a_reply_of_unknown_shape_is_no_answer() {
        for replies in ["+what|:1", ":0|$1\r\nx"] {
            let (_, answers) = look(&one_field(&["a"]), |_| replies.to_owned());
            assert!(matches!(answers, Err(Stop::NoReply)), "{replies}");
        }
    }
}
