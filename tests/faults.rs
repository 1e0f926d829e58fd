//! Every system call of every operation fails in turn, with each of its errors, once and for good: a clean error code, no lock, no
//! descriptor and no thread left, and the cache whole or gone. `tests/c/faults.c` does it.

mod common;
use common::*;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

const OPERATIONS: [&str; 25] = [
    "acquire",
    "acquire-again",
    "try",
    "try-held",
    "time-out",
    "wait",
    "wait-interruptibly",
    "share",
    "inherit",
    "relative",
    "link",
    "lock-dir",
    "after-death",
    "clear-after-death",
    "stale-baton",
    "baton-in-use",
    "remove-baton",
    "release",
    "info",
    "query",
    "query-held",
    "clear",
    "clear-held",
    "clear-mount-point",
    "clear-again",
];

#[test]
fn no_failure_of_the_system_leaves_anything_half_done() {
    let each = if std::env::var("JITLOCK_TEST_FAULTS").is_ok_and(|value| value == "all") { "1" } else { "8" };
    let program = program("faults");
    let left = Mutex::new(OPERATIONS.to_vec());
    let (injections, violations) = (Mutex::new(0), Mutex::new(String::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| loop {
                let Some(operation) = left.lock().unwrap().pop() else { return };
                let (directory, _) = scratch();
                let output =
                    Command::new(&program).arg(directory.path()).args([operation, each]).output().unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                let (bad, count) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
                let count: usize = count.trim_end_matches(" injections").parse().unwrap();
                println!("{operation}: {count}");
                assert!(count > 3, "{operation} does next to nothing");
                *injections.lock().unwrap() += count;
                if !output.status.success() {
                    *violations.lock().unwrap() += &format!("{bad}\n");
                }
            });
        }
    });
    println!("{} injections", injections.into_inner().unwrap());
    let violations = violations.into_inner().unwrap();
    assert!(violations.is_empty(), "\n{violations}");
}
