//! An error reply of Redis: the word that identifies the refusal, and the text without script hashes and quoted
//! arguments.

use std::fmt;
use std::sync::Arc;

/// An error reply, reduced to the word and the text of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(Box<Parts>);

/// The parts of a refusal. Every answer has room for a refusal, so a refusal is one pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    word: String,
    /// The text of the server; empty where the word says enough.
    text: String,
    server: Option<Arc<str>>,
    /// Advice that replaces the advice for the word.
    advice: Option<&'static str>,
    /// Whether a login was refused.
    of_login: bool,
}

impl Refusal {
    pub(crate) fn new(reply: &redis::ServerError) -> Self {
        Self::from_text(&format!("{} {}", reply.code(), reply.details().unwrap_or("")))
    }

    /// The refusal in a reply, if the reply is one.
    pub(crate) fn in_reply(reply: &redis::Value) -> Option<Self> {
        if let redis::Value::ServerError(error) = reply { Some(Self::new(error)) } else { None }
    }

    /// Reads a refusal from the text of an error reply. Scripts return errors in another form before 7.0:
    /// "@user_script: 9: -OOM ...".
    pub(crate) fn from_text(text: &str) -> Self {
        let text = without_places(text);
        let word = match text.split_once(' ') {
            Some((code, detail)) if is_word(code) => word_of(code, detail),
            _ => word_of("ERR", text),
        };
        Self::of(word, text.strip_prefix("ERR ").unwrap_or(text))
    }

    /// The refusal of a write by a replica, for a server that reports its role before any write.
    pub(crate) fn replica() -> Self {
        Self::of(REPLICA, "")
    }

    /// The refusal of a renewal that too few replicas have; the text tells how many.
    pub(crate) fn no_replicas(text: &str) -> Self {
        Self::of("NOREPLICAS", text).advising("bring them back; until then locks that wait for them expire")
    }

    fn of(word: &str, text: &str) -> Self {
        let (word, text) = (word.to_owned(), shortened(text));
        Self(Box::new(Parts { word, text, server: None, advice: None, of_login: false }))
    }

    /// Names the server.
    pub(crate) fn at(mut self, server: impl Into<Arc<str>>) -> Self {
        self.0.server = Some(server.into());
        self
    }

    /// Replaces the advice for the word.
    pub(crate) fn advising(mut self, advice: &'static str) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// The refusal of a login, without the text of the server, which may quote a secret.
    pub(crate) fn of_login(mut self) -> Self {
        if !self.0.text.starts_with(NO_PASSWORD_SET) {
            self.0.text = "the login was refused".to_owned();
        }
        self.0.of_login = true;
        self
    }

    /// The refusal of a sentinel, which has a login of its own, or was given that of the servers.
    pub(crate) fn at_a_sentinel(self, has_that_of_servers: bool) -> Self {
        let advice = match self.0.word.as_str() {
            "NOAUTH" => {
                "give the password of the sentinels as ?sentinel_pass=word, or name sentinels and no servers in the URL"
            }
            _ if !self.is_of_login() => return self,
            "WRONGPASS" if has_that_of_servers => {
                "it wants a login, and not that of the servers: add ?sentinel_user=name&sentinel_pass=word to the URL"
            }
            "WRONGPASS" => "correct sentinel_user and sentinel_pass in the URL",
            _ => "leave sentinel_pass out of the URL",
        };
        self.advising(advice)
    }

    /// Whether the server refused a login, or wants one.
    pub(crate) fn is_of_login(&self) -> bool {
        self.0.of_login || matches!(self.0.word.as_str(), "NOAUTH" | "WRONGPASS")
    }

    pub(crate) fn word(&self) -> &str {
        &self.0.word
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_transient(&self) -> bool {
        is_passing(&self.0.word)
    }

    /// Whether the connection to which invalidation messages were redirected does not exist any more.
    pub(crate) fn is_of_redirection(&self) -> bool {
        self.0.text.contains("redirect to does not exist")
    }

    /// Whether a replica refused, or a master that became one during a wait, so that the master is another server.
    pub(crate) fn is_of_replica(&self) -> bool {
        matches!(self.0.word.as_str(), REPLICA | "MASTERDOWN" | "UNBLOCKED")
    }

    /// Whether the slot of the request is on another server of a cluster, or is served by none at present.
    pub(crate) fn is_of_routing(&self) -> bool {
        matches!(self.0.word.as_str(), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")
    }

    /// The slot and the address in an answer that sends the request to another server of a cluster.
    pub(crate) fn redirection(&self) -> Option<(u16, &str)> {
        let mut words = self.0.text.split(' ').skip_while(|_| !matches!(self.0.word.as_str(), "MOVED" | "ASK")).skip(1);
        // A shortened text may have lost a part of the address.
        let (slot, address) = (words.next()?.parse().ok()?, words.next().filter(|_| self.0.text.len() < LONGEST)?);
        Some((slot, address))
    }

    /// Whether a script reached a key that another server of the cluster stores.
    pub(crate) fn is_of_foreign_key(&self) -> bool {
        self.0.text.contains("non local key in a cluster node")
    }

    /// The refusal of a server whose cluster is known to the caller.
    pub(crate) fn in_cluster(self) -> Self {
        match self.0.word.as_str() {
            "MOVED" | "ASK" => self.advising("the slots of the cluster are moving; try again"),
            "TRYAGAIN" => self.advising("the slot of the key is moving; try again when it has moved"),
            "CLUSTERDOWN" => self.advising("no server of the cluster has the slot of the key; see CLUSTER INFO"),
            _ => self,
        }
    }

    /// Whether the user may not run the command, whatever the key.
    pub(crate) fn is_of_right_to_run(&self) -> bool {
        self.0.word == "NOPERM" && self.0.text.contains(" run the ")
    }

    /// Whether the server lacks the command, or the user has no right to run it.
    pub(crate) fn lacks_command(&self) -> bool {
        matches!(self.0.word.as_str(), "NOPERM" | "ERR" | "NOPROTO")
    }

    fn advice(&self) -> Option<&'static str> {
        self.0.advice.or_else(|| by_text(&self.0.text)).or_else(|| by_word(&self.0.word))
    }
}

/// Shows "redis at host:port/database refused: WORD text; advice".
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis")?;
        if let Some(server) = &self.0.server {
            write!(f, " at {server}")?;
        }
        match (self.0.word.as_str(), self.0.text.as_str()) {
            (REPLICA, "") => f.write_str(" is a replica")?,
            (word, "") => write!(f, " refused with {word}")?,
            // The text of Redis explains the login of a client library, not of a user.
            ("NOAUTH", _) => f.write_str(" refused with NOAUTH: a password is required")?,
            ("WRONGPASS", _) => f.write_str(
                " refused with WRONGPASS: the password is wrong, there is no such user, or the user is off",
            )?,
            ("ERR", text) if text.starts_with(NO_PASSWORD_SET) => {
                f.write_str(" refused the password: none is set for the default user")?
            }
            ("ERR", text) => write!(f, " refused: {text}")?,
            (word, text) if text.split(' ').next() == Some(word) => write!(f, " refused: {text}")?,
            (word, text) => write!(f, " refused with {word}: {text}")?,
        }
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

fn by_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "OOM" => "free memory or raise maxmemory; held locks can still be renewed and released",
        "MISCONF" => "free its disk; until then held locks expire",
        "NOREPLICAS" => "bring its replicas back, or lower min-replicas-to-write; until then held locks expire",
        "NOPERM" => "give the user the rights in docs/operations.md#rights; ACL LOG names what was refused",
        "BUSY" => "end that script with SCRIPT KILL, never with SHUTDOWN NOSAVE, which drops locks",
        "NOAUTH" => "put the password into the URL, as in redis://user:password@host",
        "WRONGPASS" => "correct user and password in the URL; ACL LIST shows which users there are",
        REPLICA | "MASTERDOWN" => "connect to its master, which INFO replication names",
        "LOADING" => "try again when the server has loaded its data",
        "WRONGTYPE" => "the key of this name is no lock of this kind, perhaps data: use another name",
        "MAXCLIENTS" => "raise maxclients or close connections",
        "DENIED" => "set a password on the server",
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "TRYAGAIN" => {
            "it belongs to a Redis Cluster: connect with redis+cluster://"
        }
        _ => return None,
    })
}

/// Advice for refusals with the word `ERR`, found by text.
fn by_text(text: &str) -> Option<&'static str> {
    Some(match text {
        _ if text.starts_with(NO_PASSWORD_SET) => "leave the password out of the URL, or name a user there",
        _ if text.starts_with("DB index is out of range") => {
            "the URL names a database that the server does not have; see `databases` in its configuration"
        }
        _ if text.contains("WAITAOF") => {
            "Redis has WAITAOF since version 7.2; redis_version in INFO tells this server's"
        }
        _ if text.starts_with("unknown command") || text.starts_with("Unknown Redis command") => {
            "locks need this command: it was renamed, or a proxy does not know it"
        }
        _ => return None,
    })
}

pub(super) fn is_passing(word: &str) -> bool {
    matches!(word, "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | REPLICA | "MAXCLIENTS")
}

/// Finds the word that identifies the refusal. Servers before 7.0 put the word inside the text of a script error.
fn word_of<'a>(code: &'a str, detail: &'a str) -> &'a str {
    if code != "ERR" {
        return code;
    }
    if detail.starts_with("max number of clients") {
        return "MAXCLIENTS";
    }
    // 7.0: "The user executing the script can't ...", 8.0 and Valkey: "ACL failure in script: ...".
    if detail.starts_with("The user executing the script can't") || detail.contains("ACL failure in script") {
        return "NOPERM";
    }
    // 6.2: "Error running script (call to f_...): @user_script:9: @user_script: 9: -OOM command not ...".
    // Its ACL refusals keep the plain text of the command.
    match buried(detail) {
        Some(buried) => buried.split(' ').next().filter(|word| is_word(word)).unwrap_or_else(|| word_of(code, buried)),
        None => code,
    }
}

/// Extracts the error inside a script error of servers before 7.0.
fn buried(text: &str) -> Option<&str> {
    let (_, buried) = text.strip_prefix("Error running script")?.split_once("): ")?;
    Some(without_places(buried))
}

/// Removes the prefix of servers before 7.0: the position in the script and the error marker.
fn without_places(text: &str) -> &str {
    let mut text = text;
    while let Some(rest) = text.strip_prefix("@user_script:").or_else(|| text.strip_prefix("user_script:")) {
        let rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        text = rest.strip_prefix(':').unwrap_or(rest).trim_start();
    }
    text.strip_prefix('-').unwrap_or(text)
}

/// Removes hashes and positions of scripts, quoted arguments and long explanations.
fn shortened(text: &str) -> String {
    let text = buried(text).unwrap_or(text);
    // "ACL failure in script: User x has no permissions to run the 'hset' command script: <hash>, ...".
    let text = &text.replacen("ACL failure in script: ", "", 1);
    // "... script: <hash>, on @user_script:9." since 7.0; "unknown command 'X', with args beginning with: ...".
    // "BUSY ... script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE." would be bad advice.
    let ends = [" script: ", " Script: ", ", with args beginning with", " You can only call"];
    let ends = ends.map(|end| text.find(end).unwrap_or(text.len()));
    let text = &text[..ends.into_iter().min().unwrap_or(text.len())];
    let text = match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => text[..end].rfind(". ").map_or(&text[..end], |end| &text[..end]),
    };
    text.trim_end_matches([' ', '.', ',']).to_owned()
}

fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

const REPLICA: &str = "READONLY";
/// The start of the error for a password where none is configured. The text has no quotation, so errors may show the
/// text.
const NO_PASSWORD_SET: &str = "AUTH <password> called without any password configured";
/// Longer texts are cut at the end of a sentence.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    impl Refusal {
        pub(crate) fn for_test(word: &str) -> Self {
            Self::of(word, "")
        }
    }

    #[test]
    fn the_word_is_found_wherever_a_server_puts_it() {
        let check = |code, detail, word| assert_eq!(word_of(code, detail), word, "{code} {detail}");
        check("OOM", "command not allowed when used memory > 'maxmemory'. script: x", "OOM");
        check("ERR", "Error running script (call to f_a): @user_script:4: -OOM command not allowed", "OOM");
        check("ERR", "The user executing the script can't run this command or subcommand script: x", "NOPERM");
        check("ERR", "ACL failure in script: User x has no permissions", "NOPERM");
        check("ERR", "max number of clients reached", "MAXCLIENTS");
        check("ERR", "Error running script (call to f_a): @user_script:4: user_script:4: - x", "ERR");
        check("ERR", "Error running script (call to f_a): @user_script:1: WRONGTYPE Operation against", "WRONGTYPE");
        let twice = "Error running script (call to f_a): @user_script:1: @user_script: 1: -READONLY You can't";
        check("ERR", twice, "READONLY");
        let acl =
            "Error running script (call to f_a): @user_script:1: @user_script: 1: The user executing the script can't";
        check("ERR", acl, "NOPERM");
        check("WRONGTYPE", "Operation against a key", "WRONGTYPE");
    }

    #[test]
    fn the_word_is_found_in_a_mere_text() {
        let check = |text, word| assert_eq!(Refusal::from_text(text).word(), word, "{text}");
        check("READONLY You can't write against a read only replica.", "READONLY");
        check("@user_script: 20: -READONLY You can't write against a read only replica.", "READONLY");
        check("@user_script: 1: The user executing the script can't run this command or subcommand", "NOPERM");
        check("ERR ACL failure in script: User x has no permissions", "NOPERM");
        check("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE");
        check("Something odd", "ERR");
    }

    #[test]
    fn a_text_names_no_script_and_quotes_no_argument() {
        let check = |text: &str, shown: &str| assert_eq!(Refusal::from_text(text).0.text, shown);
        let hash = "33f3a1b2c3d4e5f60718293a4b5c6d7e8f901234";
        check(
            &format!("OOM command not allowed when used memory > 'maxmemory'. script: {hash}, on @user_script:12."),
            "OOM command not allowed when used memory > 'maxmemory'",
        );
        check(
            &format!("ERR Error running script (call to f_{hash}): @user_script:9: @user_script: 9: -OOM not allowed."),
            "OOM not allowed",
        );
        check(
            &format!("NOPERM ACL failure in script: User x may not run 'hset' script: {hash}, on @user_script:21."),
            "NOPERM User x may not run 'hset'",
        );
        check(
            &format!("ERR unknown command 'EVALSHA', with args beginning with: '{hash}' '1' 'orders' "),
            "unknown command 'EVALSHA'",
        );
        check(
            &format!("DENIED Redis is protected. {}", "You may. ".repeat(99)).replace("You may. ", "You may "),
            "DENIED Redis is protected",
        );
        check(&"é".repeat(999), &"é".repeat(LONGEST));
    }

    #[test]
    fn a_refusal_says_its_word_once_where_and_what_to_do() {
        let check = |text: &str, shown: &str| assert_eq!(Refusal::from_text(text).at("h:1/0").to_string(), shown);
        check(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "redis at h:1/0 refused: BUSY Redis is busy running a script; end that script with SCRIPT KILL, never with \
             SHUTDOWN NOSAVE, which drops locks",
        );
        check(
            "ERR max number of clients reached",
            "redis at h:1/0 refused with MAXCLIENTS: max number of clients reached; raise maxclients or close connections",
        );
        check("ERR odd", "redis at h:1/0 refused: odd");
        let replica = "redis at h:1/0 is a replica; connect to its master, which INFO replication names";
        assert_eq!(Refusal::replica().at("h:1/0").to_string(), replica);
        let login = Refusal::from_text("ODD password canary").of_login();
        assert!(!login.to_string().contains("canary"), "{login}");
    }
}
