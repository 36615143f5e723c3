//! The rules of a stay, on made-up times.
#![cfg(test)]

use super::*;
use crate::conn::address::Address;

const START: Instant = Instant::from_millis(1_000_000);

fn at(millis: u64) -> Instant {
    START.after(Duration::from_millis(millis))
}

/// Takes the answer of a look-up that asked at this moment.
fn learn(state: &mut State, asked: Instant, host: &str, is_calm: bool) -> Option<Stay> {
    let sighting = MasterAddress { endpoint: Endpoint::Tcp(host.into(), 1), is_calm, asked };
    state.learn(asked, Ok(sighting), &dialer_to)
}

fn dialer_to(endpoint: &Endpoint) -> Dialer {
    let address = Address::parse(&format!("redis://{endpoint}")).unwrap();
    Dialer::new(address, None, "test".into())
}

fn locator(finder: impl MasterFinder + 'static) -> Locator {
    Locator::new(finder, dialer_to)
}

fn trouble() -> Result<MasterAddress, Error> {
    Err(Error::new(ErrorKind::Connection, "not known"))
}

#[test]
fn a_place_counts_for_a_while_after_each_look_up() {
    let mut state = State::default();
    assert!(state.current(at(0)).is_none());
    learn(&mut state, at(0), "a", true);
    assert!(state.current(at(1_999)).is_some());
    assert!(state.current(at(2_000)).is_none());
    learn(&mut state, at(1_000), "a", true);
    assert!(state.current(at(2_999)).is_some());
    state.hurries_until = Some(at(60_000));
    assert!(state.current(at(1_750)).is_none());
}

/// A sentinel may be silent, and a machine may be slow.
#[test]
fn the_longest_look_up_tells_a_place_that_counts() {
    let mut state = State { hurries_until: Some(at(60_000)), ..State::default() };
    learn(&mut state, at(0), "a", false);
    let learned = at(0).after(LONGEST_QUESTION);
    assert!(state.current(learned.after(Duration::from_millis(200))).is_some());
    assert!(state.current(at(1_000)).is_none(), "an old master counts for no longer");
}

#[test]
fn a_move_begins_another_stay_and_ends_the_one_before() {
    let mut state = State::default();
    assert!(!state.is_at(0), "there is no place");
    learn(&mut state, at(0), "a", true);
    assert!(state.is_at(1));
    assert!(learn(&mut state, at(1), "a", false).is_none());
    assert!(state.learn(at(2), trouble(), &dialer_to).is_none());
    assert!(state.is_at(1), "trouble is no move");
    assert_eq!(learn(&mut state, at(3), "b", true).map(|stay| stay.number), Some(1));
    assert!(state.is_at(2));
    learn(&mut state, at(4), "a", true);
    assert!(state.is_at(3), "a return is a move, too");
}

#[test]
fn look_ups_hurry_for_a_while_after_a_sign() {
    let mut state = State::default();
    learn(&mut state, at(0), "a", true);
    assert!(!state.hurries(at(0)));
    learn(&mut state, at(100), "a", false);
    learn(&mut state, at(10_000), "a", false);
    assert!(state.hurries(at(10_000)));
    assert!(!state.hurries(at(10_100)), "it has lasted for ten seconds");
    learn(&mut state, at(20_000), "a", true);
    assert!(!state.hurries(at(20_000)));
    state.learn(at(20_001), trouble(), &dialer_to);
    state.learn(at(30_000), trouble(), &dialer_to);
    assert!(state.hurries(at(30_000)));
    assert!(!state.hurries(at(30_001)));
    learn(&mut state, at(40_000), "a", false);
    assert!(state.hurries(at(49_999)), "one sign after another");
    state.learn(at(60_000), trouble(), &dialer_to);
    assert!(state.hurries(at(69_999)) && !state.hurries(at(70_000)), "and the other way round");
}

/// A finder that knows one place, and asked so long ago.
struct Told(Duration);

const SURE: Told = Told(Duration::ZERO);

impl MasterFinder for Told {
    fn look_up(&self) -> Result<MasterAddress, Error> {
        let asked = Instant::now().before(self.0);
        Ok(MasterAddress { endpoint: Endpoint::Tcp("a".into(), 1), is_calm: true, asked })
    }

    fn close(&self) {}
}

#[test]
fn a_dial_that_close_ends_says_so() {
    let locator = locator(SURE);
    let dialled = locator.reach(Instant::now().after(Duration::from_secs(10)), |_| {
        locator.close();
        Err::<(), _>(Fault::NotSent(Error::new(ErrorKind::Connection, "shut down")))
    });
    assert_eq!(dialled.unwrap_err().into_error().kind(), ErrorKind::Closed);
}

#[test]
fn a_place_that_is_left_meanwhile_gives_way_to_the_next_at_once() {
    let locator = locator(SURE);
    let deadline = Instant::now().after(BETWEEN_DIALS / 2);
    let dialled = locator.reach(deadline, |stay| {
        if stay.number == 2 {
            return Ok(());
        }
        let left = learn(&mut locator.0.state.lock(), Instant::now(), "b", true).unwrap();
        left.dialer.close();
        stay.dialer.dial_for(Purpose::Locks, deadline).map(drop)
    });
    dialled.unwrap();
}

#[test]
fn the_place_is_dialled_no_more_after_the_end() {
    let locator = locator(SURE);
    let soon = Instant::now().after(Duration::from_secs(10));
    let stay = locator.stay(soon).unwrap();
    assert!(!stay.dialer.streams.are_closed());
    locator.close();
    assert!(stay.dialer.streams.are_closed());
}

#[test]
fn no_place_is_dialled_that_nobody_confirmed_lately() {
    let locator = locator(Told(FRESH));
    let mut dials = 0;
    let dialled = locator.reach(Instant::now().after(Duration::from_millis(100)), |_| {
        dials += 1;
        Ok(())
    });
    assert_eq!((dialled.unwrap_err().into_error().kind(), dials), (ErrorKind::Connection, 0));
}

#[test]
fn only_a_fault_of_the_place_is_a_sign_of_a_move() {
    let locator = locator(SURE);
    let hurries = |kind| {
        let _ = locator.reach(Instant::now().after(Duration::from_secs(10)), |_| {
            if kind == ErrorKind::Connection {
                locator.close();
            }
            Err::<(), _>(Fault::NotSent(Error::new(kind, "no")))
        });
        locator.0.state.lock().hurries(Instant::now())
    };
    assert!(!hurries(ErrorKind::Unsupported));
    assert!(hurries(ErrorKind::Connection));
}
