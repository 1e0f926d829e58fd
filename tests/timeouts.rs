//! How long a caller waits: to the letter of the timeout, of the environment and of the baseline.

mod common;
use common::*;
use std::process::Command;
use std::time::{Duration, Instant};

fn agent_with(timeout: Option<&str>) -> Agent {
    let mut command = Command::new(program("agent"));
    match timeout {
        Some(value) => command.env("JITLOCK_TIMEOUT", value),
        None => command.env_remove("JITLOCK_TIMEOUT"),
    };
    Agent::spawn(&mut command)
}

#[test]
fn a_timeout_comes_neither_early_nor_late() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    holder.hold(&cache);
    for millis in [0, 1, 300] {
        let begun = Instant::now();
        assert_eq!(code(acquire(&cache, millis)), Code::Timeout as i32);
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(millis as u64), "{waited:?} of {millis} ms");
        assert!(waited < Duration::from_millis(millis as u64 + 5000), "{waited:?} of {millis} ms");
    }
}

#[test]
fn negatives_without_a_meaning_are_refused() {
    let (_directory, cache) = scratch();
    for millis in [-3, -1000, i64::MIN] {
        assert_eq!(code(acquire(&cache, millis)), Code::InvalidArgument as i32);
        assert!(last_message().contains(&millis.to_string()), "{}", last_message());
        assert_eq!(code(clear(&cache, millis)), Code::InvalidArgument as i32);
    }
    assert!(!lock_file(&cache).exists(), "a refused call touches nothing");
}

#[test]
fn the_largest_timeout_and_for_ever_wait_until_the_lock_comes() {
    for millis in [i64::MAX, i64::MAX - 1, -1] {
        let (_directory, cache) = scratch();
        let mut waiter = Agent::start();
        let lock = acquire(&cache, millis).unwrap();
        waiter.send(&format!("acquire {} {millis}", cache.display()));
        eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
        release(lock).unwrap();
        assert_eq!(waiter.reply().code, OK);
    }
}

#[test]
fn the_environment_sets_the_default_in_seconds() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    holder.hold(&cache);
    for value in ["0", "0.2"] {
        let mut agent = agent_with(Some(value));
        let begun = Instant::now();
        let reply = agent.acquire(&cache, -2);
        assert_eq!(reply.code, Code::Timeout as i32);
        assert!(begun.elapsed() >= Duration::from_secs_f64(value.parse().unwrap()));
        assert!(!reply.text.contains("JITLOCK_TIMEOUT"), "{}", reply.text);
    }
}

#[test]
fn the_default_is_ten_minutes_or_five_baselines() {
    let cases = [
        (None, 600_000),
        (Some(""), 600_000),
        (Some("ten minutes"), 600_000),
        (Some("-4"), 600_000),
        (Some("1.5"), 1500),
    ];
    for (value, expected) in cases {
        let mut agent = agent_with(value);
        for baseline in ["0", "1", "-7", "nan"] {
            let reply = agent.ask(&format!("timeout-ms {baseline}"));
            assert_eq!(reply.value(), expected, "{value:?}, {baseline}");
        }
        let long = if value == Some("1.5") { 1500 } else { 1_000_000 };
        assert_eq!(agent.ask("timeout-ms 200").value(), long, "{value:?}");
    }
    assert_eq!(agent_with(None).ask("timeout-ms inf").value(), i64::MAX as u64);
    assert_eq!(agent_with(Some("99999999999999999999999")).ask("timeout-ms 0").value(), i64::MAX as u64);
}

/// Nobody waits ten minutes for a test: the progress callback tells what remains, and ends it.
#[test]
fn a_default_that_does_not_parse_is_ten_minutes() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    holder.hold(&cache);
    let mut agent = agent_with(Some("soon"));
    let reply = agent.ask(&format!("remaining {} -2", cache.display()));
    assert!((590_000..=600_000).contains(&reply.value()), "{} ms remain", reply.value());
}
