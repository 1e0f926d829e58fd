//! Torch's own lock, `<build_dir>/lock`: a stale one goes, one in use is waited for, and nothing is guessed.

mod common;
use common::*;
use jitlock::capi::JITLOCK_INTERRUPTIBLE;
use jitlock::capi::{jitlock_baton_t::*, jitlock_waiting_for_t::*, JITLOCK_KEEP_BATON, JITLOCK_SHARED};
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: i32 = JITLOCK_BATON_NONE as i32;
const REMOVED: i32 = JITLOCK_BATON_REMOVED as i32;
const WAITED_FOR: i32 = JITLOCK_BATON_WAITED_FOR as i32;
const STALE: i64 = JITLOCK_BATON_STALE as i64;
const IN_USE: i64 = JITLOCK_BATON_IN_USE as i64;
const UNKNOWN: i64 = JITLOCK_BATON_UNKNOWN as i64;

/// A build directory, and torch's lock in it, which is not there yet.
fn build_dir() -> (TempDir, PathBuf, PathBuf) {
    let (directory, cache) = scratch();
    fs::create_dir(&cache).unwrap();
    let baton = cache.join("lock");
    (directory, cache, baton)
}

/// As a killed FileBaton leaves it.
fn plant(baton: &Path) {
    fs::write(baton, "").unwrap();
    fs::set_permissions(baton, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A process that builds by torch alone, with the protocol of before or since 2.14.
fn torch(protocol: &str, baton: &Path) -> (Agent, u64) {
    let mut agent = Agent::start();
    let descriptor = agent.ask(&format!("{protocol} {}", baton.display())).value();
    (agent, descriptor)
}

fn baton_of(lock: u64) -> i32 {
    info(lock).unwrap().baton
}

#[test]
fn what_a_killed_builder_left_is_removed() {
    let (_directory, cache, baton) = build_dir();
    for protocol in ["filebaton", "filelock"] {
        let mut holder = Agent::start();
        holder.hold(&cache);
        holder.ask(&format!("{protocol} {}", baton.display()));
        holder.kill();
        let lock = acquire(&cache, 1000).unwrap();
        assert_eq!((baton_of(lock), previous_owner(lock)), (REMOVED, 1), "{protocol}");
        assert!(!baton.exists());
        release(lock).unwrap();
    }
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(baton_of(lock), NONE);
    release(lock).unwrap();
}

/// Which an older torch would wait on for ever.
#[test]
fn the_idle_file_of_a_finished_new_torch_goes_too() {
    let (_directory, cache, baton) = build_dir();
    let (mut torch, descriptor) = torch("filelock", &baton);
    torch.ask(&format!("close {descriptor}"));
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(baton_of(lock), REMOVED);
    assert!(!baton.exists());
    release(lock).unwrap();
}

#[test]
fn a_running_build_of_either_generation_is_waited_for_and_never_disturbed() {
    for protocol in ["filebaton", "filelock"] {
        let (_directory, cache, baton) = build_dir();
        let (mut torch, descriptor) = torch(protocol, &baton);
        for timeout in [0, 200] {
            let (code, message) = acquire(&cache, timeout).unwrap_err();
            assert_eq!(code, Code::Timeout as i32);
            let named = [baton.to_str().unwrap(), &format!("pid {}", torch.pid()), "agent"];
            assert!(named.iter().all(|name| message.contains(name)), "{message}");
            assert!(baton.exists());
        }
        // The lock itself was given back each time.
        release(acquire_with(&cache, &options(0, JITLOCK_KEEP_BATON)).unwrap()).unwrap();
        let mut waiter = Agent::start();
        waiter.send(&format!("acquire {} 10000", cache.display()));
        eventually("the waiter has seen it", || sleeps_in(waiter.pid(), libc::SYS_ppoll));
        if protocol == "filebaton" {
            fs::remove_file(&baton).unwrap();
        }
        torch.ask(&format!("close {descriptor}"));
        let lock = waiter.reply().value();
        assert_eq!(waiter.ask(&format!("info {lock}")).number(5), i64::from(WAITED_FOR), "{protocol}");
        assert!(!baton.exists());
    }
}

#[test]
fn a_builder_that_is_killed_while_it_is_waited_for_is_outlived() {
    for protocol in ["filebaton", "filelock"] {
        let (_directory, cache, baton) = build_dir();
        let (mut torch, _) = torch(protocol, &baton);
        let mut waiter = Agent::start();
        waiter.send(&format!("acquire {} -1", cache.display()));
        eventually("the waiter has the lock", || query(&cache).unwrap().pid == i64::from(waiter.pid()));
        torch.kill();
        assert_eq!(waiter.reply().code, OK, "{protocol}");
        assert!(!baton.exists());
    }
}

#[test]
fn whoever_has_it_open_keeps_it_whatever_the_name_and_whoever_inherited_it() {
    let (directory, cache, baton) = build_dir();
    plant(&baton);
    let other = directory.path().join("other");
    fs::hard_link(&baton, &other).unwrap();
    let mut reader = Agent::start();
    reader.ask(&format!("open {}", other.display()));
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    let child = reader.ask("clone-sleep").value();
    reader.kill();
    let child = Stray(child as u32);
    assert_eq!(code(acquire(&cache, 100)), Code::Timeout as i32, "a child has it");
    assert!(baton.exists());
    child.kill();
    release(acquire(&cache, 10_000).unwrap()).unwrap();
    assert!(!baton.exists());
}

#[test]
fn only_a_regular_file_of_that_name_is_ever_removed() {
    let (directory, cache, baton) = build_dir();
    let other = directory.path().join("precious");
    fs::write(&other, "").unwrap();
    for name in ["lock.lock", "Lock", "lock~", ".lock"] {
        fs::write(cache.join(name), "").unwrap();
    }
    let tries: [(&str, &dyn Fn()); 4] = [
        ("directory", &|| fs::create_dir(&baton).unwrap()),
        ("symlink", &|| symlink(&other, &baton).unwrap()),
        ("dangling symlink", &|| symlink("nowhere", &baton).unwrap()),
        ("FIFO", &|| assert!(Command::new("mkfifo").arg(&baton).status().unwrap().success())),
    ];
    for (kind, make) in tries {
        make();
        let lock = acquire(&cache, 1000).unwrap();
        assert_eq!(baton_of(lock), NONE, "{kind}");
        release(lock).unwrap();
        assert!(fs::symlink_metadata(&baton).is_ok(), "{kind}");
        fs::remove_dir(&baton).or_else(|_| fs::remove_file(&baton)).unwrap();
    }
    assert!(other.exists());
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 4);
}

#[test]
fn it_is_left_alone_on_request_and_by_readers() {
    let (_directory, cache, baton) = build_dir();
    plant(&baton);
    for flags in [JITLOCK_KEEP_BATON, JITLOCK_SHARED] {
        let lock = acquire_with(&cache, &options(0, flags)).unwrap();
        assert_eq!(baton_of(lock), NONE);
        assert!(baton.exists());
        release(lock).unwrap();
    }
    let lock = acquire_with(&cache, &options(0, JITLOCK_SHARED)).unwrap();
    assert_eq!(code(remove_stale_baton(lock, &cache, 0)), Code::InvalidArgument as i32);
    release(lock).unwrap();
}

#[test]
fn build_directories_below_the_cache_each_have_one() {
    let (directory, cache, _) = build_dir();
    let build = cache.join("py311_cpu/kernel");
    fs::create_dir_all(&build).unwrap();
    plant(&build.join("lock"));
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(baton_of(lock), NONE, "not of the cache itself");
    assert!(build.join("lock").exists());
    remove_stale_baton(lock, &build, 0).unwrap();
    assert_eq!(baton_of(lock), REMOVED);
    remove_stale_baton(lock, &build, 0).unwrap();
    assert_eq!(baton_of(lock), NONE);
    remove_stale_baton(lock, &cache.join("not there yet"), 0).unwrap();

    let (_torch, _) = torch("filebaton", &build.join("lock"));
    let (status, message) = remove_stale_baton(lock, &build, 100).unwrap_err();
    assert_eq!(status, Code::Timeout as i32, "{message}");
    assert_eq!(info(lock).unwrap().lost, 0, "the lock is held all the same");

    plant(&directory.path().join("lock"));
    assert_eq!(code(remove_stale_baton(lock, directory.path(), 0)), Code::InvalidArgument as i32);
    symlink(directory.path(), cache.join("out")).unwrap();
    assert_eq!(code(remove_stale_baton(lock, &cache.join("out"), 0)), Code::InvalidArgument as i32);
    assert!(directory.path().join("lock").exists());
    release(lock).unwrap();
    assert_eq!(code(remove_stale_baton(lock, &build, 0)), Code::InvalidHandle as i32);
}

#[test]
fn a_clear_waits_for_the_builds_in_all_of_its_directories() {
    let (_directory, cache, _) = build_dir();
    let build = cache.join("kernel");
    fs::create_dir(&build).unwrap();
    let (mut torch, _) = torch("filebaton", &build.join("lock"));
    assert_eq!(code(clear(&cache, 100)), Code::Timeout as i32);
    let lock = acquire(&cache, 0).unwrap();
    let (status, message) = clear_held(lock).unwrap_err();
    assert_eq!(status, Code::Timeout as i32);
    assert!(message.contains(&format!("pid {}", torch.pid())), "{message}");
    assert!(build.join("lock").exists());
    torch.kill();
    clear_held(lock).unwrap();
    assert!(!cache.exists());
    release(lock).unwrap();
}

#[test]
fn one_that_may_not_be_removed_is_an_error_and_the_lock_is_not_held() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o1777);
    fs::create_dir(&cache).unwrap();
    plant(&cache.join("lock"));
    fs::set_permissions(&cache, PermissionsExt::from_mode(0o555)).unwrap();
    std::os::unix::fs::chown(cache.join("lock"), Some(NOBODY), None).unwrap();
    let mut agent = agent_of(NOBODY, directory.path());
    let reply = agent.acquire(&cache, 100);
    assert_eq!(reply.code, Code::Permission as i32, "{}", reply.text);
    assert!(reply.text.contains("stale"), "{}", reply.text);
    release(acquire_with(&cache, &options(0, JITLOCK_KEEP_BATON)).unwrap()).unwrap();
}

/// Where the kernel grants no lease, an flock and /proc tell, and where those cannot, nothing is removed.
#[test]
fn another_users_is_removed_by_root_and_never_on_a_guess() {
    if !is_root() {
        skip!("needs root, to be two users");
    }
    let (directory, cache) = open_scratch(0o777);
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, PermissionsExt::from_mode(0o777)).unwrap();
    let baton = cache.join("lock");
    plant(&baton);
    let mut nobody = agent_of(NOBODY, directory.path());
    let reply = nobody.acquire(&cache, 200);
    assert_eq!(reply.code, Code::Timeout as i32);
    assert!(reply.text.contains("cannot be told") && reply.text.contains("another user's"), "{}", reply.text);
    assert_eq!(nobody.ask(&format!("obstacles {}", cache.display())).number(1), UNKNOWN);
    assert!(baton.exists());
    // Root in a container is not the file's owner either, and has no CAP_LEASE by default.
    std::os::unix::fs::chown(&baton, Some(NOBODY), None).unwrap();
    let mut contained = agent_by("setpriv", &["--bounding-set", "-lease"]);
    let mut holder = agent_of(NOBODY, directory.path());
    let descriptor = holder.ask(&format!("open {}", baton.display())).value();
    assert_eq!(contained.acquire(&cache, 100).code, Code::Timeout as i32);
    holder.ask(&format!("close {descriptor}"));
    assert_eq!(contained.acquire(&cache, 1000).code, OK);
    assert!(!baton.exists());
}

#[test]
fn without_leases_an_flock_and_the_processes_tell() {
    if !is_root() {
        skip!("needs root, to see every process");
    }
    let (_directory, cache, baton) = build_dir();
    let mut agent = Agent::spawn(Command::new(program("agent")).env("LD_PRELOAD", shim("no_leases")));
    for protocol in ["filebaton", "filelock"] {
        let (mut torch, _) = torch(protocol, &baton);
        let reply = agent.acquire(&cache, 100);
        assert_eq!(reply.code, Code::Timeout as i32);
        assert!(reply.text.contains(&format!("pid {}", torch.pid())), "{protocol}: {}", reply.text);
        torch.kill();
        let lock = agent.hold(&cache);
        assert!(!baton.exists(), "{protocol}");
        agent.release(lock);
    }
}

#[test]
fn a_builder_in_another_pid_namespace_is_seen_by_the_kernel() {
    if !works("unshare", &["-p", "-f", "true"]) {
        skip!("needs CAP_SYS_ADMIN, for a pid namespace");
    }
    let (_directory, cache, baton) = build_dir();
    for protocol in ["filebaton", "filelock"] {
        let arguments = ["-p", "-f", "-m", "--mount-proc", "--kill-child"];
        let mut inside = agent_by("unshare", &arguments);
        let descriptor = inside.ask(&format!("{protocol} {}", baton.display())).value();
        assert_eq!(code(acquire(&cache, 100)), Code::Timeout as i32, "{protocol}");
        let mut neighbour = agent_by("unshare", &arguments);
        let reply = neighbour.acquire(&cache, 100);
        assert_eq!(reply.code, Code::Timeout as i32, "{protocol}");
        assert!(reply.text.contains("not visible from here"), "{}", reply.text);
        inside.ask(&format!("close {descriptor}"));
        assert_eq!(neighbour.acquire(&cache, 1000).code, OK, "{protocol}");
        assert!(!baton.exists());
    }
}

#[test]
fn tmpfs_and_the_lower_layer_of_overlayfs_are_no_exception() {
    let (directory, _) = scratch();
    let mounts = [
        ("tmpfs", "mount -t tmpfs jitlock-test \"$1\" && mkdir \"$1/cache\" && : >\"$1/cache/lock\""),
        (
            "overlayfs",
            "mount -t tmpfs jitlock-test \"$1\" && cd \"$1\" && mkdir -p lower/cache upper work all \
             && : >lower/cache/lock && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work o all \
             && mount --move all \"$1\" && cd /",
        ),
    ];
    for (kind, script) in mounts {
        let mount = directory.path().join(kind);
        fs::create_dir(&mount).unwrap();
        let Some(mut agent) = agent_with_mount(script, &mount) else {
            skip!("needs CAP_SYS_ADMIN, to mount")
        };
        let baton = mount.join("cache/lock");
        let descriptor = agent.ask(&format!("open {}", baton.display())).value();
        assert_eq!(agent.acquire(&mount.join("cache"), 100).code, Code::Timeout as i32, "{kind}");
        agent.ask(&format!("close {descriptor}"));
        let lock = agent.hold(&mount.join("cache"));
        assert_eq!(agent.ask(&format!("info {lock}")).number(5), i64::from(REMOVED), "{kind}");
        assert_eq!(agent.ask(&format!("open {}", baton.display())).number(1), -1, "{kind}");
    }
}

/// Somebody opens the file in the moment between the lease and the end of it: the kernel sends a signal then.
#[test]
fn no_signal_reaches_the_program_when_somebody_opens_it_meanwhile() {
    let (directory, cache, baton) = build_dir();
    plant(&baton);
    let seen = directory.path().join("seen");
    let mut command = Command::new(program("agent"));
    command.env("LD_PRELOAD", shim("open_meanwhile")).env("SEEN", &seen);
    let mut agent = Agent::spawn(&mut command);
    agent.ask("count-signals");
    agent.hold(&cache);
    assert_eq!(fs::read_to_string(&seen).unwrap(), "blocked\n", "the newcomer had to wait");
    assert_eq!(agent.ask("signals").number(1), 0);
}

#[test]
fn nothing_is_left_of_the_look() {
    let (_directory, cache, baton) = build_dir();
    let (_torch, _) = torch("filebaton", &baton);
    let mut agent = Agent::start();
    agent.acquire(&cache, 50);
    let before = agent.ask("descriptors").words;
    for _ in 0..20 {
        assert_eq!(agent.acquire(&cache, 20).code, Code::Timeout as i32);
    }
    assert_eq!(agent.ask("descriptors").words, before);
    eventually("no thread is left", || agent.ask("threads").number(1) == 1);
}

#[test]
fn the_wait_can_be_watched_cancelled_and_interrupted() {
    let (_directory, cache, baton) = build_dir();
    let (torch, _) = torch("filebaton", &baton);
    assert_eq!(first_look(&cache), (JITLOCK_WAITING_FOR_BATON as i32, torch.pid().into()));

    let mut agent = Agent::start();
    agent.ask("count-signals");
    agent.send(&format!("acquire {} -1 {JITLOCK_INTERRUPTIBLE}", cache.display()));
    eventually("it waits", || query(&cache).unwrap().pid == i64::from(agent.pid()));
    agent.signal(libc::SIGUSR1);
    assert_eq!(agent.reply().code, Code::Interrupted as i32);
    release(acquire_with(&cache, &options(0, JITLOCK_KEEP_BATON)).unwrap()).unwrap();
}

#[test]
fn a_query_tells_without_touching_it() {
    let (_directory, cache, baton) = build_dir();
    let mut agent = Agent::start();
    let mut told = || {
        let reply = agent.ask(&format!("obstacles {}", cache.display()));
        (reply.number(1), reply.number(2))
    };
    assert_eq!(told(), (NONE.into(), 0));
    plant(&baton);
    assert_eq!(told(), (STALE, 0));
    let mut reader = Agent::start();
    reader.ask(&format!("open {}", baton.display()));
    assert_eq!(told(), (IN_USE, reader.pid().into()));
    assert!(baton.exists());
}

/// The rules of unlink-and-create locks break here: somebody takes the gap for "free".
#[test]
fn many_waiters_on_a_stale_one_serialise() {
    let (_directory, cache, baton) = build_dir();
    for _ in 0..5 {
        plant(&baton);
        let mut holder = Agent::start();
        let keep = options(-1, JITLOCK_KEEP_BATON);
        holder.ask(&format!("acquire {} -1 {}", cache.display(), keep.flags));
        let mut waiters: Vec<Agent> = (0..12).map(|_| Agent::start()).collect();
        for waiter in &mut waiters {
            waiter.send(&format!("acquire {} 20000", cache.display()));
        }
        holder.kill();
        let marker = cache.join("marker");
        for _ in 0..waiters.len() {
            let mut polled = None;
            eventually("somebody has it", || {
                let pid = query(&cache).unwrap().pid;
                polled = waiters.iter().position(|waiter| i64::from(waiter.pid()) == pid);
                polled.is_some()
            });
            let mut winner = waiters.remove(polled.unwrap());
            let lock = winner.reply().value();
            fs::File::create_new(&marker).unwrap();
            assert!(!baton.exists());
            fs::remove_file(&marker).unwrap();
            assert_eq!(winner.release(lock).code, OK);
        }
    }
}
