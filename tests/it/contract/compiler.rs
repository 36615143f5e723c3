//! The code that the compiler allows, and the error for code that moves a guard.

use std::env;
use std::io::Write;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::Stdio;

use lockson::{
    Backoff, Candidate, CountDownLatch, Election, ExpiringPermits, FencingToken, HeldLock, Hold, Holder, Leadership,
    LockKind, LockLost, LockWaiter, OwnedLock, PermitExpirableSemaphore, Permits, ReadWriteLock, ReleaseFailed,
    Semaphore, WaitGivenUp,
};

use crate::support::prelude::*;

#[test]
fn a_guard_sent_to_a_thread_is_told_of_owned() {
    let send = |guard: &str| format!("pub fn send(guard: {guard}) {{ std::thread::spawn(move || guard.unlock()); }}");
    for guard in ["lockson::Guard", "lockson::Guard<lockson::FencingToken>"] {
        let told = compile(&send(guard)).expect_err("a guard stays on its thread");
        let headline = told.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        assert!(headline.contains("StaysOnItsThreadUnlessTakenByOwned"), "{told}");
        assert!(headline.contains("cannot be sent between threads safely"), "{told}");
    }
    for guard in ["lockson::OwnedGuard", "lockson::OwnedGuard<lockson::FencingToken>"] {
        compile(&send(guard)).expect("an owned guard moves");
    }
    let ask = "pub fn ask(guard: &lockson::Guard) { std::thread::scope(|s| { s.spawn(|| guard.is_held()); }) }";
    compile(ask).expect("other threads may ask a guard");
}

#[test]
fn lints_of_the_compiler_find_guards_dropped_at_once() {
    let hold = |statement: &str| {
        let lints = "#![deny(unused_results, let_underscore_drop)]";
        compile(&format!("{lints} pub fn hold(lock: &lockson::Lock) -> lockson::Result<()> {{ {statement} Ok(()) }}"))
    };
    for dropped in ["lock.try_lock()?;", "lock.try_lock_for(std::time::Duration::MAX)?;", "let _ = lock.lock()?;"] {
        hold(dropped).expect_err(dropped);
    }
    hold("let _guard = lock.lock()?;").expect("a guard with a name is held");
}

#[test]
fn all_that_can_be_had_may_cross_a_caught_panic() {
    fn check<T: UnwindSafe + RefUnwindSafe>() {}
    check::<(Client, ClientBuilder, Lock, Lock<FencingToken>, OwnedLock, ReadWriteLock)>();
    check::<(Guard, Guard<FencingToken>, OwnedGuard, Hold, FencingToken, Cancel)>();
    check::<(TokenOptions, Backoff, ReleaseBy, HeldLock, LockWaiter, LockKind, Holder)>();
    check::<(Error, ErrorKind, Loss, LockLost, ReleaseFailed, WaitGivenUp)>();
    check::<(Semaphore, Permits, PermitExpirableSemaphore, ExpiringPermits, CountDownLatch)>();
    check::<(Election, Candidate, Leadership)>();
}

#[test]
fn all_but_a_guard_may_move_to_another_thread() {
    fn check<T: Send + Sync + 'static>() {}
    check::<(Client, ClientBuilder, Lock, Lock<FencingToken>, OwnedLock, ReadWriteLock)>();
    check::<(OwnedGuard, OwnedGuard<FencingToken>, Hold, FencingToken, Cancel)>();
    check::<(TokenOptions, Backoff, ReleaseBy, HeldLock, LockWaiter, LockKind, Holder)>();
    check::<(Error, ErrorKind, Loss, LockLost, ReleaseFailed, WaitGivenUp)>();
    check::<(Semaphore, Permits, PermitExpirableSemaphore, ExpiringPermits, CountDownLatch)>();
    check::<(Election, Candidate, Leadership)>();
}

/// Compiles a library that uses Lockson; `Err` is the text of the compiler.
fn compile(code: &str) -> Result<(), String> {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut child = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "user", "--emit", "metadata", "-"])
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("--extern")
        .arg(format!("lockson={}", newest_library(&folder).display()))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// The newest build of the library; builds with other features are in the same folder.
fn newest_library(folder: &Path) -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("liblockson-") && name.ends_with(".rlib")
    };
    let libraries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_library);
    libraries.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("the library was built")
}
