//! Asks the provider of credentials for each login, and once more after a refusal.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::single_flight::SingleFlight;
use super::trouble::in_words;
use crate::credentials::Credentials;
use crate::error::{Error, ErrorKind};
use crate::time::Instant;
use crate::transport::Fault;

/// The provider of a client, shared by its servers.
#[derive(Clone)]
pub(crate) struct Provider {
    provider: Arc<dyn Credentials>,
    asked: Arc<SingleFlight<Answer>>,
}

/// The command that logs in.
pub(super) type PackedLogin = Arc<Zeroizing<Vec<u8>>>;

/// The login, or what the provider did in place of giving one, and why.
type Answer = Result<PackedLogin, (&'static str, ProviderError)>;

/// The error of a provider, as the source of several errors. No other error has a source of this type.
type ProviderError = Arc<dyn StdError + Send + Sync>;

impl Provider {
    pub(crate) fn new(provider: impl Credentials + 'static) -> Self {
        Self { provider: Arc::new(provider), asked: Arc::new(SingleFlight::new("lockson-login")) }
    }

    /// Dials with the credentials of the provider. `dial` asks for them when the server is connected, so that a server
    /// that is down costs no call of the provider. Credentials that are refused are replaced once.
    pub(super) fn dial<T>(
        &self,
        server: &str,
        deadline: Instant,
        dial: impl Fn(&mut dyn FnMut() -> Result<PackedLogin, Fault>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut given = None;
        let first = dial(&mut || {
            let (number, login) = self.ask(0, server, deadline)?;
            given = Some((number, login.clone()));
            Ok(login)
        });
        let (Err(Fault::Refused(refusal)), Some((number, stale))) = (&first, given) else { return first };
        if !refusal.is_of_login() {
            return first;
        }
        let (_, fresh) = self.ask(number, server, deadline)?;
        if fresh == stale {
            // The server would refuse them again, and may count the refusals.
            return Err(Fault::Refused(refusal.clone().advising(SAME)));
        }
        dial(&mut || Ok(fresh.clone())).map_err(|fault| match fault {
            Fault::Refused(refusal) if refusal.is_of_login() => Fault::Refused(refusal.advising(TWICE)),
            fault => fault,
        })
    }

    /// Returns credentials other than those of the asking `refused`, and the number of the asking.
    fn ask(&self, refused: u64, server: &str, deadline: Instant) -> Result<(u64, PackedLogin), Fault> {
        let (limit, provider) = (Instant::now().until(deadline), Arc::clone(&self.provider));
        let asked = self.asked.ask(refused, deadline, move |last_were_refused| {
            let login = catch_unwind(AssertUnwindSafe(|| {
                if last_were_refused {
                    provider.refused();
                }
                provider.credentials().map(|login| Arc::new(login.packed()))
            }));
            let failed = |what, error: Box<dyn StdError + Send + Sync>| (what, ProviderError::from(error));
            match login {
                Ok(login) => login.map_err(|error| failed("failed; source() of this error has its reason", error)),
                Err(panic) => {
                    // The value of a panic may panic when it is dropped, and this thread must answer.
                    std::mem::forget(panic);
                    Err(failed("panicked", "its words may be secret and are not told".into()))
                }
            }
        });
        let text = |why: &str| format!("redis at {server} was not asked: the provider of credentials {why}");
        let error = match asked {
            Ok((number, Ok(login))) => return Ok((number, login)),
            Ok((_, Err((what, error)))) => Error::with_source(ErrorKind::Connection, text(what), error),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Error::new(ErrorKind::Connection, text(&format!("did not answer within {}", in_words(limit))))
            }
            Err(error) => Error::with_source(ErrorKind::Connection, text("could not be given a thread"), error),
        };
        Err(Fault::NotSent(error))
    }
}

/// Whether the provider of credentials failed. The server has no part in that.
pub(super) fn is_of_provider(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<ProviderError>())
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

const TWICE: &str = "these are the credentials of the provider, which was asked once more after the first refusal";
const SAME: &str = "these are the credentials of the provider, which gave the same ones once more after the refusal";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::credentials::Login;
    use crate::error::Refusal;

    /// Keeps a token until it is refused.
    #[derive(Clone, Default)]
    struct Tokens(Arc<AtomicUsize>);

    impl Credentials for Tokens {
        fn credentials(&self) -> Result<Login, Box<dyn StdError + Send + Sync>> {
            Ok(Login::with_password(format!("token {}", self.0.load(Ordering::SeqCst))))
        }

        fn refused(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn good_credentials_are_not_refused_for_older_ones() {
        let tokens = Tokens::default();
        let provider = Provider::new(tokens.clone());
        let ask = |refused| provider.ask(refused, "h", Instant::now().after(Duration::from_secs(10))).ok().unwrap();
        let (stale, _) = ask(0);
        let (_, fresh) = ask(stale);
        // Another connection had the stale ones, too, and was refused a moment later.
        let (number, same) = ask(stale);
        assert!(same == fresh);
        assert_eq!(tokens.0.load(Ordering::SeqCst), 1);
        assert!(ask(number).1 != fresh);
        assert_eq!(tokens.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_replica_refuses_no_credentials() {
        let tokens = Tokens::default();
        let provider = Provider::new(tokens.clone());
        let fault = provider.dial("h", Instant::now().after(Duration::from_secs(10)), |login| {
            login()?;
            Err::<(), _>(Fault::Refused(Refusal::replica()))
        });
        assert!(matches!(fault, Err(Fault::Refused(refusal)) if refusal.is_of_replica()));
        assert_eq!(tokens.0.load(Ordering::SeqCst), 0);
    }
}
