//! Certificates that change while clients run.

use lockson::Tls;
use lockson_harness::{Authority, Certificate, Validity};

use super::works;
use crate::support::prelude::*;

/// The files of one service, replaced as an operator replaces them.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn put(&self, name: &str, from: &Path) {
        let fresh = self.path("fresh");
        fs::copy(from, &fresh).unwrap();
        fs::rename(fresh, self.path(name)).unwrap();
    }

    fn put_all(&self, authority: &Authority, client: &Certificate) {
        self.put("ca.pem", &authority.file());
        self.put("client.pem", &client.file);
        self.put("client.key", &client.key);
    }
}

fn use_certificate(server: &RedisServer, certificate: &Certificate) {
    let [file, key, ca] = [&certificate.file, &certificate.key, &certificate.ca().to_owned()];
    let [file, key, ca] = [file, key, ca].map(|path| path.to_str().unwrap());
    server.run(&["CONFIG", "SET", "tls-cert-file", file, "tls-key-file", key, "tls-ca-cert-file", ca]);
}

#[test]
fn replaced_files_count_at_the_next_connection() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = RedisServer::builder().mutual_tls(&old.server()).start();
    let files = Files { folder: server.data_folder() };
    files.put_all(&old, &old.client(Validity::Now));
    let tls = Tls::new()
        .with_ca_file(files.path("ca.pem"))
        .with_client_certificate(files.path("client.pem"), files.path("client.key"));
    let client = Client::builder(&server.tls_url()).tls(tls).outage_limit(ms(200)).connect().unwrap();
    let kept = client.get_lock("kept").owned().lock().unwrap();

    use_certificate(&server, &new.server());
    works(&client); // the open connection goes on
    let anew = || {
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        client.get_lock("wanted").lock().map(drop)
    };
    let error = anew().unwrap_err();
    assert!(error.to_string().contains("an authority that the authorities of"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Connection, "it may be mended at any moment");

    // In the middle of a rotation the files do not fit each other.
    let replaced = new.client(Validity::Now);
    files.put("ca.pem", &new.file());
    files.put("client.pem", &replaced.file);
    let error = anew().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("client.key"), "{error}");
    assert!(error.to_string().contains("does not belong to the client certificate"), "{error}");

    files.put("client.key", &replaced.key);
    anew().unwrap();
    assert!(kept.is_held());
    kept.unlock().unwrap();
}

#[test]
fn a_waiter_outlasts_the_middle_of_a_rotation() {
    let authority = Authority::new();
    let server = RedisServer::builder().tls(&authority.server()).start();
    let files = Files { folder: server.data_folder() };
    files.put("ca.pem", &authority.file());
    let tls = Tls::new().with_ca_file(files.path("ca.pem"));
    let client = Client::builder(&server.tls_url()).tls(tls).connect().unwrap();
    fs::remove_file(files.path("ca.pem")).unwrap();
    server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get_lock("wanted").try_lock_for(SOON).map(|guard| guard.is_some()));
        thread::sleep(ms(200)); // some attempts fail meanwhile
        files.put("ca.pem", &authority.file());
        assert!(joined(waiter).unwrap());
    });
}
