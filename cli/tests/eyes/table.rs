//! The table of `cli/README.md` that tells what each command does with each kind of lock, and the check of one row.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lockson_harness::eventually;
use serde_json::Value;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) lock: &'static str,
    cells: Vec<&'static str>,
}

/// A lock that is held and waited for.
#[derive(Debug)]
pub(crate) struct Case<'c> {
    /// The locks of a multi-lock; otherwise one name.
    pub(crate) names: &'c [String],
    /// The values of a group lock; otherwise one text without a meaning.
    pub(crate) values: &'c [&'c str],
    /// The process of a holder by Lockson.
    pub(crate) process: Option<u32>,
}

/// The program `lockson` with the URL of its locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lockson<'l> {
    pub(crate) program: &'l Path,
    pub(crate) url: &'l str,
}

impl Row {
    pub(crate) fn all() -> Vec<Self> {
        let table = include_str!("../../README.md").lines().skip_while(|line| !line.starts_with("| lock |"));
        let rows = table.skip(2).take_while(|line| line.starts_with('|')).map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            Self { lock: cells.next().unwrap(), cells: cells.collect() }
        });
        rows.collect()
    }

    /// The options in a cell; `None` where the command cannot be used.
    pub(crate) fn options(&self, cell: usize) -> Option<Vec<&'static str>> {
        let cell = self.cells[cell];
        let code = cell.split('`').nth(1).unwrap_or_default();
        (cell != "no").then(|| code.split_whitespace().collect())
    }

    /// Asks every command about a held lock, frees it, and checks that the waiter is served.
    pub(crate) fn check(&self, lockson: Lockson<'_>, case: &Case<'_>, await_waiter: impl FnOnce()) {
        let (lock, name) = (self.lock, &*case.names[0]);
        if self.cells[2] != "no" {
            let listed = if self.cells[2] == "in order" { "waiters" } else { "waiting_clients" };
            eventually(SOON, "the waiter is seen", || {
                let waiters = lockson.json(&["waiters", name, "--json"]);
                waiters[listed] != Value::Array(vec![]) && waiters[listed] != 0
            });
        }
        let shown = lockson.json(&["show", name, "--json"]);
        assert_eq!(
            (&shown["kind"], &shown["without_rights"]),
            (&self.options(1).unwrap()[0].into(), &Value::Array(vec![]))
        );
        if !self.cells[1].ends_with("no holders") {
            assert_eq!(
                shown["holders"][0]["client"]["process"],
                case.process.map_or(Value::Null, Value::from),
                "{shown}"
            );
        }
        lockson.ends(&["show", name], 0);
        let listed = String::from_utf8(lockson.output(&["ls", name, "--json"]).stdout).unwrap();
        assert_eq!(listed.contains(&format!("\"name\":{name:?}")), self.options(0).is_some(), "{lock}: {listed}");
        let wait = [&["wait", name][..], &self.options(3).unwrap()].concat();
        lockson.ends(&[&wait[..], &["--timeout", "1ms"]].concat(), 124);
        let run = self.options(4).map(|options| [&["run", name, "--wait", "0"][..], &options].concat());
        if let Some(run) = &run {
            // Readers share their lock.
            let run = run.iter().map(|word| if *word == "--read" { "--write" } else { word });
            lockson.ends(&run.chain(["--", "false"]).collect::<Vec<_>>(), 124);
        }
        let owner = shown["holders"][0]["owner"].as_str().unwrap_or_default();
        for (name, value) in case.names.iter().flat_map(|name| case.values.iter().map(move |value| (name, value))) {
            let options = self.options(5).unwrap().into_iter().map(|word| match word {
                "OWNER" => owner,
                "VALUE" => value,
                word => word,
            });
            lockson.ends(&["free", name, "--reason", "test"].into_iter().chain(options).collect::<Vec<_>>(), 0);
        }
        await_waiter();
        lockson.ends(&[&wait[..], &["--timeout", "20s"]].concat(), 0);
        if let Some(run) = run {
            lockson.ends(&[&run[..], &["--", "sh", "-c", "exit 7"]].concat(), 7);
        }
    }
}

impl Lockson<'_> {
    pub(crate) fn output(self, arguments: &[&str]) -> Output {
        Command::new(self.program).env("LOCKSON_URL", self.url).args(arguments).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn ends(self, arguments: &[&str], code: i32) {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
    }

    #[track_caller]
    pub(crate) fn json(self, arguments: &[&str]) -> Value {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?} {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) const SOON: Duration = Duration::from_secs(20);
