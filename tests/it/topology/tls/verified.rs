//! Who is trusted, and what an operator reads where trust fails.

use lockson::{DangerousNoVerification, Tls};
use lockson_harness::{Authority, Certificate, Validity};

use super::{Secured, works};
use crate::support::prelude::*;

#[test]
fn a_trusted_server_is_used_by_address_and_by_name() {
    let secured = Secured::start();
    works(&secured.client());
    let by_name = secured.server.tls_url().replace("127.0.0.1", "localhost").replace("rediss", "valkeys");
    works(&Client::builder(&by_name).tls(secured.tls()).connect().unwrap());
    let text = fs::read(secured.authority.file()).unwrap();
    let other = Authority::new();
    let with_others = Tls::new().with_ca_file(other.file()).with_ca_pem(text);
    works(&Client::builder(&by_name).tls(with_others).connect().unwrap());
}

#[test]
fn login_and_database_count_behind_tls() {
    let authority = Authority::new();
    let server = RedisServer::builder().tls(&authority.server()).password("secret").start();
    let url = server.tls_url().replace("/0", "/3?protocol=resp3");
    let client = Client::builder(&url).tls(Tls::new().with_ca_file(authority.file())).connect().unwrap();
    let _guard = client.get_lock("here").lock().unwrap();
    assert_eq!(server.query::<i64>(&["DBSIZE"]), 0);
    assert!(server.info("db3").is_some_and(|keys| keys.starts_with("keys=1")));
}

#[test]
fn a_server_that_is_not_trusted_is_refused_in_plain_words() {
    let secured = Secured::start();
    let (url, stranger) = (secured.server.tls_url(), Authority::new());
    let other = stranger.file();
    let check = |tls: Option<Tls>, words: &[&str]| {
        let builder = Client::builder(&url);
        not_opened(if let Some(tls) = tls { builder.tls(tls) } else { builder }, words);
    };
    check(None, &["the authorities of this system do not have", "with_ca_file()"]);
    check(Some(Tls::new()), &["the authorities of this system do not have"]);
    check(Some(Tls::new().with_ca_file(&other)), &[other.to_str().unwrap(), "authority", "with_ca_file()"]);
    check(Some(secured.tls().with_server_name("redis.example")), &["127.0.0.1", "localhost", "redis.example"]);
    works(&Client::builder(&url).tls(Tls::new().without_verification(DangerousNoVerification)).connect().unwrap());
}

#[test]
fn a_bad_certificate_is_told_by_its_fault() {
    let authority = Authority::new();
    let check = |certificate: &Certificate, words: &[&str]| {
        let server = RedisServer::builder().tls(certificate).start();
        let tls = Tls::new().with_ca_file(authority.file());
        not_opened(Client::builder(&server.tls_url()).tls(tls), words);
    };
    let here = ["127.0.0.1"];
    check(&authority.server_for(&here, Validity::Expired), &["expired", "days ago", "renew it on the server", "clock"]);
    check(&authority.server_for(&here, Validity::Later), &["valid only", "days from now", "clock"]);
    check(&authority.server_for(&["a.example"], Validity::Now), &["for a.example", "not for 127.0.0.1", "server_name"]);
    check(&authority.client(Validity::Now), &["not meant for servers"]);
    check(&authority.own(), &["CA:TRUE", "sign a certificate for the server"]);
}

#[test]
fn a_name_of_the_certificate_is_enough_for_an_address() {
    let authority = Authority::new();
    let server = RedisServer::builder().tls(&authority.server_for(&["redis.example"], Validity::Now)).start();
    let tls = Tls::new().with_ca_file(authority.file()).with_server_name("redis.example");
    works(&Client::builder(&server.tls_url()).tls(tls).connect().unwrap());
}

#[test]
fn a_server_that_wants_a_client_certificate_gets_one() {
    let secured = Secured::mutual();
    let (url, tls) = (secured.server.tls_url(), || secured.tls());
    let good = secured.authority.client(Validity::Now);
    works(&Client::builder(&url).tls(tls().with_client_certificate(&good.file, &good.key)).connect().unwrap());
    let (certificate, key) = (fs::read(&good.file).unwrap(), fs::read(&good.key).unwrap());
    works(&Client::builder(&url).tls(tls().with_client_certificate_pem(certificate, key)).connect().unwrap());

    not_opened(secured.builder(), &["requires a client certificate", "with_client_certificate()"]);
    let check = |bad: Certificate, words: &[&str]| {
        not_opened(Client::builder(&url).tls(tls().with_client_certificate(bad.file, bad.key)), words);
    };
    check(Authority::new().client(Validity::Now), &["refused the client certificate", "tls-ca-cert-file"]);
    check(secured.authority.client(Validity::Expired), &["refused the client certificate because it expired"]);
    check(secured.authority.server(), &["refused the client certificate", "meant for clients"]);
}

#[test]
fn a_port_of_the_other_sort_is_told() {
    let secured = Secured::start();
    let plain = secured.server.url().replace("redis://", "rediss://");
    let patient = Client::builder(&plain).tls(secured.tls()).command_timeout(ms(300));
    told(patient.connect().map(drop), ErrorKind::Connection, &["TLS handshake within 300ms", "redis://"]);
    let tls = secured.server.tls_url().replace("rediss://", "redis://");
    told(Client::builder(&tls).connect().map(drop), ErrorKind::Connection, &["expects TLS (rediss://)"]);
}

#[test]
fn settings_that_cannot_work_are_refused_by_file_and_remedy() {
    let secured = Secured::start();
    let url = secured.server.tls_url();
    let (good, other) = (secured.authority.client(Validity::Now), secured.authority.client(Validity::Now));
    let folder = good.file.parent().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let key = fs::read_to_string(&good.key).unwrap();
    let canary = key.lines().nth(1).unwrap().to_owned();
    let check = |tls: Tls, words: &[&str]| {
        for url in [&url, "rediss://never.example"] {
            let builder = Client::builder(url).tls(tls.clone());
            let texts = format!("{builder:?} {tls:?}");
            let error = told(builder.connect().map(drop), ErrorKind::Config, words);
            assert!(!format!("{texts} {error} {error:?}").contains(&canary), "{error:?}");
        }
    };
    let missing = folder.join("missing.pem");
    check(Tls::new().with_ca_file(&missing), &["missing.pem", "does not exist"]);
    check(Tls::new().with_ca_file(folder), &[folder.to_str().unwrap(), "no file"]);
    check(Tls::new().with_ca_file(write("empty.pem", "")), &["empty.pem", "no certificate in PEM format"]);
    check(Tls::new().with_ca_file(&good.key), &["no certificate in PEM format"]);
    check(Tls::new().with_ca_pem(&key), &["a text in PEM format", "no certificate"]);
    let damaged = write("damaged.pem", &key.replace("PRIVATE KEY", "CERTIFICATE").replace(&canary[..4], "????"));
    check(Tls::new().with_ca_file(damaged), &["damaged.pem", "is damaged"]);
    check(Tls::new().with_ca_file(write("huge.pem", &"x".repeat(1_100_000))), &["huge.pem", "more than"]);
    let mine = |file, key| secured.tls().with_client_certificate(file, key);
    check(mine(&good.file, &good.file), &["no private key", "openssl pkey"]);
    let cut = write("cut.key", &key[..60]);
    check(mine(&good.file, &cut), &["cut.key", "no private key"]);
    check(mine(&good.file, &other.key), &["does not belong to the client certificate"]);
    check(mine(&good.key, &good.key), &["no certificate"]);
    check(secured.tls().with_server_name("two words"), &["with_server_name()"]);
    check(secured.tls().without_verification(DangerousNoVerification), &["without_verification()", "with_ca_file()"]);
    for url in ["redis://localhost", "unix:///run/redis.sock"] {
        told(Client::builder(url).tls(Tls::new()).connect().map(drop), ErrorKind::Config, &["tls()"]);
    }
}

/// Checks that the client cannot be opened, and that the text of the error has these words.
#[track_caller]
fn not_opened(builder: ClientBuilder, words: &[&str]) {
    told(builder.connect().map(drop), ErrorKind::Config, words);
}

#[track_caller]
fn told(outcome: lockson::Result<()>, kind: ErrorKind, words: &[&str]) -> Error {
    let error = outcome.expect_err(&format!("told of {words:?}"));
    assert_eq!(error.kind(), kind, "{error}");
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "{word}: {error}"));
    error
}
