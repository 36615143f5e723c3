//! `Client::examine`: what each server answers, within the time-out of a command.

use crate::support::prelude::*;

#[test]
fn a_server_that_does_not_answer_costs_one_time_limit() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let limit = ms(300);
    let client = Client::builder(&proxy.url()).command_timeout(limit).connect().unwrap();
    let rule = proxy.rule(When::command("INFO").always(), Then::SwallowReply);
    let (took, answers) = timed(|| client.examine().unwrap().remove(0).1);
    assert_eq!(answers.unwrap_err().kind(), ErrorKind::Connection);
    assert!(took >= limit && took < limit + SCHEDULING, "{took:?}");
    rule.remove();
    let (at, answers) = client.examine().unwrap().remove(0);
    let info = answers.unwrap().info.unwrap();
    assert_eq!((at, &info["tcp_port"]), (format!("{}/0", proxy.address()), &server.port().to_string()));
    client.close();
    assert_eq!(client.examine().unwrap_err().kind(), ErrorKind::Closed);
}
