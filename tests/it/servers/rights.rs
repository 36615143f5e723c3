//! The least rights of a user of each kind of lock: the lines in `docs/operations.md` are enough, and least.

use super::deeds::{ANEW, Deed, LEAVING, Outcome, told, wait_for, within};
use super::stage::{House, LATE, Stage, Turn};
use super::table::{Row, Table};
use super::users::{USERS, User};
use super::{Version, document, versions};
use crate::support::prelude::*;
use crate::support::some_at_once;

/// By user, right and version: the letters of the deeds that fail without the right.
type Seen = BTreeMap<(&'static str, String), BTreeMap<String, String>>;

#[test]
fn each_line_of_rights_is_enough_and_least() {
    let versions = versions();
    let seen = Mutex::new(Seen::new());
    for_each_user_and_version(&versions, |user, version| {
        let (house, line) = (House::open(version), user.documented_line());
        let failed = what_fails(&house, user, 0, &line, true);
        assert!(failed.is_empty(), "{}, {}: with the whole line: {failed:?}", version.label, user.name);
        for (number, right) in line.iter().filter(|word| is_right(word)).enumerate() {
            eprintln!("{}: {} without {right}", version.label, user.name); // tells where it broke off
            let failed = what_fails(&house, user, number + 1, &without(&line, right), false);
            assert!(!failed.is_empty(), "{}, {}: nothing fails without {right}", version.label, user.name);
            let letters = letters(&failed);
            seen.lock().entry((user.name, right.clone())).or_default().insert(version.label.clone(), letters);
        }
    });
    let table = table_of(&seen.into_inner(), &versions);
    if document::is_to_be_written() {
        document::replace_part("rights", &table.in_markdown());
    }
    let differences = table.differences_from(&document::part("rights"));
    assert!(differences.is_empty(), "docs/operations.md, rights:\n{differences}{}", table.in_markdown());
}

/// Without any one right a lock is refused, or can be released: the lock never blocks others for the whole lease.
#[test]
fn a_granted_lock_can_be_released_without_any_one_right() {
    for_each_user_and_version(&versions(), |user, version| {
        let (house, line) = (House::open(version), user.documented_line());
        for (number, right) in line.iter().filter(|word| is_right(word)).enumerate() {
            if user.name == "once-per" || !user.prolongs {
                continue; // left to its time to live
            }
            let done = Stage::perform(&house, user, number, &without(&line, right), &[&TAKE_AND_GIVE_BACK]);
            let outcome = &done[0].1;
            assert_eq!(outcome, &Ok(()), "{}, {}: without {right}", version.label, user.name);
        }
    });
}

#[test]
fn each_addition_is_enough_and_least_for_what_it_is_listed_for() {
    for_each_user_and_version(&versions(), |user, version| {
        let (house, line) = (House::open(version), user.documented_line());
        let mut number = 0;
        for deed in ADDITIONS.iter().filter(|deed| user.name != "once-per" || ONCE_NEEDS.contains(&deed.what)) {
            let words = documented_addition(user, deed.what);
            let mut outcome = |rights: &[String]| {
                number += 1;
                Stage::perform(&house, user, number, rights, &[deed]).remove(0).1
            };
            let place = format!("{}, {}: {}", version.label, user.name, deed.what);
            assert_eq!(outcome(&[&line[..], &words].concat()), Ok(()), "{place}");
            for left_out in &words {
                let rest = [&line[..], &without(&words, left_out)].concat();
                assert!(outcome(&rest).is_err(), "{place} without {left_out}");
            }
        }
    });
}

#[test]
fn the_recommended_rights_are_optional_and_allow_fencing() {
    let plain = &USERS[0];
    let line = plain.documented_line();
    let recommended = documented_words("| everything below, recommended | `");
    for version in versions() {
        // The test of the whole line shows that no deed fails without the recommended rights.
        let house = House::open(&version);
        let fences = |number, rights: &[String]| Stage::perform(&house, plain, number, rights, &[&FENCE]).remove(0).1;
        assert_eq!(fences(0, &[&line[..], &recommended].concat()), Ok(()), "{}", version.label);
        assert!(fences(1, &line).is_err(), "{}", version.label);
    }
}

/// Runs a check for each pair, several at a time.
fn for_each_user_and_version(versions: &[Version], check: impl Fn(&'static User, &Version) + Sync) {
    let pairs = versions.iter().flat_map(|version| USERS.iter().map(move |user| (user, version)));
    let pairs = pairs.filter(|(user, version)| user.can_use(version)).collect();
    some_at_once(WORKERS, pairs, |(user, version)| check(user, version));
}

/// The failures of each deed with these rights alone, for a user that had all rights of the line before; successful
/// deeds are left out. Two deeds take long or disturb the others: these two run at the end, and only if `all` is set or
/// no other deed failed.
fn what_fails(house: &House, user: &User, number: usize, rights: &[String], all: bool) -> Vec<(&'static Deed, String)> {
    // A woken waiter may also be late because its own next request was due just then: without a needed right the waiter
    // is late each time.
    let is_late_again = |deed: &'static Deed| {
        let mut again =
            (1..=2).map(|time| Stage::perform(house, user, number + time * 1_000, rights, &[deed]).remove(0));
        again.all(|(_, outcome)| outcome == Err(LATE.to_owned()))
    };
    let failed = |deeds: &[&'static Deed]| -> Vec<(&'static Deed, String)> {
        let done = Stage::perform(house, user, number, rights, deeds).into_iter();
        let failed = done.filter_map(|(deed, outcome)| Some((deed, outcome.err()?)));
        failed.filter(|(deed, why)| why != LATE || is_late_again(deed)).collect()
    };
    let is_last = |deed: &&Deed| deed.letter == LEAVING.letter || deed.letter == ANEW.letter;
    let (last, first): (Vec<_>, Vec<_>) = user.deeds().partition(is_last);
    let mut seen = failed(&first);
    for deed in last {
        if all || seen.is_empty() {
            seen.extend(failed(&[deed]));
        }
    }
    seen
}

/// One row for each right, one column for each user.
fn table_of(seen: &Seen, versions: &[Version]) -> Table {
    let names = USERS.iter().map(|user| user.name);
    let mut table = Table::new(&[&["right"], &names.collect::<Vec<_>>()[..], &["what it is for"]].concat());
    let mut rights: Vec<&String> = vec![];
    let lines: Vec<_> = USERS.iter().map(User::documented_line).collect();
    for right in lines.iter().flatten().filter(|word| is_right(word)) {
        if !rights.contains(&right) {
            rights.push(right);
        }
    }
    for right in rights {
        let cell = |user: &User, version: &Version| {
            let of_versions = seen.get(&(user.name, right.clone()));
            of_versions.and_then(|seen| seen.get(&version.label)).cloned().unwrap_or_default()
        };
        let cells = |version: &Version| USERS.iter().map(|user| cell(user, version)).collect();
        let seen = versions.iter().map(|version| (version.label.clone(), cells(version))).collect();
        table.add(Row { title: format!("`{right}`"), seen, advice: use_of(right).to_owned() });
    }
    table
}

/// The letters of failed deeds; in brackets the deeds that were late or missing rather than refused.
fn letters(failed: &[(&Deed, String)]) -> String {
    let each: BTreeSet<String> = failed
        .iter()
        .map(|(deed, why)| if why == "`NOPERM`" { deed.letter.to_string() } else { format!("({})", deed.letter) })
        .collect();
    let mut each: Vec<_> = each.into_iter().collect();
    each.sort_by_key(|text| text.starts_with('('));
    each.join(" ")
}

fn without(words: &[String], left_out: &str) -> Vec<String> {
    words.iter().filter(|word| *word != left_out).cloned().collect()
}

/// The rights to add for this user and this purpose, according to the table of additions.
fn documented_addition(user: &User, what: &str) -> Vec<String> {
    if what == DATABASE {
        return documented_words(&format!("| {what} | `"));
    }
    let text = document::text();
    let mut rows = text.lines().skip_while(|line| !line.starts_with("| add to the line of |"));
    let head = rows.next().expect("the table of additions");
    let row = rows.find(|line| line.starts_with(&format!("| `{}` |", user.name)));
    let row = row.unwrap_or_else(|| panic!("no additions for {}", user.name));
    let column = head.split(" | ").position(|title| title.trim_matches([' ', '|']) == what);
    let cell = row.split(" | ").nth(column.unwrap_or_else(|| panic!("no column {what}"))).expect("a whole row");
    let cell = cell.trim_matches([' ', '|', '`']);
    cell.split(' ').filter(|word| !matches!(*word, "" | "–")).map(str::to_owned).collect()
}

/// The words in the line of `docs/operations.md` with this start.
pub(crate) fn documented_words(start: &str) -> Vec<String> {
    let text = document::text();
    let row = text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_else(|| panic!("no row {start}"));
    let words = row.trim_end_matches("` |").replace("\\|", "|");
    words.split(' ').map(str::to_owned).collect()
}

/// Whether this word grants a right.
fn is_right(word: &str) -> bool {
    word.starts_with(['+', '~', '&', '%'])
}

fn use_of(right: &str) -> &'static str {
    match right {
        "+evalsha" => "scripts, by their hash",
        "+eval" => "scripts that the server has not got yet",
        "+subscribe" => "hearing of releases",
        "+unsubscribe" => "leaving a channel that nobody waits for any more",
        "+ping" => "`connect()`; asking whether the listening connection is alive",
        "+publish" => "telling of releases",
        "+time" => "the deadlines of fair waiters; a floor for tokens",
        "+watch" | "+multi" | "+exec" => "transactions",
        "~app:*" => "the locks",
        "~{app:*" => "the keys of read holds",
        _ if right.starts_with("~redisson_lock_token") => "the last token",
        _ if right.starts_with('~') => "the queue",
        _ if right.starts_with('&') => "their channels",
        _ => "in the scripts, or by itself",
    }
}

const ANY: Deed = Deed { letter: ' ', what: "", reenters: false, listens: false, prolongs: false, act: |_, _| Ok(()) };

/// The deeds that need more than the line, in the words of the document.
const ADDITIONS: &[Deed] = &[
    Deed { what: DATABASE, act: in_another_database, ..ANY },
    Deed { what: "names with a `{`, like `app:{7}:x`", act: name_with_a_brace, ..ANY },
    Deed { what: "`force_unlock()`", act: force_unlock, ..ANY },
    Deed { what: "`holder()`", act: holder, ..ANY },
    Deed { what: "`is_locked()`", act: is_locked, ..ANY },
    Deed {
        what: "`remaining_time_to_live()`",
        act: |stage, turn| question(stage, turn, |lock| told(lock.remaining_time_to_live()).map(drop)),
        ..ANY
    },
];

const DATABASE: &str = "a database other than 0";
/// The other additions of `once_per` are the additions of the plain lock.
const ONCE_NEEDS: [&str; 1] = [DATABASE];
const TAKE_AND_GIVE_BACK: Deed = Deed { act: take_and_give_back, ..ANY };
const FENCE: Deed = Deed { act: fences_a_lost_answer, ..ANY };

fn take_and_give_back(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("given back");
    turn.comes();
    for lock in &locks {
        let taken = told(lock.try_lock());
        // The leases last half a minute.
        let back = match taken {
            Ok(guard) => guard.map_or(Err("busy".to_owned()), |guard| told(guard.unlock())),
            Err(_) => Ok(()),
        };
        let is_free = || told(stage.of_bystander(lock.name()).try_lock()).is_ok_and(|guard| guard.is_some());
        if !within(SOON / 4, is_free) {
            return Err(format!("stuck: {:?}, after {back:?}", stage.keys_of(lock.name())));
        }
    }
    Ok(())
}

fn in_another_database(stage: &Stage<'_>, turn: Turn) -> Outcome {
    turn.comes();
    let client = told(stage.builder("3").connect())?;
    told((stage.user.sides[0])(&client, &stage.name("third")).lock().and_then(Guard::unlock))
}

fn name_with_a_brace(stage: &Stage<'_>, turn: Turn) -> Outcome {
    turn.comes();
    let name = stage.name("{7}:x");
    let client = stage.client();
    for side in stage.user.sides {
        told(side(&client, &name).lock().and_then(Guard::unlock))?;
    }
    wait_for(stage, &client, &(stage.user.sides[0])(&client, &name), || {})
}

fn force_unlock(stage: &Stage<'_>, turn: Turn) -> Outcome {
    question(stage, turn, |lock| {
        let forced = told(lock.force_unlock())?;
        if forced { Ok(()) } else { Err("not held".to_owned()) }
    })
}

/// Asks each side about a lock, for a hold on each side.
fn is_locked(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let client = stage.client();
    question(stage, turn, |lock| {
        stage.user.sides.iter().try_for_each(|side| told(side(&client, lock.name()).is_locked()).map(drop))
    })
}

fn holder(stage: &Stage<'_>, turn: Turn) -> Outcome {
    question(stage, turn, |lock| told(lock.holder())?.map(drop).ok_or("nobody".to_owned()))
}

/// Asks about a held lock, for each side.
fn question(stage: &Stage<'_>, turn: Turn, ask: impl Fn(&Lock) -> Outcome) -> Outcome {
    let locks = stage.locks("asked");
    let held: Vec<_> = locks.iter().map(|lock| lock.lock().expect("the lock is free")).collect();
    turn.comes();
    let outcome = locks.iter().try_for_each(ask);
    drop(held);
    outcome
}

/// Whether the connection of an unanswered request is killed before the repetition.
fn fences_a_lost_answer(stage: &Stage<'_>, turn: Turn) -> Outcome {
    turn.comes();
    let (rig, lock) = (&stage.house.rig, &stage.locks("lost")[0]);
    let mark = rig.proxy.mark();
    rig.proxy.rule(rig.script("acquire"), Then::CutReplyAfter(0));
    told(lock.lock().and_then(Guard::unlock))?;
    let acquires = rig.proxy.fitting_since(mark, &rig.script("acquire"));
    let fence = rig.fence_of(&acquires[0]);
    let is_done = |fence: &_| matches!(rig.proxy.fate(fence), Fate::Answered(reply) if !reply.starts_with(b"-"));
    let is_fenced = fence.is_some_and(|fence| is_done(&fence) && fence.number < acquires[1].number);
    if is_fenced { Ok(()) } else { Err("no fence".to_owned()) }
}

const WORKERS: usize = 8;
