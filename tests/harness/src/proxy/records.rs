//! The memory of the proxy: every request and the fate of each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::frame;
use super::request::{Fate, Kind, Request, When};

/// All requests since the start.
#[derive(Debug, Default)]
pub(super) struct Records {
    entries: VecDeque<(Request, Fate)>,
}

impl Records {
    pub(super) fn add(&mut self, connection: usize, kind: Kind, bytes: &[u8]) -> Request {
        let mut words = frame::words(bytes);
        let command = if words.is_empty() { Vec::new() } else { words.remove(0) };
        let request = Request {
            number: self.next(),
            connection,
            command: String::from_utf8_lossy(&command).to_uppercase(),
            arguments: words,
            bytes: Arc::from(bytes),
            at: Instant::now(),
            kind,
        };
        self.entries.push_back((request.clone(), Fate::Waiting));
        request
    }

    /// The number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Changes a fate, unless it is final.
    pub(super) fn set_fate(&mut self, number: u64, fate: Fate) {
        if let Some((_, old)) = self.entries.get_mut(number as usize)
            && !old.is_final()
        {
            *old = fate;
        }
    }

    pub(super) fn fate(&self, number: u64) -> Option<&Fate> {
        self.entries.get(number as usize).map(|(_, fate)| fate)
    }

    pub(super) fn request(&self, number: u64) -> Option<&Request> {
        self.entries.get(number as usize).map(|(request, _)| request)
    }

    /// The fitting requests from a number on; `nth` is ignored here.
    pub(super) fn fitting(&self, from: u64, when: &When) -> impl Iterator<Item = &Request> {
        let later = self.entries.iter().skip(from as usize);
        later.map(|(request, _)| request).filter(|request| when.fits(request))
    }
}
