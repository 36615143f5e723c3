//! The words of a request, as the protocol of Redis writes them.

use std::cell::Cell;

use crate::name::Joined;
use crate::owner::OwnerId;

/// Words side by side, each as it is sent, and their number.
pub(super) struct Words {
    /// The words as they are sent.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

thread_local! {
    /// The memory of the last words of this thread, for the next ones.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A text, parts of a text side by side, or a whole number.
pub(crate) trait Word {
    fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R;
}

impl Words {
    /// No words so far, with room for so many bytes.
    pub(super) fn with_room(room: usize) -> Self {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.reserve(room);
        Self { bytes, count: 0 }
    }

    pub(super) fn add(&mut self, word: impl Word) {
        write(&mut self.bytes, word);
        self.count += 1;
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.bytes.capacity() <= MOST_SPARE {
            let mut spare = std::mem::take(&mut self.bytes);
            spare.clear();
            // Without its thread-local data a thread has no next request.
            let _ = SPARE.try_with(|last| last.set(spare));
        }
    }
}

/// A larger request gives its memory back.
const MOST_SPARE: usize = 4096;

/// Writes a line of a marker and a number: `*` stands before so many words, `$` before so many bytes of a word.
#[inline(always)]
pub(super) fn write_line(bytes: &mut Vec<u8>, marker: u8, number: usize) {
    match u8::try_from(number) {
        // Most numbers are small, and arrays of a known length are written at once.
        Ok(number @ 0..10) => bytes.extend_from_slice(&[marker, b'0' + number, b'\r', b'\n']),
        Ok(number @ 10..100) => {
            bytes.extend_from_slice(&[marker, b'0' + number / 10, b'0' + number % 10, b'\r', b'\n']);
        }
        _ => {
            bytes.push(marker);
            bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes one word.
#[inline(always)]
pub(super) fn write(bytes: &mut Vec<u8>, word: impl Word) {
    word.with_parts(|parts| write_parts(bytes, parts));
}

#[inline(always)]
fn write_parts(bytes: &mut Vec<u8>, parts: &[&[u8]]) {
    if let [[byte]] = parts {
        return bytes.extend_from_slice(&[b'$', b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
    }
    write_line(bytes, b'$', parts.iter().map(|part| part.len()).sum());
    parts.iter().filter(|part| !part.is_empty()).for_each(|part| bytes.extend_from_slice(part));
    bytes.extend_from_slice(b"\r\n");
}

impl<T: Word + ?Sized> Word for &T {
    fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R {
        (**self).with_parts(then)
    }
}

impl Word for Joined<'_> {
    fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R {
        then(&self.parts())
    }
}

impl Word for OwnerId {
    fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R {
        self.with_bytes(|text| then(&[text]))
    }
}

macro_rules! word {
    ($($type:ty)*, $word:ident => $bytes:expr) => {
        $(impl Word for $type {
            fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R {
                let $word = self;
                then(&[$bytes])
            }
        })*
    };
}

word!([u8], bytes => bytes);
word!(str String, text => text.as_bytes());
word!(u8 u32 u64 u128 usize i64, number => itoa::Buffer::new().format(*number).as_bytes());

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 9] = [1, 9, 10, 11, 99, 100, 255, 256, 1_000];

    #[test]
    fn words_are_written_as_redis_reads_them() {
        let mut words = Words::with_room(0);
        words.add("EVALSHA");
        let packed = |words: &Words| {
            let mut request = vec![];
            write_line(&mut request, b'*', words.count);
            request.extend_from_slice(&words.bytes);
            request
        };
        words.add(String::new());
        words.add(&b"\r\n\0"[..]);
        for length in LENGTHS {
            words.add("x".repeat(length).as_str());
        }
        words.add(u64::MAX);
        words.add(i64::MIN);
        words.add(0_usize);
        let mut expected = redis::Cmd::new();
        expected
            .arg("EVALSHA")
            .arg("")
            .arg(&b"\r\n\0"[..])
            .arg(LENGTHS.map(|length| "x".repeat(length)).as_slice())
            .arg(u64::MAX)
            .arg(i64::MIN)
            .arg(0);
        assert_eq!(packed(&words), expected.get_packed_command());
        for number in 7..1_100_u64 {
            words.add(number);
            assert_eq!(packed(&words), expected.arg(number).get_packed_command());
        }
    }
}
