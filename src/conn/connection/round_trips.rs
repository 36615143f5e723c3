//! Several round trips over one connection, where a command may depend on the replies before it.

use redis::Value;

use super::Connection;
use crate::conn::asking::asking;
use crate::conn::frame;
use crate::conn::trouble;
use crate::error::{Error, ErrorKind, Refusal, Stop};
use crate::reply::Pipeline;
use crate::transport::{Fault, Limits};

impl Connection {
    /// Several round trips, in which a command may depend on the replies before it. `run` is given a function that
    /// sends commands and returns as many replies, error replies among them. With `asks` the server is one that gets
    /// the key at present. After any fault the connection must be dropped: a transaction may be open on it.
    pub(in crate::conn) fn round_trips<T>(
        &mut self,
        limits: Limits,
        asks: bool,
        run: impl FnOnce(&mut Pipeline<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let deadline = limits.answer_by();
        let mut failure = None;
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
            let mut replies = vec![];
            let received = self.send(&packed, deadline).and_then(|()| {
                for _ in commands {
                    replies.push(self.receive_one(asks, deadline)?);
                }
                Ok(())
            });
            let Err(error) = received else { return self.unless_logged_out(replies) };
            let is_too_long = error.kind() == frame::TOO_LARGE;
            failure = Some(error);
            Err(if is_too_long { Stop::TooLong(replies) } else { Stop::NoReply })
        });
        let error = match (outcome, failure) {
            (Err(Stop::NotALock), _) => {
                let text = "the key has longer data than any lock, so it is no lock; use another name";
                return Err(Fault::NotSent(Error::new(ErrorKind::OtherKind, text).at(&self.server)));
            }
            (_, Some(failure)) => failure,
            (Ok(answer), None) => {
                self.is_proven = true;
                return Ok(answer);
            }
            (Err(Stop::Refused(refusal)), None) => return Err(self.refused(refusal)),
            (Err(Stop::Unsupported(why)), None) => {
                return Err(Fault::NotSent(Error::new(ErrorKind::Unsupported, why).at(&self.server)));
            }
            (Err(Stop::NoReply | Stop::TooLong(_)), None) => trouble::odd_reply(),
        };
        // Also where not all was written: the first commands may have arrived whole.
        Err(self.broke(error, limits.of(self.socket.stream.limit)))
    }

    /// Stops at a refusal that wants a login: a caller that reads each reply by itself would go on with
    /// this connection.
    fn unless_logged_out(&self, replies: Vec<Value>) -> Result<Vec<Value>, Stop> {
        let mut refusals = replies.iter().filter_map(Refusal::in_reply);
        let refusal = refusals.find(|refusal| refusal.is_of_login() && self.is_proven);
        refusal.map_or(Ok(replies), |refusal| Err(Stop::Refused(refusal)))
    }
}
