//! Makes connections to one server: connects, secures, logs in, and checks what the server is.

mod locate;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::address::{Address, Endpoint};
use super::command::command;
use super::connection::Connection;
#[cfg(feature = "credentials")]
use super::credentials::Provider;
use super::frame::Largest;
use super::introduction::{Hello, IntroductionStep, introduction, text_of};
use super::resolver::Resolver;
use super::server_start::ServerStart;
use super::socket::{Socket, sooner};
use super::stream::Stream;
use super::tls::Connector;
use super::trouble::{self, Moment, NoConnection};
use crate::error::Refusal;
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::{Fault, Identity, ServerNumber};
pub(super) use locate::{LONGEST_QUESTION, LONGEST_SILENCE, Locator, MasterAddress, MasterFinder};

/// Makes connections to one server.
pub(crate) struct Dialer {
    pub(super) number: ServerNumber,
    address: Address,
    /// The address as error texts show it, without credentials.
    pub(super) label: Arc<str>,
    /// The name that operators see.
    client_name: String,
    /// Finds the server, if it moves.
    pub(super) locator: Option<Locator>,
    purpose: Purpose,
    /// How long the server may be silent; `None` where the deadline of the caller suffices.
    longest_silence: Option<Duration>,
    /// Begins TLS sessions; `None` for plain connections.
    tls: Option<Connector>,
    resolver: Resolver,
    /// Gives the credentials of each connection.
    #[cfg(feature = "credentials")]
    provider: Option<Provider>,
    /// Whether the server is a member of a cluster.
    in_cluster: bool,
    /// The id of the node in the cluster, once the map has told it.
    node: Mutex<Option<Arc<str>>>,
    /// Whether new connections ask when the server started.
    asks_start: AtomicBool,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Locks,
    /// To end an earlier request, or to ask for the role: a replica is accepted, too.
    AnyRole,
    /// To ask for the map of a cluster, which a replica knows as well.
    Map,
    /// To ask a Sentinel for the master.
    Sentinel,
}

impl Dialer {
    /// `number` identifies the server within the topology; `client_name` is the name in `CLIENT LIST`.
    pub(crate) fn new(number: ServerNumber, address: Address, tls: Option<Connector>, client_name: String) -> Self {
        Self {
            number,
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
            address,
        }
    }

    /// Takes the credentials of each connection from a provider.
    #[cfg(feature = "credentials")]
    pub(crate) fn with_credentials(self, provider: Option<Provider>) -> Self {
        Self { provider, ..self }
    }

    /// Connects to members of a cluster only; any other server is refused.
    pub(super) fn in_cluster(self) -> Self {
        Self { in_cluster: true, ..self }
    }

    /// Connects for this purpose, in place of requests about locks.
    pub(super) fn with_purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Gives the server another name in texts and events.
    pub(super) fn with_label(self, label: String) -> Self {
        Self { label: label.into(), ..self }
    }

    /// Waits for a silent server for at most this time, to which name look-ups, files and the provider of credentials
    /// do not count.
    pub(super) fn with_longest_silence(self, silence: Duration) -> Self {
        Self { longest_silence: Some(silence), ..self }
    }

    /// Connects to wherever the server is, with the same login.
    pub(super) fn moving(self, locator: Locator) -> Self {
        Self { locator: Some(locator), ..self }
    }

    /// From now on, requests about locks go to the node with this id only.
    pub(super) fn expect_node(&self, id: &str) {
        *self.node.lock() = Some(id.into());
    }

    /// From now on, new connections ask when the server started.
    pub(super) fn ask_start(&self) {
        self.asks_start.store(true, Ordering::Relaxed);
    }

    /// Whether a connection was made before [`Dialer::ask_start`].
    pub(super) fn is_outdated(&self, connection: &Connection) -> bool {
        !connection.asked_start && self.asks_start.load(Ordering::Relaxed)
    }

    /// Returns the address of the server without credentials and database.
    pub(super) fn endpoint(&self) -> String {
        match &self.locator {
            Some(locator) => locator.endpoint().to_owned(),
            None => self.address.endpoint.to_string(),
        }
    }

    /// Connects and sends the introduction, all by `deadline`. `opened` gets the stream before the first byte is
    /// sent, so that closing the client can end the dial as well.
    pub(super) fn dial(&self, deadline: Instant, opened: impl Fn(Weak<Stream>)) -> Result<Box<Connection>, Fault> {
        match &self.locator {
            Some(locator) => locator.dial(self.asks_start.load(Ordering::Relaxed), deadline, opened),
            None => self.dial_for(self.purpose, deadline, opened),
        }
    }

    /// Connects to the address of the server, and sends the introduction for this purpose, all by `deadline`.
    pub(super) fn dial_for(
        &self,
        purpose: Purpose,
        deadline: Instant,
        opened: impl Fn(Weak<Stream>),
    ) -> Result<Box<Connection>, Fault> {
        self.dial_to(&self.address.endpoint, purpose, deadline, opened)
    }

    /// Returns host and port; `None` for a Unix socket.
    pub(super) fn place(&self) -> Option<(&str, u16)> {
        match &self.address.endpoint {
            Endpoint::Tcp(host, port) => Some((host, *port)),
            Endpoint::Unix(_) => None,
        }
    }

    /// Dials the address to which the connection of this identity led; `None` where the address is not known.
    pub(super) fn dial_again(
        &self,
        identity: &Identity,
        deadline: Instant,
        opened: impl Fn(Weak<Stream>),
    ) -> Option<Result<Box<Connection>, Fault>> {
        let host = match identity.peer? {
            SocketAddr::V6(peer) if peer.scope_id() > 0 => format!("{}%{}", peer.ip(), peer.scope_id()),
            peer => peer.ip().to_string(),
        };
        let endpoint = Endpoint::Tcp(host, identity.peer?.port());
        Some(self.dial_to(&endpoint, Purpose::AnyRole, deadline, opened))
    }

    fn dial_to(
        &self,
        endpoint: &Endpoint,
        purpose: Purpose,
        deadline: Instant,
        opened: impl Fn(Weak<Stream>),
    ) -> Result<Box<Connection>, Fault> {
        #[cfg(feature = "credentials")]
        if let Some(provider) = &self.provider {
            return provider.dial(&self.label, deadline, |login| {
                self.dial_once(false, endpoint, purpose, deadline, &opened, || login().map(Some))
            });
        }
        let dial =
            |with_login| self.dial_once(with_login, endpoint, purpose, deadline, &opened, || Ok(None::<Vec<u8>>));
        if !self.address.login_when_asked {
            return dial(true);
        }
        match dial(false) {
            Err(Fault::Refused(refusal)) if refusal.word() == "NOAUTH" => dial(true),
            dialled => dialled,
        }
    }

    /// `with_login` by the URL; `login` gives the command that logs in by a provider, and is called when the server is
    /// connected.
    fn dial_once<Login: AsRef<[u8]>>(
        &self,
        with_login: bool,
        endpoint: &Endpoint,
        purpose: Purpose,
        deadline: Instant,
        opened: &dyn Fn(Weak<Stream>),
        login: impl FnOnce() -> Result<Option<Login>, Fault>,
    ) -> Result<Box<Connection>, Fault> {
        let whole = Instant::now().until(deadline);
        let limit = self.longest_silence.map_or(whole, |silence| whole.min(silence));
        let not_sent = Fault::NotSent;
        // The files are read first: where they cannot be used, no connection is opened.
        let session = self.tls.as_ref().map(|tls| tls.session(deadline)).transpose();
        let session = session.map_err(|error| not_sent(trouble::not_secured(&self.label, &error)))?;
        let mut socket = Socket::dial(endpoint, &self.resolver, deadline, self.longest_silence).map_err(|why| {
            let limit = if matches!(why, NoConnection::NotResolvedInTime) { whole } else { limit };
            not_sent(trouble::not_reached(&self.label, endpoint, why, limit))
        })?;
        opened(Arc::downgrade(socket.stream.shared()));
        if let Some(session) = session {
            let secured = socket.secure(session, sooner(deadline, self.longest_silence));
            secured.map_err(|error| not_sent(trouble::failed(&self.label, Moment::Handshake, error, limit)))?;
        }
        let largest = if purpose == Purpose::Map { Largest::LONG } else { Largest::REPLY };
        let mut connection = Box::new(Connection::new(socket, Arc::clone(&self.label), largest));
        connection.in_cluster = self.in_cluster;
        connection.asked_start = self.asks_start.load(Ordering::Relaxed);
        let (login, peer) = (login()?, connection.peer());
        let deadline = sooner(deadline, self.longest_silence);
        self.introduce(&mut connection, with_login, purpose, login.as_ref().map(AsRef::as_ref), deadline)?;
        if let Some(identity) = &mut connection.identity {
            (identity.number, identity.peer) = (self.number, peer);
        }
        Ok(connection)
    }

    /// Sends the introduction in one round trip. Requests of callers come later: until the replies are checked, the
    /// server may be of the wrong kind.
    fn introduce(
        &self,
        connection: &mut Connection,
        with_login: bool,
        purpose: Purpose,
        login: Option<&[u8]>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let limit = Instant::now().until(deadline);
        let mut moment = Moment::Greeting;
        let lost = |moment, error| Fault::NotSent(trouble::failed(&self.label, moment, error, limit));
        let mut commands = introduction(&self.address, &self.client_name, with_login);
        if connection.asked_start {
            commands.push((IntroductionStep::ServerStart, command(&["INFO", "server"])));
        }
        let node = if purpose == Purpose::Locks { self.node.lock().clone() } else { None };
        if node.is_some() {
            commands.push((IntroductionStep::Node, command(&["CLUSTER", "MYID"])));
        }
        let mut packed = vec![];
        commands.iter().for_each(|(_, command)| command.write_packed_command(&mut packed));
        if let Some(login) = login {
            connection.send(login, deadline).map_err(|error| lost(moment, error))?;
        }
        connection.send(&packed, deadline).map_err(|error| lost(moment, error))?;
        let steps =
            login.map(|_| IntroductionStep::Login).into_iter().chain(commands.into_iter().map(|(step, _)| step));
        let mut refused_login = None;
        for step in steps {
            let reply = match connection.receive(deadline) {
                Ok(reply) => reply,
                Err(error) => return Err(refused_login.unwrap_or_else(|| lost(moment, error))),
            };
            moment = Moment::Request;
            let is_told = step == IntroductionStep::Node && !matches!(reply, Value::ServerError(_));
            if is_told && text_of(&reply).as_deref() != node.as_deref() {
                return Err(Fault::NotSent(trouble::foreign(&self.label)));
            }
            match (self.take_step(connection, step, purpose, reply), refused_login.take()) {
                (Ok(()), None) => {}
                // The reply to `HELLO` explains more than the refused password: keep reading.
                (Err(fault), None) if step == IntroductionStep::Login => refused_login = Some(fault),
                (Err(Fault::NotSent(error)), _) => return Err(Fault::NotSent(error)),
                (_, Some(fault)) | (Err(fault), None) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Checks that the server is of the wanted kind, and a master.
    pub(super) fn check(&self, server: &Hello) -> Result<(), Fault> {
        server.check(&self.label, self.in_cluster)
    }

    fn take_step(
        &self,
        connection: &mut Connection,
        step: IntroductionStep,
        purpose: Purpose,
        reply: Value,
    ) -> Result<(), Fault> {
        if let Value::ServerError(error) = &reply {
            let refusal = step.refusal(&self.address, Refusal::new(error));
            let refusal = refusal.map(|refusal| match purpose {
                Purpose::Sentinel => refusal.at_a_sentinel(self.address.login_when_asked),
                _ => refusal,
            });
            return refusal.map_or(Ok(()), |refusal| Err(Fault::Refused(refusal.at(Arc::clone(&self.label)))));
        }
        match step {
            IntroductionStep::Hello => {
                let server = Hello::read(&reply);
                match purpose {
                    Purpose::Locks => self.check(&server)?,
                    Purpose::Map => server.check_mode(&self.label, self.in_cluster)?,
                    Purpose::Sentinel => server.check_sentinel(&self.label)?,
                    Purpose::AnyRole => {}
                }
                connection.identity = server.id.map(Identity::new);
            }
            IntroductionStep::Info => connection.learn_from(&text_of(&reply).unwrap_or_default()),
            IntroductionStep::ServerStart => {
                connection.server_start = text_of(&reply).and_then(|info| ServerStart::read(&info, Instant::now()))
            }
            IntroductionStep::Login | IntroductionStep::Database | IntroductionStep::Name | IntroductionStep::Node => {}
        }
        Ok(())
    }
}
