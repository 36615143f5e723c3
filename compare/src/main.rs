//! Lockson beside other lock libraries, in turns on one server: `make compare`, or `make compare COMPARE=--quick`.
//!
//! Writes `docs/compare.json`, two pictures, and what stands between the marks in `docs/performance.md`.

#[path = "../../benches/locks/bare.rs"]
#[allow(dead_code, reason = "the benchmark uses the rest")]
mod bare;
mod own;
mod page;
mod peer;
mod picture;
mod rounds;
mod speak;
mod table;
#[path = "../../benches/locks/usage.rs"]
#[allow(dead_code, reason = "the benchmark uses the rest")]
mod usage;
#[path = "../../benches/locks/wire.rs"]
#[allow(dead_code, reason = "the benchmark uses the rest")]
mod wire;

use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--peer", name] => own::run(name),
        [] => compare(&rounds::FULL),
        ["--quick"] => compare(&rounds::QUICK),
        _ => {
            eprintln!("usage: make compare [COMPARE=--quick]");
            std::process::exit(2);
        }
    }
}

fn compare(plan: &rounds::Plan) {
    let begun = Instant::now();
    let table = rounds::run(plan);
    page::write(&table, plan.name);
    println!("compare: {:.0} s; see docs/performance.md", begun.elapsed().as_secs_f64());
}
