//! URLs that name hosts: one server, members of a cluster, the sentinels of a service, the nodes of a replicated set.

use super::{DEFAULT_PORT, Parts, decoded, fail, host_and_port};
use crate::conn::address::{Address, Endpoint, Login};
use crate::conn::target::{Service, Target};
use crate::error::Result;

/// Parses `[user:password@]host[:port],....[/service][/database][?parameters]`. The form is what follows the + of the
/// scheme: without one there is one host, and only sentinels have a service.
pub(super) fn hosts(form: &str, tls: bool, authority: &str, path: &str, query: &str) -> Result<Target> {
    let of_sentinels = (form == "sentinel").then(Login::default);
    let mut parts = Parts { tls, of_sentinels, ..Parts::default() };
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
    if endpoints.len() > MOST_HOSTS {
        return fail(format!("it names {} hosts; at most {MOST_HOSTS} are asked", endpoints.len()));
    }
    if form == "sentinel" {
        return sentinel(parts, endpoints, path, query);
    }
    parts.take_database(path)?;
    parts.take_query(query)?;
    let address = parts.address(endpoints[0].clone());
    match form {
        "cluster" if address.database != 0 => {
            fail("a Redis Cluster has no other database than 0; leave the number out")
        }
        "" => Ok(Target::Fixed(address)),
        "cluster" => Ok(Target::Cluster(address, endpoints)),
        _ => Ok(Target::Replicated(address, endpoints)),
    }
}

/// Parses what follows the hosts of sentinels.
fn sentinel(mut parts: Parts, sentinels: Vec<Endpoint>, path: &str, query: &str) -> Result<Target> {
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
    let own = parts.of_sentinels.take().filter(|own| *own != Login::default());
    // The place of the master is looked up; until then any endpoint will do.
    let master = parts.address(sentinels[0].clone());
    let login_when_asked = own.is_none();
    let login = own.unwrap_or_else(|| master.login.clone());
    let sentinel = Address { login, login_when_asked, database: 0, ..master.clone() };
    let sentinels = sentinels.into_iter().map(|endpoint| sentinel.moved_to(endpoint)).collect();
    Ok(Target::Sentinel(Service { name: name.into(), sentinels, master }))
}

const SENTINEL_PORT: u16 = 26379;
const MOST_HOSTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn service(url: &str) -> Service {
        match Target::parse(url).unwrap() {
            Target::Sentinel(service) => service,
            other => panic!("{other}"),
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
    fn a_faulty_list_is_refused_without_secrets() {
        let check = |url: &str, words: &str| {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            assert!(error.to_string().contains(words), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error:?}");
        };
        check("redis+sentinel://u:canary@a,b", "names no service");
        check("redis+sentinel://u:canary@a,b/", "names no service");
        check("redis+sentinel://a,,b/m", "names no host");
        check("redis+sentinel://a,a:26379/m", "given twice");
        check("redis+cluster://u:canary@a:1,u:canary@b:2", "several @");
        check("redis+sentinel://:canary@a,:canary@b/m", "several @");
        check("redis+replicated://u:canary@a,b@canary", "several @");
        check("redis+sentinel://a/m/canary", "database must be a number");
        check("redis+sentinel://a/m%20canary", "no service of a sentinel has");
        check("redis+sentinel://a/m?sentinel_password=canary", "parameter sentinel_password is not known");
        check("redis+sentinel://u:can/ary@a/m", "%2F");
        check("redis+replicated://a,b?sentinel_pass=canary", "parameter sentinel_pass is not known");
        check("redis+replicated://a,b/m", "database must be a number");
        check("redis://a,b", "several hosts");
    }

    #[test]
    fn the_texts_name_the_service_and_no_login() {
        let target = Target::parse("redis+sentinel://u:canary@b,a:1/m/3?sentinel_pass=canary").unwrap();
        assert_eq!(target.to_string(), "m/3 of the sentinels a:1,b:26379");
        assert_eq!((target.label(), target.endpoint()), ("m/3".to_owned(), "m@a:1,b:26379".to_owned()));
        assert!(!format!("{target:?}").contains("canary"));
    }
}
