//! `lockson-service REDIS-URL DATABASE [ADDRESS]`: `POST /sell/SHOW`, `GET /metrics`; SIGTERM or Ctrl-C ends it well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, thread};

use lockson::Client;
use lockson_service::{Outcome, Sale, Shop};
use lockson_telemetry::MetricsObserver;
use metrics_exporter_prometheus::PrometheusBuilder;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiny_http::{Method, Request, Response, Server};

fn main() -> Outcome<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, file, address @ ..] = &arguments[..] else { return Err("give REDIS-URL and DATABASE".into()) };
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let observer = MetricsObserver::new();
    let shop = Shop::open(Client::builder(url).observer(observer.clone()).connect()?, file.as_ref())?;
    let server = Server::http(address.first().map_or("127.0.0.1:0", String::as_str))?;
    println!("{}", server.server_addr());

    let is_over = AtomicBool::new(false);
    let (shop, server, is_over) = (&shop, &server, &is_over);
    let exposition = || {
        observer.sample([&shop.client]);
        metrics.render()
    };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let _worker = scope.spawn(|| {
                while let Ok(request) = server.recv() {
                    answer(request, shop, exposition);
                }
            });
        }
        let _accountant = scope.spawn(|| {
            let (machine, is_over) = (server.server_addr().to_string(), || is_over.load(Ordering::Relaxed));
            while let Err(error) = shop.keep_accounts(&machine, is_over) {
                eprintln!("no accounts for a while: {error}");
                thread::sleep(Duration::from_secs(1));
            }
        });
        let _signal = signals.forever().next();
        is_over.store(true, Ordering::Relaxed);
        shop.client.stop_waiting(); // waiters answer 503, holders finish
        (0..WORKERS).for_each(|_| server.unblock());
    });
    shop.client.close();
    eprintln!("ended with {} locks held", shop.client.held().len());
    Ok(())
}

fn answer(request: Request, shop: &Shop, exposition: impl Fn() -> String) {
    let (status, text) = match request.url().split('/').collect::<Vec<_>>()[..] {
        ["", "metrics"] => (200, exposition()),
        ["", "sell", show] if *request.method() == Method::Post => match shop.sell(show, || {}) {
            Ok(Sale::Sold { left }) => (200, format!("sold; {left} left")),
            Ok(Sale::SoldOut) => (410, "sold out".to_owned()),
            Ok(Sale::Busy) => (503, "try again".to_owned()),
            Ok(Sale::TooLate) => (500, "not sold: the lock was lost".to_owned()),
            Err(error) if error.is::<lockson::Error>() => (503, error.to_string()),
            Err(error) => (500, error.to_string()),
        },
        _ => (404, "no such page".to_owned()),
    };
    // A buyer who is gone needs no answer.
    let _sent = request.respond(Response::from_string(text).with_status_code(status));
}

const WORKERS: usize = 8;
