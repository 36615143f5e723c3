//! `lockson serve`: the locks of a prefix, live, as one page in the browser.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lockson::{Client, Inspection};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{Connection, Listing};
use crate::output::{json_of, millis, report};
use crate::seen::{KEPT, Look, Seen};
use crate::{Failure, connect, free, list};

/// Shows locks, live, as one page in the browser
///
/// The page is read-only, and reached from this machine alone by its secret URL, unless options say otherwise.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(default_value = "", value_name = "PREFIX")]
    beginning: String,
    /// Address to listen at; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Lets the page free locks
    #[arg(long)]
    allow_free: bool,
    /// The most locks that are looked at
    #[arg(long, default_value_t = 200)]
    limit: usize,
}

/// Serves the page until the process ends.
pub(crate) fn serve(connection: &Connection, options: &Options) -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind(options.listen)?;
    let secret = Uuid::new_v4().simple().to_string();
    let (client, beginning) = connect::of_whole_names(connection, &options.beginning)?;
    let title = format!("Locks {beginning}* at {}", connection.place());
    writeln!(io::stdout(), "http://{}/{secret}/", listener.local_addr()?)?;
    io::stdout().flush()?;
    let looks = Mutex::new(Looks { last: None, seen: Seen::new(LONGEST_GAP) });
    let page = Page { client, options, beginning, title, secret, looks };
    let open = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            // A connection too many is closed; a slow one holds up no other.
            if open.fetch_add(1, Ordering::Relaxed) < MOST_CONNECTIONS {
                let (page, open) = (&page, &open);
                scope.spawn(move || {
                    // A browser that goes in the middle of an answer concerns nobody else.
                    let _ = page.answer(stream);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            } else {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    Ok(ExitCode::SUCCESS)
}

struct Page<'a> {
    client: Client,
    options: &'a Options,
    beginning: String,
    /// Which locks of which server.
    title: String,
    /// The first part of each path, which only who started the program knows.
    secret: String,
    looks: Mutex<Looks>,
}

/// The last look, and what the looks before saw, for all browsers.
struct Looks {
    last: Option<(Instant, Value)>,
    seen: Seen,
}

impl Page<'_> {
    /// Answers the one request of a connection.
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut request = BufReader::new((&stream).take(LONGEST_REQUEST));
        let (mut line, mut length) = (String::new(), 0);
        request.read_line(&mut line)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
        loop {
            line.clear();
            if request.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        // Also where nobody needs the body: who closes beside unread bytes takes the answer away from the browser.
        let mut asked = vec![0; length.min(LONGEST_REQUEST as usize)];
        request.read_exact(&mut asked)?;
        let (status, kind, body) = match path.strip_prefix(&format!("/{}", self.secret)) {
            Some("/") if method == "GET" => ("200 OK", "text/html; charset=utf-8", self.html()),
            Some("/locks") if method == "GET" => self.locks(),
            Some("/seen") if method == "POST" => self.seen(&asked),
            Some("/free") if method == "POST" && self.options.allow_free => self.free(&asked),
            _ => ("404 Not Found", "text/plain", "not found\n".to_owned()),
        };
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{}'; style-src 'unsafe-inline'; connect-src 'self'",
            self.secret
        );
        write!(
            &stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nContent-Security-Policy: {policy}\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn html(&self) -> String {
        let rights = if self.options.allow_free { "free" } else { "" };
        let page = include_str!("serve/page.html").replace("{{nonce}}", &self.secret);
        let page = page.replace("{{rights}}", rights).replace("{{span}}", &KEPT.as_millis().to_string());
        page.replace("{{title}}", &escaped(&self.title)) // last, for a title with braces
    }

    /// The locks, looked at no more than twice a second for all browsers together.
    fn locks(&self) -> (&'static str, &'static str, String) {
        let listing = Listing { limit: self.options.limit, output: crate::args::Output { json: true } };
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.last.as_ref().is_none_or(|(at, _)| at.elapsed() > Duration::from_millis(500)) {
            let asked = Instant::now();
            match list::look(&self.client, &self.beginning, listing) {
                Ok((found, is_cut)) => {
                    let now = Instant::now();
                    looks.seen.add(asked, now, found.iter().map(Look::of), is_cut);
                    let told = told(&found, &looks.seen, is_cut.then_some(listing.limit));
                    looks.last = Some((now, told));
                }
                Err(failure) => return ("502 Bad Gateway", "text/plain; charset=utf-8", failure.to_string()),
            }
        }
        let told = looks.last.as_ref().map_or(Value::Null, |(_, told)| told.clone());
        ("200 OK", "application/json", told.to_string())
    }

    /// What the looks saw of the lock that a page chose.
    fn seen(&self, name: &[u8]) -> (&'static str, &'static str, String) {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = looks.seen.json(&String::from_utf8_lossy(name), Instant::now());
        ("200 OK", "application/json", seen.to_string())
    }

    /// Frees the hold of one owner, as `{"name": .., "owner": .., "reason": ..}` asks.
    fn free(&self, body: &[u8]) -> (&'static str, &'static str, String) {
        let wanted: Value = serde_json::from_slice(body).unwrap_or_default();
        let [Some(name), Some(owner), Some(reason)] = ["name", "owner", "reason"].map(|word| wanted[word].as_str())
        else {
            return ("400 Bad Request", "text/plain", "a name, an owner and a reason are needed\n".to_owned());
        };
        if !name.starts_with(&self.beginning) {
            return ("403 Forbidden", "text/plain", "the name is outside of the prefix\n".to_owned());
        }
        let before = self.client.inspect(name).map_err(Failure::from);
        match before.and_then(|before| free::free_owner(&self.client, name, owner, &before)) {
            Ok(freed) => {
                let what = if freed { "freed" } else { "nothing to free at" };
                report(format_args!("from the page: {what} {name:?} of {owner:?}: {reason:?}"));
                ("200 OK", "application/json", json!({ "freed": freed }).to_string())
            }
            Err(failure) => ("502 Bad Gateway", "text/plain; charset=utf-8", failure.to_string()),
        }
    }
}

/// What the page is told: the locks, and what an operator must know about the list.
fn told(found: &[Inspection], seen: &Seen, limit: Option<usize>) -> Value {
    let mut notes: Vec<String> =
        limit.map(|limit| format!("there may be more than {limit} locks; --limit shows more")).into_iter().collect();
    let missing: BTreeSet<&str> = found.iter().flat_map(Inspection::without_rights).map(String::as_str).collect();
    let (keys, commands): (Vec<&str>, Vec<&str>) = missing.into_iter().partition(|word| word.starts_with('~'));
    notes.extend(commands.iter().map(|command| format!("the user may not run {command}, so something is not shown")));
    if !keys.is_empty() {
        notes.push(format!("the user may not read {} keys, so something is not shown", keys.len()));
    }
    let unknown = found.iter().find_map(Inspection::without_clients);
    notes.extend(unknown.map(|why| format!("the processes of holders are not known: {why}")));
    let locks = found.iter().map(|inspection| {
        let mut lock = json_of(inspection);
        lock["seen_for_ms"] = millis(seen.held_for(inspection.name())).into();
        lock
    });
    json!({ "locks": locks.collect::<Vec<_>>(), "notes": notes })
}

/// A text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A browser on this machine sends its request at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// A page looks each second; while no page is open, nobody looks.
const LONGEST_GAP: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 32;
const LONGEST_REQUEST: u64 = 64 * 1024;
