//! The credentials that a provider gives at each connect.

use std::error::Error;
use std::fmt;

use zeroize::Zeroizing;

/// Gives user and password whenever the client connects: rotated passwords, tokens that expire, secrets of a vault.
/// Needs the cargo feature `credentials`.
///
/// Closures that return a [`Login`] are providers, too. The client calls a provider on a thread of its own and waits at
/// most for the [command timeout](crate::ClientBuilder::command_timeout); callers of the same moment share one call.
/// While a provider blocks, it is called on one more thread each minute: give it a time-out of its own. Panics are
/// caught and reported as errors.
///
/// ```no_run
/// use lockson::{Client, Login};
///
/// let client = Client::builder("redis://redis.example")
///     .credentials(|| Ok(Login::new("app", std::fs::read_to_string("/run/secrets/redis")?.trim_end())))
///     .connect()?;
/// # Ok::<(), lockson::Error>(())
/// ```
pub trait Credentials: Send + Sync {
    /// Returns the credentials for a new connection.
    ///
    /// # Errors
    ///
    /// Any error of the provider. The attempt to connect then fails with a `Connection` error whose source is this
    /// error. The text of the error is shown, so it must not contain a secret.
    fn credentials(&self) -> Result<Login, Box<dyn Error + Send + Sync>>;

    /// Tells that a server refused the last credentials. The provider is asked once more afterwards: a provider that
    /// remembers credentials forgets them here. Does nothing by default.
    ///
    /// ```
    /// # use std::error::Error;
    /// # use std::sync::Mutex;
    /// # use lockson::{Credentials, Login};
    /// # fn fetch() -> Result<String, Box<dyn Error + Send + Sync>> { Ok("token".to_owned()) }
    /// struct Cached(Mutex<Option<String>>);
    ///
    /// impl Credentials for Cached {
    ///     fn credentials(&self) -> Result<Login, Box<dyn Error + Send + Sync>> {
    ///         let mut token = self.0.lock().map_err(|_| "the cache is broken")?;
    ///         let token = match &*token {
    ///             Some(known) => known,
    ///             None => token.insert(fetch()?),
    ///         };
    ///         Ok(Login::new("app", token.as_str()))
    ///     }
    ///
    ///     fn refused(&self) {
    ///         if let Ok(mut token) = self.0.lock() {
    ///             *token = None;
    ///         }
    ///     }
    /// }
    /// # assert!(Cached(Mutex::new(None)).credentials().is_ok());
    /// ```
    fn refused(&self) {}
}

impl<F> Credentials for F
where
    F: Fn() -> Result<Login, Box<dyn Error + Send + Sync>> + Send + Sync,
{
    fn credentials(&self) -> Result<Login, Box<dyn Error + Send + Sync>> {
        self()
    }
}

/// User and password for one login. Needs the cargo feature `credentials`.
///
/// The memory of a login is overwritten when the login is dropped, and so are the bytes that are sent. Copies of the
/// provider, of the system and of a TLS library are not. No text form shows a part of it.
///
/// ```
/// use lockson::Login;
///
/// let login = Login::new("app", "secret");
/// assert_eq!(format!("{login:?}"), "Login(..)");
/// ```
pub struct Login {
    username: Option<Zeroizing<String>>,
    password: Zeroizing<String>,
}

impl Login {
    /// Makes the login of a named user.
    ///
    /// ```
    /// let login = lockson::Login::new("app", "secret");
    /// ```
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(Zeroizing::new(username.into())), ..Self::with_password(password) }
    }

    /// Makes the login of the default user, who has a password and no name.
    ///
    /// ```
    /// let login = lockson::Login::with_password("secret");
    /// ```
    pub fn with_password(password: impl Into<String>) -> Self {
        Self { username: None, password: Zeroizing::new(password.into()) }
    }

    /// The command `AUTH` as Redis reads it. Its memory is reserved beforehand, because memory that grows leaves
    /// copies.
    pub(crate) fn packed(&self) -> Zeroizing<Vec<u8>> {
        let words = [Some("AUTH"), self.username.as_ref().map(|name| name.as_str()), Some(&self.password)];
        let words = || words.iter().copied().flatten();
        let length = words().map(|word| word.len() + LONGEST_PREFIX).sum::<usize>() + LONGEST_PREFIX;
        let mut packed = Zeroizing::new(Vec::with_capacity(length));
        packed.extend_from_slice(format!("*{}\r\n", words().count()).as_bytes());
        for word in words() {
            packed.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            packed.extend_from_slice(word.as_bytes());
            packed.extend_from_slice(b"\r\n");
        }
        packed
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

/// A mark, the digits of a length, and two line ends.
const LONGEST_PREFIX: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_packed_like_any_command_without_growing() {
        let check = |login: Login, words: &[&str]| {
            let mut command = redis::Cmd::new();
            for word in words {
                command.arg(*word);
            }
            let packed = login.packed();
            assert_eq!(*packed, command.get_packed_command());
            assert_eq!(packed.capacity(), login.packed().capacity());
            assert!(!format!("{login:?}").contains("canary"));
        };
        check(Login::new("al ice", "canary\r\n"), &["AUTH", "al ice", "canary\r\n"]);
        check(Login::with_password("canary".repeat(999)), &["AUTH", &"canary".repeat(999)]);
        check(Login::new("", ""), &["AUTH", "", ""]);
    }
}
