//! Where RESP frames begin and end, in both protocol versions.

/// The bytes are not RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbled;

/// Measures the first frame of a server; `None` means that the frame is incomplete.
///
/// The function counts instead of recursing, so deep nesting cannot overflow the stack.
pub(super) fn reply_length(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
    let mut end = 0;
    let mut missing: usize = 1;
    while missing > 0 {
        missing -= 1;
        // Bytes of TLS may have no end of a line.
        if bytes.get(end).is_some_and(|kind| !KINDS.contains(kind)) {
            return Err(Garbled);
        }
        let Some(line) = line_at(bytes, end) else {
            return Ok(None);
        };
        end += line.len() + 2;
        let kind = line.first().ok_or(Garbled)?;
        let parts = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => continue,
            b'$' | b'!' | b'=' => {
                if let Some(length) = count(&line[1..])? {
                    end = end.checked_add(length + 2).ok_or(Garbled)?;
                }
                continue;
            }
            b'*' | b'~' | b'>' => count(&line[1..])?.unwrap_or(0),
            b'%' => count(&line[1..])?.unwrap_or(0) * 2,
            b'|' => count(&line[1..])?.unwrap_or(0) * 2 + 1, // an attribute precedes the value
            _ => return Err(Garbled),
        };
        missing = missing.checked_add(parts).ok_or(Garbled)?;
    }
    Ok((end <= bytes.len()).then_some(end))
}

/// Measures the first request of a client; a plain line of words is a request too.
pub(super) fn request_length(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
    match bytes.first() {
        None => Ok(None),
        Some(b'*') => reply_length(bytes),
        Some(byte) if byte.is_ascii_alphabetic() || b"\r\n".contains(byte) => {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            Ok(end.map(|end| end + 1))
        }
        Some(_) => Err(Garbled),
    }
}

/// The words of a whole request, or of a message from the server.
///
/// A value that is neither a bulk nor a simple value counts as an empty word.
pub(super) fn words(frame: &[u8]) -> Vec<Vec<u8>> {
    if !matches!(frame.first(), Some(b'*' | b'>')) {
        let words = frame.split(u8::is_ascii_whitespace);
        return words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
    }
    let mut words = Vec::new();
    let mut at = line_at(frame, 0).map_or(frame.len(), |line| line.len() + 2);
    while let Ok(Some(length)) = reply_length(&frame[at..]) {
        words.push(word(&frame[at..at + length]));
        at += length;
        if at == frame.len() {
            break;
        }
    }
    words
}

fn word(frame: &[u8]) -> Vec<u8> {
    let Some(line) = line_at(frame, 0) else {
        return Vec::new();
    };
    match line[0] {
        b'$' | b'=' if frame.len() > line.len() + 2 => frame[line.len() + 2..frame.len() - 2].to_vec(),
        b'+' | b':' => line[1..].to_vec(),
        _ => Vec::new(),
    }
}

fn line_at(bytes: &[u8], start: usize) -> Option<&[u8]> {
    let rest = bytes.get(start..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&rest[..end])
}

/// A length; `None` is the -1 of a null.
fn count(digits: &[u8]) -> Result<Option<usize>, Garbled> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Garbled)?;
    let number: usize = text.parse().map_err(|_| Garbled)?;
    if number > LONGEST {
        return Err(Garbled);
    }
    Ok(Some(number))
}

/// The longest string that a server accepts, 512 MiB, with room to spare.
const LONGEST: usize = 1 << 30;

/// The first bytes of frames.
const KINDS: &[u8] = b"+-:_,#($!=*~>%|";

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [&[u8]; 20] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123\r\n",
        b"$0\r\n\r\n",
        b"$4\r\na\r\nb\r\n",
        b"=5\r\ntxt:a\r\n",
        b"!3\r\nERR\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n:1\r\n",
        b"*2\r\n*1\r\n+a\r\n*2\r\n:1\r\n:2\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n",
        b"~2\r\n+a\r\n+b\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b"|1\r\n+a\r\n:1\r\n*1\r\n+b\r\n",
    ];

    #[test]
    fn a_frame_is_measured_and_any_part_of_it_is_not_whole() {
        for frame in FRAMES {
            let shown = String::from_utf8_lossy(frame);
            assert_eq!(reply_length(frame), Ok(Some(frame.len())), "{shown}");
            for part in 0..frame.len() {
                assert_eq!(reply_length(&frame[..part]), Ok(None), "{part} of {shown}");
            }
            let longer = [frame, b"+next\r\n"].concat();
            assert_eq!(reply_length(&longer), Ok(Some(frame.len())), "{shown}");
        }
    }

    #[test]
    fn garbage_is_told() {
        let garbage: [&[u8]; 6] = [b"x\r\n", b"$x\r\n", b"*-2\r\n", b"$9999999999\r\n", b"\r\n", b"*1\r\nx\r\n"];
        for bytes in garbage {
            assert_eq!(reply_length(bytes), Err(Garbled));
        }
        assert_eq!(request_length(b"\x16\x03\x01"), Err(Garbled));
    }

    #[test]
    fn deep_nesting_is_only_counted() {
        let deep = [b"*1\r\n".repeat(1_000_000), b":1\r\n".to_vec()].concat();
        assert_eq!(reply_length(&deep), Ok(Some(deep.len())));
    }

    #[test]
    fn the_words_of_requests_and_messages_are_found() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"), [&b"GET"[..], b"a\r\n"]);
        assert_eq!(words(b"PING  hello\r\n"), [&b"PING"[..], b"hello"]);
        assert_eq!(words(b">2\r\n+subscribe\r\n:1\r\n"), [&b"subscribe"[..], b"1"]);
        assert_eq!(words(b"*2\r\n$-1\r\n$0\r\n\r\n"), [b"", b""]);
        assert!(words(b"*0\r\n").is_empty() && words(b"\r\n").is_empty());
        assert_eq!(request_length(b"PING\r\nPI"), Ok(Some(6)));
    }
}
