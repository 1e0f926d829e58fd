//! The Python package `python/jitlock`: its tests in `tests/python`, and the examples of its docstrings.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

fn python(arguments: &[&str]) {
    let root = Path::new(ROOT);
    // The examples do not clean up, to be short.
    let (temporary, _) = scratch();
    let output = Command::new("python3")
        .args(arguments)
        .current_dir(root.join("tests/python"))
        .env("PYTHONPATH", root.join("python"))
        .env("JITLOCK_LIBRARY", library())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_lock() {
    python(&["-m", "unittest", "-q", "test_lock"]);
}

#[test]
fn the_doctor() {
    python(&["-m", "unittest", "-q", "test_doctor"]);
}

#[test]
fn the_docstrings() {
    python(&[
        "-c",
        "import doctest, sys, jitlock, jitlock._lock, jitlock._query, jitlock.torch._protect\n\
         modules = [jitlock, jitlock._lock, jitlock._query, jitlock.torch._protect]\n\
         results = [doctest.testmod(module) for module in modules]\n\
         sys.exit(any(result.failed or not result.attempted for result in results))",
    ]);
}
