//! Inside an async web handler: the waiting goes to `spawn_blocking`, so the async threads never block.
//!
//! `cargo run --example axum_handler`

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use lockson::Client;
use lockson_harness::ExampleServer;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

type Answer = (StatusCode, String);

/// A clone of a client is the same client, so the handlers share the client without an `Arc`.
async fn pay(State(client): State<Client>, Path(order): Path<String>) -> Answer {
    // The whole section runs on one thread of the blocking pool, because the lock belongs to a thread.
    spawn_blocking(move || pay_alone(&client, &order).unwrap_or_else(|error| failed(&error)))
        .await
        .unwrap_or_else(|error| failed(&error))
}

fn pay_alone(client: &Client, order: &str) -> lockson::Result<Answer> {
    let lock = client.get_lock(format!("lockson:example:order:{order}"));
    let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? else {
        return Ok((StatusCode::CONFLICT, format!("order {order} is being paid by someone else\n")));
    };
    let owner = guard.owner().to_owned(); // ... the payment, one machine at a time ...
    guard.unlock()?;
    Ok((StatusCode::OK, format!("order {order} was paid under the lock, as {owner}\n")))
}

fn failed(error: &impl ToString) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let redis = ExampleServer::open()?;
    let client = Client::connect(redis.url())?; // blocks, so before the runtime or by spawn_blocking
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    let answer = runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let app = Router::new().route("/orders/{order}/pay", post(pay)).with_state(client);
        tokio::spawn(async move { axum::serve(listener, app).await });
        spawn_blocking(move || request(address)).await?.map_err(Box::<dyn Error + Send + Sync>::from)
    })?;
    println!("{answer}");
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err("the payment did not go through".into()) }
}

/// Does the same as `curl -X POST http://.../orders/42/pay`.
fn request(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "POST /orders/42/pay HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
