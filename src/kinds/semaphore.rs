//! The scripts of the semaphore: the key holds the number of free permits.

use super::prelude::*;

static ACQUIRE: Script = lua!("semaphore/acquire.lua");
static RELEASE: Script = lua!("semaphore/release.lua");
static DRAIN: Script = lua!("semaphore/drain.lua");
static WITHDRAW: Script = lua!("semaphore/withdraw.lua");

/// The answer to an attempt to acquire permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakeAnswer {
    pub(crate) granted: bool,
    /// The number of free permits after the attempt; may be negative.
    pub(crate) free: i64,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The number of free permits, and the number of clients that received the message, where Redis published it.
    Done { free: i64, receivers: Option<u64> },
    /// There is no semaphore.
    Gone,
}

pub(crate) fn acquire(name: &LockName, once: &Once, permits: u32) -> Call<TakeAnswer> {
    let read = |reply: &Value| match list(reply)? {
        [granted, free] => Some(TakeAnswer { granted: int(granted)? == 1, free: int(free)? }),
        _ => None,
    };
    once::call(&ACQUIRE, name, once, read).arg(permits)
}

/// Which permits come back.
#[derive(Clone, Copy)]
pub(crate) enum Returning {
    /// Anybody's, to an existing semaphore.
    ToExisting = 0,
    /// Anybody's; a semaphore is made if there is none.
    ToAny = 1,
    /// Those of their holder, to an existing semaphore, however many are free then.
    Held = 2,
}

/// Gives permits back.
pub(crate) fn release(name: &LockName, once: &Once, permits: i64, returning: Returning) -> Call<Returned> {
    let read = |reply: &Value| match list(reply)? {
        [Value::Int(1), free, receivers] => {
            Some(Returned::Done { free: int(free)?, receivers: u64::try_from(int(receivers)?).ok() })
        }
        [Value::Int(0)] => Some(Returned::Gone),
        _ => None,
    };
    let call = once::call(&RELEASE, name, once, read).arg(permits).arg(returning as u8);
    call.arg(name.semaphore_channel()).publish_command()
}

/// Takes all free permits.
pub(crate) fn drain(name: &LockName, once: &Once) -> Call<u64> {
    once::call(&DRAIN, name, once, |reply| u64::try_from(int(reply)?).ok())
}

/// Makes the semaphore if there is none.
pub(crate) fn set_once(name: &LockName, once: &Once, permits: u32, time_to_live: Option<Lease>) -> Call<bool> {
    let call = once::set_once(name, once, permits, time_to_live);
    call.arg(name.semaphore_channel()).arg(permits).publish_command()
}

/// Closes the request `given_up`, and gives back the permits that the request took.
pub(crate) fn withdraw(name: &LockName, once: &Once, given_up: u64) -> Call<()> {
    let call = once::call(&WITHDRAW, name, once, |reply| int(reply).map(drop)).arg(given_up);
    call.arg(name.semaphore_channel()).publish_command()
}

#[cfg(test)]
mod tests {
    use lockson_harness::RedisServer;

    use super::*;
    use crate::script::tests::run;

    #[test]
    fn a_repeated_release_is_answered_beside_data_too() {
        let server = RedisServer::start();
        let (name, once) = (LockName::new("n").unwrap(), Once { key: "once".to_owned(), number: 1 });
        let release = release(&name, &once, 2, Returning::ToAny);
        assert_eq!(run(&server, &release), Returned::Done { free: 2, receivers: Some(0) });
        server.run(&["SET", "n", "text"]);
        assert_eq!(run(&server, &release), Returned::Done { free: 0, receivers: None });
    }
}
