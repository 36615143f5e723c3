//! Parses the URL of a server, in which every part has an effect or is refused by name.
//!
//! Error texts repeat only names of parameters: any other part of the URL may be a password.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::address::{Address, Endpoint, Userinfo};
use super::target::{Service, Target};
use crate::error::{Error, ErrorKind, Result};

/// The settings in a URL.
#[derive(Default)]
struct UrlParts {
    tls: bool,
    login: Userinfo,
    database: Option<i64>,
    resp3: Option<bool>,
    /// The login at the sentinels, for a URL that may have one.
    of_sentinels: Option<Userinfo>,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return fail("it must look like redis://[user:password@]host[:port][/database] or redis+unix:///path");
        };
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return fail("it has a space or a line break: cut it off at its start or end by trim(), or write %20");
        }
        let end = ['/', '?', '#'].into_iter().filter_map(|mark| rest.find(mark)).min();
        let (authority, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
        let scheme = scheme.to_ascii_lowercase();
        let is_unix = matches!(scheme.as_str(), "redis+unix" | "valkey+unix" | "unix");
        if !is_unix && behind.contains('@') {
            return fail("an @ follows the host; in user and password write / as %2F, ? as %3F, # as %23, @ as %40");
        }
        if behind.contains('#') {
            return fail("a # and the text behind have no meaning; in user and password write # as %23");
        }
        if is_unix {
            return unix(authority, path, query).map(Target::Fixed);
        }
        let (program, form) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let tls = matches!(program, "rediss" | "valkeys");
        if tls && cfg!(not(feature = "tls")) {
            return Err(Error::new(ErrorKind::Unsupported, WITHOUT_TLS));
        }
        match form {
            _ if !tls && !matches!(program, "redis" | "valkey") => {}
            "" | "cluster" | "sentinel" | "replicated" => return hosts(form, tls, authority, path, query),
            _ => {}
        }
        let meant = ["cluster", "sentinel", "replicated", "unix"].into_iter().find(|form| scheme.contains(form));
        let meant = meant.map_or_else(String::new, |form| format!("; is redis+{form}:// meant?"));
        fail(format!(
            "it must begin with redis://, rediss://, valkey://, valkeys://, redis+cluster://, redis+sentinel://, \
         redis+replicated://, redis+unix:// or unix://{meant}"
        ))
    }
}

fn unix(authority: &str, path: &str, query: &str) -> Result<Address> {
    if authority.contains('@') {
        return fail("user and password for a Unix socket are parameters: redis+unix:///path?user=name&pass=word");
    }
    if !matches!(authority, "" | "localhost") || path.len() < 2 {
        return fail("a Unix socket needs its whole path behind three slashes, as in redis+unix:///run/redis.sock");
    }
    let mut parts = UrlParts::default();
    parts.take_query(query)?;
    let path = decoded(path, "path")?.unwrap_or_default();
    Ok(parts.address(Endpoint::Unix(PathBuf::from(path))))
}

/// Parses `[user:password@]host[:port],....[/service][/database][?parameters]`. The form is what follows the + of the
/// scheme: without one there is one host, and only sentinels have a service.
fn hosts(form: &str, tls: bool, authority: &str, path: &str, query: &str) -> Result<Target> {
    let of_sentinels = (form == "sentinel").then(Userinfo::default);
    let mut parts = UrlParts { tls, of_sentinels, ..UrlParts::default() };
    if !form.is_empty() && authority.contains(',') && authority.matches('@').count() > 1 {
        return fail("it has several @: write user and password once, before the first host, and an @ in them as %40");
    }
    let hosts = parts.take_login(authority)?;
    let default_port = if form == "sentinel" { SENTINEL_PORT } else { DEFAULT_PORT };
    let hosts: Vec<_> = if form.is_empty() { vec![hosts] } else { hosts.split(',').collect() };
    let mut endpoints = vec![];
    for text in hosts {
        let endpoint = host_and_port(text, default_port)?;
        if endpoints.contains(&endpoint) {
            return fail(format!("the host {endpoint} is given twice"));
        }
        endpoints.push(endpoint);
    }
    if form == "sentinel" {
        return sentinel(parts, endpoints, path, query);
    }
    parts.take_database(path)?;
    parts.take_query(query)?;
    let address = parts.address(endpoints[0].clone());
    match form {
        "cluster" if address.database != 0 => fail("a Redis Cluster has database 0 alone; leave the number out"),
        "" => Ok(Target::Fixed(address)),
        "cluster" => Ok(Target::Cluster(address, endpoints)),
        _ => Ok(Target::Replicated(address, endpoints)),
    }
}

/// Parses what follows the hosts of sentinels.
fn sentinel(mut parts: UrlParts, sentinels: Vec<Endpoint>, path: &str, query: &str) -> Result<Target> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    let Some(name) = decoded(service, "service")? else {
        return fail("it names no service of the sentinels, as in redis+sentinel://host1,host2,host3/mymaster");
    };
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return fail("the service has a character that no service of a sentinel has");
    }
    parts.take_database(database)?;
    parts.take_query(query)?;
    let own = parts.of_sentinels.take().filter(|own| *own != Userinfo::default());
    // The place of the master is looked up; until then any endpoint will do.
    let master = parts.address(sentinels[0].clone());
    let login_when_asked = own.is_none();
    let login = own.unwrap_or_else(|| master.login.clone());
    let sentinel = Address { login, login_when_asked, database: 0, ..master.clone() };
    let sentinels = sentinels.into_iter().map(|endpoint| sentinel.moved_to(endpoint)).collect();
    Ok(Target::Sentinel(Service { name: name.into(), sentinels, master }))
}

fn host_and_port(endpoint: &str, default_port: u16) -> Result<Endpoint> {
    if endpoint.contains(',') {
        return fail(
            "it names several hosts; write redis+sentinel:// for sentinels, redis+cluster:// for a Redis Cluster, or \
             redis+replicated:// for a master with its replicas",
        );
    }
    let (host, port) = match endpoint.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (endpoint, None),
    };
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']').map(str::parse::<Ipv6Addr>)) {
        Some(Some(Ok(host))) => host.to_string(),
        None if !host.contains(':') => host.to_owned(),
        _ => return fail("an IPv6 address is written [::1] or [::1]:6379"),
    };
    let port = match port.map(str::parse::<u16>) {
        None => default_port,
        Some(Ok(port)) if port != 0 => port,
        _ => return fail("the port must be a number from 1 to 65535"),
    };
    if host.is_empty() {
        return fail("it names no host, as in redis://host:6379");
    }
    if host == "0.0.0.0" || host.parse() == Ok(Ipv6Addr::UNSPECIFIED) {
        return fail("0.0.0.0 and :: are no address to connect to; name the server, or 127.0.0.1");
    }
    let is_of_host = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if !host.chars().all(is_of_host) {
        return fail("the host has a character that no host name has");
    }
    Ok(Endpoint::Tcp(host, port))
}

impl UrlParts {
    /// Takes user and password. Returns the text behind them.
    fn take_login<'a>(&mut self, authority: &'a str) -> Result<&'a str> {
        // A host contains no @, so the last @ ends the login.
        let Some((login, rest)) = authority.rsplit_once('@') else { return Ok(authority) };
        let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
        self.login.username = decoded(user, "user")?;
        self.login.password = password.map_or(Ok(None), |password| decoded(password, "password"))?;
        Ok(rest)
    }

    /// Takes the number of the database out of a path.
    fn take_database(&mut self, path: &str) -> Result<()> {
        let database = path.strip_prefix('/').unwrap_or(path);
        let database = database.strip_suffix('/').unwrap_or(database);
        if !database.is_empty() {
            self.database = Some(number_of_database(database)?);
        }
        Ok(())
    }

    fn take_query(&mut self, query: &str) -> Result<()> {
        let mut seen = vec![];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            // A part without a value may be anything, for instance the rest of a password.
            let Some((name, value)) = pair.split_once('=') else {
                return fail("a parameter behind the ? has no value; it looks like ?db=3");
            };
            if seen.contains(&name) {
                return fail(format!("the parameter {name} is given twice"));
            }
            let spaced = value.replace('+', " ");
            match (name, &mut self.of_sentinels) {
                ("db", _) => give(name, &mut self.database, Some(number_of_database(value)?))?,
                ("protocol", _) => give(name, &mut self.resp3, Some(protocol(value)?))?,
                ("user", _) => give(name, &mut self.login.username, decoded(&spaced, name)?)?,
                ("pass", _) => give(name, &mut self.login.password, decoded(&spaced, name)?)?,
                ("sentinel_user", Some(login)) => login.username = decoded(&spaced, name)?,
                ("sentinel_pass", Some(login)) => login.password = decoded(&spaced, name)?,
                _ => {
                    let is_name =
                        name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
                    let which = if is_name { format!("the parameter {name}") } else { "a parameter".to_owned() };
                    let more = if self.of_sentinels.is_some() { ", sentinel_user, sentinel_pass" } else { "" };
                    return fail(format!(
                        "{which} is not known; the URL takes db, user, pass{more} and protocol, all else is set on Client::builder()"
                    ));
                }
            }
            seen.push(name);
        }
        Ok(())
    }

    fn address(self, endpoint: Endpoint) -> Address {
        let Self { tls, login, database, resp3, of_sentinels: _ } = self;
        let (database, resp3) = (database.unwrap_or(0), resp3.unwrap_or(false));
        Address { endpoint, tls, login, login_when_asked: false, database, resp3 }
    }
}

/// Sets a value, which another part of the URL may give as well.
fn give<T: PartialEq>(name: &str, slot: &mut Option<T>, value: Option<T>) -> Result<()> {
    if slot.is_some() && value.is_some() && *slot != value {
        return fail(format!("the parameter {name} contradicts the part before the ?"));
    }
    *slot = slot.take().or(value);
    Ok(())
}

fn number_of_database(text: &str) -> Result<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<i32>() {
        Ok(number) if is_number => Ok(number.into()),
        _ if text.contains('/') => {
            fail("there are too many parts behind the host; write redis://host/3, or redis+sentinel://host/service/3")
        }
        _ => fail("the database must be a number, as in redis://host/3"),
    }
}

fn protocol(text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "2" | "resp2" => Ok(false),
        "3" | "resp3" => Ok(true),
        _ => fail("the parameter protocol must be resp2 or resp3"),
    }
}

/// Decodes %XX in a text; `None` for an empty text. Refuses a % without two hex digits, which may be meant as a %.
fn decoded(text: &str, what: &str) -> Result<Option<String>> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return fail(format!("a % in the {what} is followed by no two hex digits; write % as %25"));
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(plain) => Ok(Some(plain.into_owned()).filter(|plain| !plain.is_empty())),
        Err(_) => fail(format!("the {what} is not UTF-8 once its %XX are read")),
    }
}

fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, format!("the server URL: {}", why.into())))
}

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const WITHOUT_TLS: &str = "the server URL: TLS (rediss://, valkeys://) needs the cargo feature `tls` of lockson; or use \
                           redis:// through a TLS tunnel";

#[cfg(test)]
mod tests {
    use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

    use super::*;

    fn parse(url: &str) -> Result<Address> {
        Address::parse(url)
    }

    #[test]
    fn good_urls_mean_what_other_programs_read_in_them() {
        let check = |url: &str| {
            let ours = Address::parse(url).unwrap();
            let theirs = url.into_connection_info().unwrap();
            let endpoint = match theirs.addr() {
                ConnectionAddr::Tcp(host, port) => Endpoint::Tcp(host.clone(), *port),
                ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
                _ => panic!("no such endpoint"),
            };
            let settings = theirs.redis_settings();
            assert_eq!(ours.endpoint, endpoint, "{url}");
            assert_eq!(
                (ours.login.username.as_deref(), ours.login.password.as_deref()),
                (settings.username(), settings.password()),
                "{url}"
            );
            assert_eq!(
                (ours.database, ours.resp3),
                (settings.db(), settings.protocol() == ProtocolVersion::RESP3),
                "{url}"
            );
        };
        check("redis://example.com");
        check("valkey://Example-1.com:7000/");
        check("redis://user:secret@127.0.0.1:7000/3?protocol=resp3");
        check("redis://:p%40ss%2Fword%20100%25@h/0");
        check("redis://:p@ss@h");
        check("redis://u:100%25sure:x@h?protocol=2");
        check("redis://alice@h/15/");
        check("redis://[::1]:6380/1");
        check("redis://[FE80::0:1]");
        check("redis+unix:///run/redis.sock?db=2&pass=secret");
        check("unix:///run/my%20redis.sock?user=u&pass=a+b%2Bc&protocol=3");
    }

    #[test]
    fn parameters_count_wherever_they_stand() {
        let database = |url: &str| Address::parse(url).unwrap().database;
        assert_eq!(database("redis://h?db=3"), 3);
        assert_eq!(database("redis://h/3?db=3"), 3);
        let address = Address::parse("redis://h?user=alice&pass=s%26t").unwrap();
        assert_eq!(address.login(), Some((Some("alice"), "s&t")));
        assert_eq!(Address::parse("redis://alice@h").unwrap().login(), Some((Some("alice"), "")));
        assert_eq!(Address::parse("redis://:@h").unwrap().login(), None);
    }

    #[test]
    fn a_faulty_setting_is_refused_by_name_without_secrets() {
        let check = |url: &str, words: &str| {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            assert!(error.to_string().starts_with("the server URL: "), "{error}");
            assert!(error.to_string().contains(words), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error:?}");
        };
        check("canary", "redis://[user:password@]host");
        check("redis://h?canary", "has no value");
        check("redis://h?can%61rycanary=1", "a parameter is not known");
        check("redis://u:canary@h?pass=another", "pass contradicts");
        check("redis://h?db=4&db=4", "db is given twice");
        check("redis:///3", "no host");
        check("redis://u:canary@h:", "port");
        check("redis://h:65536", "port");
        check("redis://h:canary", "port");
        check("redis://[::1", "]");
        check("redis://[canary]:1", "IPv6");
        check("redis://[::1]6379", "[::1]:6379");
        check("redis://[::]", "127.0.0.1");
        check("redis://h%41:1", "character");
        check("redis://h/-1", "database must be a number");
        check("redis://h/+1", "database must be a number");
        check("redis://h?db=", "database must be a number");
        check("redis://%ff:canary@h", "user is not UTF-8");
        check("unix:///", "three slashes");
        check("redis+unix://u:canary@/run/redis.sock", "?user=name&pass=word");
        check("redis+sentinel://u:canary@a,b", "names no service");
        check("redis+sentinel://u:canary@a,b/", "names no service");
        check("redis+sentinel://a,,b/m", "names no host");
        check("redis+sentinel://a,a:26379/m", "given twice");
        check("redis+cluster://u:canary@a:1,u:canary@b:2", "several @");
        check("redis+sentinel://:canary@a,:canary@b/m", "several @");
        check("redis+replicated://u:canary@a,b@canary", "several @");
        check("redis+sentinel://a/m/canary", "database must be a number");
        check("redis+sentinel://a/m%20canary", "no service of a sentinel has");
        check(
            "redis+sentinel://a/m?sentinel_password=canary",
            "takes db, user, pass, sentinel_user, sentinel_pass and ",
        );
        check("redis+sentinel://u:can/ary@a/m", "%2F");
        check("redis+replicated://a,b?sentinel_pass=canary", "parameter sentinel_pass is not known");
        check("redis+replicated://a,b/m", "database must be a number");
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_is_refused_by_the_name_of_its_feature() {
        for url in ["rediss://u:canary@h", "valkeys://h", "REDISS://h"] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("feature `tls`") && !error.to_string().contains("canary"), "{error}");
        }
    }

    #[test]
    #[cfg(feature = "tls")]
    fn a_url_of_tls_has_the_parts_of_a_plain_one() {
        for (secure, plain) in [("rediss", "redis"), ("valkeys", "valkey"), ("RedisS", "redis")] {
            let check = |rest: &str| {
                let plain = Address::parse(&format!("{plain}://{rest}")).unwrap();
                assert!(!plain.tls);
                assert_eq!(
                    Address::parse(&format!("{secure}://{rest}")).unwrap(),
                    Address { tls: true, ..plain },
                    "{secure} {rest}"
                );
            };
            check("user:secret@h:7000/3?protocol=resp3");
            check("h?db=2&pass=word");
            check("[::1]");
        }
        assert!(!format!("{:?}", parse("rediss://u:canary@h")).contains("canary"));
    }

    #[test]
    fn an_address_shows_place_and_database_and_no_login() {
        let check = |url: &str, shown: &str| assert_eq!(parse(url).unwrap().to_string(), shown);
        check("redis://user:canary@localhost", "localhost:6379/0");
        check("redis://user:canary@[::1]/3", "[::1]:6379/3");
        check("unix:///run/redis.sock?pass=canary&db=2", "/run/redis.sock?db=2");
    }

    fn service(url: &str) -> Service {
        match Target::parse(url).unwrap() {
            Target::Sentinel(service) => service,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sentinel_url_has_hosts_service_and_two_logins() {
        let told =
            service("redis+sentinel://app:se%2Fcret@a,b:7000,[::1]:1/my.master-1/3?sentinel_user=s&sentinel_pass=t");
        assert_eq!(told.master.login(), Some((Some("app"), "se/cret")));
        assert_eq!((told.master.database, &*told.name), (3, "my.master-1"));
        let shown: Vec<_> = told.sentinels.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a:26379/0", "b:7000/0", "[::1]:1/0"]);
        assert!(told.sentinels.iter().all(|sentinel| sentinel.login() == Some((Some("s"), "t"))));
        assert!(!told.sentinels[0].login_when_asked);
        let told = service("valkey+sentinel://a/m?db=2&protocol=resp3");
        assert_eq!((told.master.login(), told.sentinels[0].login()), (None, None));
        let shared = &service("redis+sentinel://app:word@a/m").sentinels[0];
        assert_eq!((shared.login(), shared.login_when_asked), (Some((Some("app"), "word")), true));
        assert_eq!((told.master.database, told.master.resp3, told.sentinels[0].resp3), (2, true, true));
    }

    #[test]
    fn a_replicated_url_has_one_login_for_all_nodes() {
        let target = Target::parse("redis+replicated://:word@b:1,a/2").unwrap();
        assert_eq!(target.label(), "a:6379,b:1/2");
        let Target::Replicated(node, nodes) = target else { panic!("another target") };
        assert_eq!((node.login(), node.database, nodes.len()), (Some((None, "word")), 2, 2));
    }

    #[test]
    fn the_texts_name_the_service_and_no_login() {
        let target = Target::parse("redis+sentinel://u:canary@b,a:1/m/3?sentinel_pass=canary").unwrap();
        assert_eq!((target.label(), target.authority()), ("m/3".to_owned(), "m@a:1,b:26379".to_owned()));
        assert!(!format!("{target:?}").contains("canary"));
    }
}
