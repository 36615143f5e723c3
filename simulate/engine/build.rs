//! Lets the sources use the simulator in place of the system.

fn main() {
    println!("cargo::rustc-cfg=simulated");
    println!("cargo::rustc-check-cfg=cfg(simulated)");
}
