//! Which file stands for a cache, and what is never done to a file that stands in its place.

mod common;
use common::*;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn every_spelling_of_a_cache_is_one_lock() {
    let (directory, cache) = scratch();
    let root = directory.path();
    std::fs::create_dir_all(cache.join("below")).unwrap();
    symlink(&cache, root.join("link")).unwrap();
    symlink("link", root.join("link-to-link")).unwrap();
    symlink(root, root.join("self")).unwrap();
    let spellings = [
        "cache",
        "cache/",
        "cache//",
        "cache/.",
        "./cache",
        "cache/below/..",
        "cache/../cache",
        "link",
        "link/",
        "link/.",
        "link-to-link",
        "self/cache",
        "self/link",
        "self/self/cache/",
    ];
    let lock = acquire(&cache, 0).unwrap();
    let mut agent = Agent::start();
    for spelling in spellings {
        let path = root.join(spelling);
        assert_eq!(agent.acquire(&path, 0).code, Code::Timeout as i32, "{spelling}");
        assert_eq!(code(acquire(&path, -1)), Code::Deadlock as i32, "{spelling}");
    }
    release(lock).unwrap();
    for spelling in spellings {
        let lock = acquire(&root.join(spelling), 0).unwrap();
        assert_eq!(agent.acquire(&cache, 0).code, Code::Timeout as i32, "{spelling}");
        release(lock).unwrap();
    }
    let locks = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.file_name());
    let locks: Vec<_> = locks.filter(|name| name.as_bytes().ends_with(b".lock")).collect();
    assert_eq!(locks, ["cache.lock"], "and one file");
}

#[test]
fn relative_paths_mean_the_directory_of_the_call() {
    let (directory, cache) = scratch();
    std::fs::create_dir(&cache).unwrap();
    let lock = acquire(&cache, 0).unwrap();
    for (working, spelling) in
        [(directory.path(), "cache"), (cache.as_path(), "."), (cache.as_path(), "../cache")]
    {
        let mut agent = Agent::spawn(Command::new(program("agent")).current_dir(working));
        assert_eq!(agent.acquire(Path::new(spelling), 0).code, Code::Timeout as i32, "{spelling}");
    }
    release(lock).unwrap();
}

#[test]
fn a_deleted_working_directory_is_an_error() {
    let (directory, _) = scratch();
    let gone = directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut agent = Agent::spawn(Command::new(program("agent")).current_dir(&gone));
    assert_eq!(agent.ask("threads").value(), 1);
    std::fs::remove_dir(&gone).unwrap();
    for spelling in ["cache", ".", "../x"] {
        let reply = agent.acquire(Path::new(spelling), -1);
        assert_eq!(reply.code, Code::Io as i32, "{spelling}: {}", reply.text);
    }
}

#[test]
fn sixteen_processes_make_the_missing_parents_at_once() {
    let (directory, _) = scratch();
    let cache = directory.path().join("a/b/c/cache");
    let mut agents: Vec<Agent> = (0..16).map(|_| Agent::start()).collect();
    std::thread::scope(|scope| {
        for agent in &mut agents {
            scope.spawn(|| {
                let lock = agent.hold(&cache);
                assert_eq!(agent.release(lock).code, OK);
            });
        }
    });
    assert!(!cache.exists(), "the cache itself is the caller's to make");
}

#[test]
fn a_name_without_room_for_the_suffix_is_refused_and_never_cut() {
    let (directory, _) = scratch();
    for length in [251, 255, 256, 5000] {
        let cache = directory.path().join("n".repeat(length));
        assert_eq!(code(acquire(&cache, 0)), Code::InvalidArgument as i32, "{length}");
        assert!(last_message().contains("too long"), "{}", last_message());
    }
    let mut deep = directory.path().to_owned();
    (0..100).for_each(|_| deep.push("d".repeat(100)));
    assert_eq!(code(acquire(&deep, 0)), Code::InvalidArgument as i32);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    release(acquire(&directory.path().join("n".repeat(250)), 0).unwrap()).unwrap();
}

#[test]
fn paths_are_bytes() {
    let (directory, _) = scratch();
    for name in [&b"\xff\xfe"[..], b"new\nline", b"back\\slash", b" ", b"\x1b[31m", "ключ".as_bytes()] {
        let cache = directory.path().join(OsStr::from_bytes(name));
        let lock = acquire(&cache, 0).unwrap();
        assert!(lock_file(&cache).exists());
        let error = acquire(&cache, 0).unwrap_err().1;
        assert!(!error.contains(char::is_control), "{error:?}");
        release(lock).unwrap();
    }
}

#[test]
fn what_is_no_regular_file_is_refused_and_left_alone() {
    type Make = fn(&Path);
    let make: [(&str, Make); 6] = [
        ("FIFO", |path| assert_eq!(unsafe { libc::mkfifo(c_path(path).as_ptr(), 0o666) }, 0)),
        ("directory", |path| std::fs::create_dir(path).unwrap()),
        ("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("symlink", |path| {
            std::fs::write(path.with_extension("target"), "precious").unwrap();
            symlink(path.with_extension("target"), path).unwrap();
        }),
        ("dangling symlink", |path| symlink(path.with_extension("nothing"), path).unwrap()),
        ("device", |path| {
            let name = c_path(path);
            if unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 3)) } != 0 {
                symlink("/dev/null", path).unwrap();
            }
        }),
    ];
    for (kind, make) in make {
        let (directory, cache) = scratch();
        let lock = lock_file(&cache);
        make(&lock);
        let before = std::fs::symlink_metadata(&lock).unwrap();
        let (code, message) = acquire(&cache, -1).unwrap_err();
        assert_eq!(code, Code::Permission as i32, "{kind}: {message}");
        assert!(message.contains("not a regular file"), "{kind}: {message}");
        let after = std::fs::symlink_metadata(&lock).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()), "{kind}");
        assert!(!directory.path().join("cache.nothing").exists(), "{kind}");
        if let Ok(text) = std::fs::read_to_string(directory.path().join("cache.target")) {
            assert_eq!(text, "precious");
        }
    }
}

/// An attacker who swaps the lock file for a symlink, again and again, never gets the target opened for writing.
#[test]
fn a_symlink_swapped_in_is_never_followed() {
    let (directory, cache) = scratch();
    let (target, lock) = (directory.path().join("target"), lock_file(&cache));
    std::fs::write(&target, "precious").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (link, file) = (directory.path().join("link"), directory.path().join("file"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                symlink(&target, &link).unwrap();
                std::fs::rename(&link, &lock).unwrap();
                std::fs::write(&file, "").unwrap();
                std::fs::rename(&file, &lock).unwrap();
            }
        });
        let mut acquired = 0;
        for _ in 0..3000 {
            if let Ok(lock) = acquire(&cache, 0) {
                acquired += 1;
                let _ = release(lock);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("{acquired} of 3000 acquired");
    });
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn a_lock_file_that_is_deleted_again_and_again_lets_nobody_in_twice_unnoticed() {
    let (_directory, cache) = scratch();
    let lock = lock_file(&cache);
    let mut waiter = Agent::start();
    let mut holder = Agent::start();
    for _ in 0..50 {
        let held = holder.hold(&cache);
        waiter.send(&format!("acquire {} 60000", cache.display()));
        eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
        std::fs::remove_file(&lock).unwrap();
        // A newcomer makes a new file and has it; the old holder goes; the waiter must not come in beside it.
        let newcomer = acquire(&cache, 0).unwrap();
        assert_eq!(holder.release(held).code, Code::Lost as i32);
        eventually("the waiter has moved to the new file", || {
            query(&cache).unwrap().pid == i64::from(std::process::id()) && waits_in_kernel(waiter.pid())
        });
        release(newcomer).unwrap();
        let theirs = waiter.reply();
        assert_eq!(theirs.code, OK);
        assert_eq!(waiter.release(theirs.value()).code, OK);
    }
}

#[test]
fn the_lock_file_is_made_as_the_umask_says_and_an_old_one_is_not_touched() {
    for (mask, mode) in [("022", 0o644), ("077", 0o600), ("000", 0o666)] {
        let (_directory, cache) = scratch();
        let script = format!("umask {mask}; exec \"$0\"");
        let mut agent = Agent::spawn(Command::new("sh").arg("-c").arg(script).arg(program("agent")));
        let lock = agent.hold(&cache);
        agent.release(lock);
        let made = std::fs::metadata(lock_file(&cache)).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, mode);
        std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o640)).unwrap();
        agent.hold(&cache);
        let kept = std::fs::metadata(lock_file(&cache)).unwrap();
        assert_eq!((kept.ino(), kept.permissions().mode() & 0o7777), (made.ino(), 0o640));
    }
}

#[test]
fn a_user_who_may_only_read_the_lock_file_waits_and_holds_like_anybody() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o777);
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o777)).unwrap();
    let lock = acquire(&cache, 0).unwrap();
    std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o644)).unwrap();
    let mut nobody = agent_of(65534, directory.path());
    assert_eq!(nobody.acquire(&cache, 100).code, Code::Timeout as i32);
    release(lock).unwrap();
    let held = nobody.hold(&cache);
    assert_eq!(nobody.ask(&format!("info {held}")).words[3], "0", "it could not write a record");
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    nobody.kill();
    let lock = acquire(&cache, 10_000).unwrap();
    assert_eq!(previous_owner(lock), 2, "whether it died cannot be known");
    release(lock).unwrap();
}

#[test]
fn where_an_exclusive_lock_is_for_writers_a_reader_is_told_so() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o777);
    let preloaded = directory.path().join("nfs_flock.so");
    copy_program(&shim("nfs_flock"), &preloaded);
    let mut root = Agent::spawn(Command::new(program("agent")).env("LD_PRELOAD", &preloaded));
    let lock = root.hold(&cache);
    assert_eq!(root.release(lock).code, OK);
    std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o644)).unwrap();
    let mut command = agent_command_of(65534, directory.path());
    let mut nobody = Agent::spawn(command.env("LD_PRELOAD", &preloaded));
    let refused = nobody.acquire(&cache, 1000);
    assert_eq!(refused.code, Code::Permission as i32, "{}", refused.text);
    assert!(refused.text.contains("wants write permission for an exclusive lock"), "{}", refused.text);
    let shared = nobody.ask(&format!("acquire {} 1000 {}", cache.display(), jitlock::capi::JITLOCK_SHARED));
    assert_eq!(shared.code, OK, "{}", shared.text);
}

#[test]
fn a_lock_file_that_may_not_even_be_read_is_a_permission_error_that_says_whose_it_is() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o777);
    release(acquire(&cache, 0).unwrap()).unwrap();
    std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o600)).unwrap();
    let reply = agent_of(65534, directory.path()).acquire(&cache, 0);
    assert_eq!(reply.code, Code::Permission as i32);
    assert!(
        reply.text.contains("mode 0600, owner uid 0") && reply.text.contains("cache.lock"),
        "{}",
        reply.text
    );
}

/// Sets a kernel setting and puts the old value back.
struct Setting(&'static str, String);

impl Setting {
    fn set(path: &'static str, value: &str) -> Option<Setting> {
        let old = std::fs::read_to_string(path).ok()?;
        std::fs::write(path, value).ok()?;
        Some(Setting(path, old))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0, &self.1);
    }
}

#[test]
fn in_a_sticky_directory_another_users_lock_file_is_used() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let Some(_setting) = Setting::set("/proc/sys/fs/protected_regular", "2") else {
        skip!("fs.protected_regular cannot be set here");
    };
    let (directory, cache) = open_scratch(0o1777);
    let mut nobody = agent_of(65534, directory.path());
    let theirs = nobody.hold(&cache);
    std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    let mut third = agent_of(65533, directory.path());
    assert_eq!(third.acquire(&cache, 0).code, Code::Timeout as i32);
    nobody.release(theirs);
    let ours = third.hold(&cache);
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    third.release(ours);
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn an_explicit_lock_path_is_used_as_it_is() {
    let (directory, cache) = scratch();
    let elsewhere = directory.path().join("elsewhere/x");
    let name = CString::new(elsewhere.as_os_str().as_bytes()).unwrap();
    let mut options = options(0, 0);
    options.lock_path = name.as_ptr();
    let lock = acquire_with(&cache, &options).unwrap();
    assert!(elsewhere.exists() && !lock_file(&cache).exists());
    assert_eq!(code(acquire_with(&cache, &options)), Code::Deadlock as i32);
    release(lock).unwrap();
}

#[test]
fn the_descriptor_is_never_a_standard_stream() {
    let (_directory, cache) = scratch();
    let script = "exec 2>&-; exec \"$0\"";
    let mut agent = Agent::spawn(Command::new("sh").arg("-c").arg(script).arg(program("agent")));
    let lock = agent.hold(&cache);
    let descriptor = agent.ask(&format!("info {lock}")).number(4);
    assert!(descriptor > 2, "{descriptor}");
    assert_eq!(agent.ask("system : >&2").code, 2, "descriptor 2 is still closed");
}
