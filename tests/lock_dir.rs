//! `JITLOCK_LOCK_DIR`: lock files in a directory of this host.

mod common;
use common::*;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn agent(lock_dir: &Path) -> Agent {
    Agent::spawn(Command::new(program("agent")).env("JITLOCK_LOCK_DIR", lock_dir))
}

/// A scratch directory, the cache in it, and a directory for locks, which is not there yet.
fn places() -> (TempDir, PathBuf, PathBuf) {
    let (directory, cache) = scratch();
    let lock_dir = directory.path().join("locks");
    (directory, cache, lock_dir)
}

#[test]
fn every_spelling_of_a_cache_is_one_lock_and_nothing_lies_beside_it() {
    let (directory, cache, lock_dir) = places();
    let mut holder = agent(&lock_dir);
    assert_eq!(holder.ask(&format!("query {}", cache.display())).number(1), 0, "free");
    assert!(!lock_dir.exists(), "and a query makes nothing");
    holder.hold(&cache);
    fs::create_dir_all(cache.join("sub")).unwrap();
    symlink(&cache, directory.path().join("link")).unwrap();
    symlink(directory.path(), directory.path().join("parent")).unwrap();
    let spellings = ["cache/", "cache/sub/..", "./cache/.", "link", "parent/cache", "parent/parent/link"];
    for spelling in spellings {
        let mut other = agent(&lock_dir);
        let path = directory.path().join(spelling);
        assert_eq!(other.acquire(&path, 0).code, Code::Timeout as i32, "{spelling}");
        let told = other.ask(&format!("query {}", path.display()));
        assert_eq!(told.number(3), i64::from(holder.pid()), "{spelling}");
    }
    assert_eq!(fs::read_dir(&lock_dir).unwrap().count(), 1);
    assert!(!lock_file(&cache).exists());
    // Who does not know of it is not excluded: the price.
    release(acquire(&cache, 0).unwrap()).unwrap();
}

#[test]
fn caches_differ_however_long_their_names_are() {
    let (directory, _, lock_dir) = places();
    let mut holder = agent(&lock_dir);
    let deep = directory.path().join("d".repeat(200)).join("e".repeat(200));
    let caches =
        [deep.join("a"), deep.join("b"), directory.path().join("x%2Fy"), directory.path().join("x/y")];
    for cache in &caches {
        holder.hold(cache);
    }
    assert_eq!(fs::read_dir(&lock_dir).unwrap().count(), caches.len());
    for cache in &caches {
        assert_eq!(agent(&lock_dir).acquire(cache, 0).code, Code::Timeout as i32);
    }
}

#[test]
fn a_clear_and_a_death_are_the_same_as_beside_the_cache() {
    let (_directory, cache, lock_dir) = places();
    let mut holder = agent(&lock_dir);
    fs::create_dir_all(cache.join("a")).unwrap();
    holder.hold(&cache);
    assert_eq!(agent(&lock_dir).ask(&format!("clear {} 0", cache.display())).code, Code::Timeout as i32);
    holder.kill();
    let mut next = agent(&lock_dir);
    let lock = next.hold(&cache);
    assert_eq!(next.ask(&format!("info {lock}")).number(1), 1);
    next.release(lock);
    assert_eq!(next.ask(&format!("clear {} 0", cache.display())).code, OK);
    assert!(!cache.exists());
}

#[test]
fn a_directory_that_cannot_be_trusted_is_refused() {
    let (directory, cache, lock_dir) = places();
    fs::create_dir(&lock_dir).unwrap();
    let refused = |path: &Path, why: &str| {
        let reply = agent(path).acquire(&cache, 0);
        assert_eq!(reply.code, Code::Permission as i32, "{why}: {}", reply.text);
        assert!(reply.text.contains(why), "{}", reply.text);
    };
    fs::set_permissions(&lock_dir, PermissionsExt::from_mode(0o777)).unwrap();
    refused(&lock_dir, "not sticky");
    fs::set_permissions(&lock_dir, PermissionsExt::from_mode(0o1777)).unwrap();
    assert_eq!(agent(&lock_dir).acquire(&cache, 0).code, OK);
    let link = directory.path().join("link");
    symlink(&lock_dir, &link).unwrap();
    refused(&link, "no directory");
    let reply = agent(Path::new("relative")).acquire(&cache, 0);
    assert_eq!(reply.code, Code::InvalidArgument as i32, "{}", reply.text);
    if is_root() {
        std::os::unix::fs::chown(&lock_dir, Some(NOBODY), None).unwrap();
        refused(&lock_dir, "another user");
    }
}

#[test]
fn users_share_it_as_they_share_tmp() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o777);
    let lock_dir = directory.path().join("locks");
    fs::create_dir(&lock_dir).unwrap();
    fs::set_permissions(&lock_dir, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut command = agent_command_of(NOBODY, directory.path());
    let mut nobody = Agent::spawn(command.env("JITLOCK_LOCK_DIR", &lock_dir));
    let lock = nobody.hold(&cache);
    assert_eq!(agent(&lock_dir).acquire(&cache, 0).code, Code::Timeout as i32);
    nobody.release(lock);
    assert_eq!(agent(&lock_dir).acquire(&cache, 0).code, OK);
}
