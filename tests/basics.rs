//! What the shortest program relies on.

mod common;
use common::*;

#[test]
fn a_lock_excludes_another_process_until_it_is_released() {
    let (_directory, cache) = scratch();
    let mut other = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(other.acquire(&cache, 0).code, Code::Timeout as i32);
    assert_eq!(other.acquire(&cache, 50).code, Code::Timeout as i32);
    release(lock).unwrap();
    let theirs = other.hold(&cache);
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    assert_eq!(other.release(theirs).code, OK);
    // Its given-up wait may have the lock for a moment now, so a mere try could fail.
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    let (_directory, cache) = scratch();
    let (mut first, mut second) = (Agent::start(), Agent::start());
    let lock = first.hold(&cache);
    second.send(&format!("acquire {} 10000", cache.display()));
    eventually("the second stands in the queue", || waits_in_kernel(second.pid()));
    first.release(lock);
    assert_eq!(second.reply().code, OK);
}
