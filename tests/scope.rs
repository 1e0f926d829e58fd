//! Whom a lock excludes, and the refusal of one that other hosts do not see.

mod common;
use common::*;
use jitlock::capi::{self, jitlock_scope_t::*};
use std::os::unix::fs::symlink;

/// `jitlock_info_t.scope`, which says the same as `jitlock_owner_t.scope`.
fn scope(cache: &std::path::Path) -> i32 {
    let lock = acquire(cache, 10_000).unwrap();
    let told = info(lock).unwrap().scope;
    assert_eq!(query(cache).unwrap().scope, told);
    release(lock).unwrap();
    told
}

#[test]
fn local_file_systems_are_this_hosts() {
    let (_directory, cache) = scratch();
    assert_eq!(scope(&cache), JITLOCK_SCOPE_HOST as i32);
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        assert_eq!(scope(&memory.path().join("cache")), JITLOCK_SCOPE_HOST as i32);
    }
}

#[test]
fn a_lock_that_is_still_to_be_made_has_the_scope_of_its_place() {
    let (directory, _) = scratch();
    symlink(directory.path(), directory.path().join("link")).unwrap();
    for place in ["cache", "link/cache", "not/there/yet/cache"] {
        let told = query(&directory.path().join(place)).unwrap().scope;
        assert_eq!(told, JITLOCK_SCOPE_HOST as i32, "{place}");
    }
}

#[test]
fn a_lock_that_other_hosts_do_not_see_is_refused_on_request() {
    let (_directory, cache) = scratch();
    let demanding = || acquire_with(&cache, &options(10_000, capi::JITLOCK_REQUIRE_CLUSTER));
    for flags in [capi::JITLOCK_REQUIRE_CLUSTER, capi::JITLOCK_REQUIRE_CLUSTER | capi::JITLOCK_SHARED] {
        let (code, message) = acquire_with(&cache, &options(10_000, flags)).unwrap_err();
        assert_eq!(code, Code::Unsupported as i32);
        assert!(message.contains(".lock need not exclude other hosts"), "{message}");
        assert!(message.contains("its file system is this host's own"), "{message}");
    }
    // It is refused at once, and not held.
    let lock = acquire(&cache, 0).unwrap();
    let mut other = Agent::start();
    assert_eq!(demanding().unwrap_err().0, Code::Unsupported as i32);
    release(lock).unwrap();
    other.hold(&cache);
    assert_eq!(demanding().unwrap_err().0, Code::Unsupported as i32);
}
