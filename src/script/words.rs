//! The words of a request, as the protocol of Redis writes them.

use std::cell::Cell;
use std::ops::Range;

use crate::name::Joined;

/// A request that grows by words. The number of the words stands before them, and is written into the end of the room
/// for it.
pub(super) struct Words {
    bytes: Vec<u8>,
    start: usize,
}

thread_local! {
    /// The memory of the last request of this thread, for the next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A text, parts of a text side by side, or a whole number.
pub(crate) trait Word {
    fn with_parts<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> R;
}

impl Words {
    pub(super) fn of(words: &[&str]) -> Self {
        let mut bytes = vec![b'0'; ROOM];
        let start = LAST_DIGIT - 1;
        (bytes[start], bytes[ROOM - 2], bytes[ROOM - 1]) = (b'*', b'\r', b'\n');
        let mut request = Self { bytes, start };
        words.iter().for_each(|word| request.add(*word));
        request
    }

    /// A request that begins with the words of another one, and has room for `more` bytes.
    pub(super) fn after(first: &Self, more: usize) -> Self {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        bytes.reserve(first.bytes.len() + more);
        bytes.extend_from_slice(&first.bytes);
        Self { bytes, start: first.start }
    }

    pub(super) fn add(&mut self, word: impl Word) {
        word.with_parts(|parts| write(&mut self.bytes, parts));
        match &mut self.bytes[LAST_DIGIT] {
            b'9' => self.carry(),
            digit => *digit += 1,
        }
    }

    /// Counts a word whose number ends with a zero.
    fn carry(&mut self) {
        let mut at = LAST_DIGIT;
        while self.bytes[at] == b'9' {
            self.bytes[at] = b'0';
            at -= 1;
        }
        if at == self.start {
            self.start -= 1;
            (self.bytes[self.start], self.bytes[at]) = (b'*', b'0');
        }
        self.bytes[at] += 1;
    }

    /// The request.
    pub(super) fn packed(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The length of the words.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - ROOM
    }

    /// The place of a part of the words in the request.
    pub(super) fn place(&self, part: Range<usize>) -> Range<usize> {
        let line = ROOM - self.start;
        line + part.start..line + part.end
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.bytes.capacity() <= MOST_SPARE {
            let spare = std::mem::take(&mut self.bytes);
            // Without its thread-local data a thread has no next request.
            let _ = SPARE.try_with(|last| last.set(spare));
        }
    }
}

/// A larger request gives its memory back.
const MOST_SPARE: usize = 1024;

/// Room for a marker, the digits of any number, and the end of a line.
const ROOM: usize = 24;
const LAST_DIGIT: usize = ROOM - 3;

/// Words as they are sent.
pub(super) fn written(words: &[&str]) -> Vec<u8> {
    let mut bytes = vec![];
    words.iter().for_each(|word| write(&mut bytes, &[word.as_bytes()]));
    bytes
}

/// Writes one word of these parts.
#[inline(always)]
fn write(bytes: &mut Vec<u8>, parts: &[&[u8]]) {
    if let [[byte]] = parts {
        return bytes.extend_from_slice(&[b'$', b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
    }
    let length: usize = parts.iter().map(|part| part.len()).sum();
    match u8::try_from(length) {
        // Most words are short, and arrays of a known length are written at once.
        Ok(length @ 0..10) => bytes.extend_from_slice(&[b'$', b'0' + length, b'\r', b'\n']),
        Ok(length @ 10..100) => {
            bytes.extend_from_slice(&[b'$', b'0' + length / 10, b'0' + length % 10, b'\r', b'\n']);
        }
        _ => {
            bytes.push(b'$');
            bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
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
        let mut words = Words::after(&Words::of(&["EVALSHA"]), 0);
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
        assert_eq!(words.packed(), expected.get_packed_command());
        for number in 7..1_100_u64 {
            words.add(number);
            assert_eq!(words.packed(), expected.arg(number).get_packed_command());
        }
        let (last, all) = (b"$4\r\n1099\r\n", words.len());
        assert_eq!(&words.packed()[words.place(all - last.len()..all)], last);
    }
}
