//! Asks the sentinels of a service where its master is.

use std::sync::Arc;

use redis::Value;

use super::succession::{Doubt, Opinion, Succession, most_of};
use super::{Limit, MakesDialers};
use crate::conn::address::{Address, Endpoint};
use crate::conn::command::command;
use crate::conn::dialer::{Dialer, MasterAddress, MasterFinder};
use crate::conn::introduction::{Purpose, text_of};
use crate::conn::server::Server;
use crate::conn::target::Service;
use crate::error::{Error, ErrorKind, Result, Stop};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::ServerNumber;

/// The sentinels of a service.
pub(super) struct Sentinels {
    service: Service,
    dialer: Arc<MakesDialers>,
    limit: Limit,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The sentinels that the user named, then those that these told of.
    sentinels: Vec<Arc<Server>>,
    /// How many sentinels there are, by those that answered last.
    known: usize,
    succession: Succession,
    closed: bool,
}

/// The answers of all sentinels.
#[derive(Default)]
struct Poll {
    opinions: Vec<Opinion>,
    /// The sentinels with these opinions.
    answered: Vec<Arc<Server>>,
    /// Whether a sentinel says that the master does not answer, or that it is being replaced.
    is_uneasy: bool,
    strangers: Vec<String>,
    errors: Vec<Error>,
}

impl Sentinels {
    pub(super) fn new(service: Service, limit: Limit, dialer: Arc<MakesDialers>) -> Self {
        let sentinels = service.sentinels.iter().map(|address| sentinel(&*dialer, address.clone())).collect();
        let state = Mutex::new(State { sentinels, ..State::default() });
        Self { service, dialer, limit, state }
    }

    /// Asks all sentinels at once. A sentinel that did not answer lately is not asked for a while, unless most did not:
    /// after an outage they may all be back.
    fn poll(&self) -> (Instant, Poll) {
        let sentinels = self.state.lock().sentinels.clone();
        // The epoch is asked for before the master: the other way round, the answers of a fail-over in between would be
        // an old master with a new epoch.
        let name = &*self.service.name;
        let questions = [&["MASTER", name][..], &["GET-MASTER-ADDR-BY-NAME", name], &["MYID"]];
        let (asked, answers) = self.ask(&sentinels, &questions, opinion);
        let mut poll = Poll::default();
        for (sentinel, answer) in sentinels.into_iter().zip(answers) {
            match answer {
                Ok(Some((opinion, is_calm))) => {
                    poll.is_uneasy |= !is_calm;
                    poll.opinions.push(opinion);
                    poll.answered.push(sentinel);
                }
                Ok(None) => poll.strangers.push(sentinel.label()),
                Err(error) => poll.errors.push(error),
            }
        }
        (asked, poll)
    }

    /// Returns a time before any question was sent, too.
    fn ask<T: Send>(
        &self,
        sentinels: &[Arc<Server>],
        questions: &[&[&str]],
        read: impl Fn(&[Value]) -> std::result::Result<T, Stop> + Sync,
    ) -> (Instant, Vec<Result<T>>) {
        let now = Instant::now();
        let state = self.state.lock();
        let is_found = state.succession.has_begun();
        // Not by the number of addresses: a silent sentinel may have two, a name and what the others call it.
        let needed = most_of(state.known.max(self.service.sentinels.len()));
        drop(state);
        let up = sentinels.iter().filter(|sentinel| sentinel.why_down(now).is_none()).count();
        let questions: Vec<_> = questions.iter().map(|words| command(&[&["SENTINEL"], *words].concat())).collect();
        self.limit.ask(is_found, sentinels, up >= needed, &questions, read)
    }

    /// Adds the sentinels that those who answered know, and drops those that the user did not name and most of them do
    /// not know. Returns whether any was added.
    fn discover(&self, poll: &Poll) -> bool {
        let Some(template) = self.service.sentinels.first() else { return false };
        let named = self.service.sentinels.len();
        let answered = poll.distinct();
        let has_answered = |server: &Arc<Server>| answered.iter().any(|(_, other)| Arc::ptr_eq(other, server));
        let mut state = self.state.lock();
        let known = state.known;
        if answered.len() >= known && state.sentinels.iter().skip(named).all(has_answered) {
            return false;
        }
        drop(state);
        let (mut silent, mut is_complete) = (vec![], answered.len() >= most_of(known.max(named)));
        for answer in self.ask(&poll.answered, &[&["SENTINELS", &self.service.name]], others).1 {
            let Ok(others) = answer else {
                is_complete = false;
                continue;
            };
            let others = others.into_iter().filter(|(id, _)| answered.iter().all(|(known, _)| known != id));
            silent.extend(others.map(|(_, endpoint)| endpoint));
        }
        state = self.state.lock();
        if state.closed {
            return false;
        }
        let mut forgotten = vec![];
        if is_complete {
            let told = state.sentinels.split_off(named);
            let is_silent = |server: &Arc<Server>| silent.iter().any(|other| server.endpoint() == other.to_string());
            let (kept, left): (Vec<_>, _) =
                told.into_iter().partition(|server| has_answered(server) || is_silent(server));
            state.sentinels.extend(kept);
            forgotten = left;
        }
        let before = state.sentinels.len();
        for endpoint in silent {
            let is_new = !state.sentinels.iter().any(|server| server.endpoint() == endpoint.to_string());
            if is_new && state.sentinels.len() < MOST_SENTINELS {
                state.sentinels.push(sentinel(&*self.dialer, template.moved_to(endpoint)));
            }
        }
        let has_more = state.sentinels.len() > before;
        drop(state);
        forgotten.iter().for_each(|server| server.close());
        has_more
    }

    fn doubt(&self, poll: Poll, doubt: Doubt) -> Error {
        let Poll { errors, strangers, opinions, .. } = poll;
        let name = &self.service.name;
        let watch_none = || format!("the sentinels {} watch no service {name}", strangers.join(","));
        // Another sentinel, which is silent now, may know the service.
        let is_final = errors.iter().all(|error| error.kind() != ErrorKind::Connection);
        if opinions.is_empty() && is_final {
            if let Some(error) = errors.first() {
                // Wrong credentials, or servers that are no sentinels: waiting does not help.
                return error.clone();
            }
            // While a service is removed and monitored anew, no sentinel knows it for a moment.
            if !strangers.is_empty() && !self.state.lock().succession.has_begun() {
                let text = format!("{}; SENTINEL MASTERS lists theirs", watch_none());
                return Error::new(ErrorKind::Config, text);
            }
        }
        let why = match doubt {
            Doubt::TooFew { answered, known } => {
                let needed = most_of(known);
                let strangers = if strangers.is_empty() { String::new() } else { format!("; {}", watch_none()) };
                let cause = errors.iter().find(|error| error.kind() != ErrorKind::Connection).or(errors.first());
                let error = cause.map_or_else(String::new, |error| format!("; {error}"));
                format!("{answered} of {known} sentinels answer, and {needed} must agree{strangers}{error}")
            }
            Doubt::Disagreement { named, known } => {
                let named: Vec<_> = named.iter().map(|(master, count)| format!("{count} name {master}")).collect();
                format!("of {known} sentinels {}, and {} must agree", named.join(", "), most_of(known))
            }
            Doubt::Older { master, epoch, accepted } => format!(
                "the sentinels name {master} of epoch {epoch}, but a master of epoch {accepted} was known before; \
                 where the sentinels were set up anew, open the client anew, too"
            ),
        };
        Error::new(ErrorKind::Connection, format!("the master of {name} is not known: {why}"))
    }
}

impl MasterFinder for Sentinels {
    fn look_up(&self) -> Result<MasterAddress> {
        let (mut asked, mut poll) = self.poll();
        // The sentinel that knows most says how many there are.
        if let Some(known) = poll.opinions.iter().map(|opinion| opinion.known).max() {
            self.state.lock().known = known;
            if self.discover(&poll) {
                (asked, poll) = self.poll();
            }
        }
        let decided = self.state.lock().succession.decide(self.service.sentinels.len(), &poll.opinions);
        match decided {
            Ok(endpoint) => Ok(MasterAddress { endpoint, is_calm: !poll.is_uneasy, asked }),
            Err(doubt) => Err(self.doubt(poll, doubt)),
        }
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
    /// The sentinels that answered with their ids, each under the first of its addresses.
    fn distinct(&self) -> Vec<(&str, &Arc<Server>)> {
        let mut distinct: Vec<(&str, &Arc<Server>)> = vec![];
        for (opinion, server) in self.opinions.iter().zip(&self.answered) {
            if distinct.iter().all(|(id, _)| *id != opinion.id) {
                distinct.push((&opinion.id, server));
            }
        }
        distinct
    }
}

fn sentinel(dialer: &MakesDialers, address: Address) -> Arc<Server> {
    let label = address.endpoint.to_string().into();
    let dialer = dialer(ServerNumber::default(), address);
    Arc::new(Server::new(Dialer { purpose: Purpose::Sentinel, label, ..dialer }, 1))
}

/// Reads what a sentinel says of the service and of itself, and whether it expects no move. `None` where it does not know
/// the service.
fn opinion(replies: &[Value]) -> std::result::Result<Option<(Opinion, bool)>, Stop> {
    let [watched, master, id] = replies else { return Err(Stop::NoReply) };
    if *master == Value::Nil {
        return Ok(None);
    }
    Stop::at_a_refusal(replies)?;
    let read = || {
        let Value::Array(place) = master else { return None };
        let [host, port] = place.as_slice() else { return None };
        let flags = field(watched, "flags")?;
        let opinion = Opinion {
            id: text_of(id)?,
            master: endpoint(text_of(host)?, &text_of(port)?)?,
            epoch: field(watched, "config-epoch")?.parse().ok()?,
            known: field(watched, "num-other-sentinels")?.parse::<usize>().ok()? + 1,
        };
        Some((opinion, !flags.split(',').any(|flag| FLAGS_OF_A_MOVE.contains(&flag))))
    };
    read().map(Some).ok_or(Stop::NoReply)
}

/// Reads the ids and the places of the other sentinels.
fn others(replies: &[Value]) -> std::result::Result<Vec<(String, Endpoint)>, Stop> {
    Stop::at_a_refusal(replies)?;
    let [Value::Array(others)] = replies else { return Err(Stop::NoReply) };
    let other = |other| Some((field(other, "runid")?, endpoint(field(other, "ip")?, &field(other, "port")?)?));
    // A sentinel that was never reached has no id.
    Ok(others.iter().filter_map(other).filter(|(id, _)| !id.is_empty()).collect())
}

fn endpoint(host: String, port: &str) -> Option<Endpoint> {
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some(Endpoint::Tcp(host, port))
}

/// Returns a field of a flat list of names and values, or of a map.
fn field(reply: &Value, name: &str) -> Option<String> {
    let (_, value) = reply.as_map_iter()?.find(|(key, _)| text_of(key).is_some_and(|key| key == name))?;
    text_of(value)
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
    use crate::conn::scripted::{Reaction, Scripted};

    const SOON: Duration = Duration::from_secs(10);

    /// Sentinels at ports where nobody listens.
    fn sentinels() -> Sentinels {
        sentinels_at([1, 2, 3].map(|port| format!("redis://127.0.0.1:{port}")))
    }

    fn sentinels_at(urls: impl IntoIterator<Item = String>) -> Sentinels {
        let address = |url: String| Address::parse(&url).expect("it is an address");
        let sentinels = urls.into_iter().map(address).collect();
        let service = Service { name: "main".into(), sentinels, master: address("redis://127.0.0.1:4".into()) };
        let dialer = |number, address| Dialer::new(number, address, None, "test".into());
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
        servers.iter().map(|server| server.dialer.place().unwrap().1).collect()
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
        assert!(server.pool.is_closed());
        assert!(told(Some(vec![])).is_empty());
    }

    #[test]
    fn a_sentinel_with_two_addresses_is_asked_at_one() {
        let others: Others = Arc::new(Mutex::new(Some(vec![])));
        let two = two_that_tell(&others);
        let sentinels = sentinels_at(two.iter().map(Scripted::url));
        let again = Address::parse(&two[1].url().replace("127.0.0.1", "localhost")).unwrap();
        sentinels.state.lock().sentinels.push(sentinel(&*sentinels.dialer, again));
        sentinels.look_up().unwrap();
        assert_eq!(ports(&sentinels).len(), 2);
    }

    #[test]
    fn a_silent_sentinel_may_know_the_service() {
        let doubt = |errors: &[ErrorKind]| {
            let errors = errors.iter().map(|kind| Error::new(*kind, "no answer")).collect();
            let poll = Poll { strangers: vec!["a:1".into()], errors, ..Poll::default() };
            sentinels().doubt(poll, Doubt::TooFew { answered: 0, known: 3 })
        };
        let error = doubt(&[ErrorKind::Connection, ErrorKind::Refused]);
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.to_string().contains("2 must agree; the sentinels a:1 watch no service main; no"), "{error}");
        assert_eq!(doubt(&[]).kind(), ErrorKind::Config);
        assert_eq!(doubt(&[ErrorKind::Refused]).kind(), ErrorKind::Refused);
        let known = sentinels();
        let opinion = |id: &str| Opinion { id: id.into(), master: Endpoint::Tcp("m".into(), 1), epoch: 1, known: 3 };
        known.state.lock().succession.decide(3, &["a", "b"].map(opinion)).unwrap();
        let poll = Poll { strangers: vec!["a:1".into()], ..Poll::default() };
        let error = known.doubt(poll, Doubt::TooFew { answered: 0, known: 3 });
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
