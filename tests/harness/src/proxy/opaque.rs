//! Bytes that the proxy cannot read, TLS for example: counted, and disturbed by their number.

use super::lane::{End, Gate, Step};
use super::rule::Direction;

/// The treatment of the bytes behind the last one that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtByte {
    /// The connection is cut.
    Cut,
    /// All further bytes are kept until [`heal`](super::Proxy::heal).
    Hold,
}

/// The number of bytes that still pass in one direction, and what happens then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) direction: Direction,
    pub(super) left: usize,
    pub(super) then: AtByte,
}

/// The opaque bytes of one direction.
#[derive(Debug, Default)]
pub(super) struct Opaque {
    pub(super) passed: usize,
    pub(super) limit: Option<Limit>,
}

impl Opaque {
    /// What becomes of these bytes.
    pub(super) fn steps(&mut self, mut bytes: Vec<u8>) -> Vec<Step> {
        self.passed += bytes.len();
        match &mut self.limit {
            None => vec![Step::new(bytes)],
            Some(limit) if limit.left > bytes.len() => {
                limit.left -= bytes.len();
                vec![Step::new(bytes)]
            }
            Some(Limit { left, then: AtByte::Cut, .. }) => {
                bytes.truncate(*left);
                self.limit = None;
                vec![Step::ending(bytes, End::Cut)]
            }
            Some(Limit { left, then: AtByte::Hold, .. }) => {
                let rest = bytes.split_off(*left);
                self.limit = None;
                vec![Step::new(bytes), Step { gate: Gate::Held(NO_RULE), ..Step::new(rest) }]
            }
        }
    }
}

/// No rule has this number, so only `heal` releases the bytes.
const NO_RULE: u64 = u64::MAX;
