//! Tests of connections that cannot be used any more.
#![cfg(test)]

use super::*;
use crate::conn::scripted::{Reaction, Scripted};

const SOON: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now().after(SOON)
}

/// A scripted server, and a client that may open one connection.
fn served(reaction: Reaction) -> (Scripted, Arc<Server>) {
    let scripted = Scripted::start(move |_| reaction.clone());
    let server = Arc::new(Server::for_test(&scripted.url()));
    (scripted, server)
}

fn ping(server: &Server) -> Result<(), Fault> {
    server.questions(Limits::by(soon()), |send| send(&[redis::cmd("PING")]).map(drop))
}

#[test]
fn a_connection_out_of_step_frees_its_slot() {
    // The second reply belongs to no request.
    let (scripted, server) = served(Reaction::Reply("+PONG\r\n+PONG\r\n"));
    (0..3).for_each(|_| ping(&server).unwrap());
    let seen = scripted.seen();
    assert!(seen.windows(2).all(|pair| pair[0].connection != pair[1].connection), "{seen:?}");
}

#[test]
fn connections_closed_while_idle_free_their_slots() {
    let (_scripted, server) = served(Reaction::Reply("+PONG\r\n"));
    for _ in 0..3 {
        ping(&server).unwrap();
        server.leave_replica();
    }
}

#[test]
fn round_trips_without_a_reply_end_their_connection() {
    let (_scripted, server) = served(Reaction::Mute);
    let mut connection = server.connection();
    connection.open(soon()).unwrap();
    let outcome = connection
        .round_trips(Instant::now().after(Duration::from_millis(50)), |send| send(&[redis::cmd("PING")]).map(drop));
    assert!(matches!(outcome, Err(Fault::Unanswered(..))), "{outcome:?}");
    assert_eq!(connection.generation(), None, "the next answer would be that of this question");
}

#[test]
fn the_role_of_another_connection_is_no_answer() {
    let (_scripted, server) = served(Reaction::HangUp);
    let mut connection = server.connection();
    assert!(connection.check_role(soon()).is_err(), "no connection answered anything");
    connection.open(soon()).unwrap();
    connection.check_role(soon()).unwrap();
    connection.round_trips(soon(), |send| send(&[redis::cmd("PING")]).map(drop)).unwrap_err();
    assert!(connection.check_role(soon()).is_err(), "the server that was asked is another one, perhaps");
}

/// Servers on two machines may have the same inner address.
#[test]
fn a_copy_at_another_machine_is_not_fenced() {
    let machines = [(); 2].map(|()| served(Reaction::Reply(":0\r\n")));
    machines.iter().for_each(|(scripted, _)| scripted.becomes("172.17.0.2:6379"));
    let [(first, at_first), (second, at_second)] = &machines;
    let copy = at_first.dialer.dial(soon()).unwrap().identity.unwrap();
    assert!(!at_second.fence(&copy, Limits::by(soon())).unwrap());
    assert!(at_first.fence(&copy, Limits::by(soon())).unwrap(), "its end is certain there");
    for scripted in [first, second] {
        assert_eq!(scripted.seen().iter().filter(|seen| seen.words[..2] == ["CLIENT", "KILL"]).count(), 1);
    }
}
