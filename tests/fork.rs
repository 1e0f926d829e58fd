//! A forked child owns nothing of its parent's, and takes nothing from it.

mod common;
use common::*;

#[test]
fn a_childs_release_is_refused_and_the_parent_keeps_the_lock() {
    let (_directory, cache) = scratch();
    let (mut parent, mut other) = (Agent::start(), Agent::start());
    let lock = parent.hold(&cache);
    assert_eq!(parent.ask(&format!("fork-release {lock}")).code, Code::NotOwner as i32);
    assert_eq!(parent.ask(&format!("fork-info {lock}")).code, Code::NotOwner as i32);
    assert_eq!(other.acquire(&cache, 100).code, Code::Timeout as i32);
    assert_eq!(parent.release(lock).code, OK);
    assert_eq!(other.acquire(&cache, 10_000).code, OK);
}

#[test]
fn a_child_waits_for_its_parent_like_anybody() {
    let (_directory, cache) = scratch();
    let mut parent = Agent::start();
    let lock = parent.hold(&cache);
    let in_child = format!("fork-acquire {} 200 0 {lock}", cache.display());
    assert_eq!(parent.ask(&in_child).code, Code::Timeout as i32, "neither success nor a verdict of deadlock");
    assert_eq!(parent.release(lock).code, OK);
    assert_eq!(parent.ask(&in_child).code, OK);
}

#[test]
fn a_child_that_lives_on_does_not_keep_a_dead_parents_lock() {
    for child in ["fork-sleep", "exec-sleep", "spawn-sleep", "vfork-sleep"] {
        let (_directory, cache) = scratch();
        let mut parent = Agent::start();
        parent.hold(&cache);
        let child = parent.ask(child).value();
        parent.kill();
        assert!(std::path::Path::new(&format!("/proc/{child}")).exists());
        release(acquire(&cache, 10_000).unwrap()).unwrap();
        unsafe { libc::kill(child as i32, libc::SIGKILL) };
    }
}

/// A raw clone runs no fork handler: its copy of the descriptor stays open, so only an explicit unlock frees the lock.
#[test]
fn a_release_frees_the_lock_though_a_raw_clone_shares_the_descriptor() {
    let (_directory, cache) = scratch();
    let mut parent = Agent::start();
    let lock = parent.hold(&cache);
    let child = parent.ask("clone-sleep").value();
    assert_eq!(parent.release(lock).code, OK);
    release(acquire(&cache, 0).unwrap()).unwrap();
    parent.ask(&format!("reap {child}"));
}

#[test]
fn no_descriptor_passes_through_exec() {
    let (directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    let mut other = Agent::start();
    let second = cache.with_file_name("second");
    other.hold(&second);
    assert_eq!(agent.acquire(&second, 20).code, Code::Timeout as i32, "which leaves a helper waiting");
    let list = directory.path().join("list");
    assert_eq!(agent.ask(&format!("system ls -l /proc/self/fd > {}", list.display())).code, 0);
    let list = std::fs::read_to_string(list).unwrap();
    assert!(!list.contains(".lock"), "{list}");
}

#[test]
fn an_inherited_lock_lasts_as_long_as_the_last_child_and_is_named_after_it() {
    let (_directory, cache) = scratch();
    for child in ["fork-sleep", "exec-sleep", "spawn-sleep", "vfork-sleep"] {
        let mut parent = Agent::start();
        let inherit = jitlock::capi::JITLOCK_INHERIT;
        assert_eq!(parent.ask(&format!("acquire {} 10000 {inherit}", cache.display())).code, OK);
        let child = parent.ask(child).value();
        parent.kill();
        let (code, message) = acquire(&cache, 100).unwrap_err();
        assert_eq!(code, Code::Timeout as i32);
        assert!(message.contains(&format!("held by pid {child} ")), "{message}");
        assert_eq!(query(&cache).unwrap().pid, child as i64);
        unsafe { libc::kill(child as i32, libc::SIGKILL) };
        let lock = acquire(&cache, 10_000).unwrap();
        assert_eq!(previous_owner(lock), 1);
        release(lock).unwrap();
    }
}

#[test]
fn forks_beside_waiting_and_acquiring_threads_never_hang() {
    let (_directory, cache) = scratch();
    let output = std::process::Command::new(program("forks")).arg(&cache).output().unwrap();
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stdout));
}
