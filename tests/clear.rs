//! A clear leaves the cache gone, or as it was, and everything else alone.

mod common;
use common::*;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn fill(cache: &Path) {
    for directory in ["a/b/c", "d"] {
        std::fs::create_dir_all(cache.join(directory)).unwrap();
        for file in ["x.o", "y.so", ".hidden"] {
            std::fs::write(cache.join(directory).join(file), "content").unwrap();
        }
    }
}

/// Nothing but the lock file is left in the directory.
fn only_the_lock_is_left(directory: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "cache.lock"), "{left:?}");
}

#[test]
fn a_cleared_cache_is_gone_and_its_lock_is_free() {
    let (directory, cache) = scratch();
    fill(&cache);
    clear(&cache, 0).unwrap();
    only_the_lock_is_left(directory.path());
    clear(&cache, 0).unwrap();
    release(acquire(&cache, 0).unwrap()).unwrap();
}

#[test]
fn a_missing_directory_is_success_and_makes_nothing() {
    let (directory, cache) = scratch();
    clear(&cache.join("below/that"), 0).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_held_cache_is_not_cleared() {
    let (_directory, cache) = scratch();
    fill(&cache);
    let mut agent = Agent::start();
    agent.hold(&cache);
    assert_eq!(code(clear(&cache, 50)), Code::Timeout as i32);
    assert!(cache.join("a/b/c/x.o").exists());
}

#[test]
fn the_holder_clears_and_goes_on_holding() {
    let (_directory, cache) = scratch();
    fill(&cache);
    let lock = acquire(&cache, 0).unwrap();
    let mut agent = Agent::start();
    clear_held(lock).unwrap();
    assert!(!cache.exists());
    assert_eq!(agent.acquire(&cache, 0).code, Code::Timeout as i32);
    fill(&cache);
    clear_held(lock).unwrap();
    release(lock).unwrap();
}

#[test]
fn a_reader_may_not_clear() {
    let (_directory, cache) = scratch();
    fill(&cache);
    let lock = acquire_with(&cache, &options(0, jitlock::capi::JITLOCK_SHARED)).unwrap();
    assert_eq!(code(clear_held(lock)), Code::InvalidArgument as i32);
    assert!(cache.join("a/b/c/x.o").exists());
    release(lock).unwrap();
    let both = jitlock::capi::JITLOCK_SHARED | jitlock::capi::JITLOCK_CLEAR_IF_OWNER_DIED;
    assert_eq!(code(acquire_with(&cache, &options(0, both))), Code::InvalidArgument as i32);
}

#[test]
fn links_are_removed_and_their_targets_are_not() {
    let (directory, cache) = scratch();
    let outside = directory.path().join("outside");
    fill(&outside);
    fill(&cache);
    symlink(&outside, cache.join("to-directory")).unwrap();
    symlink(outside.join("d/x.o"), cache.join("to-file")).unwrap();
    symlink("nothing", cache.join("dangling")).unwrap();
    symlink("itself", cache.join("itself")).unwrap();
    symlink("..", cache.join("a/up")).unwrap();
    clear(&cache, 0).unwrap();
    assert!(!cache.exists() && std::fs::symlink_metadata(&cache).is_err());
    assert!(outside.join("a/b/c/x.o").exists() && outside.join("d/x.o").exists());
}

#[test]
fn a_symlinked_cache_is_cleared_where_it_is_and_the_link_stays() {
    let (directory, cache) = scratch();
    let target = directory.path().join("target");
    fill(&target);
    symlink("target", &cache).unwrap();
    clear(&cache, 0).unwrap();
    assert!(!target.exists());
    assert_eq!(std::fs::read_link(&cache).unwrap(), Path::new("target"));
    clear(&cache, 0).unwrap();
}

/// As another user where the test runs as root, whom no mode stops.
#[test]
fn read_only_and_unreadable_directories_go_too() {
    let (directory, cache) = scratch();
    fill(&cache);
    for (path, mode) in [("a/b/c", 0o555), ("a/b", 0o500), ("d", 0o000)] {
        std::fs::set_permissions(cache.join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    if unsafe { libc::geteuid() } == 0 {
        let chown = Command::new("chown").args(["-R", "65534:65534"]).arg(directory.path()).status().unwrap();
        assert!(chown.success());
        let mut agent = agent_of(NOBODY, directory.path());
        let reply = agent.ask(&format!("clear {} 0", cache.display()));
        assert_eq!(reply.code, OK, "{}", reply.text);
    } else {
        clear(&cache, 0).unwrap();
    }
    assert!(!cache.exists());
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".jitlock")), "{left:?}");
}

#[test]
fn what_will_not_go_is_named() {
    if !is_root() {
        skip!("needs root, to make a directory that its user may not empty");
    }
    let (directory, cache) = scratch();
    fill(&cache);
    let chown = |path: &Path, user: &str| {
        assert!(Command::new("chown").args(["-R", user]).arg(path).status().unwrap().success());
    };
    chown(directory.path(), "65534:65534");
    chown(&cache.join("a/b"), "0:0");
    let mut agent = agent_of(NOBODY, directory.path());
    let reply = agent.ask(&format!("clear {} 0", cache.display()));
    assert_eq!(reply.code, Code::Permission as i32);
    assert!(reply.text.contains("cache/a/b"), "{}", reply.text);
    assert!(!cache.exists(), "the cache is gone all the same");
    assert!(reply.text.contains("remove"), "{}", reply.text);
    // What was left behind is in no later clear's way, as far as the cache goes.
    std::fs::create_dir(&cache).unwrap();
    chown(&cache, "65534:65534");
    let again = agent.ask(&format!("clear {} 0", cache.display()));
    assert!(std::fs::read_dir(&cache).map_or(true, |mut entries| entries.next().is_none()), "{}", again.text);
}

#[test]
fn an_interrupted_clear_is_finished_by_the_next() {
    let (directory, cache) = scratch();
    fill(&cache);
    clear(&cache, 0).unwrap();
    // The name that PROTOCOL.md gives the trash of a cache called "cache".
    let trash = directory.path().join(".jitlock-trash-1c33d13ab5ec2345");
    fill(&trash);
    clear(&cache, 0).unwrap();
    only_the_lock_is_left(directory.path());
    fill(&trash);
    fill(&cache);
    clear(&cache, 0).unwrap();
    only_the_lock_is_left(directory.path());
}

#[test]
fn a_tree_deeper_than_there_are_descriptors_goes() {
    let (directory, cache) = scratch();
    std::fs::create_dir(&cache).unwrap();
    // Hand over hand: the path as a whole would be too long for one call.
    let script =
        "import os\nfor _ in range(1500): os.mkdir('deeper'); os.chdir('deeper'); open('file', 'w').close()";
    assert!(Command::new("python3").arg("-c").arg(script).current_dir(&cache).status().unwrap().success());
    let mut agent =
        Agent::spawn(Command::new("sh").arg("-c").arg("ulimit -n 100; exec \"$0\"").arg(program("agent")));
    let reply = agent.ask(&format!("clear {} 0", cache.display()));
    assert_eq!(reply.code, OK, "{}", reply.text);
    only_the_lock_is_left(directory.path());
}

#[test]
fn what_nobody_means_to_lose_is_refused() {
    let (directory, home) = scratch();
    std::fs::create_dir_all(home.join("below")).unwrap();
    let mut command = Command::new(program("agent"));
    let mut agent = Agent::spawn(command.env("HOME", home.join("below")));
    for path in [&home.join("below"), &home, directory.path(), Path::new("/"), Path::new("/..")] {
        let reply = agent.ask(&format!("clear {} 0", path.display()));
        assert_eq!(reply.code, Code::InvalidArgument as i32, "{}: {}", path.display(), reply.text);
        let lock = lock_file(path);
        if path != Path::new("/") && lock.starts_with(std::env::temp_dir()) {
            let _ = std::fs::remove_file(lock);
        }
    }
    assert!(home.join("below").exists());
    assert_eq!(code(clear(Path::new(""), 0)), Code::InvalidArgument as i32);
}

#[test]
fn a_file_is_not_a_cache() {
    let (_directory, cache) = scratch();
    std::fs::write(&cache, "precious").unwrap();
    assert_eq!(code(clear(&cache, 0)), Code::NotDirectory as i32);
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(code(clear_held(lock)), Code::NotDirectory as i32);
    release(lock).unwrap();
    assert_eq!(std::fs::read_to_string(&cache).unwrap(), "precious");
}

#[test]
fn a_cache_that_contains_its_lock_file_is_not_cleared() {
    let (_directory, cache) = scratch();
    fill(&cache);
    let inside = c_path(&cache.join("d/lock-file"));
    let mut options = options(0, 0);
    options.lock_path = inside.as_ptr();
    let lock = acquire_with(&cache, &options).unwrap();
    assert_eq!(code(clear_held(lock)), Code::InvalidArgument as i32);
    assert!(cache.join("a/b/c/x.o").exists());
    release(lock).unwrap();
}

#[test]
fn a_mount_point_is_emptied_in_place() {
    let (_directory, cache) = scratch();
    std::fs::create_dir(&cache).unwrap();
    let script =
        "mount -t tmpfs jitlock-test \"$1\" && mkdir -p \"$1/a/b\" && : > \"$1/a/b/x.o\" && : > \"$1/y.so\"";
    let Some(mut agent) = agent_with_mount(script, &cache) else { skip!("needs CAP_SYS_ADMIN, to mount") };
    let reply = agent.ask(&format!("clear {} 0", cache.display()));
    assert_eq!(reply.code, OK, "{}", reply.text);
    assert_eq!(
        agent.ask(&format!("system test -z \"$(ls -A {})\" && mountpoint -q {0}", cache.display())).code,
        0
    );
}

#[test]
fn a_mount_in_the_cache_is_never_entered() {
    for kind in ["mount -t tmpfs jitlock-test", "mount --bind \"$1/../outside\""] {
        let (directory, cache) = scratch();
        fill(&cache);
        std::fs::create_dir_all(cache.join("d/mount")).unwrap();
        fill(&directory.path().join("outside"));
        let script = format!("{kind} \"$1/d/mount\" && : > \"$1/d/mount/precious\"");
        let Some(mut agent) = agent_with_mount(&script, &cache) else {
            skip!("needs CAP_SYS_ADMIN, to mount")
        };
        let reply = agent.ask(&format!("clear {} 0", cache.display()));
        assert_eq!(reply.code, Code::Io as i32, "{}", reply.text);
        assert!(reply.text.contains("d/mount"), "{}", reply.text);
        let trash = "system test -e \"$(echo DIR/.jitlock-trash-*/d/mount/precious)\"";
        assert_eq!(
            agent.ask(&trash.replace("DIR", &directory.path().display().to_string())).code,
            0,
            "{kind}"
        );
    }
}

#[test]
fn where_the_parent_may_not_be_written_the_cache_is_emptied_in_place() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = scratch();
    fill(&cache);
    release(acquire(&cache, 0).unwrap()).unwrap();
    let mut agent = {
        let agent = agent_of(NOBODY, directory.path());
        assert!(Command::new("chown").args(["-R", "65534:65534"]).arg(&cache).status().unwrap().success());
        std::fs::set_permissions(cache.join("a"), PermissionsExt::from_mode(0o555)).unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        agent
    };
    let reply = agent.ask(&format!("clear {} 0", cache.display()));
    assert_eq!(reply.code, OK, "{}", reply.text);
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
}
