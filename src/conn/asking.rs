//! `ASKING` before requests to a member of a cluster that gets the slot at present.

use redis::{Cmd, Value};

use super::command::command;

/// The command before a request to a server that gets the key at present.
pub(super) fn asking() -> Vec<u8> {
    command(&["ASKING"]).get_packed_command()
}

/// The reply to a request. Where `ASKING` was refused before, the refusal explains more than that of the request. A
/// server that has just become the owner of the slot runs the request all the same.
pub(super) fn with_asked(asked: Option<Value>, reply: Value) -> Value {
    match asked {
        Some(refused @ Value::ServerError(_)) if matches!(reply, Value::ServerError(_)) => refused,
        _ => reply,
    }
}

/// Which commands of several round trips follow an `ASKING`: each of them, but a transaction as a whole.
pub(super) struct Preface {
    asks: bool,
    in_transaction: bool,
}

impl Preface {
    pub(super) fn new(asks: bool) -> Self {
        Self { asks, in_transaction: false }
    }

    /// Whether `ASKING` precedes the next command.
    pub(super) fn precedes(&mut self, command: &Cmd) -> bool {
        let word = match command.args_iter().next() {
            Some(redis::Arg::Simple(word)) => word,
            _ => &[],
        };
        let precedes = self.asks && !self.in_transaction;
        self.in_transaction = match word {
            b"MULTI" => true,
            b"EXEC" | b"DISCARD" => false,
            _ => self.in_transaction,
        };
        precedes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_announced_and_a_transaction_once() {
        let words = ["WATCH", "GET", "MULTI", "DEL", "EXEC", "GET"];
        let announced = |asks| {
            let mut preface = Preface::new(asks);
            words.map(|word| preface.precedes(&command(&[word])))
        };
        assert_eq!(announced(true), [true, true, true, false, false, true]);
        assert_eq!(announced(false), [false; 6]);
    }

    #[test]
    fn a_refused_asking_explains_more_than_the_reply() {
        let [refused, moved] =
            ["NOPERM", "MOVED"].map(|word| redis::parse_redis_value(format!("-{word} 1\r\n").as_bytes()).unwrap());
        assert_eq!(with_asked(Some(refused.clone()), moved), refused);
        assert_eq!(with_asked(Some(refused), Value::Int(1)), Value::Int(1), "the request ran");
        assert_eq!(with_asked(Some(Value::Okay), Value::Int(1)), Value::Int(1));
        assert_eq!(with_asked(None, Value::Int(1)), Value::Int(1));
    }
}
