//! libFuzzer through the C API, guided by coverage of the library: records, paths, and sequences of calls (`c/fuzz.c`).
//! `JITLOCK_TEST_INPUTS=60000 cargo test --test fuzz -- --nocapture` is the long form.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

/// The library as a static one whose branches libFuzzer counts.
fn instrumented() -> std::path::PathBuf {
    let directory = Path::new(ROOT).join("target/lab/fuzz");
    let passes = ["-Cpasses=sancov-module", "-Cllvm-args=-sanitizer-coverage-level=4"];
    let counters =
        ["-Cllvm-args=-sanitizer-coverage-inline-8bit-counters", "-Cllvm-args=-sanitizer-coverage-pc-table"];
    let built = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--lib", "--crate-type", "staticlib", "--target-dir"])
        .arg(&directory)
        .arg("--")
        .args(passes)
        .args(counters)
        .arg("-Cllvm-args=-sanitizer-coverage-trace-compares")
        .current_dir(ROOT)
        .status();
    assert!(built.unwrap().success());
    directory.join("debug/libjitlock.a")
}

#[test]
fn no_input_breaks_a_promise() {
    if !works("clang", &["--version"]) {
        skip!("clang is not there");
    }
    let (directory, _) = scratch();
    let program = directory.path().join("fuzz");
    let built = Command::new("clang")
        .args(["-g", "-O1", "-fsanitize=fuzzer,address", "-I", "include", "tests/c/fuzz.c", "-o"])
        .args([&program, &instrumented()])
        .args(["-lpthread", "-ldl", "-lm"])
        .current_dir(ROOT)
        .status();
    assert!(built.unwrap().success());
    let inputs = std::env::var("JITLOCK_TEST_INPUTS").unwrap_or_else(|_| "5000".into());
    let output = Command::new(&program)
        .arg(format!("-runs={inputs}"))
        // A symbolizer would be a process with pipes, and the fuzzer counts its descriptors.
        .args(["-print_funcs=0", "-max_len=600", "-seed=1", "-print_final_stats=1", "-detect_leaks=1"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let figures = said.lines().filter(|line| line.starts_with("stat::number_of") || line.contains("DONE"));
    figures.for_each(|line| println!("{line}"));
}
