//! Each example shows what it says: it fails otherwise. One ends by a signal.

use lockson_harness::HelperProcess;

use crate::support::built;
use crate::support::prelude::*;

#[test]
fn a_service_under_load_ends_well_at_sigterm() {
    let server = RedisServer::start();
    let mut command = Command::new(built("build", &["--example", "shutdown"]).join("examples/shutdown"));
    command.env("REDIS_URL", server.url());
    let mut service = HelperProcess::spawn_command(command);
    let tills = [1, 2].map(|number| format!("lockson:example:till:{number}"));
    let is_busy = |till: &String| server.query::<bool>(&["EXISTS", till]) && server.subscribers(&channel(till)) > 0;
    eventually(SOON, "both locks are held and waited for", || tills.iter().all(is_busy));
    service.terminate();
    let ended = service.wait(SOON);
    let mut said: Vec<String> = std::iter::from_fn(|| service.line(SOON)).collect();
    assert!(ended.success(), "{ended}: {said:?}, {}", service.errors());
    let last = said.pop().unwrap_or_default();
    assert!(last.starts_with("signal 15: ") && last.ends_with(" to their end, 0 locks held"), "{last}");
    assert_eq!(server.keys(), [""; 0], "nothing is left");
}

#[test]
fn each_example_that_ends_by_itself_ends_well() {
    let server = RedisServer::start();
    let folder = built("build", &["--examples"]).join("examples");
    let files = fs::read_dir("examples").unwrap().map(|file| file.unwrap().path());
    let names = files.filter_map(|path| Some(path.file_name()?.to_str()?.strip_suffix(".rs")?.to_owned()));
    let names: Vec<String> = names.filter(|name| name != "shutdown").collect();
    let check = &|name: &str| {
        let mut command = Command::new(folder.join(name));
        match name {
            "hello" => command.env("REDIS_URL", server.url()),
            _ => command.env_remove("REDIS_URL"),
        };
        let outcome = command.output().unwrap();
        assert!(outcome.status.success(), "{name}: {}", String::from_utf8_lossy(&outcome.stderr));
    };
    // All at once, each with its servers, would take the time that the server of a red lock has to answer.
    for few in names.chunks(4) {
        thread::scope(|scope| {
            for name in few {
                let _example = scope.spawn(|| check(name));
            }
        });
    }
}
