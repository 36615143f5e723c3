//! Reads replies, and refuses garbled and oversized ones.

use std::io;
use std::str::{self, FromStr};

use redis::Value;

/// The limits of one reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    bytes: usize,
    elements: usize,
    text: usize,
}

/// The limits of most replies.
impl Default for Largest {
    fn default() -> Self {
        Self { bytes: 1024 * 1024, elements: 16 * 1024, text: LONGEST_TEXT }
    }
}

impl Largest {
    /// Every slot of a cluster may be a range of its own, with a master and several replicas; one text lists all
    /// connections of a server.
    pub(super) const LONG: Self = Self { bytes: 16 * 1024 * 1024, elements: 1024 * 1024, text: 16 * 1024 * 1024 };
}

/// Reads the reply at the start of `bytes`. Returns the value and its length; `None` while the reply is incomplete.
///
/// The limits are checked before any memory is reserved, so a hostile length costs nothing. Numbers, texts and lists of
/// them, as scripts send them, are read here: the general parser allocates a buffer of 8 KiB for every value, which
/// costs more than the rest of a request.
pub(super) fn read(bytes: &[u8], largest: Largest, spare: &mut Vec<Value>) -> io::Result<Option<(Value, usize)>> {
    if let Some(read) = few_numbers(bytes, spare) {
        return Ok(Some(read));
    }
    let mut reader = Reader { bytes, at: 0, elements: 0, largest };
    match reader.value(DEEPEST) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(error) if error.kind() == INCOMPLETE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a list of few numbers, none below zero, that is here whole, as nearly every script answers; `None` for all
/// else. The list gets the `spare` memory.
fn few_numbers(bytes: &[u8], spare: &mut Vec<Value>) -> Option<(Value, usize)> {
    let [b'*', count @ b'1'..=FEW_AS_DIGIT, b'\r', b'\n', ..] = bytes else { return None };
    spare.clear();
    let mut at = 4;
    for _ in b'0'..*count {
        let [b':', digits @ ..] = &bytes[at..] else { return None };
        let mut value = 0;
        let length = digits.iter().take(LONGEST_NUMBER).take_while(|digit| digit.is_ascii_digit());
        let length = length.inspect(|&&digit| value = 10 * value + i64::from(digit - b'0')).count();
        if length == 0 || !digits[length..].starts_with(b"\r\n") {
            return None;
        }
        spare.push(Value::Int(value));
        at += 1 + length + 2;
    }
    Some((Value::Array(std::mem::take(spare)), at))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: usize,
    largest: Largest,
}

impl<'a> Reader<'a> {
    /// Reads the next value, with at most `depth` lists inside each other.
    fn value(&mut self, depth: usize) -> io::Result<Value> {
        let start = self.at;
        self.elements += 1;
        if self.elements > self.largest.elements {
            return Err(too_large("too many elements"));
        }
        let (marker, digits) = self.line()?;
        match marker {
            b':' => return Ok(Value::Int(number(digits).ok_or_else(|| garbled("a number that is none"))?)),
            b'+' | b'-' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' | b'!' => {
                let Some(size) = size(digits, self.largest.text, marker == b'$')? else { return Ok(Value::Nil) };
                let text = self.text(size)?;
                if marker == b'$' {
                    return Ok(Value::BulkString(text.to_vec()));
                }
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let depth = depth.checked_sub(1).ok_or_else(|| garbled("nested too deeply"))?;
                let Some(count) = size(digits, self.largest.elements, marker == b'*')? else { return Ok(Value::Nil) };
                let pairs = if matches!(marker, b'%' | b'|') { 2 } else { 1 };
                // Attributes precede the value to which they belong.
                let extra = usize::from(marker == b'|');
                let mut values = Vec::with_capacity(count.min(FEW));
                for _ in 0..count * pairs + extra {
                    values.push(self.value(depth)?);
                }
                if marker == b'*' {
                    return Ok(Value::Array(values));
                }
            }
            _ => return Err(garbled("not a reply of redis")),
        }
        let rare = redis::parse_redis_value(&self.bytes[start..self.at]);
        rare.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Takes the next line: its marker, and the rest.
    fn line(&mut self) -> io::Result<(u8, &'a [u8])> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\r') else {
            return Err(if rest.len() > LONGEST_TEXT { garbled("a line too long") } else { INCOMPLETE.into() });
        };
        match rest.get(end + 1) {
            Some(b'\n') => self.pass(end + 2)?,
            Some(_) => return Err(garbled("a line without its end")),
            None => return Err(INCOMPLETE.into()),
        }
        let (marker, digits) = rest[..end].split_first().ok_or_else(|| garbled("an empty line"))?;
        Ok((*marker, digits))
    }

    /// Takes a text of this size, and its end.
    fn text(&mut self, size: usize) -> io::Result<&'a [u8]> {
        let start = self.at;
        self.pass(size + 2)?;
        self.bytes[start..self.at].strip_suffix(b"\r\n").ok_or_else(|| garbled("a text without its end"))
    }

    fn pass(&mut self, size: usize) -> io::Result<()> {
        self.at += size;
        if self.at > self.largest.bytes {
            return Err(too_large("too long"));
        }
        if self.at > self.bytes.len() { Err(INCOMPLETE.into()) } else { Ok(()) }
    }
}

fn number<T: FromStr>(digits: &[u8]) -> Option<T> {
    str::from_utf8(digits).ok()?.parse().ok()
}

fn garbled(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn too_large(why: &str) -> io::Error {
    io::Error::new(TOO_LARGE, why)
}

/// Parses a length in a header; `None` for the null that old servers write as -1.
fn size(digits: &[u8], most: usize, may_be_null: bool) -> io::Result<Option<usize>> {
    if may_be_null && digits == b"-1" {
        return Ok(None);
    }
    match number::<usize>(digits) {
        Some(size) if size <= most => Ok(Some(size)),
        Some(_) => Err(too_large("a length over the limit")),
        None => Err(garbled("a length that is no number")),
    }
}

/// The kind of error of a reply that was refused for its size alone.
pub(super) const TOO_LARGE: io::ErrorKind = io::ErrorKind::FileTooLarge;
/// The kind of error of a reply that may come.
const INCOMPLETE: io::ErrorKind = io::ErrorKind::WouldBlock;
/// Scripts answer with so many elements at most, nearly always.
pub(super) const FEW: usize = 4;
const FEW_AS_DIGIT: u8 = b'4';
/// Numbers with so many digits always fit.
const LONGEST_NUMBER: usize = 18;
const LONGEST_TEXT: usize = 64 * 1024;
const DEEPEST: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
        let read = read(bytes, Largest::default(), &mut vec![]).map_err(|error| error.to_string())?;
        Ok(read.map(|(_, length)| length))
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
        check(b"*2\r\n:1\r\n:123456789012345678\r\n");
        check(b"*2\r\n:1\r\n:-1\r\n");
        check(b"*4\r\n:1\r\n:2\r\n:3\r\n$1\r\nx\r\n");
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
        check(b":\r\n");
        check(b":-\r\n");
        check(b":1x\r\n");
        check(b":9223372036854775808\r\n");
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
        assert_eq!(length(&reply).unwrap_err(), "too long");
    }

    #[test]
    fn replies_read_as_the_general_parser_reads_them() {
        let check = |reply: &[u8]| {
            let general = redis::parse_redis_value(reply).unwrap();
            assert_eq!(
                read(reply, Largest::default(), &mut vec![]).unwrap(),
                Some((general, reply.len())),
                "{reply:?}"
            );
        };
        check(b":-12\r\n");
        check(b":+5\r\n");
        check(b":9223372036854775807\r\n");
        check(b":-9223372036854775808\r\n");
        check(b"$4\r\na\r\nb\r\n");
        check(b"$0\r\n\r\n");
        check(b"*0\r\n");
        check(b"*1\r\n:0\r\n");
        check(b"*2\r\n:1\r\n:30000\r\n");
        check(b"*2\r\n:0\r\n:-1\r\n");
        check(b"*4\r\n:1\r\n:123456789012345678\r\n:1234567890123456789\r\n:9\r\n");
        check(b"*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n");
        check(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:1\r\n");
        check(b"$-1\r\n");
        check(b"*-1\r\n");
        check(b"+OK\r\n");
        check(b"-ERR no\r\n");
        check(b"*1\r\n*1\r\n:1\r\n");
        check(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
        check(b"*1\r\n*1\r\n*1\r\n:1\r\n");
        check(b"*2\r\n*1\r\n$-1\r\n:1\r\n");
        check(b"*3\r\n+OK\r\n-ERR no\r\n%1\r\n+a\r\n_\r\n");
        check(b"~2\r\n#t\r\n,1.5\r\n");
        check(b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
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
