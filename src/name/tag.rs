//! The part of a key that decides the slot of the key in a cluster.

/// Returns the bytes that Redis hashes: those between the first `{` and the next `}` if there are any, else all.
pub(crate) fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let tag = &key[open + 1..];
    match tag.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &tag[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_between_the_first_braces() {
        let check = |key: &str, part: &str| assert_eq!(hashed_part(key.as_bytes()), part.as_bytes(), "{key}");
        check("a", "a");
        check("{a}", "a");
        check("x{a}y{b}", "a");
        check("x}{a}", "a");
        check("{{a}}", "{a");
        check("a{b", "a{b");
        check("{}a", "{}a");
        check("{}{a}", "{}{a}");
        check("a}b", "a}b");
    }
}
