//! Sends each command to its thread; commands about the process itself run at once.

use std::collections::HashMap;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use lockson::Cancel;

use crate::answer::{Answer, Failure};
use crate::clients::Clients;
use crate::request::Request;
use crate::worker::Worker;
use crate::{counted, cycle, locks, permits, say};

/// All threads and clients of this peer.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    clients: Arc<Clients>,
    workers: Mutex<HashMap<u32, Worker>>,
}

impl Dispatcher {
    pub(crate) fn dispatch(&self, line: &str) {
        let id = Request::id_of(line).to_owned();
        let mut answer = Answer::new();
        if let Err(failure) = self.start(&id, line, &mut answer) {
            say(&answer.line(&id, Err(failure)));
        }
    }

    fn start(&self, id: &str, line: &str, answer: &mut Answer) -> Result<(), Failure> {
        let request = Request::parse(line)?;
        let thread = request.optional_number("thread")?.unwrap_or(0);
        match request.verb() {
            "interrupt" => {
                request.all_read()?;
                answer.put("hit", self.workers().get(&thread).is_some_and(Worker::interrupt));
                say(&answer.line(id, Ok(())));
            }
            "quit" => {
                request.all_read()?;
                self.clients.close_all();
                say(&answer.line(id, Ok(())));
                process::exit(0);
            }
            _ => {
                let (clients, id) = (Arc::clone(&self.clients), id.to_owned());
                let command = Box::new(move |cancel: &Cancel| {
                    let mut answer = Answer::new();
                    let outcome = perform(&clients, &request, &mut answer, cancel).and_then(|()| request.all_read());
                    answer.line(&id, outcome)
                });
                self.workers().entry(thread).or_insert_with(|| Worker::start(thread)).submit(command);
            }
        }
        Ok(())
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn perform(clients: &Clients, request: &Request, answer: &mut Answer, cancel: &Cancel) -> Result<(), Failure> {
    match request.verb() {
        "open" => clients.open(request, answer),
        "close" => clients.close(request, answer),
        "cycle" => cycle::run(clients, request, answer, cancel),
        _ => match request.optional_text("kind")?.as_deref() {
            Some("permits") => permits::perform(clients, request, answer, cancel),
            Some("semaphore") => counted::semaphore(clients, request, answer, cancel),
            Some("latch") => counted::latch(clients, request, answer, cancel),
            _ => locks::perform(clients, request, answer, cancel),
        },
    }
}
