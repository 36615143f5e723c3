//! Makes connections to one server: connects, secures, logs in, and checks what the server is.

mod locate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use super::address::{Address, Endpoint};
use super::connection::Connection;
#[cfg(feature = "credentials")]
use super::credentials::Provider;
use super::introduction::{Hello, IntroductionStep, Purpose, introduction};
use super::pub_sub::{PubSubChoice, choose};
use super::resolver::Resolver;
use super::server_start::ServerStart;
use super::socket::{Socket, sooner};
use super::stream::Streams;
use super::tls::Connector;
use super::trouble::{self, Moment};
use crate::error::Refusal;
use crate::reply::{command, text};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::{Fault, Identity, Limits, PubSub, ServerNumber};
pub(super) use locate::{LONGEST_QUESTION, LONGEST_SILENCE, Locator, MasterAddress, MasterFinder};

/// Makes connections to one server.
pub(crate) struct Dialer {
    pub(super) number: ServerNumber,
    /// What was dialled, so that closing the client ends requests and dials under way.
    pub(super) streams: Streams,
    pub(super) address: Address,
    /// The address as error texts show it, without credentials.
    pub(super) label: Arc<str>,
    /// The name that operators see.
    pub(super) client_name: String,
    /// Finds the server, if it moves: connects to wherever the server is, with the same login.
    pub(super) locator: Option<Locator>,
    pub(super) purpose: Purpose,
    /// How long the server may be silent, to which name look-ups, files and the provider of credentials do not count;
    /// `None` where the deadline of the caller suffices.
    pub(super) longest_silence: Option<Duration>,
    /// Begins TLS sessions; `None` for plain connections.
    pub(super) tls: Option<Connector>,
    pub(super) resolver: Resolver,
    /// Gives the credentials of each connection.
    #[cfg(feature = "credentials")]
    pub(super) provider: Option<Provider>,
    /// Whether the server is a member of a cluster; any other server is refused then.
    pub(super) in_cluster: bool,
    /// The id of the node in the cluster, once the map has told it: requests about locks go to no other node.
    pub(super) node: Mutex<Option<Arc<str>>>,
    /// Whether new connections ask when the server started.
    pub(super) asks_start: AtomicBool,
    /// The kind of pub/sub of the client, which is chosen over its first connection.
    pub(super) pub_sub: Arc<PubSubChoice>,
}

/// One connection to make.
#[derive(Clone, Copy)]
struct Dial<'a> {
    dialer: &'a Dialer,
    purpose: Purpose,
    deadline: Instant,
}

pub(super) type Dialled = Result<Box<Connection>, Fault>;

impl Dialer {
    /// `client_name` is the name in `CLIENT LIST`.
    pub(crate) fn new(address: Address, tls: Option<Connector>, client_name: String) -> Self {
        Self {
            number: ServerNumber::default(),
            streams: Streams::default(),
            label: address.to_string().into(),
            client_name,
            locator: None,
            purpose: Purpose::Locks,
            longest_silence: None,
            tls,
            resolver: Resolver::of_the_system(),
            #[cfg(feature = "credentials")]
            provider: None,
            in_cluster: false,
            node: Mutex::default(),
            asks_start: AtomicBool::new(false),
            pub_sub: Arc::new(PubSub::Plain.into()),
            address,
        }
    }

    /// Takes the credentials of each connection from a provider.
    #[cfg(feature = "credentials")]
    pub(crate) fn with_credentials(self, provider: Option<Provider>) -> Self {
        Self { provider, ..self }
    }

    /// From now on, new connections ask when the server started.
    pub(super) fn ask_start(&self) {
        self.asks_start.store(true, Ordering::Relaxed);
    }

    /// Whether a connection was made before [`Dialer::ask_start`].
    pub(super) fn is_outdated(&self, connection: &Connection) -> bool {
        !connection.asked_start && self.asks_start.load(Ordering::Relaxed)
    }

    /// Connects, sends the introduction, and knows the kind of pub/sub, all by `deadline`.
    pub(super) fn dial(&self, deadline: Instant) -> Dialled {
        let mut connection = match &self.locator {
            Some(locator) if !self.streams.are_closed() => {
                locator.dial(self.asks_start.load(Ordering::Relaxed), deadline)?
            }
            _ => self.dial_for(self.purpose, deadline)?,
        };
        connection.pub_sub = choose(&self.pub_sub, &mut connection, Limits::by(deadline))?;
        Ok(connection)
    }

    /// Connects to the address of the server, and sends the introduction for this purpose, all by `deadline`.
    pub(super) fn dial_for(&self, purpose: Purpose, deadline: Instant) -> Dialled {
        Dial { dialer: self, purpose, deadline }.run()
    }

    /// Ends every operation under way, and those to come.
    pub(super) fn close(&self) {
        self.streams.close();
        if let Some(locator) = &self.locator {
            locator.close();
        }
    }

    /// Returns the host; nothing for a Unix socket.
    pub(super) fn host(&self) -> &str {
        if let Endpoint::Tcp(host, _) = &self.address.endpoint { host } else { "" }
    }
}

impl Dial<'_> {
    fn run(self) -> Dialled {
        if self.dialer.streams.are_closed() {
            return Err(Fault::NotSent(trouble::closed()));
        }
        #[cfg(feature = "credentials")]
        if let Some(provider) = &self.dialer.provider {
            let dial = |login: &mut dyn FnMut() -> Result<_, Fault>| self.once(|| login().map(Some));
            return provider.dial(&self.dialer.label, self.deadline, dial);
        }
        let address = &self.dialer.address;
        if address.login_when_asked {
            match self.once(|| Ok(None::<Arc<Vec<u8>>>)) {
                Err(Fault::Refused(refusal)) if refusal.word() == "NOAUTH" => {}
                dialled => return dialled,
            }
        }
        self.once(|| Ok(address.packed_login().map(Arc::new)))
    }

    /// `login` gives the command that logs in, and is called when the server is connected.
    fn once<Login: AsRef<[u8]>>(self, login: impl FnOnce() -> Result<Option<Arc<Login>>, Fault>) -> Dialled {
        let Self { dialer, deadline, .. } = self;
        let Dialer { label, longest_silence, address: Address { endpoint, .. }, .. } = dialer;
        let limit = Instant::now().until(sooner(deadline, *longest_silence));
        // The files are read first: where they cannot be used, no connection is opened.
        let session = dialer.tls.as_ref().map(|tls| tls(&dialer.address, deadline)).transpose();
        // A file may be replaced at this moment, so the next attempt may succeed.
        let session =
            session.map_err(|why| Fault::NotSent(trouble::at(label, format_args!("was not asked: {why}"))))?;
        let socket = Socket::dial(endpoint, &dialer.resolver, deadline, *longest_silence);
        let mut socket = socket.map_err(|why| Fault::NotSent(trouble::not_reached(label, endpoint, why, limit)))?;
        dialer.streams.opened(&socket.stream.stream);
        if let Some(session) = session {
            let secured = socket.secure(session, sooner(deadline, *longest_silence));
            secured.map_err(|error| Fault::NotSent(trouble::failed(label, Moment::Handshake, error, limit)))?;
        }
        let mut connection = Box::new(Connection::new(socket, Arc::clone(label)));
        connection.in_cluster = dialer.in_cluster;
        connection.asked_start = dialer.asks_start.load(Ordering::Relaxed);
        let (login, peer) = (login()?, connection.peer());
        let deadline = sooner(deadline, *longest_silence);
        self.introduce(&mut connection, login.as_ref().map(|login| (**login).as_ref()), deadline)?;
        if let Some(identity) = &mut connection.identity {
            (identity.number, identity.peer) = (dialer.number, peer);
            if let Endpoint::Unix(path) = endpoint
                && let Ok(made) = std::fs::metadata(path).and_then(|file| file.modified())
            {
                identity.server = Some(format!("{made:?}"));
            }
        }
        Ok(connection)
    }

    /// Sends the introduction in one round trip. Requests of callers come later: until the replies are checked, the
    /// server may be of the wrong kind.
    fn introduce(&self, connection: &mut Connection, login: Option<&[u8]>, deadline: Instant) -> Result<(), Fault> {
        let Dialer { label, address, client_name, .. } = self.dialer;
        let limit = Instant::now().until(deadline);
        let lost = |moment, error| Fault::NotSent(trouble::failed(label, moment, error, limit));
        let mut commands = introduction(address, client_name);
        if connection.asked_start {
            commands.push((IntroductionStep::ServerStart, command("INFO", "server")));
        }
        let node = if self.purpose == Purpose::Locks { self.dialer.node.lock().clone() } else { None };
        if node.is_some() {
            commands.push((IntroductionStep::Node, command("CLUSTER", "MYID")));
        }
        let mut packed = vec![];
        commands.iter().for_each(|(_, command)| command.write_packed_command(&mut packed));
        let sent = login.map_or(Ok(()), |login| connection.send(login, deadline));
        // A server without room for the connection says so, and closes it before it is asked anything.
        let mut unsent = sent.and_then(|()| connection.send(&packed, deadline)).err();
        let steps =
            login.map(|_| IntroductionStep::Login).into_iter().chain(commands.into_iter().map(|(step, _)| step));
        // Behind a handshake the port is one for TLS.
        let mut moment = if self.dialer.tls.is_some() { Moment::Request } else { Moment::Greeting };
        let mut refused_login = None;
        for step in steps {
            let reply = connection.receive(deadline);
            let mut cause = |error| lost(moment, unsent.take().unwrap_or(error));
            let reply = reply.map_err(|error| refused_login.take().unwrap_or_else(|| cause(error)))?;
            moment = Moment::Request;
            let is_told = step == IntroductionStep::Node && !matches!(reply, Value::ServerError(_));
            if is_told && text(&reply).as_deref() != node.as_deref() {
                return Err(Fault::NotSent(trouble::foreign(label)));
            }
            match self.take_step(connection, step, reply) {
                // The reply to `HELLO` explains more than the refused password: keep reading.
                Err(fault) if step == IntroductionStep::Login => refused_login = Some(fault),
                // A server of another kind has the address of a known member by now.
                Err(Fault::NotSent(_)) if node.is_some() => return Err(Fault::NotSent(trouble::foreign(label))),
                Err(Fault::NotSent(error)) => return Err(Fault::NotSent(error)),
                step => refused_login.take().map_or(step, Err)?,
            }
        }
        refused_login.map_or(Ok(()), Err)
    }

    fn take_step(&self, connection: &mut Connection, step: IntroductionStep, reply: Value) -> Result<(), Fault> {
        let Dialer { label, address, in_cluster, .. } = self.dialer;
        if let Some(refusal) = Refusal::in_reply(&reply) {
            let refusal = step.refusal(address, refusal).map(|refusal| match self.purpose {
                Purpose::Sentinel => refusal.at_a_sentinel(address.login_when_asked),
                _ => refusal,
            });
            return refusal.map_or(Ok(()), |refusal| Err(Fault::Refused(refusal.at(Arc::clone(label)))));
        }
        match step {
            IntroductionStep::Hello => {
                let server = Hello::read(&reply);
                server.check(label, self.purpose, *in_cluster)?;
                connection.identity = server.id.map(Identity::new);
            }
            IntroductionStep::Info => connection.learn_from(&text(&reply).unwrap_or_default()),
            IntroductionStep::ServerStart => {
                connection.server_start = text(&reply).and_then(|info| ServerStart::read(&info, Instant::now()))
            }
            IntroductionStep::Login | IntroductionStep::Database | IntroductionStep::Name | IntroductionStep::Node => {}
        }
        Ok(())
    }
}
