//! The command of the server that compares a value and deletes the key: `DELEX` or `DELIFEQ`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Value};

use super::Entry;
use crate::error::{Loss, Refusal, Stop};
use crate::script::Pipeline;
use crate::script::reply::{int, known, refused};

/// Whether the server has `DELIFEQ` (Valkey since 9.0); otherwise `DELEX` (Redis since 8.4) is tried first. Clones
/// share what was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompareAndDelete(Arc<AtomicBool>);

impl CompareAndDelete {
    /// Deletes the key if it holds the value of this hold.
    pub(super) fn run(&self, send: &mut Pipeline<'_>, entry: &Entry) -> Result<Result<(), Loss>, Stop> {
        if self.delete(send, entry)? {
            return Ok(Ok(()));
        }
        let exists = known(send(&[entry.command("EXISTS")])?.first().and_then(int))? == 1;
        Ok(Err(if exists { Loss::Taken } else { Loss::Gone }))
    }

    fn delete(&self, send: &mut Pipeline<'_>, entry: &Entry) -> Result<bool, Stop> {
        let found = self.0.load(Ordering::Relaxed);
        // Another server of this client may have the other command.
        for is_delifeq in [found, !found] {
            let outcome = match known(send(&[in_words(is_delifeq, entry)])?.first())? {
                Value::ServerError(error) if is_unknown(error.details()) => continue,
                Value::ServerError(error) if is_no_string(error.details()) => {
                    Err(Stop::Refused(Refusal::from_text("WRONGTYPE the key is no string")))
                }
                Value::ServerError(error) => return Err(refused(error)),
                deleted => Ok(known(int(deleted))? == 1),
            };
            self.0.store(is_delifeq, Ordering::Relaxed);
            return outcome;
        }
        Err(Stop::Unsupported(
            "the server has neither DELEX (Redis 8.4) nor DELIFEQ (Valkey 9); release by script or by transaction",
        ))
    }
}

fn in_words(is_delifeq: bool, entry: &Entry) -> Cmd {
    let mut command = entry.command(if is_delifeq { "DELIFEQ" } else { "DELEX" });
    if !is_delifeq {
        command.arg("IFEQ");
    }
    command.arg(entry.owner.as_str());
    command
}

fn is_unknown(details: Option<&str>) -> bool {
    details.is_some_and(|details| details.starts_with("unknown command"))
}

/// The text with which `DELEX` refuses a key of another type; `DELIFEQ` refuses with `WRONGTYPE`.
fn is_no_string(details: Option<&str>) -> bool {
    details.is_some_and(|details| details.starts_with("Key should be of string type"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;
    use crate::owner::OwnerId;

    /// Releases on a server that has the given command or none. Returns the requests and the outcome.
    fn release(
        own: &CompareAndDelete,
        has: Option<&str>,
        deleted: i64,
        exists: i64,
    ) -> (Vec<String>, Result<Result<(), Loss>, Stop>) {
        let entry = Entry { name: LockName::new("L").unwrap(), owner: OwnerId::encoded("mine") };
        let mut asked = vec![];
        let kept = own.run(
            &mut |commands| {
                let replies = commands.iter().map(|command| {
                    let words: Vec<_> = command.args_iter().map(in_text).collect();
                    asked.push(words.join(" "));
                    match words[0].as_str() {
                        "EXISTS" => Value::Int(exists),
                        word if Some(word) == has => Value::Int(deleted),
                        _ => redis::parse_redis_value(b"-ERR unknown command 'X', with args beginning with: \r\n")
                            .unwrap(),
                    }
                });
                Ok(replies.collect())
            },
            &entry,
        );
        (asked, kept)
    }

    fn in_text(argument: redis::Arg<&[u8]>) -> String {
        match argument {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("a plain argument"),
        }
    }

    #[test]
    fn the_word_of_the_server_is_found_once() {
        let own = CompareAndDelete::default();
        let (asked, kept) = release(&own, Some("DELIFEQ"), 1, 0);
        assert_eq!(asked, ["DELEX L IFEQ mine", "DELIFEQ L mine"]);
        assert!(matches!(kept, Ok(Ok(()))), "{kept:?}");
        assert_eq!(release(&own.clone(), Some("DELIFEQ"), 1, 0).0, ["DELIFEQ L mine"]);
        assert_eq!(release(&own, Some("DELEX"), 1, 0).0, ["DELIFEQ L mine", "DELEX L IFEQ mine"]);
        assert_eq!(release(&own, Some("DELEX"), 1, 0).0, ["DELEX L IFEQ mine"]);
    }

    #[test]
    fn an_undeleted_key_is_gone_or_taken() {
        let check = |exists, loss| {
            let (asked, kept) = release(&CompareAndDelete::default(), Some("DELEX"), 0, exists);
            assert_eq!(asked, ["DELEX L IFEQ mine", "EXISTS L"]);
            assert!(matches!(kept, Ok(Err(lost)) if lost == loss), "{kept:?}");
        };
        check(0, Loss::Gone);
        check(1, Loss::Taken);
    }

    #[test]
    fn a_server_with_neither_word_is_told_apart() {
        let (_, kept) = release(&CompareAndDelete::default(), None, 1, 1);
        assert!(matches!(kept, Err(Stop::Unsupported(_))), "{kept:?}");
    }
}
