//! What a lock file tells the next owner, and everybody else.

mod common;
use common::*;
use jitlock::capi;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const CLEAN: i32 = 0;
const DIED: i32 = 1;
const UNKNOWN: i32 = 2;

fn next_owner_is_told(cache: &Path) -> i32 {
    let lock = acquire(cache, 10_000).unwrap();
    let told = previous_owner(lock);
    release(lock).unwrap();
    told
}

#[test]
fn the_first_owner_and_the_one_after_a_release_are_told_clean() {
    let (_directory, cache) = scratch();
    assert_eq!(next_owner_is_told(&cache), CLEAN);
    assert_eq!(next_owner_is_told(&cache), CLEAN);
}

#[test]
fn a_death_is_told_until_one_owner_has_released() {
    let (_directory, cache) = scratch();
    for _ in 0..2 {
        let mut agent = Agent::start();
        agent.hold(&cache);
        agent.kill();
    }
    assert_eq!(next_owner_is_told(&cache), DIED);
    assert_eq!(next_owner_is_told(&cache), CLEAN);
}

#[test]
fn a_process_that_ends_without_releasing_has_died() {
    let (_directory, cache) = scratch();
    for end in [libc::SIGTERM, 0] {
        let mut agent = Agent::start();
        agent.hold(&cache);
        match end {
            0 => agent.send("exit"),
            signal => agent.signal(signal),
        }
        agent.child.wait().unwrap();
        assert_eq!(next_owner_is_told(&cache), DIED);
    }
}

#[test]
fn a_foreign_torn_huge_or_binary_record_is_a_death_of_somebody_unknown() {
    let held = "jitlock 1 held\npid 1\n";
    let contents: [&[u8]; 7] = [
        b"12345\n",
        b"\0",
        &[0xff; 600],
        held.as_bytes(),
        b"jitlock 2 free\n",
        b"jitlock 1 fre",
        &[b'\n'; 100_000],
    ];
    for content in contents {
        let (_directory, cache) = scratch();
        std::fs::write(lock_file(&cache), content).unwrap();
        assert_eq!(
            next_owner_is_told(&cache),
            DIED,
            "{:?}",
            String::from_utf8_lossy(&content[..content.len().min(30)])
        );
        assert_eq!(next_owner_is_told(&cache), CLEAN);
    }
}

#[test]
fn an_empty_file_that_somebody_else_made_says_nothing() {
    let (_directory, cache) = scratch();
    std::fs::write(lock_file(&cache), "").unwrap();
    assert_eq!(next_owner_is_told(&cache), UNKNOWN);
    assert_eq!(next_owner_is_told(&cache), CLEAN);
}

#[test]
fn the_record_names_its_writer_while_it_holds_and_says_so_when_it_has_released() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let lock = agent.hold(&cache);
    let text = std::fs::read_to_string(lock_file(&cache)).unwrap();
    assert_eq!(text.len(), 512);
    assert!(text.starts_with("jitlock 1 held\n") && text.ends_with('\n'), "{text}");
    for line in [format!("pid {}", agent.pid()), format!("command {}", program("agent").display())] {
        assert!(text.lines().any(|found| found.trim_end() == line), "{line} in {text}");
    }
    for field in ["start ", "pgid ", "sid ", "pidns ", "boot ", "since ", "host "] {
        assert!(text.lines().any(|line| line.starts_with(field)), "{field} in {text}");
    }
    agent.release(lock);
    let released = std::fs::read_to_string(lock_file(&cache)).unwrap();
    assert_eq!(released, text.replacen("held", "free", 1));
}

#[test]
fn nothing_is_written_before_the_lock_is_held() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    let before = std::fs::read(lock_file(&cache)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32)));
        }
    });
    assert_eq!(std::fs::read(lock_file(&cache)).unwrap(), before);
}

#[test]
fn readers_write_no_record() {
    let (_directory, cache) = scratch();
    let lock = acquire_with(&cache, &options(0, capi::JITLOCK_SHARED)).unwrap();
    assert_eq!(info(lock).unwrap().recorded, 0);
    assert_eq!(std::fs::metadata(lock_file(&cache)).unwrap().len(), 0);
    release(lock).unwrap();
}

#[test]
fn readers_are_told_of_a_death_and_leave_it_for_the_next_owner() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    agent.kill();
    let lock = acquire_with(&cache, &options(10_000, capi::JITLOCK_SHARED)).unwrap();
    assert_eq!(previous_owner(lock), DIED);
    release(lock).unwrap();
    assert_eq!(next_owner_is_told(&cache), DIED);
}

#[test]
fn a_half_built_cache_is_deleted_on_request_and_only_after_a_death() {
    let (_directory, cache) = scratch();
    let clear = options(10_000, capi::JITLOCK_CLEAR_IF_OWNER_DIED);
    std::fs::create_dir(&cache).unwrap();
    std::fs::write(cache.join("x.so"), "whole").unwrap();
    release(acquire_with(&cache, &clear).unwrap()).unwrap();
    assert!(cache.join("x.so").exists());
    let mut agent = Agent::start();
    agent.hold(&cache);
    std::fs::write(cache.join("x.so"), "ha").unwrap();
    agent.kill();
    let lock = acquire_with(&cache, &clear).unwrap();
    assert_eq!(previous_owner(lock), DIED);
    assert!(!cache.exists());
    release(lock).unwrap();
    assert_eq!(next_owner_is_told(&cache), CLEAN);
}

#[test]
fn a_clear_on_acquire_that_fails_leaves_no_lock_and_the_news_of_the_death() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    agent.kill();
    std::fs::write(&cache, "a file").unwrap();
    let answer = acquire_with(&cache, &options(10_000, capi::JITLOCK_CLEAR_IF_OWNER_DIED));
    assert_eq!(code(answer), Code::NotDirectory as i32);
    assert_eq!(std::fs::read_to_string(&cache).unwrap(), "a file");
    assert_eq!(next_owner_is_told(&cache), DIED);
}

#[test]
fn a_lock_file_deleted_under_its_holder_is_told() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(info(lock).unwrap().lost, 0);
    std::fs::remove_file(lock_file(&cache)).unwrap();
    assert_eq!(info(lock).unwrap().lost, 1);
    let mut newcomer = Agent::start();
    newcomer.hold(&cache);
    assert_eq!(info(lock).unwrap().lost, 1);
    assert_eq!(code(release(lock)), Code::Lost as i32);
    assert_eq!(code(release(lock)), Code::InvalidHandle as i32);
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32, "the newcomer's lock is untouched");
}

#[test]
fn a_lock_file_replaced_or_moved_under_its_holder_is_told() {
    let moves: [fn(&Path); 3] = [
        |lock| std::fs::rename(lock, lock.with_extension("away")).unwrap(),
        |lock| {
            std::fs::write(lock.with_extension("other"), "").unwrap();
            std::fs::rename(lock.with_extension("other"), lock).unwrap();
        },
        |lock| {
            let parent = lock.parent().unwrap();
            std::fs::rename(parent, parent.with_extension("moved")).unwrap();
        },
    ];
    for change in moves {
        let (directory, _) = scratch();
        let parent = directory.path().join("parent");
        std::fs::create_dir(&parent).unwrap();
        let cache = parent.join("cache");
        let lock = acquire(&cache, 0).unwrap();
        change(&lock_file(&cache));
        assert_eq!(code(release(lock)), Code::Lost as i32);
    }
}

#[test]
fn a_full_disk_takes_the_record_but_not_the_lock() {
    let (directory, _) = scratch();
    let mount = directory.path().join("full");
    std::fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=4k jitlock-test \"$1\" && (dd if=/dev/zero of=\"$1/fill\" bs=4k count=1 || :) 2>/dev/null && exec \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(program("agent")).arg(&mount);
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip!("needs CAP_SYS_ADMIN, to mount a full disk");
    }
    let mut agent = Agent::spawn(&mut command);
    let cache = mount.join("cache");
    let lock = agent.hold(&cache);
    let info = agent.ask(&format!("info {lock}"));
    assert_eq!(info.words[3], "0", "the record cannot be written");
    assert_eq!(
        agent.ask(&format!("fork-acquire {} 0 0 {lock}", cache.display())).code,
        Code::Timeout as i32,
        "but the lock is held"
    );
    assert_eq!(agent.release(lock).code, OK);
    let lock = agent.hold(&cache);
    assert_eq!(agent.ask(&format!("info {lock}")).number(1), i64::from(UNKNOWN));
    agent.release(lock);
}

#[test]
fn the_query_tells_free_from_held_and_by_whom() {
    let (_directory, cache) = scratch();
    assert_eq!(query(&cache).unwrap().state, 0);
    assert!(!lock_file(&cache).exists(), "a query makes nothing");
    let mut agent = Agent::start();
    let lock = agent.hold(&cache);
    let owner = query(&cache).unwrap();
    assert_eq!((owner.state, owner.holders, owner.pid), (1, 1, i64::from(agent.pid())));
    assert_eq!((owner.record_pid, owner.record_agrees, owner.is_ancestor), (owner.pid, 1, 0));
    assert!(owner.since_unix_ms >= owner.started_unix_ms - 1000 && owner.started_unix_ms > 0);
    agent.release(lock);
    let owner = query(&cache).unwrap();
    assert_eq!((owner.state, owner.pid, owner.record_pid), (0, 0, 0));
}

#[test]
fn a_dead_process_is_never_named_as_the_holder() {
    let (_directory, cache) = scratch();
    let mut dead = Agent::start();
    dead.hold(&cache);
    let dead_pid = dead.pid();
    dead.kill();
    let owner = query(&cache).unwrap();
    assert_eq!((owner.state, owner.pid, owner.record_agrees), (0, 0, 0));
    assert_eq!(owner.record_pid, i64::from(dead_pid));
    // A holder without a record, above the record of the dead one.
    let mut command = Command::new("flock");
    command.args(["-x", "-F"]).arg(lock_file(&cache)).args(["sh", "-c", "echo held; read line"]);
    let mut flock = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    flock.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let message = acquire(&cache, 50).unwrap_err().1;
    assert!(!message.contains(&format!("pid {dead_pid} ")), "{message}");
    assert!(message.contains(&format!("held by pid {} (sh ", flock.id())), "{message}");
    drop(flock.stdin.take());
    flock.wait().unwrap();
}

#[test]
fn a_holder_that_is_our_own_ancestor_is_named_as_such() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    agent.hold(&cache);
    let script = format!("echo acquire {} 100 | {}", cache.display(), program("agent").display());
    agent.send(&format!("system {script}"));
    let nested = agent.reply();
    assert_eq!(nested.code, Code::Timeout as i32);
    assert!(nested.text.contains("an ancestor"), "{}", nested.text);
}

#[test]
fn query_needs_no_write_permission() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    std::fs::set_permissions(lock_file(&cache), PermissionsExt::from_mode(0o444)).unwrap();
    assert_eq!(query(&cache).unwrap().pid, i64::from(std::process::id()));
    release(lock).unwrap();
}
