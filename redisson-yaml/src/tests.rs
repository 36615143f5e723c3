//! Tests of Redisson configurations.
#![cfg(test)]

use lockson::ErrorKind;

use super::values::substitute;
use super::*;

const FULL: &str = r#"
singleServerConfig:
  address: "redis://cache.example:7000"
  database: 3
  username: service
  password: "p@ss/word canary"
  clientName: orders
  timeout: 1500
  connectionPoolSize: 12
  idleConnectionTimeout: 20000
  retryAttempts: 4
  subscriptionsPerConnection: 5
lockWatchdogTimeout: 60000
lockWatchdogBatchSize: 50
fairLockWaitTimeout: 8000
checkLockSyncedSlaves: true
codec: !<org.redisson.codec.Kryo5Codec> {}
protocol: RESP3
nameMapper: !<com.acme.Prefixer> { prefix: "app:" }
"#;

#[test]
fn every_setting_is_honoured_or_named() {
    let read = super::read(FULL).unwrap();
    assert_eq!(url(FULL), "redis://service:p%40ss%2Fword%20canary@cache.example:7000/3?protocol=resp3");
    let shown = format!("{:?}", read.builder);
    for setting in [
        "watchdog_timeout: 60s",
        "watchdog_interval: 20s",
        "watchdog_batch: 50",
        "max_connections: 12",
        "idle_timeout: 20s",
        "command_timeout: 1.5s",
        "fair_patience: 8s",
        "client_name: \"orders\"",
        "name_prefix: \"app:\"",
    ] {
        assert!(shown.contains(setting), "{setting}: {shown}");
    }
    let named: Vec<_> = read.warnings.iter().map(|warning| warning.split(':').next().unwrap()).collect();
    let settings = [
        "retryAttempts",
        "subscriptionsPerConnection",
        "fairLockWaitTimeout",
        "checkLockSyncedSlaves",
        "codec",
        "nameMapper",
    ];
    assert_eq!(named, settings);
    let changes = read.warnings.iter().filter(|warning| warning.contains(": changes what happens: "));
    assert_eq!(changes.count(), 3, "{:?}", read.warnings);
    assert!(!format!("{read:?}").contains("canary"));
}

#[test]
fn a_setting_that_splits_the_fleet_is_an_error() {
    let check = |yaml: &str, kind| {
        let error = super::read(yaml).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{yaml}: {error}");
        assert!(!error.to_string().contains("canary"));
    };
    check("clusterServersConfig: {nodeAddresses: []}", ErrorKind::Config);
    check("clusterServersConfig: {nodeAddresses: ['redis://h'], database: 3}", ErrorKind::Config);
    check("sentinelServersConfig: {sentinelAddresses: ['redis://h'], password: canary}", ErrorKind::Config);
    check("replicatedServersConfig: {nodeAddresses: ['redis://h', 'rediss://g']}", ErrorKind::Config);
    check("replicatedServersConfig: {nodeAddresses: ['redis://u:canary@h'], password: canary}", ErrorKind::Config);
    check("clusterServersConfig: {nodeAddresses: ['redis://h'], shardedSubscriptionMode: YES}", ErrorKind::Config);
    check(
        "clusterServersConfig: {nodeAddresses: ['redis://h'], natMapper: !<com.acme.Nat> {}}",
        ErrorKind::Unsupported,
    );
    let two = "singleServerConfig: {address: 'redis://h'}\nclusterServersConfig: {nodeAddresses: ['redis://h']}";
    check(two, ErrorKind::Config);
    check("singleServerConfig: {address: 'redis://h'}\nnameMapper: !<com.acme.Mapper> {}", ErrorKind::Unsupported);
    let mapped = |mapper: &str| format!("singleServerConfig: {{address: 'redis://h'}}\nnameMapper: {mapper}\n");
    check(&mapped("!<com.acme.DefaultMapper> {}"), ErrorKind::Unsupported);
    check(&mapped("!<com.acme.Mapper>"), ErrorKind::Unsupported);
    let commented = format!("# nameMapper: !<{}> {{}}\n", CLASSES_OF_NOTHING[0]);
    check(&(commented + &mapped("!<com.acme.Mapper> {}")), ErrorKind::Unsupported);
    let inside = "singleServerConfig: {address: 'redis://h', nameMapper: !<com.acme.Mapper> {}}";
    check(&format!("{inside}\nnameMapper: !<{}> {{}}", CLASSES_OF_NOTHING[0]), ErrorKind::Unsupported);
    let resolved = "singleServerConfig: {address: 'redis://h', credentialsResolver: !<com.acme.Vault> {}}";
    check(resolved, ErrorKind::Unsupported);
    check("singleServerConfig: {address: 'redis://u:canary@h', password: canary}", ErrorKind::Config);
    check("singleServerConfig: {address: 'redis://h', protocol: RESP4}", ErrorKind::Config);
    check("singleServerConfig: {password: canary}", ErrorKind::Config);
    check("singleServerConfig: {address: 'redis://h', timeout: canary}", ErrorKind::Config);
    check("password: [canary", ErrorKind::Config);
    check("singleServerConfig: {address: 'redis://h', password: 1.50}", ErrorKind::Config);
    check("", ErrorKind::Config);
}

#[test]
fn a_text_names_the_setting_or_the_line_and_what_to_do() {
    let check = |yaml: &str, words: &[&str]| {
        let error = super::read(yaml).map(drop).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{yaml}: {error}");
    };
    check("singleServerConfig:\n\taddress: 'redis://h'", &["line 2", "tab", "spaces"]);
    check("singleServerConfig:\n  address: 'redis://h'\n  password: 'canary\n", &["not valid YAML", "line"]);
    check("singleServerConfig: {adress: 'redis://h'}", &["adress in", "is address meant?"]);
    check("singleServerConfig: {address: 'redis://h', databse: 3}", &["databse", "is database meant?"]);
    check("lockWatchDogTimout: 3", &["lockWatchDogTimout", "is lockWatchdogTimeout meant?"]);
    check("timeout: 3", &["timeout in", "wrong section"]);
    check(
        "singleServerConfig: {address: 'redis://h', lockWatchdogTimeout: 3}",
        &["lockWatchdogTimeout", "wrong section"],
    );
    check(
        "singleServerConfig: {address: 'redis://h', credentialsResolver: !<a.B> {}}",
        &["credentialsResolver", "username"],
    );
    check("singleServerConfig: {address: 'redis://h:0'}", &["address", "port"]);
    check("singleServerConfig: {address: 'redis://h', timeout: soon}", &["timeout", "whole number"]);
    check("lockWatchdogTimeout: 3000", &["names no servers", "singleServerConfig"]);
    check("clusterServersConfig: {}", &["nodeAddresses"]);
    check("singleServerConfig: {address: 'redis://h'}\nnameMapper: !<a.B> {}", &["nameMapper", "name_prefix()"]);
    let unknown = "singleServerConfig: {address: 'redis://h', newlyInvented: 1, sslProtocols: x, tcpUserTimeout: 1}";
    let warnings = super::read(unknown).unwrap().warnings;
    assert!(warnings[0].starts_with("newlyInvented: no effect: it is not known"), "{warnings:?}");
    assert!(warnings[1..].iter().all(|warning| warning.contains(": no effect: ")), "{warnings:?}");
}

#[test]
fn an_idle_mapper_is_none_and_a_prefix_mapper_is_kept() {
    let read = |mapper: &str| {
        let yaml = format!("singleServerConfig: {{address: 'redis://h', password: 'a!<b'}}\nnameMapper: {mapper}\n");
        let read = super::read(&yaml).unwrap();
        assert_eq!(url(&yaml), "redis://:a%21%3Cb@h/0");
        let shown = format!("{:?}", read.builder);
        let (_, prefix) = shown.split_once("name_prefix: \"").unwrap();
        (prefix.split_once('"').unwrap().0.to_owned(), read.warnings.len())
    };
    for class in &CLASSES_OF_NOTHING[..3] {
        assert_eq!(read(&format!("!<{class}> {{}}")), (String::new(), 0));
    }
    assert_eq!(read("null"), (String::new(), 0));
    assert_eq!(read("!<com.acme.DefaultPrefixer> {prefix: 't:'}"), ("t:".to_owned(), 1));
    assert_eq!(read("{class: com.acme.Prefixer, prefix: 't:'}"), ("t:".to_owned(), 1));
}

#[test]
fn the_environment_fills_in() {
    let path = std::env::var("PATH").unwrap();
    assert_eq!(substitute("a ${PATH} b ${NOT_SET_HERE:-c:d}").unwrap(), format!("a {path} b c:d"));
    assert_eq!(substitute("${NOT_SET_HERE}").unwrap_err().kind(), ErrorKind::Config);
    let comment = "a: b\n  # password: ${NOT_SET_HERE} ${PATH}\n";
    assert_eq!(substitute(&format!("{comment}${{PATH}}")).unwrap(), format!("{comment}{path}"));
}

/// The URL of the servers of a configuration.
fn url(yaml: &str) -> String {
    reader(yaml, &[]).unwrap().servers.url().unwrap()
}

/// The URL, what the builder shows of its settings, and the warnings of a configuration.
fn shown(yaml: &str) -> (String, String, Vec<String>) {
    let read = super::read(yaml).unwrap();
    (url(yaml), format!("{:?}", read.builder), read.warnings)
}

#[test]
fn a_section_of_sentinels_names_service_and_logins() {
    let yaml = "
sentinelServersConfig:
  masterName: mymaster
  sentinelAddresses: ['redis://s1:26379', 'redis://s2:26379']
  username: app
  password: p/w
  database: 2
  scanInterval: 1000
  checkSentinelsList: true
  natMapper: !<org.redisson.api.DefaultNatMapper> {}
  masterConnectionPoolSize: 7
";
    let (url, builder, warnings) = shown(yaml);
    assert_eq!(url, "redis+sentinel://app:p%2Fw@s1:26379,s2:26379/mymaster/2");
    assert!(builder.contains("max_connections: 7"), "{builder}");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let own = yaml.replace("  database: 2", "  sentinelUsername: watcher\n  sentinelPassword: other");
    let (url, ..) = shown(&own);
    assert!(url.ends_with("/mymaster/0?sentinel_user=watcher&sentinel_pass=other"), "{url}");
}

#[test]
fn a_section_of_a_cluster_names_nodes_and_pub_sub() {
    let yaml = "clusterServersConfig: {nodeAddresses: ['redis://a:1', 'redis://b:2'], shardedSubscriptionMode: OFF}";
    let (url, builder, warnings) = shown(yaml);
    assert_eq!(url, "redis+cluster://a:1,b:2/0");
    assert!(builder.contains("sharded_pub_sub: Some(false)"), "{builder}");
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn other_sections_find_the_master() {
    let (url, ..) = shown("replicatedServersConfig: {nodeAddresses: ['redis://a:1', 'redis://b:2'], database: 1}");
    assert_eq!(url, "redis+replicated://a:1,b:2/1");
    let yaml =
        "masterSlaveServersConfig: {masterAddress: 'redis://m:1', slaveAddresses: ['redis://s:1'], readMode: SLAVE}";
    let (url, _, warnings) = shown(yaml);
    assert_eq!(url, "redis://m:1/0");
    let named: Vec<_> = warnings.iter().map(|warning| warning.split(':').next().unwrap()).collect();
    assert_eq!(named, ["slaveAddresses", "readMode"]);
}

/// The files are the output of `Config.toYAML()` of Redisson 4.7.0 with all defaults.
#[test]
fn files_that_redisson_writes_are_read() {
    let check = |yaml: &str, wanted: &str| {
        let (url, builder, warnings) = shown(yaml);
        assert_eq!(url, wanted);
        assert!(builder.contains("durability: None"), "a default stops nothing: {builder}");
        let changes = warnings.iter().filter(|warning| warning.contains(": changes what happens: "));
        let named: Vec<_> = changes.map(|warning| warning.split(':').next().unwrap()).collect();
        assert_eq!(named, ["fairLockWaitTimeout", "checkLockSyncedSlaves"]);
        let unknown = warnings.iter().filter(|warning| warning.contains("not known"));
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
    };
    check(include_str!("written/single.yaml"), "redis://127.0.0.1:6379/0");
    check(include_str!("written/cluster.yaml"), "redis+cluster://127.0.0.1:7000,127.0.0.1:7001/0");
    let sentinels = "redis+sentinel://:word@127.0.0.1:26379,127.0.0.1:26380/mymaster/0";
    check(include_str!("written/sentinel.yaml"), sentinels);
}

#[test]
#[cfg(feature = "tls")]
fn files_of_tls_are_taken_and_keystores_of_java_refused() {
    let server =
        |scheme: &str, more: &str| super::read(&format!("singleServerConfig: {{address: '{scheme}://h'{more}}}"));
    let refused = |more: &str, words: &str| {
        let error = server("rediss", more).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(words), "{error}");
    };
    assert!(
        format!("{:?}", server("rediss", "").unwrap().builder).contains("authorities: [], client_certificate: None")
    );
    assert!(server("redis", "").unwrap().tls.is_none());
    let pem = ", sslTruststore: 'file:/etc/ca.pem', sslKeystore: 'file:///etc/pair', sslKeystoreType: PEM";
    let shown = format!("{:?}", server("rediss", pem).unwrap().builder);
    assert!(shown.contains("/etc/ca.pem") && shown.contains("/etc/pair"), "{shown}");
    refused(", sslTruststore: 'file:/etc/trust.jks'", "PEM");
    refused(", sslKeystore: 'file:/etc/key.p12', sslKeystoreType: PKCS12", "PEM");
    refused(", sslVerificationMode: NONE", "without_verification");
    refused(", sslVerificationMode: CA_ONLY", "with_server_name");
    refused(", sslEnableEndpointIdentification: false", "with_server_name");
    let error = server("valkeys", ", sslTruststore: 'file:/etc/trust.jks'").unwrap_err().to_string();
    assert!(error.contains("sslTruststore"), "{error}");
    let plain = server("redis", ", sslTruststore: 'file:/etc/trust.jks', sslVerificationMode: NONE").unwrap();
    assert_eq!(plain.warnings.len(), 2, "{:?}", plain.warnings);
}

#[test]
fn settings_that_the_program_gives_are_passed_over() {
    let yaml = "
singleServerConfig: {address: 'redis://h', credentialsResolver: !<com.acme.Vault> {}, timeout: 2000}
nameMapper: !<com.acme.Mapper> {}
";
    let read = |settings: &[&str]| super::read_without(yaml, settings);
    assert_eq!(read(&["nameMapper"]).unwrap_err().kind(), ErrorKind::Unsupported);
    let read = read(&["nameMapper", "credentialsResolver"]).unwrap();
    assert!(format!("{:?}", read.builder).contains("command_timeout: 2s"), "the others count");
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[test]
fn numbers_in_quotes_are_numbers_as_in_redisson() {
    let yaml = "singleServerConfig: {address: 'redis://h', database: '3', timeout: '${NOT_SET_HERE:-1500}'}";
    let (url, builder, _) = shown(yaml);
    assert_eq!(url, "redis://h/3");
    assert!(builder.contains("command_timeout: 1.5s"), "{builder}");
}

#[test]
fn a_dollar_and_a_brace_in_a_password_are_text() {
    let read = |password: &str| {
        let yaml = format!(
            "singleServerConfig:\n  address: 'redis://h'\n  password: '{password}'\n  username: canary\nthreads: {{}}"
        );
        reader(&yaml, &[]).map(|reader| reader.servers.password)
    };
    for text in ["a${b", "a${}", "a${b:-c", "a${b c}", "${${PATH", "a$${", "a${:-b}"] {
        assert_eq!(read(text).unwrap().as_deref(), Some(text));
    }
    assert!(!read("${NOT_SET_HERE}").err().unwrap().to_string().contains("canary"));
}

#[test]
fn a_byte_order_mark_is_no_setting() {
    let (url, builder, _) = shown("\u{feff}singleServerConfig: {address: 'redis://h'}\nlockWatchdogTimeout: 9000\n");
    assert_eq!(url, "redis://h/0");
    assert!(builder.contains("watchdog_timeout: 9s"), "{builder}");
}

#[test]
fn a_mapper_with_more_than_a_prefix_is_refused() {
    let mapper = "!<com.acme.Mapper> {prefix: 'a:', suffix: ':b'}";
    let yaml = format!("singleServerConfig: {{address: 'redis://h'}}\nnameMapper: {mapper}\n");
    assert_eq!(super::read(&yaml).map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn above_the_section_counts_as_in_redisson() {
    let mapper = |prefix: &str| format!("nameMapper: !<com.acme.Prefixer> {{ prefix: '{prefix}' }}");
    let both = |above: &str| {
        format!(
            "{above}\npassword: above\nsingleServerConfig:\n  address: redis://h:1\n  password: below\n  {}\n",
            mapper("below:")
        )
    };
    let (url, shown, _) = shown(&both(&mapper("above:")));
    assert!(url.contains(":above@") && shown.contains("name_prefix: \"above:\""), "{url} {shown}");
    for idle in [
        "nameMapper: !<org.redisson.config.DefaultNameMapper> {}",
        "nameMapper: !!org.redisson.config.DefaultNameMapper {}",
    ] {
        let shown = format!("{:?}", super::read(&both(idle)).unwrap().builder);
        assert!(shown.contains("name_prefix: \"below:\""), "{idle}: {shown}");
    }
}

#[test]
fn numbers_and_comments_are_those_of_yaml_1_1() {
    let with = |line: &str| super::read(&format!("singleServerConfig:\n  address: redis://h:1\n  {line}\n"));
    let octal = with("database: 010 # eight").unwrap_err();
    assert!(octal.to_string().contains("line 3") && octal.kind() == ErrorKind::Config, "{octal}");
    assert!(with("# database: 010").is_ok() && with("database: '8'").is_ok());
    assert!(super::read("singleServerConfig: {address: 'redis://h:1', database: 010}\n").is_err());
    assert!(format!("{:?}", with("timeout: 2_500").unwrap().builder).contains("command_timeout: 2.5s"));
    assert!(with("timeout: 3000 # was ${LOCKSON_NO_SUCH_VARIABLE}").is_ok());
    assert!(with("password: 'a #${LOCKSON_NO_SUCH_VARIABLE}'").is_err());
}

#[test]
fn what_java_accepts_is_brought_to_what_is_possible() {
    let check = |yaml: &str, wanted: &str, named: &[&str]| {
        let read = super::read(yaml).unwrap();
        let shown = format!("{:?}", read.builder);
        assert!(shown.contains(wanted), "{yaml}: {shown}");
        let changes = read.warnings.iter().filter_map(|warning| warning.split_once(": changes what happens: "));
        assert_eq!(changes.map(|(key, _)| key).collect::<Vec<_>>(), named, "{yaml}: {:?}", read.warnings);
        // Without TLS, a lazy connect checks the settings alone.
        read.builder.connect_lazily().unwrap();
    };
    let both = |setting: &str, watchdog: u32| {
        format!("singleServerConfig: {{address: 'redis://h', {setting}}}\nlockWatchdogTimeout: {watchdog}\n")
    };
    let inside = |setting: &str| both(setting, 30_000);
    let above = |setting: &str| format!("{setting}\nsingleServerConfig: {{address: 'redis://h'}}\n");
    check(&inside("timeout: 60000"), "command_timeout: 22.5s", &["timeout"]);
    check(&both("timeout: 3000", 3_000), "command_timeout: 2.25s", &["timeout"]);
    check(&both("timeout: 2999", 3_000), "command_timeout: 2.999s", &[]);
    check(&both("timeout: 4000000", 10_000_000), "command_timeout: 3600s", &["timeout"]);
    check(&inside("timeout: 4000000"), "command_timeout: 22.5s", &["timeout"]);
    check(&inside("timeout: 1"), "command_timeout: 10ms", &["timeout"]);
    check(&inside("connectionPoolSize: 10001"), "max_connections: 10000", &["connectionPoolSize"]);
    check(&inside("connectionPoolSize: 99999999999999999"), "max_connections: 10000", &["connectionPoolSize"]);
    check(&inside("idleConnectionTimeout: 0"), "idle_timeout: 10ms", &["idleConnectionTimeout"]);
    check(&above("lockWatchdogTimeout: 500"), "watchdog_timeout: 1s", &["lockWatchdogTimeout"]);
    check(&above("lockWatchdogBatchSize: 1001"), "watchdog_batch: 1000", &["lockWatchdogBatchSize"]);
    check(&above("lockWatchdogBatchSize: 0"), "watchdog_batch: 1,", &["lockWatchdogBatchSize"]);
    check(&above("fairLockWaitTimeout: 1999"), "fair_patience: 2s", &["fairLockWaitTimeout"]);
    let longest = "fairLockWaitTimeout: 3600001";
    check(&above(longest), "fair_patience: 3600s", &["fairLockWaitTimeout", "fairLockWaitTimeout"]);
}

#[test]
fn a_text_that_yaml_turns_into_a_number_is_refused() {
    let with = |line: &str| super::read(&format!("singleServerConfig:\n  address: redis://h:1\n  {line}\n"));
    for key in ["password", "username", "clientName"] {
        for text in ["0xdeadbeef", "0o17", "0b11", "+123", "+0x1f", "-0", "017"] {
            let error = with(&format!("{key}: {text} # secret")).map(drop).unwrap_err().to_string();
            assert!(error.contains("quotes"), "{key}: {text}: {error}");
            assert!(!error.contains(text), "{error}");
            assert!(with(&format!("{key}: '{text}'")).is_ok());
        }
        for text in ["123", "18446744073709551615", "1_0", "0xword", "08x", "+"] {
            let shown = with(&format!("{key}: {text}")).map(|read| format!("{:?}", read.builder)).unwrap();
            assert!(key != "clientName" || shown.contains(&format!("client_name: {text:?}")), "{text}: {shown}");
        }
    }
    assert!(super::read("singleServerConfig: {address: 'redis://h:1', password: 0xff}\n").is_err());
}

#[test]
fn a_name_that_only_java_gives_its_client_is_passed_over() {
    for name in [String::new(), "n".repeat(65), "b\u{fc}ro".to_owned()] {
        let read = super::read(&format!("singleServerConfig: {{address: 'redis://h', clientName: '{name}'}}")).unwrap();
        assert!(read.warnings[0].starts_with("clientName: no effect: "), "{:?}", read.warnings);
        read.builder.connect_lazily().unwrap();
    }
}
