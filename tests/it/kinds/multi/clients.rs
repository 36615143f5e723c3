//! Groups over several clients and servers: one of them closes, is down, or stands still.

use super::names;
use crate::support::prelude::*;

/// Two servers, a client of each with short limits, and a lock of each.
struct Pair {
    servers: [RedisServer; 2],
    clients: [Client; 2],
}

impl Pair {
    fn start() -> Self {
        let servers = [RedisServer::start(), RedisServer::start()];
        let clients = servers.each_ref().map(|server| {
            let settings = Client::builder(&server.url()).command_timeout(PATIENCE).outage_limit(PATIENCE * 2);
            settings.drop_timeout(PATIENCE).connect().unwrap()
        });
        Self { servers, clients }
    }

    fn multi(&self) -> Lock {
        let [one, two] = self.clients.each_ref().map(|client| client.get_lock("job"));
        Lock::multi([one, two])
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        for (server, client) in self.servers.iter().zip(&self.clients) {
            assert_eq!(server.keys(), Vec::<String>::new());
            assert_eq!(client.held(), []);
        }
    }
}

#[test]
fn one_name_on_two_servers_is_two_locks() {
    let pair = Pair::start();
    let guard = pair.multi().lock().unwrap();
    for (server, member) in pair.servers.iter().zip(guard.hold().members()) {
        assert_eq!(fields(server, "job"), [(member.owner().to_owned(), "1".to_owned())]);
    }
    guard.unlock().unwrap();
    pair.assert_nothing_left();
    // Two databases of one server are two places as well; two clients of one place are not.
    let url = pair.servers[0].url_db(1);
    let other = Client::connect(&url).unwrap();
    let both = Lock::multi([pair.clients[0].get_lock("job"), other.get_lock("job")]);
    both.lock().unwrap().unlock().unwrap();
    let twice = Lock::multi([Client::connect(&url).unwrap().get_lock("job"), other.get_lock("job")]);
    assert_eq!(kind_of(twice.lock()), ErrorKind::BadInput);
}

/// The caller waited long for the second lock and for the first one, so it keeps the first one while it waits for the
/// second one again, for more than five seconds.
#[test]
fn an_outage_ends_a_wait_that_keeps_locks_like_any_other() {
    let pair = Pair::start();
    let rivals = pair.servers.each_ref().map(|server| Client::connect(&server.url()).unwrap());
    let [first, second] = if pair.servers[0].url() < pair.servers[1].url() { [0, 1] } else { [1, 0] };
    let takes = |which: usize| rivals[which].get_lock("job").owned().lock().unwrap();
    let waits_at = |which: usize| eventually(SOON, "the caller waits", || pair.clients[which].waiting().len() == 1);
    thread::scope(|scope| {
        let theirs = takes(second);
        let caller = scope.spawn(|| {
            let outcome = kind_of(pair.multi().lock());
            (Instant::now(), outcome)
        });
        waits_at(second);
        let first_of_theirs = takes(first);
        thread::sleep(ms(2_600));
        theirs.unlock().unwrap();
        eventually(SOON, "the caller has it", || pair.clients[second].held().len() == 1);
        let theirs = takes(second);
        waits_at(first);
        thread::sleep(ms(1_500));
        first_of_theirs.unlock().unwrap();
        waits_at(second);
        assert_eq!(pair.clients[first].held().len(), 1, "the caller keeps the first lock");
        let silent_since = Instant::now();
        pair.servers[second].pause();
        let (ended, outcome) = joined(caller);
        assert!(matches!(outcome, ErrorKind::Connection | ErrorKind::Unknown), "{outcome}");
        let took = ended - silent_since;
        // A second of sleep before the next question, the outage limit, and a request under way.
        assert!(took < ms(1_000) + PATIENCE * 3 + SCHEDULING, "an outage of {took:?}");
        pair.servers[second].resume();
        theirs.unlock().unwrap();
    });
    let is_empty = || pair.servers.iter().all(|server| server.keys().is_empty());
    eventually(SOON, "nothing is left", is_empty);
    pair.assert_nothing_left();
}

#[test]
fn a_server_that_is_down_fails_the_take_and_keeps_nothing() {
    let pair = Pair::start();
    let multi = pair.multi();
    multi.lock().unwrap().unlock().unwrap();
    pair.servers[1].kill();
    for (outcome, limit) in [
        (timed(|| kind_of(multi.try_lock())), PATIENCE),
        (timed(|| kind_of(multi.try_lock_for(ms(200)))), PATIENCE + ms(200)),
        (timed(|| kind_of(multi.lock())), PATIENCE * 3),
    ] {
        let (took, kind) = outcome;
        assert!(took <= limit + SCHEDULING, "{took:?}");
        assert!(matches!(kind, ErrorKind::Connection | ErrorKind::Unknown), "{kind:?}");
        assert_eq!(pair.servers[0].keys(), Vec::<String>::new());
        assert_eq!(pair.clients[0].held(), []);
    }
    pair.servers[1].start_again();
    eventually(SOON, "the group is taken again", || multi.try_lock().is_ok_and(|guard| guard.is_some()));
    pair.assert_nothing_left();
}

#[test]
fn a_server_that_stands_still_fails_the_take_and_keeps_nothing() {
    at_once([false, true], |waits| {
        let pair = Pair::start();
        let multi = pair.multi();
        multi.lock().unwrap().unlock().unwrap();
        pair.servers[1].pause();
        let (took, kind) = timed(|| if waits { kind_of(multi.lock()) } else { kind_of(multi.try_lock()) });
        assert!(took <= PATIENCE * 4 + SCHEDULING, "{took:?}");
        assert!(matches!(kind, ErrorKind::Connection | ErrorKind::Unknown), "{kind:?}");
        assert_eq!(pair.servers[0].keys(), Vec::<String>::new());
        pair.servers[1].resume();
        eventually(SOON, "what the server took late is given back", || pair.servers[1].keys().is_empty());
        eventually(SOON, "the group is taken again", || multi.try_lock().is_ok_and(|guard| guard.is_some()));
        pair.assert_nothing_left();
    });
}

#[test]
fn a_re_entered_group_ends_within_one_limit_at_a_mute_server() {
    let pair = Pair::start();
    let multi = Lock::multi((0..6).map(|number| pair.clients[0].get_lock(format!("job:{number}"))));
    let (outer, inner) = (multi.lock().unwrap(), multi.lock().unwrap());
    pair.servers[0].pause();
    let (took, outcome) = timed(|| inner.extend(SOON));
    assert!(outcome.is_err() && took <= PATIENCE + SCHEDULING, "{took:?}");
    for guard in [inner, outer] {
        let (took, outcome) = timed(|| guard.unlock());
        assert!(outcome.is_err() && took <= PATIENCE + SCHEDULING, "{took:?}");
    }
    pair.servers[0].resume();
    eventually(SOON, "the releases are repeated", || pair.servers[0].keys().is_empty());
    pair.assert_nothing_left();
}

#[test]
fn a_part_released_at_a_mute_server_delays_no_other() {
    at_once([0, 1], |mute| {
        let pair = Pair::start();
        let locks = pair.clients.each_ref().map(|client| [client.get_lock("job"), client.get_lock("outer")]);
        let outer = [&locks[0][1], &locks[1][1]].map(|lock| lock.lock().unwrap());
        let guard = Lock::multi(locks.concat()).lock().unwrap();
        pair.servers[mute].pause();
        let (took, outcome) = timed(|| guard.unlock());
        assert!(took <= PATIENCE + SCHEDULING, "{took:?}");
        let well = &pair.servers[1 - mute];
        assert_eq!(well.keys(), ["outer"], "the last release has come");
        let counts = || pair.servers.each_ref().map(|server| fields(server, "outer")[0].1.clone());
        assert_eq!(fields(well, "outer")[0].1, "1", "the other part has come");
        assert!(outcome.unwrap_err().is_in_doubt());
        pair.servers[mute].resume();
        eventually(SOON, "the background writes the count", || counts() == ["1", "1"]);
        outer.into_iter().for_each(|guard| guard.unlock().unwrap());
        eventually(SOON, "the release is repeated", || pair.servers[mute].keys().is_empty());
        pair.assert_nothing_left();
    });
}

#[test]
fn a_mute_server_hides_no_lock_at_another() {
    at_once([0, 1], |mute| {
        let pair = Pair::start();
        let rivals = pair.servers.each_ref().map(|server| Client::connect(&server.url()).unwrap());
        let well = 1 - mute;
        let theirs = rivals[well].get_lock("job").lock().unwrap();
        assert!(pair.multi().try_lock().unwrap().is_none(), "one of them is busy");
        pair.servers[mute].pause();
        let (took, locked) = timed(|| pair.multi().is_locked());
        assert!(locked.unwrap() && took <= PATIENCE + SCHEDULING, "{took:?}");
        let (took, forced) = timed(|| pair.multi().force_unlock());
        assert!(forced.is_err() && took <= PATIENCE + SCHEDULING, "{took:?}");
        assert_eq!(pair.servers[well].keys(), Vec::<String>::new(), "the answering server has opened its lock");
        assert!(theirs.wait_lost(SOON).is_some());
        pair.servers[mute].resume();
    });
}

#[test]
fn the_close_of_one_client_ends_the_wait_of_the_group() {
    for closes_waited in [false, true] {
        let (ours, theirs, [one, two]) = (client(), client(), names());
        let held = client().get_lock(&two).owned().lock().unwrap();
        let multi = Lock::multi([ours.get_lock(&one), theirs.get_lock(&two)]);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| kind_of(multi.lock()));
            eventually(SOON, "it waits", || !theirs.waiting().is_empty());
            let (took, ()) = timed(|| if closes_waited { theirs.close() } else { ours.close() });
            assert_eq!(joined(waiter), ErrorKind::Closed);
            assert!(took < SCHEDULING, "{took:?}");
        });
        assert_eq!(kind_of(multi.try_lock()), ErrorKind::Closed);
        held.unlock().unwrap();
        assert!(is_free(&client().get_lock(&one)) && is_free(&client().get_lock(&two)));
        assert_eq!((ours.held(), theirs.held()), (vec![], vec![]));
    }
}

#[test]
fn the_close_of_one_client_is_the_loss_of_the_group() {
    let (ours, theirs, [one, two]) = (brisk_client(), brisk_client(), names());
    let multi = Lock::multi([ours.get_lock(&one), theirs.get_lock(&two)]);
    let guard = multi.lock().unwrap();
    let hold = guard.hold().clone();
    let waiter = thread::spawn(move || hold.wait_lost(SOON));
    theirs.close();
    assert_eq!(waiter.join().unwrap(), Some(Loss::Closed));
    assert!(!guard.is_held() && guard.lost() == Some(Loss::Closed));
    assert!(is_free(&client().get_lock(&two)), "close gives it back");
    assert!(!is_free(&client().get_lock(&one)), "the other client holds on until the guard goes");
    assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Closed));
    assert!(is_free(&client().get_lock(&one)));
    assert_eq!(ours.held(), []);
}
