//! Compiles the clock shim that every server is started with.
//!
//! A build script rather than a compile at run time: cargo then keeps parallel test processes from
//! racing for the file, and a changed source is rebuilt by itself.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=src/clock_shim.c");
    println!("cargo:rerun-if-env-changed=CC");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("clock_shim.so");
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o"])
        .arg(out)
        .arg("src/clock_shim.c")
        .status()
        .unwrap_or_else(|error| panic!("cannot run the C compiler {compiler:?}: {error}"));
    assert!(status.success(), "{compiler} failed on src/clock_shim.c");
}
