//! Checks whether holds still exist in Redis, by plain commands that write nothing.

use redis::{Cmd, Value};

use super::answer::RenewalAnswer;
use super::reply::known;
use super::{Call, command};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;

/// A hold to check.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
}

/// Checks hashes: a hold exists if one of the fields of its owner exists.
pub(crate) fn fields(claims: &[Claim], of_owner: fn(&OwnerId) -> Vec<String>) -> Call<Vec<RenewalAnswer>> {
    let claims: Vec<_> = claims.iter().map(|claim| (claim.name.clone(), of_owner(&claim.owner))).collect();
    Call::with_round_trips(&claims[0].0.clone(), false, move |send, _| {
        // Many locks that come into question together are often gone together: then one request tells all.
        let all = || exist(claims.iter().map(|(name, _)| name));
        if claims.len() >= MANY && known(send(&[all()])?.first())? == &Value::Int(0) {
            return Ok(vec![RenewalAnswer::Lost(Loss::Gone); claims.len()]);
        }
        // The key comes last: whether it is there tells a hold that is gone from one whose lock another owner has.
        let questions = claims.iter().flat_map(|(name, fields)| {
            fields.iter().map(|field| command("HEXISTS", (name.key(), field))).chain([exist([name])])
        });
        let replies = send(&questions.collect::<Vec<_>>())?;
        known(replies.chunks(claims[0].1.len() + 1).map(by_fields).collect())
    })
}

/// The answer to the questions for the fields of a hold and for the key.
fn by_fields(replies: &[Value]) -> Option<RenewalAnswer> {
    let (key, fields) = replies.split_last()?;
    match (fields.iter().find(|reply| **reply != Value::Int(0)), key) {
        (Some(found), _) => RenewalAnswer::read(found),
        (None, Value::Int(there)) => Some(RenewalAnswer::Lost(if *there == 0 { Loss::Gone } else { Loss::Taken })),
        (None, refusal @ Value::ServerError(_)) => RenewalAnswer::read(refusal),
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
    Call::with_round_trips(&claims[0].name.clone(), false, move |send, _| {
        let replies = send(&claims.iter().map(question).collect::<Vec<_>>())?;
        known(claims.iter().zip(&replies).map(|(claim, reply)| answer(claim, reply)).collect())
    })
}

/// Compares the owner with the value that Redis has: a hold exists if both are equal.
pub(crate) fn by_owner(claim: &Claim, reply: &Value) -> Option<RenewalAnswer> {
    match reply {
        Value::BulkString(value) if value == claim.owner.as_str().as_bytes() => Some(RenewalAnswer::Renewed),
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
    use crate::kinds::{Kind, ReadWrite};
    use crate::script::Side;
    use crate::transport::PubSub;

    /// Runs the call against a server with these three replies. Returns the requests and the answers.
    fn look(call: &Call<Vec<RenewalAnswer>>, replies: [&[u8]; 3]) -> (Vec<Vec<String>>, Option<Vec<RenewalAnswer>>) {
        let mut asked = vec![];
        let mut replies = replies.into_iter();
        let outcome = call.round_trips().unwrap().run(
            &mut |commands| {
                let words = |command: &Cmd| {
                    let text = |argument: redis::Arg<&[u8]>| match argument {
                        redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                        _ => panic!("a plain argument"),
                    };
                    command.args_iter().map(text).collect::<Vec<_>>().join(" ")
                };
                asked.push(commands.iter().map(words).collect());
                match redis::parse_redis_value(known(replies.next())?).unwrap() {
                    Value::Array(replies) => Ok(replies),
                    _ => panic!("a list"),
                }
            },
            PubSub::Plain,
        );
        let answers = match outcome {
            Err(Stop::NoReply) => None,
            outcome => Some(outcome.unwrap()),
        };
        (asked, answers)
    }

    fn claims(names: &[&str]) -> Vec<Claim> {
        let claim = |name: &&str| Claim { name: LockName::new(name).unwrap(), owner: OwnerId::encoded("me") };
        names.iter().map(claim).collect()
    }

    /// Asks for values, one for each name.
    fn values(names: &[&str]) -> Call<Vec<RenewalAnswer>> {
        each(&claims(names), |claim| command("GET", claim.name.key()), by_owner)
    }

    #[test]
    fn a_field_is_there_gone_taken_or_refused() {
        let call = fields(&claims(&["a", "b", "c", "d", "e"]), |owner| vec![owner.to_string()]);
        let replies = b"*10\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n-WRONGTYPE no hash\r\n:1\r\n:0\r\n-NOPERM no\r\n";
        let (asked, answers) = look(&call, [replies, b"*0\r\n", b"*0\r\n"]);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0][..4], ["HEXISTS a me", "EXISTS a", "HEXISTS b me", "EXISTS b"]);
        let answers = answers.unwrap();
        let (known, refused) = answers.split_at(4);
        assert_eq!(
            known,
            [
                RenewalAnswer::Renewed,
                RenewalAnswer::Lost(Loss::Gone),
                RenewalAnswer::Lost(Loss::Taken),
                RenewalAnswer::Lost(Loss::Taken),
            ]
        );
        assert!(matches!(&refused[0], RenewalAnswer::Refused(refusal) if refusal.word() == "NOPERM"));
    }

    #[test]
    fn one_field_of_two_is_a_hold() {
        let call = fields(&claims(&["a", "b"]), |owner| vec![owner.to_string(), format!("{owner}:write")]);
        let (asked, answers) = look(&call, [b"*6\r\n:0\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n", b"*0\r\n", b"*0\r\n"]);
        assert_eq!(asked[0][..3], ["HEXISTS a me", "HEXISTS a me:write", "EXISTS a"]);
        assert_eq!(answers.unwrap(), [RenewalAnswer::Renewed, RenewalAnswer::Lost(Loss::Gone)]);
    }

    /// The holder takes the read side, too, and gives the write side back, while the server runs the request.
    #[test]
    fn a_hold_that_changes_its_side_meanwhile_is_still_there() {
        let both_sides = ReadWrite { side: Side::Shared, on_cluster: false };
        let call = both_sides.look(&claims(&["a"]));
        let (before, after) = (["me:write"], ["me"]);
        for changes_after in 0..=2 {
            let mut asked = 0;
            let outcome = call.round_trips().unwrap().run(
                &mut |commands| {
                    let replies = commands.iter().map(|command| {
                        let words: Vec<_> = command
                            .args_iter()
                            .map(|word| match word {
                                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                                _ => String::new(),
                            })
                            .collect();
                        let there = if asked < changes_after { before } else { after };
                        asked += 1;
                        let is_there = words[0] == "EXISTS" || there.contains(&words[2].as_str());
                        Value::Int(is_there.into())
                    });
                    Ok(replies.collect())
                },
                PubSub::Plain,
            );
            assert_eq!(outcome.unwrap(), [RenewalAnswer::Renewed], "after {changes_after} commands");
        }
    }

    #[test]
    fn one_question_finds_many_fields_gone() {
        let names: Vec<_> = (0..MANY).map(|number| format!("n{number}")).collect();
        let claims = claims(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let call = fields(&claims, |owner| vec![owner.to_string()]);
        let all = format!("EXISTS {}", names.join(" "));
        let (asked, answers) = look(&call, [b"*1\r\n:0\r\n", b"*0\r\n", b"*0\r\n"]);
        assert_eq!(asked, [vec![all.clone()]]);
        assert_eq!(answers.unwrap(), vec![RenewalAnswer::Lost(Loss::Gone); MANY]);
        let there = format!("*{}\r\n{}", 2 * MANY, ":1\r\n".repeat(2 * MANY));
        // One that is left, or no right to one of them: each is asked about.
        for first in ["*1\r\n:1\r\n", "*1\r\n-NOPERM no\r\n"] {
            let (asked, answers) = look(&call, [first.as_bytes(), there.as_bytes(), b"*0\r\n"]);
            assert_eq!((asked[0].as_slice(), asked[1].len()), ([all.clone()].as_slice(), 2 * MANY));
            assert_eq!(answers.unwrap(), vec![RenewalAnswer::Renewed; MANY]);
        }
    }

    #[test]
    fn a_value_is_ours_or_not() {
        let (_, answers) =
            look(&values(&["a", "b", "c"]), [b"*3\r\n$2\r\nme\r\n$3\r\nyou\r\n$-1\r\n", b"*0\r\n", b"*0\r\n"]);
        let lost = RenewalAnswer::Lost;
        assert_eq!(answers.unwrap(), [RenewalAnswer::Renewed, lost(Loss::Taken), lost(Loss::Gone)]);
    }

    #[test]
    fn a_look_that_follows_its_key_ends_at_another_server() {
        let by_field = || fields(&claims(&["a"]), |owner| vec![owner.to_string()]);
        let ends = |call: Call<Vec<RenewalAnswer>>, reply: &[u8]| {
            let outcome = call.round_trips().unwrap().run(
                &mut |_| match redis::parse_redis_value(reply).unwrap() {
                    Value::Array(replies) => Ok(replies),
                    _ => panic!("a list"),
                },
                PubSub::Plain,
            );
            match outcome {
                Err(Stop::Refused(refusal)) => Some(refusal.word().to_owned()),
                _ => None,
            }
        };
        for word in ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"] {
            let reply = format!("*2\r\n-{word} 5 127.0.0.1:1\r\n-{word} 5 127.0.0.1:1\r\n");
            for call in [by_field, || values(&["a"])] {
                assert_eq!(ends(call().following_its_key(), reply.as_bytes()).as_deref(), Some(word));
                assert_eq!(ends(call(), reply.as_bytes()), None, "the refusal is the answer for one of several");
            }
        }
        assert_eq!(ends(by_field().following_its_key(), b"*2\r\n-WRONGTYPE no\r\n:1\r\n"), None);
        assert_eq!(ends(by_field().following_its_key(), b"*2\r\n:0\r\n-ASK 5 127.0.0.1:1\r\n").as_deref(), Some("ASK"));
    }

    #[test]
    fn a_reply_of_unknown_shape_is_no_answer() {
        let call = fields(&claims(&["a"]), |owner| vec![owner.to_string()]);
        assert!(look(&call, [b"*2\r\n+what\r\n:1\r\n", b"*0\r\n", b"*0\r\n"]).1.is_none());
        assert!(look(&call, [b"*2\r\n:0\r\n$1\r\nx\r\n", b"*0\r\n", b"*0\r\n"]).1.is_none());
    }
}
