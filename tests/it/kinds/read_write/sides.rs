//! Two sides of one hold: counts, questions, losses, and other kinds of lock of the same name.

use lockson::LockKind::Write;

use super::{hold_key, is, sides, state};
use crate::faults::other_process::lock_of;
use crate::support::kinds::WATCHED;
use crate::support::prelude::*;

#[test]
fn guards_of_both_sides_may_be_dropped_in_any_order() {
    let server = RedisServer::start();
    let [ours, theirs] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    for order in orders(&[0, 1, 2, 3]) {
        let ((read, write), (other_read, other_write)) = (sides(&ours, "job"), sides(&theirs, "job"));
        let guards: [Guard; 4] = [&write, &read, &write, &read].map(|side| side.lock().unwrap());
        let owner = guards[0].owner().to_owned();
        let mut guards = guards.map(Some);
        for (dropped, index) in order.iter().enumerate() {
            guards[*index] = None;
            let counts = [0, 1].map(|side| guards.iter().skip(side).step_by(2).flatten().count());
            let what = format!("{order:?} after {dropped}: {counts:?}");
            assert!(guards.iter().flatten().all(|guard| guard.is_held()), "{what}");
            assert_eq!([&write, &read].map(Lock::hold_count), counts.map(|count| count as u64), "{what}");
            let writer = format!("{owner}:write");
            let wanted: Vec<_> =
                [(&*writer, counts[0]), (&*owner, counts[1])].into_iter().filter(|(_, n)| *n > 0).collect();
            let mode = if counts[0] > 0 { "write" } else { "read" };
            if wanted.is_empty() {
                assert!(server.keys().is_empty(), "{what}");
            } else {
                assert_eq!(state(&server, "job"), is(&wanted, mode), "{what}");
                assert_eq!(server.keys().len(), 1 + counts[1], "{what}");
                assert!((1..=counts[1]).all(|number| ttl_ms(&server, &hold_key("job", &owner, number)) > 0), "{what}");
            }
            assert_eq!(is_free(&other_read), counts[0] == 0, "{what}");
            assert_eq!(is_free(&other_write), wanted.is_empty(), "{what}");
        }
    }
}

#[test]
fn each_side_answers_for_itself() {
    let name = fresh("rw");
    let (ours, theirs) = (client(), client());
    let ((read, write), others) = (sides(&ours, &name), sides(&theirs, &name));
    let ask = |lock: &Lock| {
        let holder = lock.holder().unwrap().map(|holder| (holder.owner().to_owned(), holder.hold_count()));
        (lock.is_locked().unwrap(), lock.is_held_by_current_thread(), lock.hold_count(), holder)
    };
    let (nobody, of) =
        ((false, false, 0, None), |owner: &str, count| (true, true, count, Some((owner.to_owned(), count))));
    assert_eq!([ask(&read), ask(&write)], [nobody.clone(), nobody.clone()]);

    let first = read.lock().unwrap();
    let owner = first.owner().to_owned();
    assert_eq!([ask(&read), ask(&write)], [of(&owner, 1), nobody.clone()]);
    let second = read.lock().unwrap();
    assert_eq!([ask(&read), ask(&write)], [of(&owner, 2), nobody.clone()]);
    assert_eq!(ask(&others.0), (true, false, 0, Some((owner, 2))), "another client sees the hold");
    drop((first, second));

    let writing = write.lock().unwrap();
    let owner = writing.owner().to_owned();
    assert_eq!([ask(&read), ask(&write)], [nobody.clone(), of(&owner, 1)]);
    let reading = read.lock().unwrap();
    let again = write.lock().unwrap();
    assert_eq!([ask(&read), ask(&write)], [of(&owner, 1), of(&owner, 2)]);
    elsewhere(|| assert_eq!([read.hold_count(), write.hold_count()], [0, 0], "another thread holds nothing"));
    assert_eq!(ours.held().iter().map(|held| held.hold_count()).collect::<Vec<_>>(), [3]);
    drop((writing, again));
    assert_eq!([ask(&read), ask(&write)], [of(&owner, 1), nobody.clone()]);
    drop(reading);
    assert_eq!([ask(&read), ask(&write)], [nobody.clone(), nobody]);
}

#[test]
fn a_writer_in_a_transaction_of_redisson_is_on_the_write_side() {
    let (server, client, name) = (RedisServer::shared(), client(), fresh("rw"));
    let owner = "6f1c0d5e-8a0b-4f5e-9d3c-2b1a00c0ffee:77:write:0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    server.run(&["HSET", &name, "mode", "write", owner, "1"]);
    server.run(&["PEXPIRE", &name, "30000"]);
    let (read, write) = sides(&client, &name);
    assert!(!is_free(&read) && !is_free(&write));
    assert_eq!([&read, &write].map(|side| side.is_locked().unwrap()), [false, true]);
    assert!(read.holder().unwrap().is_none());
    assert_eq!(write.holder().unwrap().unwrap().owner(), owner);
    let found = client.inspect(&name).unwrap();
    let holder = &found.holders()[0];
    assert_eq!((found.kind(), holder.side(), holder.owner()), (Some(Write), Some(Write), owner));
    write.force_unlock_owner(owner).unwrap();
    assert!(is_free(&write));
}

#[test]
fn a_late_release_of_reading_costs_a_writer_nothing() {
    let rig = Rig::start();
    let (read, write) = sides(&rig.client(), "job");
    let (_, stranger) = sides(&rig.direct(), "job");
    let outer = write.lock().unwrap();
    let mark = rig.proxy.mark();
    read.lock().unwrap().unlock().unwrap();
    let release = include_str!("../../../../lua/read_write/release.lua");
    let release = rig.proxy.wait_for_since(mark, &rig.script_of(release), SOON);
    let inner = read.lock().unwrap();
    rig.proxy.wait_fate(&rig.proxy.send_copy_anew(&release), SOON);
    outer.unlock().unwrap();
    assert!(inner.is_held() && !is_free(&stranger));
    inner.unlock().unwrap();
    assert!(rig.server.keys().is_empty());
}

#[test]
fn only_the_side_that_is_held_can_be_forced_open() {
    let server = RedisServer::shared();
    let (ours, theirs) = (brisk_client(), client());
    for side in [0, 1] {
        let name = fresh("rw");
        let pick = |client: &Client| {
            let (read, write) = sides(client, &name);
            if side == 0 { (read, write) } else { (write, read) }
        };
        let ((held, _), (right, wrong)) = (pick(&ours), pick(&theirs));
        let guards = [held.lock().unwrap(), held.lock().unwrap()];
        assert!(!wrong.force_unlock().unwrap(), "no owner is on that side");
        assert!(guards.iter().all(|guard| guard.is_held()) && right.is_locked().unwrap());
        assert!(right.force_unlock().unwrap());
        assert!(!right.is_locked().unwrap() && !right.force_unlock().unwrap());
        // No waiter of that process asks, so the next renewal reveals the loss.
        for guard in guards {
            assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
            assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
        }
        assert!(is_free(&wrong) && is_free(&right));
        let left: Vec<String> = server.query(&["KEYS", &format!("*{name}*rwlock_timeout*")]);
        for key in left {
            assert!(
                (-2..=TTL.as_millis() as i64).contains(&ttl_ms(server, &key)) && ttl_ms(server, &key) != -1,
                "{key}"
            );
        }
    }
}

#[test]
fn once_per_interval_is_refused_to_readers() {
    let (server, name) = (RedisServer::shared(), fresh("both"));
    let (read, write) = sides(&client(), &name);
    let error = read.once_per(ms(1_000)).unwrap_err();
    assert_eq!((error.kind(), error.lock_name()), (ErrorKind::BadInput, Some(name.as_str())));
    let both = Lock::multi([client().get_lock(fresh("other")), read]);
    assert_eq!(both.once_per(ms(1_000)).unwrap_err().kind(), ErrorKind::BadInput);
    assert!(state(server, &name).is_empty());
    assert!(write.once_per(ms(1_000)).unwrap() && !write.once_per(ms(1_000)).unwrap());
}

#[test]
fn a_loss_is_found_by_the_next_request_about_either_side() {
    let server = RedisServer::shared();
    let (ours, theirs) = (client(), client());
    for by in ["re-entry by reading", "re-entry by writing", "giving reading back", "giving writing back", "extending"]
    {
        let name = fresh("rw");
        let ((read, write), others) = (sides(&ours, &name), sides(&theirs, &name));
        let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
        server.run(&["DEL", &name]);
        let foreign = others.1.lock().unwrap();
        let before = state(server, &name);
        let taken = ErrorKind::Lost(Loss::Taken);
        let rest = match by {
            "re-entry by reading" => (kind_of(read.lock()), vec![writing, reading]),
            "re-entry by writing" => (kind_of(write.lock()), vec![writing, reading]),
            "giving reading back" => (kind_of(reading.unlock()), vec![writing]),
            "giving writing back" => (kind_of(writing.unlock()), vec![reading]),
            _ => (kind_of(writing.extend(ms(60_000))), vec![writing, reading]),
        };
        assert_eq!(rest.0, taken, "{by}");
        for guard in rest.1 {
            assert_eq!(guard.lost(), Some(Loss::Taken), "{by}");
            assert_eq!(kind_of(guard.unlock()), taken, "{by}");
        }
        assert_eq!(state(server, &name), before, "{by}: the new holder is untouched");
        foreign.unlock().unwrap();
    }
}

#[test]
fn a_side_left_to_unlock_is_given_back_by_that_side() {
    let name = fresh("rw");
    let (read, write) = sides(&client(), &name);
    let others = sides(&client(), &name);
    write.lock().unwrap().leave_to_unlock();
    read.lock().unwrap().leave_to_unlock();
    elsewhere(|| assert_eq!(kind_of(write.unlock()), ErrorKind::NotHeld, "another thread has the lock"));
    write.unlock().unwrap();
    assert_eq!(kind_of(write.unlock()), ErrorKind::NotHeld);
    assert!(is_free(&others.0) && !is_free(&others.1));
    assert_eq!((read.hold_count(), write.hold_count()), (1, 0));
    read.unlock().unwrap();
    assert_eq!(kind_of(read.unlock()), ErrorKind::NotHeld);
    assert!(is_free(&others.1));
}

#[test]
fn a_lock_of_another_kind_with_its_name_is_refused_both_ways() {
    let server = RedisServer::shared();
    for other in ["plain", "fair", "fenced", "spin", "non-reentrant", "non-reentrant fair"] {
        let of_kind = |client: &Client, name: &str| match other {
            "spin" => client.get_spin_lock(name),
            "non-reentrant" => client.get_non_reentrant_lock(name),
            "non-reentrant fair" => client.get_non_reentrant_fair_lock(name),
            _ => lock_of(client, other, name),
        };
        let check = |held: Lock, refused: Lock| {
            let what = format!("{other}: {} beside {}", refused.name(), held.name());
            let guard = held.lock().unwrap();
            let before = state(server, held.name());
            // The calls come from the same thread, from another thread, and from another client: the hold belongs to
            // another owner. `lock()` is left out, because a wait without a limit returns no error here.
            for outcome in [
                elsewhere(|| refused.try_lock().map(|got| got.is_some())),
                elsewhere(|| refused.try_lock_for(SOON).map(|got| got.is_some())),
                elsewhere(|| refused.owned().try_lock().map(|got| got.is_some())),
                refused.try_lock().map(|got| got.is_some()),
                refused.is_locked(),
                refused.force_unlock(),
            ] {
                let error = outcome.expect_err(&what);
                assert_eq!((error.kind(), error.lock_name()), (ErrorKind::OtherKind, Some(held.name())), "{what}");
            }
            assert_eq!(state(server, held.name()), before, "{what}");
            assert!(guard.is_held());
            guard.unlock().unwrap();
            assert!(is_free(&refused), "{what}: afterwards the name is anybody's");
        };
        let (ours, theirs) = (client(), client());
        for other_client in [&ours, &theirs] {
            for side in ["read", "write"] {
                let name = fresh("both");
                check(lock_of(&ours, side, &name), of_kind(other_client, &name));
                check(of_kind(&ours, &name), lock_of(other_client, side, &name));
            }
        }
    }
}

#[test]
fn a_hold_of_another_kind_of_its_name_does_not_count() {
    const ONE_HASH: [&str; 4] = ["plain", "fair", "spin", "non-reentrant"];
    let (client, name) = (client(), fresh("both"));
    for (held, take) in WATCHED {
        let guard = take(&client, &name).lock().unwrap();
        for (asked, ask) in WATCHED {
            let counts = held == asked || [held, asked].iter().all(|kind| ONE_HASH.contains(kind));
            assert_eq!(ask(&client, &name).hold_count(), counts.into(), "{asked}, held as {held}");
        }
        guard.unlock().unwrap();
    }
}

/// Every order of these elements.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = of.split_first() else { return vec![vec![]] };
    let insert = |order: Vec<usize>| {
        (0..=order.len()).map(move |place| {
            let mut order = order.clone();
            order.insert(place, *first);
            order
        })
    };
    orders(rest).into_iter().flat_map(insert).collect()
}
