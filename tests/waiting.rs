//! A wait costs nothing, leaves nothing behind, keeps its deadline whatever happens, and can be watched and ended.

mod common;
use common::*;
use jitlock::capi::{self, JITLOCK_INTERRUPTIBLE};
use std::ffi::{c_int, c_void, CStr};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn no_thread_and_no_descriptor_is_left_after_the_lock_came() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let descriptors = agent.ask("descriptors").value();
    for _ in 0..5 {
        let lock = acquire(&cache, 0).unwrap();
        agent.send(&format!("acquire {} 60000", cache.display()));
        eventually("the agent stands in the queue", || waits_in_kernel(agent.pid()));
        release(lock).unwrap();
        let reply = agent.reply();
        assert_eq!(agent.release(reply.value()).code, OK);
    }
    eventually("the helper is gone", || agent.ask("threads").value() == 1);
    assert_eq!(agent.ask("descriptors").value(), descriptors);
}

#[test]
fn a_helper_left_by_a_timeout_is_adopted() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    for _ in 0..20 {
        assert_eq!(agent.acquire(&cache, 1).code, Code::Timeout as i32);
        assert!(agent.ask("threads").value() <= 2, "one helper for all waits on one lock");
    }
    agent.send(&format!("acquire {} 60000", cache.display()));
    eventually("the agent stands in the queue", || waits_in_kernel(agent.pid()));
    release(lock).unwrap();
    assert_eq!(agent.reply().code, OK);
}

#[test]
fn a_lock_that_comes_when_nobody_wants_it_any_more_is_given_back() {
    let (_directory, cache) = scratch();
    let mut agent = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(agent.acquire(&cache, 20).code, Code::Timeout as i32);
    assert!(waits_in_kernel(agent.pid()));
    release(lock).unwrap();
    eventually("the helper is gone", || agent.ask("threads").value() == 1);
    let lock = acquire(&cache, 0).unwrap();
    assert_eq!(previous_owner(lock), 0, "it never was the owner");
    release(lock).unwrap();
}

#[test]
fn failures_of_every_kind_leave_no_thread_and_no_descriptor() {
    let (directory, cache) = scratch();
    let mut agent = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    let fifo = directory.path().join("fifo");
    std::fs::create_dir(lock_file(&fifo)).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let count = |agent: &mut Agent| (agent.ask("descriptors").value(), agent.ask("threads").value());
    let kinds = |agent: &mut Agent| {
        assert_eq!(agent.acquire(&cache, 0).code, Code::Timeout as i32);
        assert_eq!(agent.acquire(&cache, 1).code, Code::Timeout as i32);
        assert_eq!(agent.acquire(&fifo, 0).code, Code::Permission as i32);
        assert_eq!(agent.acquire(&file.join("below"), 0).code, Code::NotDirectory as i32);
        assert_eq!(
            agent.ask(&format!("acquire {} 0 4096", cache.display())).code,
            Code::InvalidArgument as i32
        );
        assert_eq!(agent.ask(&format!("clear {} 0", cache.display())).code, Code::Timeout as i32);
        assert_eq!(agent.release(7).code, Code::InvalidHandle as i32);
    };
    // Long enough for the helper to stand in the kernel's queue, where it stays.
    agent.send(&format!("acquire {} 1000", cache.display()));
    eventually("the helper waits", || waits_in_kernel(agent.pid()));
    assert_eq!(agent.reply().code, Code::Timeout as i32);
    kinds(&mut agent);
    let before = count(&mut agent);
    for _ in 0..300 {
        kinds(&mut agent);
    }
    eventually("counts are what they were", || count(&mut agent) == before);
    release(lock).unwrap();
}

#[test]
fn out_of_descriptors_is_said_and_is_over_when_there_are_some_again() {
    let (_directory, cache) = scratch();
    let mut agent =
        Agent::spawn(Command::new("sh").arg("-c").arg("ulimit -S -n 5; exec \"$0\"").arg(program("agent")));
    // Descriptors 0 to 4 at most: one is free for the lock file, and a second lock finds none.
    let first = agent.hold(&cache);
    let second = agent.hold(&cache.with_file_name("second"));
    let reply = agent.acquire(&cache.with_file_name("third"), 0);
    assert_eq!(reply.code, Code::Limit as i32, "{}", reply.text);
    assert!(reply.text.contains("third.lock"), "{}", reply.text);
    assert_eq!(agent.release(second).code, OK);
    assert_eq!(agent.acquire(&cache.with_file_name("third"), 0).code, OK);
    assert_eq!(agent.release(first).code, OK);
}

#[test]
fn a_wait_burns_no_cpu_and_hardly_wakes_up() {
    let (_directory, cache) = scratch();
    let mut waiter = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    waiter.send(&format!("acquire {} 60000", cache.display()));
    eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
    let switches = |pid: u32| -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let status =
            tasks.map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default());
        let count = |line: &str| line.split_whitespace().last().unwrap().parse::<u64>().unwrap();
        status
            .map(|text| text.lines().filter(|line| line.contains("ctxt_switches")).map(count).sum::<u64>())
            .sum()
    };
    let before = switches(waiter.pid());
    std::thread::sleep(Duration::from_secs(2));
    let woken = switches(waiter.pid()) - before;
    assert!(woken <= 4, "{woken} context switches in a wait of two seconds");
    release(lock).unwrap();
    assert_eq!(waiter.reply().code, OK);
}

#[test]
fn many_threads_wait_behind_one_helper_and_each_gets_its_turn() {
    let (directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    let mut command = Command::new(program("contender"));
    command.arg(&cache).arg(directory.path()).args(["1", "32", "1"]);
    let mut contender = Child(command.spawn().unwrap());
    let names = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", contender.0.id())).unwrap().flatten();
        tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()).collect()
    };
    eventually("all of them wait", || names().len() == 1 + 32 + 1 && waits_in_kernel(contender.0.id()));
    assert_eq!(names().iter().filter(|name| name.trim() == "jitlock").count(), 1);
    release(lock).unwrap();
    assert!(contender.0.wait().unwrap().success());
    let counter = std::fs::read_to_string(directory.path().join("counter")).unwrap();
    assert_eq!(counter.trim().parse(), Ok(32));
}

/// Killed and reaped when dropped.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Watch {
    calls: u32,
    stop_after: u32,
    thread: std::thread::ThreadId,
    seen: String,
    cache: std::path::PathBuf,
}

unsafe extern "C" fn watch(progress: *const capi::jitlock_progress_t, user: *mut c_void) -> c_int {
    let (progress, watch) = unsafe { (&*progress, &mut *user.cast::<Watch>()) };
    assert_eq!(watch.thread, std::thread::current().id());
    watch.calls += 1;
    let owner = unsafe { &*progress.owner };
    let command = unsafe { CStr::from_ptr(owner.command.as_ptr()) }.to_string_lossy();
    watch.seen = format!("{} {} {command}", owner.state, owner.pid);
    // Nothing of the library's is held meanwhile: other calls go through.
    assert_eq!(query(&watch.cache).unwrap().pid, owner.pid);
    (watch.calls >= watch.stop_after).into()
}

fn watched(cache: &std::path::Path, timeout_ms: i64, stop_after: u32) -> (Answer<u64>, Watch) {
    let thread = std::thread::current().id();
    let mut state = Watch { calls: 0, stop_after, thread, seen: String::new(), cache: cache.to_owned() };
    let mut options = options(timeout_ms, 0);
    options.progress_interval_ms = 100;
    options.progress = Some(watch);
    options.user = (&mut state as *mut Watch).cast();
    let answer = acquire_with(cache, &options);
    (answer, state)
}

#[test]
fn a_wait_can_be_watched_at_its_interval_and_names_the_holder() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    holder.hold(&cache);
    let (answer, watch) = watched(&cache, 1050, u32::MAX);
    assert_eq!(code(answer), Code::Timeout as i32);
    assert!((2..=10).contains(&watch.calls), "{} calls in 1.05 s at 100 ms", watch.calls);
    assert_eq!(watch.seen, format!("1 {} {}", holder.pid(), program("agent").display()));
}

#[test]
fn a_wait_can_be_cancelled() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    let lock = holder.hold(&cache);
    let (answer, watch) = watched(&cache, -1, 2);
    assert_eq!(code(answer), Code::Cancelled as i32);
    assert_eq!(watch.calls, 2);
    holder.release(lock);
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn a_free_lock_is_taken_without_a_call_of_the_watcher() {
    let (_directory, cache) = scratch();
    let (answer, watch) = watched(&cache, -1, 1);
    release(answer.unwrap()).unwrap();
    assert_eq!(watch.calls, 0);
}

#[test]
fn signals_neither_shorten_a_wait_nor_reach_our_threads() {
    let output = Command::new(program("signals")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A libc whose flock never comes back, as on a dead NFS server.
fn hanging_agent() -> Agent {
    Agent::spawn(Command::new(program("agent")).env("LD_PRELOAD", shim("hanging_flock")))
}

#[test]
fn a_file_system_that_hangs_costs_the_caller_no_more_than_its_timeout() {
    let (_directory, cache) = scratch();
    let mut agent = hanging_agent();
    for (call, millis) in [("acquire", 0), ("acquire", 500), ("clear", 500)] {
        let begun = Instant::now();
        let reply = agent.ask(&format!("{call} {} {millis}", cache.display()));
        assert_eq!(reply.code, Code::Timeout as i32, "{}", reply.text);
        assert!(begun.elapsed() < Duration::from_secs(10), "{call} {millis}: {:?}", begun.elapsed());
    }
    // An acquire makes the parents of its lock file and a clear does not: two targets, two helpers.
    assert!(agent.ask("threads").value() <= 3, "later calls adopt the one that hangs");
    let begun = Instant::now();
    agent.send("exit");
    assert!(agent.child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "the end of the process does not wait for it");
}

#[test]
fn a_hanging_call_that_comes_back_serves_who_waits_then() {
    let (directory, cache) = scratch();
    let gate = directory.path().join("gate");
    let mut command = Command::new(program("agent"));
    let mut agent = Agent::spawn(command.env("LD_PRELOAD", shim("hanging_flock")).env("GATE", &gate));
    assert_eq!(agent.acquire(&cache, 50).code, Code::Timeout as i32);
    agent.send(&format!("acquire {} 60000", cache.display()));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(agent.reply().code, OK);
}

#[test]
fn a_file_system_without_locks_is_an_error_and_no_weaker_lock() {
    for error in [libc::ENOSYS, libc::ENOLCK, libc::EOPNOTSUPP] {
        let (_directory, cache) = scratch();
        let mut command = Command::new(program("agent"));
        let mut agent = Agent::spawn(
            command.env("LD_PRELOAD", shim("failing_flock")).env("FLOCK_ERRNO", error.to_string()),
        );
        let reply = agent.acquire(&cache, 1000);
        assert_eq!(reply.code, Code::Unsupported as i32, "{}", reply.text);
        assert_eq!(agent.ask(&format!("clear {} 0", cache.display())).code, Code::Unsupported as i32);
    }
}

#[test]
fn a_stale_handle_is_asked_again_and_lasting_ones_end_with_the_deadline() {
    let (_directory, cache) = scratch();
    let failing = |times: &str| {
        let mut command = Command::new(program("agent"));
        command.env("LD_PRELOAD", shim("failing_flock")).env("FLOCK_ERRNO", libc::ESTALE.to_string());
        Agent::spawn(command.env("FLOCK_FAILURES", times))
    };
    assert_eq!(failing("3").acquire(&cache, 10_000).code, OK);
    let mut agent = failing("1000000");
    let begun = Instant::now();
    assert_eq!(agent.acquire(&cache, 1000).code, Code::Timeout as i32);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid())).unwrap();
    let ticks: u64 = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    assert!(ticks <= 20, "{ticks} ticks of CPU: it spins");
    eventually("the helper is gone", || agent.ask("threads").value() == 1);
}

#[test]
fn a_holder_is_told_that_it_waits_for_itself_though_others_wait_already() {
    let (_directory, cache) = scratch();
    let lock = acquire(&cache, 0).unwrap();
    let waiter = {
        let cache = cache.clone();
        std::thread::spawn(move || release(acquire(&cache, 20_000).unwrap()).unwrap())
    };
    eventually("the helper waits", || waits_in_kernel(std::process::id()));
    for timeout in [-1, 20_000, 0] {
        assert_eq!(code(acquire(&cache, timeout)), Code::Deadlock as i32);
    }
    release(lock).unwrap();
    waiter.join().unwrap();
}

/// A waiter that can be interrupted has a pipe, and whoever drops it last closes that: the waiter or the helper that served
/// it. Neither may do so with the process's table in hand.
#[test]
fn waits_that_can_be_interrupted_end_whoever_closes_their_bells() {
    const ROUNDS: usize = 300;
    let (_directory, cache) = scratch();
    let (done, all_done) = std::sync::mpsc::channel();
    for timeout in [20_000, 20_000, 0, 0, 1] {
        let (cache, done) = (cache.clone(), done.clone());
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                // Another spelling each time is another path that nobody knows yet, so the first try is a helper's.
                let spelling = cache.with_file_name(format!(".//{}cache", "./".repeat(round % 50)));
                let lock = acquire_with(&spelling, &options(timeout, JITLOCK_INTERRUPTIBLE));
                if let Ok(lock) = lock {
                    let again = acquire_with(&spelling, &options(-1, JITLOCK_INTERRUPTIBLE));
                    assert_eq!(code(again), Code::Deadlock as i32);
                    release(lock).unwrap();
                }
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..5 {
        all_done.recv_timeout(Duration::from_secs(60)).expect("somebody waits for ever");
    }
}
