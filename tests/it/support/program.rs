//! Programs of this workspace that a test starts.

use lockson_harness::cargo;

use crate::support::prelude::*;

/// Builds targets from the present sources, with the profile of the running test. Returns the folder of the programs.
pub(crate) fn built(command: &str, targets: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps");
    let (target, profile) = (folder.parent().expect("a profile is below the target"), folder.file_name());
    let profile = match profile.and_then(|name| name.to_str()) {
        Some("debug") if command == "test" => "test",
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("no profile in {}", folder.display()),
    };
    let built = cargo(command)
        .args(targets)
        .args(["--quiet", "--offline", "--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.to_owned()
}
