//! Several round trips over one connection, where a command may depend on the replies before it.

use std::io;

use redis::{Cmd, Value};

use super::Connection;
use crate::conn::asking::asking;
use crate::conn::trouble;
use crate::error::{Error, ErrorKind, Stop};
use crate::transport::{Fault, Limits};

impl Connection {
    /// Several round trips, in which a command may depend on the replies before it. `run` is given a function that
    /// sends commands and returns as many replies, error replies among them. With `asks` the server is one that gets
    /// the key at present. After any fault the connection must be dropped: a transaction may be open on it.
    pub(in crate::conn) fn round_trips<T>(
        &mut self,
        limits: Limits,
        asks: bool,
        run: impl FnOnce(&mut dyn FnMut(&[Cmd]) -> Result<Vec<Value>, Stop>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let deadline = limits.answer_by();
        let (mut failure, mut count) = (None, 0);
        let outcome = run(&mut |commands| {
            if failure.is_some() {
                return Err(Stop::NoReply);
            }
            let mut packed = vec![];
            for command in commands {
                if asks {
                    packed.extend(asking());
                }
                command.write_packed_command(&mut packed);
            }
            count += commands.len();
            let sent = self.send(&packed, deadline).map_err(|error| (error, false));
            let received = sent.and_then(|()| {
                let replies = commands.iter().map(|_| self.receive_one(asks, deadline));
                replies.collect::<io::Result<_>>().map_err(|error| (error, true))
            });
            received.map_err(|error| {
                failure = Some(error);
                Stop::NoReply
            })
        });
        let (error, sent) = match (outcome, failure) {
            (_, Some(failure)) => failure,
            (Ok(answer), None) => {
                self.is_proven = true;
                return Ok(answer);
            }
            (Err(Stop::Refused(refusal)), None) => return Err(self.refused(refusal)),
            (Err(Stop::Unsupported(why)), None) => {
                return Err(Fault::NotSent(Error::new(ErrorKind::Unsupported, why).at(&self.server)));
            }
            (Err(Stop::NoReply), None) => (trouble::odd_reply(), true),
        };
        self.is_mute = error.kind() == io::ErrorKind::TimedOut;
        let error = self.lost(error, limits);
        // With several commands, the first commands may have arrived whole.
        if !sent && count == 1 {
            Err(Fault::NotSent(error))
        } else {
            Err(Fault::Unanswered(self.identity.clone(), error))
        }
    }
}
