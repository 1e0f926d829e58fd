//! A file system whose server does not answer: every call keeps its deadline, and what was asked is done once the server
//! goes on. The server is bindfs, stopped by SIGSTOP.

mod common;
use common::*;
use jitlock::capi::{self, jitlock_scope_t::JITLOCK_SCOPE_UNKNOWN};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A directory, served under another path by a process that can be stopped.
struct Mount {
    server: Child,
    source: PathBuf,
    path: PathBuf,
    _directory: TempDir,
}

impl Mount {
    /// None, with the reason printed, where it cannot be had.
    fn new() -> Option<Mount> {
        if !works("bindfs", &["--version"]) || !Path::new("/dev/fuse").exists() {
            println!("skipped: bindfs and /dev/fuse are needed");
            return None;
        }
        let (directory, _) = scratch();
        let (source, path) = (directory.path().join("source"), directory.path().join("mount"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&path).unwrap();
        // So that the kernel asks each time.
        let options = "attr_timeout=0,entry_timeout=0,negative_timeout=0";
        let mut command = Command::new("bindfs");
        command.args(["-f", "-o", options]).args([&source, &path]).stderr(Stdio::null());
        let mut mount = Mount { server: command.spawn().unwrap(), source, path, _directory: directory };
        let mut refused = false;
        eventually("the file system is mounted", || {
            refused = mount.server.try_wait().unwrap().is_some();
            refused || mount.is_mounted()
        });
        if refused {
            println!("skipped: this user may not mount");
            return None;
        }
        Some(mount)
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&*self.path.to_string_lossy())
    }

    fn signal(&self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.server.id() as i32, signal) }, 0);
    }

    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let status = format!("/proc/{}/stat", self.server.id());
        eventually("the server is stopped", || fs::read_to_string(&status).unwrap().contains(") T "));
    }

    fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unsafe { libc::kill(self.server.id() as i32, libc::SIGCONT) };
        if self.is_mounted() {
            Command::new("fusermount").args(["-u", "-z"]).arg(&self.path).status().unwrap();
        }
        let _ = self.server.kill();
        self.server.wait().unwrap();
    }
}

/// Until the library has left nothing of the calls that were given up.
fn settled(agent: &mut Agent) {
    eventually("the helpers are gone", || agent.ask("threads").value() == 1);
}

#[test]
fn whom_its_locks_exclude_is_unknown() {
    let Some(mount) = Mount::new() else { return };
    let cache = mount.path.join("cache");
    let lock = acquire(&cache, 10_000).unwrap();
    assert_eq!(info(lock).unwrap().scope, JITLOCK_SCOPE_UNKNOWN as i32);
    assert_eq!(query(&cache).unwrap().scope, JITLOCK_SCOPE_UNKNOWN as i32);
    release(lock).unwrap();
    let (code, message) = acquire_with(&cache, &options(10_000, capi::JITLOCK_REQUIRE_CLUSTER)).unwrap_err();
    assert_eq!(code, Code::Unsupported as i32);
    assert!(message.contains("nothing tells whether fuse passes flock on"), "{message}");
}

#[test]
fn an_acquire_keeps_its_deadline_and_nothing_is_left_of_it() {
    let Some(mount) = Mount::new() else { return };
    let cache = mount.path.join("cache");
    let mut agent = Agent::start();
    let descriptors = agent.ask("descriptors").value();
    let lock = agent.hold(&cache);
    assert_eq!(agent.release(lock).code, OK);
    mount.stop();
    for timeout in [0, 50] {
        let reply = agent.acquire(&cache, timeout);
        assert_eq!(reply.code, Code::Timeout as i32, "{}", reply.text);
        assert!(reply.text.contains("cache.lock"), "{}", reply.text);
    }
    // A cache elsewhere is none of its business.
    let (_directory, other) = scratch();
    let lock = agent.hold(&other);
    assert_eq!(agent.release(lock).code, OK);
    mount.go_on();
    let lock = agent.hold(&cache);
    assert_eq!(agent.release(lock).code, OK);
    settled(&mut agent);
    assert_eq!(agent.ask("descriptors").value(), descriptors);
}

#[test]
fn calls_without_a_deadline_give_up_and_are_done_once_it_answers() {
    let Some(mount) = Mount::new() else { return };
    let calls = ["release", "info", "clear-held", "query", "clear"];
    let caches = calls.map(|call| mount.path.join(call));
    let mut agents = calls.map(|_| Agent::start());
    let mut locks = Vec::new();
    for (agent, cache) in agents.iter_mut().zip(&caches) {
        fs::create_dir(cache).unwrap();
        locks.push(agent.hold(cache));
    }
    assert_eq!(agents[4].release(locks[4]).code, OK);
    mount.stop();
    for (index, (agent, call)) in agents.iter_mut().zip(calls).enumerate() {
        let cache = caches[index].display();
        agent.send(&match call {
            "query" => format!("query {cache}"),
            "clear" => format!("clear {cache} 50"),
            _ => format!("{call} {}", locks[index]),
        });
    }
    for (agent, call) in agents.iter_mut().zip(calls) {
        assert_eq!(agent.reply().code, Code::Timeout as i32, "{call}");
        let message = agent.ask("message").text;
        let expected = match call {
            "clear" => "clear.lock",
            // It did not come further than to torch's lock.
            "clear-held" => "its file system does not answer",
            _ => "an answer of the file system of",
        };
        assert!(message.contains(expected), "{call}: {message}");
    }
    // The handle is void, whatever becomes of the lock.
    assert_eq!(agents[0].release(locks[0]).code, Code::InvalidHandle as i32);
    mount.go_on();
    agents.iter_mut().for_each(settled);

    let mut other = Agent::start();
    let taken = other.hold(&caches[0]);
    assert_eq!(other.ask(&format!("info {taken}")).number(1), 0, "it was released in good order");
    for call in ["clear-held", "clear"] {
        assert!(
            mount.source.join(call).exists(),
            "a {call} that did not begin in time deletes nothing later"
        );
    }
    for index in [1, 2, 3] {
        assert_eq!(agents[index].release(locks[index]).code, OK, "{}", calls[index]);
    }
}

#[test]
fn a_clear_is_given_up_half_way_and_goes_through_later() {
    let Some(mount) = Mount::new() else { return };
    let (cache, source) = (mount.path.join("cache"), mount.source.join("cache"));
    fs::create_dir(&source).unwrap();
    for number in 0..20_000 {
        fs::write(source.join(number.to_string()), "").unwrap();
    }
    let mut agent = Agent::start();
    agent.send(&format!("clear {} 10000", cache.display()));
    eventually("the clear has begun", || !source.exists());
    mount.stop();
    let reply = agent.reply();
    assert_eq!(reply.code, Code::Timeout as i32, "{}", reply.text);
    assert!(fs::read_dir(&mount.source).unwrap().count() > 1, "not all of it was deleted already");
    mount.go_on();
    let mut other = Agent::start();
    let lock = other.hold(&cache);
    let left: Vec<_> = fs::read_dir(&mount.source).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["cache.lock"], "who gets the lock afterwards finds it done");
    assert_eq!(other.release(lock).code, OK);
    settled(&mut agent);
}

#[test]
fn a_lock_file_elsewhere_does_not_make_its_cache_answer() {
    let Some(mount) = Mount::new() else { return };
    let (directory, _) = scratch();
    let locks = directory.path().join("locks");
    let cache = mount.path.join("cache");
    fs::create_dir(&cache).unwrap();
    let mut agent = Agent::spawn(Command::new(program("agent")).env("JITLOCK_LOCK_DIR", &locks));
    let lock = agent.hold(&cache);
    assert_eq!(agent.release(lock).code, OK);
    let lock = agent.hold(&cache);
    mount.stop();
    assert_eq!(agent.acquire(&cache, 50).code, Code::Timeout as i32);
    assert_eq!(agent.ask(&format!("clear-held {lock}")).code, Code::Timeout as i32);
    mount.go_on();
    settled(&mut agent);
    assert!(cache.exists());
    assert_eq!(agent.ask(&format!("clear-held {lock}")).code, OK);
    assert!(!cache.exists());
    assert_eq!(agent.release(lock).code, OK);
}
