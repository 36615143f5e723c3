//! The shop against a real Redis, on days when things break.

use std::io::{BufRead, BufReader};
use std::process::{self, Child, Command, Stdio};
use std::thread;

use lockson_service::{Sale, Shop};
use lockson_test::TestRedis;

fn shop(redis: &TestRedis, test: &str) -> Shop {
    let file = format!("{}/{test}-{}.db", env!("CARGO_TARGET_TMPDIR"), process::id());
    let shop = Shop::open(redis.client(), file.as_ref()).unwrap();
    assert!(shop.offer("hamlet", 10).unwrap());
    shop
}

#[test]
fn a_lost_lock_sells_nothing_twice() {
    let redis = TestRedis::start();
    let shop = shop(&redis, "lost");
    let other = Shop::open(redis.rival(), &shop.file).unwrap();
    let sale = shop.sell("hamlet", || {
        redis.delete("lock:show:hamlet");
        assert_eq!(other.sell("hamlet", || {}).unwrap(), Sale::Sold { left: 9 });
    });
    assert_eq!(sale.unwrap(), Sale::TooLate);
    assert_eq!(shop.left("hamlet").unwrap(), 9);
}

#[test]
fn a_busy_show_and_an_outage_are_told_apart() {
    let redis = TestRedis::start();
    let shop = shop(&redis, "busy");
    let rival = redis.rival();
    let guard = rival.get_fenced_lock("lock:show:hamlet").lock().unwrap();
    assert_eq!(shop.sell("hamlet", || panic!("two sell")).unwrap(), Sale::Busy);
    guard.unlock().unwrap();
    redis.down();
    let error = shop.sell("hamlet", || panic!("without a lock")).unwrap_err();
    assert!(error.downcast_ref::<lockson::Error>().unwrap().is_transient());
    redis.heal();
    assert_eq!(shop.sell("hamlet", || {}).unwrap(), Sale::Sold { left: 9 });
}

#[test]
fn machines_sell_each_ticket_once_and_end_well() {
    let redis = TestRedis::start();
    let shop = shop(&redis, "machines");
    let [first, second] = [0; 2].map(|_| start(&redis, &shop));
    let ask = |at: &str| match ureq::post(format!("http://{at}/sell/hamlet")).send_empty() {
        Err(ureq::Error::StatusCode(status)) => status,
        sold => sold.unwrap().status().as_u16(),
    };
    // Who is told to try again, as ten buyers at a time may be on a slow disk, does so.
    let sell = |at: &str| (0..30).map(|_| ask(at)).find(|status| *status != 503);
    thread::scope(|scope| {
        let buyers = [&first.1, &second.1].repeat(5).into_iter().map(|at| scope.spawn(|| sell(at)));
        assert!(buyers.collect::<Vec<_>>().into_iter().all(|buyer| buyer.join().unwrap() == Some(200)));
    });
    assert_eq!(shop.left("hamlet").unwrap(), 0);
    assert_eq!(sell(&first.1), Some(410));
    let metrics = ureq::get(format!("http://{}/metrics", first.1)).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(metrics.contains(r#"lockson_acquisitions_total{kind="fenced",outcome="acquired"} 6"#), "{metrics}");
    for (machine, _) in [first, second] {
        assert!(Command::new("kill").arg(machine.id().to_string()).status().unwrap().success());
        let end = machine.wait_with_output().unwrap();
        assert!(end.status.success() && String::from_utf8(end.stderr).unwrap().contains("ended with 0 locks held"));
    }
    let accounts = "SELECT COUNT(*) FROM account WHERE rows > 0";
    let terms: u32 = shop.database().unwrap().query_row(accounts, (), |row| row.get(0)).unwrap();
    assert!((1..=2).contains(&terms), "{terms} terms");
}

/// Starts a process of the service; returns its address beside it.
fn start(redis: &TestRedis, shop: &Shop) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockson-service"));
    let command = command.arg(redis.url()).arg(&shop.file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = command.spawn().unwrap();
    let address = BufReader::new(machine.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    (machine, address)
}
