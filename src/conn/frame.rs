//! Finds the end of a reply, refuses garbled and oversized replies, and parses simple replies.

use std::fmt;

use redis::Value;

/// The limits of one reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    bytes: usize,
    elements: usize,
}

impl Largest {
    pub(super) const REPLY: Self = Self { bytes: 1024 * 1024, elements: 16 * 1024 };
    /// Every slot of a cluster may be a range of its own, with a master and several replicas.
    pub(super) const MAP: Self = Self { bytes: 16 * 1024 * 1024, elements: 1024 * 1024 };
}

impl Default for Largest {
    fn default() -> Self {
        Self::REPLY
    }
}

/// Returns the length of the reply at the start of `bytes`; `None` while the reply is incomplete.
///
/// Only headers are read. The limits are checked before any memory is reserved, so a hostile length costs nothing.
pub(super) fn length(bytes: &[u8], largest: Largest) -> Result<Option<usize>, Garbled> {
    let mut at = 0;
    let mut elements = 0;
    // The number of missing values at each level; the outermost level needs one value.
    let mut missing = vec![1_usize];
    while let Some(level) = missing.last_mut() {
        if *level == 0 {
            missing.pop();
            continue;
        }
        *level -= 1;
        elements += 1;
        if elements > largest.elements {
            return Err(Garbled("too many elements"));
        }
        let Some((header, after)) = line(bytes, at)? else { return Ok(None) };
        at = after;
        let Some((&marker, digits)) = header.split_first() else { return Err(Garbled("an empty line")) };
        match marker {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Some(size) = size(digits, LONGEST_TEXT, marker == b'$')? {
                    at += size + 2;
                }
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let count = size(digits, largest.elements, marker == b'*')?.unwrap_or(0);
                let pairs = if matches!(marker, b'%' | b'|') { 2 } else { 1 };
                // Attributes precede the value to which they belong.
                let extra = usize::from(marker == b'|');
                if missing.len() >= DEEPEST {
                    return Err(Garbled("nested too deeply"));
                }
                missing.push(count * pairs + extra);
            }
            _ => return Err(Garbled("not a reply of redis")),
        }
        if at > largest.bytes {
            return Err(Garbled("too long"));
        }
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// Parses a whole reply that is an integer, a text, or a list of these and of flat lists, as scripts and messages are,
/// also those about changed keys. Returns `None` for other replies: the general parser allocates a buffer of 8 KiB for
/// every reply, which costs more than the rest of a request.
pub(super) fn plain(reply: &[u8]) -> Option<Value> {
    let mut rest = reply;
    let value = nested(&mut rest, DEEPEST_PLAIN)?;
    rest.is_empty().then_some(value)
}

fn nested(rest: &mut &[u8], depth: usize) -> Option<Value> {
    if rest.first() != Some(&b'*') {
        return scalar(rest);
    }
    let depth = depth.checked_sub(1)?;
    let count = usize::try_from(integer(take_line(rest)?)?).ok()?;
    (0..count).map(|_| nested(rest, depth)).collect::<Option<_>>().map(Value::Array)
}

fn scalar(rest: &mut &[u8]) -> Option<Value> {
    let marker = *rest.first()?;
    if !matches!(marker, b':' | b'$') {
        return None;
    }
    let number = integer(take_line(rest)?)?;
    if marker == b':' {
        return Some(Value::Int(number));
    }
    let size = usize::try_from(number).ok()?;
    let text = rest.get(..size)?.to_vec();
    *rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    Some(Value::BulkString(text))
}

/// Takes the next line, without its marker.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|&byte| byte == b'\r')?;
    let line = rest.get(1..end)?;
    *rest = rest.get(end + 2..)?;
    Some(line)
}

fn integer(digits: &[u8]) -> Option<i64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// The reason why a reply was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled(&'static str);

impl Garbled {
    pub(super) fn why(self) -> &'static str {
        self.0
    }

    #[cfg(test)]
    pub(super) fn for_test(why: &'static str) -> Self {
        Self(why)
    }
}

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply is garbled: {}", self.0)
    }
}

impl std::error::Error for Garbled {}

/// Returns the line that starts at `at` and the offset of the next line.
fn line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Garbled> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    match rest.iter().position(|&byte| byte == b'\r') {
        Some(end) if end + 1 < rest.len() => {
            if rest[end + 1] == b'\n' {
                Ok(Some((&rest[..end], at + end + 2)))
            } else {
                Err(Garbled("a line without its end"))
            }
        }
        None if rest.len() > LONGEST_TEXT => Err(Garbled("a line too long")),
        _ => Ok(None),
    }
}

/// Parses a length in a header; `None` for the null that old servers write as -1.
fn size(digits: &[u8], most: usize, may_be_null: bool) -> Result<Option<usize>, Garbled> {
    if may_be_null && digits == b"-1" {
        return Ok(None);
    }
    let text = str::from_utf8(digits).map_err(|_| Garbled("a length that is no number"))?;
    match text.parse::<usize>() {
        Ok(size) if size <= most => Ok(Some(size)),
        Ok(_) => Err(Garbled("a length over the limit")),
        Err(_) => Err(Garbled("a length that is no number")),
    }
}

const LONGEST_TEXT: usize = 64 * 1024;
const DEEPEST: usize = 8;
/// A message about changed keys has a list of them in it.
const DEEPEST_PLAIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn length(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
        super::length(bytes, Largest::REPLY)
    }

    #[test]
    fn every_shape_of_reply_ends_where_it_ends() {
        let check = |reply: &[u8]| {
            assert_eq!(length(reply), Ok(Some(reply.len())), "{reply:?}");
            let followed = [reply, b"+next\r\n"].concat();
            assert_eq!(length(&followed), Ok(Some(reply.len())), "{reply:?} and more");
            for cut in 0..reply.len() {
                assert_eq!(length(&reply[..cut]), Ok(None), "{reply:?} cut at {cut}");
            }
        };
        check(b"+OK\r\n");
        check(b"-ERR no\r\n");
        check(b":-12\r\n");
        check(b"$5\r\na\r\nbc\r\n");
        check(b"$-1\r\n");
        check(b"*-1\r\n");
        check(b"*0\r\n");
        check(b"*3\r\n:1\r\n*2\r\n$1\r\nx\r\n_\r\n+y\r\n");
        check(b"%1\r\n+a\r\n*1\r\n:1\r\n");
        check(b"|1\r\n+ttl\r\n:1\r\n$1\r\nv\r\n");
        check(b">3\r\n+message\r\n$1\r\nc\r\n$1\r\n0\r\n");
        check(b"=5\r\ntxt:a\r\n");
    }

    #[test]
    fn garbage_and_hostile_lengths_are_refused_at_their_header() {
        let check = |reply: &[u8]| assert!(length(reply).is_err(), "{reply:?}");
        check(b"$2147483647\r\n");
        check(b"*2147483647\r\n");
        check(b"%9223372036854775807\r\n");
        check(b"$-2\r\n");
        check(b"!-1\r\n");
        check(b"$abc\r\n");
        check(b"HTTP/1.1 200 OK\r\n");
        check(b"\r\n");
        check(b"+a\rb");
        check(&b"*1\r\n".repeat(9));
        check(&vec![b'+'; LONGEST_TEXT + 2]);
    }

    #[test]
    fn many_long_texts_are_too_long_before_their_end_has_come() {
        let mut reply = b"*17\r\n".to_vec();
        for _ in 0..16 {
            assert_eq!(length(&reply), Ok(None));
            reply.extend(format!("${LONGEST_TEXT}\r\n").bytes());
            reply.resize(reply.len() + LONGEST_TEXT, b'x');
            reply.extend(b"\r\n");
        }
        // The header of the last text alone.
        reply.extend(format!("${LONGEST_TEXT}\r\n").bytes());
        assert_eq!(length(&reply), Err(Garbled("too long")));
    }

    #[test]
    fn plain_replies_read_as_the_general_parser_reads_them() {
        let check = |reply: &[u8], taken: bool| {
            let general = redis::parse_redis_value(reply).unwrap();
            assert_eq!(plain(reply), taken.then_some(general), "{reply:?}");
        };
        check(b":-12\r\n", true);
        check(b"$4\r\na\r\nb\r\n", true);
        check(b"$0\r\n\r\n", true);
        check(b"*0\r\n", true);
        check(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:1\r\n", true);
        check(b"$-1\r\n", false);
        check(b"*-1\r\n", false);
        check(b"+OK\r\n", false);
        check(b"-ERR no\r\n", false);
        check(b"*1\r\n*1\r\n:1\r\n", true);
        check(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", true);
        check(b"*1\r\n*1\r\n*1\r\n:1\r\n", false);
        check(b"*2\r\n*1\r\n$-1\r\n:1\r\n", false);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_past_them(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Ok(Some(end)) = length(&bytes) {
                proptest::prop_assert!(end <= bytes.len());
            }
        }
    }
}
