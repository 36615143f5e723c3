//! The bytes that were received on a connection, and the replies among them.

use std::io;

use redis::Value;

use super::frame::{self, Largest};

/// Bytes that were received but not parsed.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pub(super) largest: Largest,
    /// The memory of the last list of a few numbers, for the next list.
    spare: Vec<Value>,
}

impl Buffer {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns a whole reply if one was read already.
    pub(super) fn take(&mut self) -> io::Result<Option<Value>> {
        if self.is_empty() {
            return Ok(None);
        }
        let Some((value, length)) = frame::read(&self.bytes[self.start..self.end], self.largest, &mut self.spare)?
        else {
            return Ok(None);
        };
        self.start += length;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        Ok(Some(value))
    }

    /// Takes a reply that was read, to use its memory again.
    pub(super) fn reclaim(&mut self, reply: Value) {
        // Texts would stay in memory as long as the connection.
        if let Value::Array(values) = reply
            && values.capacity() <= frame::FEW
            && values.iter().all(|value| matches!(value, Value::Int(_)))
        {
            self.spare = values;
        }
    }

    /// Returns free space for the next read.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize((self.bytes.len() * 2).max(SMALLEST_BUFFER), 0);
        }
        &mut self.bytes[self.end..]
    }

    pub(super) fn filled(&mut self, read: usize) {
        self.end += read;
    }
}

const SMALLEST_BUFFER: usize = 4 * 1024;
