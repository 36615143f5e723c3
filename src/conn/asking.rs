//! `ASKING` before requests to a member of a cluster that gets the slot at present.

use redis::Value;

/// The command before a request to a server that gets the key at present.
pub(super) fn asking() -> Vec<u8> {
    redis::cmd("ASKING").get_packed_command()
}

/// The reply to a request. Where `ASKING` was refused before, the refusal explains more than that of the request. A
/// server that has just become the owner of the slot runs the request all the same.
pub(super) fn with_asked(asked: Option<Value>, reply: Value) -> Value {
    match asked {
        Some(refused @ Value::ServerError(_)) if matches!(reply, Value::ServerError(_)) => refused,
        _ => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
