//! Asks the sentinels of a service where its master is.

use std::sync::Arc;

use redis::Value;

use super::succession::{Opinion, Succession, most_of};
use super::{Limit, MakesDialers, cause};
use crate::conn::address::{Address, Endpoint};
use crate::conn::dialer::{Dialer, MasterAddress, MasterFinder};
use crate::conn::introduction::Purpose;
use crate::conn::server::Server;
use crate::conn::target::Service;
use crate::error::{Error, ErrorKind, Result, Stop};
use crate::reply::{command, field, list, text};
use crate::sync::Mutex;
use crate::time::Instant;

/// The sentinels of a service.
pub(super) struct Sentinels {
    service: Service,
    dialer: Arc<MakesDialers>,
    limit: Limit,
    state: Mutex<State>,
}

struct State {
    /// The sentinels that the user named, then the sentinels that the first told of.
    sentinels: Vec<Arc<Server>>,
    succession: Succession,
    closed: bool,
}

/// The answers of all sentinels, each counted under the first of its addresses.
#[derive(Default)]
struct Poll {
    opinions: Vec<Opinion>,
    /// The sentinels with these opinions.
    answered: Vec<Arc<Server>>,
    strangers: Vec<String>,
    errors: Vec<Error>,
}

impl Sentinels {
    pub(super) fn new(service: Service, limit: Limit, dialer: Arc<MakesDialers>) -> Self {
        let sentinels: Vec<_> = service.sentinels.iter().map(|address| sentinel(&*dialer, address.clone())).collect();
        let succession = Succession::among(sentinels.len());
        let state = Mutex::new(State { sentinels, succession, closed: false });
        Self { service, dialer, limit, state }
    }

    /// Asks all sentinels at once. A sentinel that did not answer lately is not asked for a while, unless most did not:
    /// after an outage they may all be back. Returns a time before any question was sent, too.
    fn poll(&self) -> (Instant, Poll) {
        let now = Instant::now();
        let state = self.state.lock();
        let sentinels = state.sentinels.clone();
        // Not by the number of addresses: a silent sentinel may have two, a name and what the others call it.
        let needed = most_of(state.succession.known);
        drop(state);
        let up = sentinels.iter().filter(|sentinel| sentinel.why_down(now).is_none()).count();
        // The epoch is asked for before the master: the other way round, the answers of a fail-over in between would be
        // an old master with a new epoch.
        let name = &*self.service.name;
        let questions = [&["MASTER", name][..], &["GET-MASTER-ADDR-BY-NAME", name], &["MYID"], &["SENTINELS", name]];
        let questions = questions.map(|words| command("SENTINEL", words));
        let (asked, answers) = self.limit.ask(self.limit.question, &sentinels, up >= needed, &questions, opinion);
        let mut poll = Poll::default();
        for (sentinel, answer) in sentinels.into_iter().zip(answers) {
            match answer {
                Ok(Some(opinion)) if poll.has_of(&opinion.id) => {}
                Ok(Some(opinion)) => {
                    poll.opinions.push(opinion);
                    poll.answered.push(sentinel);
                }
                Ok(None) => poll.strangers.push(sentinel.label()),
                Err(error) => poll.errors.push(error),
            }
        }
        (asked, poll)
    }

    /// Adds the sentinels that the answers name. Drops sentinels that neither the user nor most answers name. Returns
    /// whether any was added.
    fn discover(&self, poll: &Poll) -> bool {
        let Some(template) = self.service.sentinels.first() else { return false };
        let others = poll.opinions.iter().flat_map(|opinion| opinion.others.iter().flatten());
        let silent = others.filter(|(id, _)| !poll.has_of(id));
        let silent: Vec<&Endpoint> = silent.map(|(_, endpoint)| endpoint).collect();
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let mut forgotten = vec![];
        let opinions = &poll.opinions;
        if opinions.len() >= most_of(state.succession.known) && opinions.iter().all(|told| told.others.is_some()) {
            let is_left = |server: &mut Arc<Server>| {
                let has_answered = poll.answered.iter().any(|other| Arc::ptr_eq(other, server));
                !has_answered && !silent.contains(&&server.dialer.address.endpoint)
            };
            forgotten = state.sentinels.extract_if(self.service.sentinels.len().., is_left).collect();
        }
        let before = state.sentinels.len();
        for endpoint in silent {
            let is_new = state.sentinels.iter().all(|server| server.dialer.address.endpoint != *endpoint);
            if is_new && state.sentinels.len() < MOST_SENTINELS {
                state.sentinels.push(sentinel(&*self.dialer, template.moved_to(endpoint.clone())));
            }
        }
        let has_more = state.sentinels.len() > before;
        drop(state);
        forgotten.iter().for_each(|server| server.close());
        has_more
    }

    fn doubt(&self, poll: &Poll, doubt: &str) -> Error {
        let Poll { errors, strangers, opinions, .. } = poll;
        let name = &self.service.name;
        let strangers = match &strangers[..] {
            [] => String::new(),
            labels => format!("the sentinels {} watch no service {name}; ", labels.join(",")),
        };
        // Another sentinel, which is silent now, may know the service.
        if opinions.is_empty() && errors.iter().all(|error| error.kind() != ErrorKind::Connection) {
            if let Some(error) = errors.first() {
                // Wrong credentials, or servers that are no sentinels: waiting does not help.
                return error.clone();
            }
            // While a service is removed and monitored anew, no sentinel knows it for a moment.
            if !strangers.is_empty() && self.state.lock().succession.epoch.is_none() {
                return Error::new(ErrorKind::Config, format!("{strangers}SENTINEL MASTERS lists theirs"));
            }
        }
        let cause = cause(errors).map_or_else(String::new, ToString::to_string);
        let why = format!("the master of {name} is not known: {doubt}; {strangers}{cause}");
        Error::new(ErrorKind::Connection, why.trim_end_matches("; "))
    }
}

impl MasterFinder for Sentinels {
    fn look_up(&self) -> Result<MasterAddress> {
        let (mut asked, mut poll) = self.poll();
        self.state.lock().succession.count(&poll.opinions);
        if !poll.opinions.is_empty() && self.discover(&poll) {
            (asked, poll) = self.poll();
        }
        let decided = self.state.lock().succession.decide(&poll.opinions);
        let endpoint = decided.map_err(|doubt| self.doubt(&poll, &doubt))?;
        Ok(MasterAddress { endpoint, is_calm: poll.opinions.iter().all(|opinion| opinion.is_calm), asked })
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let sentinels = state.sentinels.clone();
        drop(state);
        sentinels.iter().for_each(|sentinel| sentinel.close());
    }
}

impl Poll {
    /// Whether the sentinel with this id answered.
    fn has_of(&self, id: &str) -> bool {
        self.opinions.iter().any(|opinion| opinion.id == id)
    }
}

fn sentinel(dialer: &MakesDialers, address: Address) -> Arc<Server> {
    let (purpose, label) = (Purpose::Sentinel, address.endpoint.to_string().into());
    let dialer = dialer(address);
    Arc::new(Server::new(Dialer { purpose, label, ..dialer }, 1))
}

/// Reads what a sentinel says of the service and of itself. `None` where it does not know the service.
fn opinion(replies: &[Value]) -> std::result::Result<Option<Opinion>, Stop> {
    let [watched, master, id, others] = replies else { return Err(Stop::NoReply) };
    if *master == Value::Nil {
        return Ok(None);
    }
    Stop::at_a_refusal([watched, master, id])?;
    let read = || {
        let [host, port] = list(master)? else { return None };
        let watched = |name| field(watched, name).and_then(text);
        let flags = watched("flags")?;
        Some(Opinion {
            id: text(id)?,
            master: Endpoint::at(&text(host)?, &text(port)?)?,
            epoch: watched("config-epoch")?.parse().ok()?,
            known: watched("num-other-sentinels")?.parse::<usize>().ok()? + 1,
            is_calm: !flags.split(',').any(|flag| FLAGS_OF_A_MOVE.contains(&flag)),
            others: places_of(others),
        })
    };
    read().map(Some).ok_or(Stop::NoReply)
}

/// Reads the ids and the places of the other sentinels.
fn places_of(others: &Value) -> Option<Vec<(String, Endpoint)>> {
    let other = |other| {
        let told = |name| field(other, name).and_then(text);
        Some((told("runid")?, Endpoint::at(&told("ip")?, &told("port")?)?))
    };
    // A sentinel that was never reached has no id.
    Some(list(others)?.iter().filter_map(other).filter(|(id, _)| !id.is_empty()).collect())
}

const FLAGS_OF_A_MOVE: [&str; 5] = ["s_down", "o_down", "failover_in_progress", "disconnected", "master_down"];
const MOST_SENTINELS: usize = 32;

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use crossbeam_channel::{Receiver, bounded};

    use super::*;
    use crate::conn::dialer::Dialer;
    use crate::conn::scripted::{Reaction, Scripted, port_of};

    const SOON: Duration = Duration::from_secs(10);

    /// Sentinels at ports where nobody listens.
    fn sentinels() -> Sentinels {
        sentinels_at([1, 2, 3].map(|port| format!("redis://127.0.0.1:{port}")))
    }

    fn sentinels_at(urls: impl IntoIterator<Item = String>) -> Sentinels {
        let address = |url: String| Address::parse(&url).expect("it is an address");
        let sentinels = urls.into_iter().map(address).collect();
        let service = Service { name: "main".into(), sentinels, master: address("redis://127.0.0.1:4".into()) };
        let dialer = |address| Dialer::new(address, None, "test".into());
        Sentinels::new(service, Limit::of(Duration::from_secs(2)), Arc::new(dialer))
    }

    /// Passes one connection on to this server from the moment when `begin` says so.
    fn late(server: &Scripted, begin: Receiver<()>) -> String {
        let (listener, port) = silent();
        let target = server.url().replace("redis://", "");
        thread::spawn(move || {
            let (mut theirs, _) = listener.accept().unwrap();
            begin.recv().unwrap();
            let mut ours = TcpStream::connect(target).unwrap();
            let (mut from, mut to) = (theirs.try_clone().unwrap(), ours.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from, &mut to));
            let _ = io::copy(&mut ours, &mut theirs);
        });
        format!("redis://127.0.0.1:{port}")
    }

    /// The others that two sentinels tell of, by id and port; `None` while they do not tell.
    type Others = Arc<Mutex<Option<Vec<(&'static str, u16)>>>>;

    /// Two sentinels that tell of others.
    fn two_that_tell(others: &Others) -> [Scripted; 2] {
        ["a", "b"].map(|id| {
            let others = Arc::clone(others);
            Scripted::start(move |seen| {
                let others = others.lock().clone();
                let reply = match seen.words[1].as_str() {
                    "MASTER" => array(&["flags", "master", "config-epoch", "1", "num-other-sentinels", "2"]),
                    "MYID" => array(&[id])[4..].to_owned(),
                    "SENTINELS" => others.map_or("-ERR busy\r\n".into(), |others| {
                        let other = |(id, port): &(&str, u16)| {
                            array(&["runid", id, "ip", "127.0.0.1", "port", &port.to_string()])
                        };
                        format!("*{}\r\n{}", others.len(), others.iter().map(other).collect::<String>())
                    }),
                    _ => array(&["127.0.0.1", "4"]),
                };
                Reaction::Reply(reply.leak())
            })
        })
    }

    fn array(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{}", words.len(), words.concat())
    }

    /// A port whose listener takes connections and never answers.
    fn silent() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn ports(sentinels: &Sentinels) -> Vec<u16> {
        let servers = sentinels.state.lock().sentinels.clone();
        servers.iter().map(|server| port_of(server)).collect()
    }

    #[test]
    fn a_silent_sentinel_with_two_addresses_counts_once() {
        let (_listener, port) = silent();
        let others: Others = Arc::new(Mutex::new(Some(vec![("c", port)])));
        let two = two_that_tell(&others);
        let named = format!("redis://localhost:{port}");
        let sentinels = sentinels_at([two[0].url(), two[1].url(), named]);
        sentinels.look_up().unwrap();
        assert_eq!(ports(&sentinels)[2..], [port, port]);
        let servers = sentinels.state.lock().sentinels.clone();
        servers[2..].iter().for_each(|server| server.did_not_answer(Instant::now()));
        let errors = sentinels.poll().1.errors;
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().all(|error| error.to_string().contains("was not asked")), "{errors:?}");
    }

    #[test]
    fn a_dial_that_outlives_its_look_up_serves_the_next() {
        let two = two_that_tell(&Arc::default());
        let (begin, begins) = bounded(1);
        let mut sentinels = sentinels_at([two[0].url(), late(&two[1], begins)]);
        sentinels.limit.dial = SOON;
        for _ in 0..2 {
            let error = sentinels.look_up().unwrap_err().to_string();
            assert!(error.contains("1 of 3 sentinels answer") && error.contains("did not answer within"), "{error}");
        }
        begin.send(()).unwrap();
        let begun = Instant::now();
        while sentinels.look_up().is_err() {
            assert!(begun.until(Instant::now()) < SOON, "another dial cannot succeed");
        }
    }

    #[test]
    fn a_sentinel_that_nobody_knows_any_more_is_dropped() {
        let ((_old, first), (_new, second)) = (silent(), silent());
        let others: Others = Arc::new(Mutex::new(Some(vec![("c", first)])));
        let two = two_that_tell(&others);
        let sentinels = sentinels_at([two[0].url(), two[1].url()]);
        let told = |others_now| {
            *others.lock() = others_now;
            sentinels.look_up().unwrap();
            ports(&sentinels)[2..].to_vec()
        };
        assert_eq!(told(Some(vec![("c", first)])), [first]);
        let server = Arc::clone(&sentinels.state.lock().sentinels[2]);
        assert_eq!(told(None), [first], "nobody tells");
        assert_eq!(told(Some(vec![("c", second)])), [second]);
        assert!(server.dialer.streams.are_closed());
        assert!(told(Some(vec![])).is_empty());
    }

    #[test]
    fn a_sentinel_with_two_addresses_is_asked_at_one() {
        let others: Others = Arc::new(Mutex::new(Some(vec![])));
        let two = two_that_tell(&others);
        let sentinels = sentinels_at(two.iter().map(Scripted::url));
        let again = Address::parse(&two[1].url().replace("127.0.0.1", "localhost")).unwrap();
        sentinels.state.lock().sentinels.push(sentinel(&*sentinels.dialer, again));
        assert_eq!(sentinels.poll().1.opinions.len(), 2);
        sentinels.look_up().unwrap();
        assert_eq!(ports(&sentinels).len(), 2);
    }

    #[test]
    fn a_silent_sentinel_may_know_the_service() {
        let doubt = |errors: &[ErrorKind]| {
            let errors = errors.iter().map(|kind| Error::new(*kind, "no answer")).collect();
            let poll = Poll { strangers: vec!["a:1".into()], errors, ..Poll::default() };
            sentinels().doubt(&poll, "0 of 3 sentinels answer, and 2 must agree")
        };
        let error = doubt(&[ErrorKind::Connection, ErrorKind::Refused]);
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.to_string().contains("2 must agree; the sentinels a:1 watch no service main; no"), "{error}");
        assert_eq!(doubt(&[]).kind(), ErrorKind::Config);
        assert_eq!(doubt(&[ErrorKind::Refused]).kind(), ErrorKind::Refused);
        let known = sentinels();
        known.state.lock().succession.decide(&["a", "b"].map(|id| Opinion::of(id, "m", 1, 3))).unwrap();
        let poll = Poll { strangers: vec!["a:1".into()], ..Poll::default() };
        let error = known.doubt(&poll, "0 of 3 sentinels answer");
        assert_eq!(error.kind(), ErrorKind::Connection, "it was known a moment ago: {error}");
    }

    #[test]
    fn all_sentinels_are_asked_while_most_are_down() {
        let sentinels = sentinels();
        let servers = sentinels.state.lock().sentinels.clone();
        let skipped = || {
            let errors = sentinels.poll().1.errors;
            assert_eq!(errors.len(), 3);
            errors.iter().filter(|error| error.to_string().contains("was not asked")).count()
        };
        servers[0].did_not_answer(Instant::now());
        assert_eq!(skipped(), 1, "the others, which are asked, are down now");
        assert_eq!(skipped(), 0);
    }
}
