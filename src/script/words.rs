//! The words of a request, as the protocol of Redis writes them.

/// Words in the protocol of Redis, without the head that tells how many they are.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) count: usize,
    pub(super) bytes: Vec<u8>,
}

/// A text or a whole number.
pub(crate) trait Word {
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R;
}

impl Words {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { count: 0, bytes: Vec::with_capacity(bytes) }
    }

    pub(super) fn add(&mut self, word: impl Word) {
        self.count += 1;
        word.with_bytes(|word| write(&mut self.bytes, word));
    }
}

/// Writes one word.
pub(super) fn write(bytes: &mut Vec<u8>, word: &[u8]) {
    line(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

/// Writes a marker and a number.
pub(super) fn line(bytes: &mut Vec<u8>, marker: u8, number: usize) {
    bytes.push(marker);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

impl<T: Word + ?Sized> Word for &T {
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        (**self).with_bytes(then)
    }
}

macro_rules! word {
    ($($type:ty)*, $word:ident => $bytes:expr) => {
        $(impl Word for $type {
            fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
                let $word = self;
                then($bytes)
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

    #[test]
    fn words_are_written_as_redis_reads_them() {
        let mut words = Words::with_capacity(0);
        words.add("EVALSHA");
        words.add(String::new());
        words.add(&b"\r\n\0"[..]);
        words.add("x".repeat(1_000).as_str());
        words.add(u64::MAX);
        words.add(i64::MIN);
        words.add(0_usize);
        let mut packed = vec![];
        line(&mut packed, b'*', words.count);
        packed.extend(words.bytes);
        let mut expected = redis::Cmd::new();
        expected.arg("EVALSHA").arg("").arg(&b"\r\n\0"[..]).arg("x".repeat(1_000)).arg(u64::MAX).arg(i64::MIN).arg(0);
        assert_eq!(packed, expected.get_packed_command());
    }
}
