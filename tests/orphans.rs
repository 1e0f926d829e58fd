//! What a dead owner left running in the cache is waited for, and nobody else is.

mod common;
use common::*;
use jitlock::capi::{self, jitlock_progress_t, jitlock_waiting_for_t::JITLOCK_WAITING_FOR_ORPHANS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIED: i32 = 1;

fn cache() -> (TempDir, PathBuf) {
    let (directory, cache) = scratch();
    fs::create_dir_all(cache.join("build")).unwrap();
    (directory, cache)
}

/// A killed owner of the cache's lock, and what it left running.
fn orphan(cache: &Path, directory: &Path, command: &str) -> Stray {
    let mut owner = Agent::start();
    owner.hold(cache);
    let orphan = Stray::of(&mut owner, directory, command);
    owner.kill();
    orphan
}

fn is_had_at_once(cache: &Path) {
    let lock = acquire(cache, 0).unwrap();
    assert_eq!(previous_owner(lock), DIED);
    release(lock).unwrap();
}

#[test]
fn an_orphan_in_the_cache_is_waited_for_by_everybody_after_the_death() {
    let (_directory, cache) = cache();
    let orphan = orphan(&cache, &cache.join("build"), "exec sleep 1000");
    for timeout in [0, 200, 50] {
        let (status, message) = acquire(&cache, timeout).unwrap_err();
        assert_eq!(status, Code::Timeout as i32);
        let named = [&format!("pid {} (sleep 1000)", orphan.0), "died", "still work in the cache"];
        assert!(named.iter().all(|name| message.contains(*name)), "{message}");
        assert_eq!(message.matches("pid ").count(), 2, "the owner and the orphan: {message}");
    }
    assert_eq!(code(clear(&cache, 0)), Code::Timeout as i32);
    let mut waiter = Agent::start();
    waiter.send(&format!("acquire {} 10000", cache.display()));
    eventually("it has the lock and waits", || query(&cache).unwrap().pid == i64::from(waiter.pid()));
    let told = query(&cache).unwrap();
    assert_eq!((told.orphans, told.record_agrees), (0, 0), "the record is the dead owner's still");
    orphan.kill();
    let lock = waiter.reply().value();
    assert_eq!(waiter.ask(&format!("info {lock}")).number(1), i64::from(DIED));
}

#[test]
fn a_whole_tree_of_compilers_is_waited_for() {
    let (_directory, cache) = cache();
    let script = "sh -c \"sleep 1000 & echo \\$! >../grandchild; wait\"";
    let orphan = orphan(&cache, &cache.join("build"), script);
    let mut grandchild = String::new();
    eventually("the grandchild runs", || {
        grandchild = fs::read_to_string(cache.join("grandchild")).unwrap_or_default();
        !grandchild.is_empty()
    });
    let grandchild = Stray(grandchild.trim().parse().unwrap());
    orphan.kill();
    let (_, message) = acquire(&cache, 100).unwrap_err();
    assert!(message.contains(&format!("pid {} (sleep 1000)", grandchild.0)), "{message}");
    grandchild.kill();
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn one_that_writes_into_the_cache_from_elsewhere_counts_too() {
    let (directory, cache) = cache();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let script = format!("exec sleep 1000 >{}/build/x.o", cache.display());
    let stray = orphan(&cache, &elsewhere, &script);
    assert_eq!(code(acquire(&cache, 50)), Code::Timeout as i32);
    stray.kill();
    release(acquire(&cache, 10_000).unwrap()).unwrap();
    let _stray = orphan(&cache, &elsewhere, "exec sleep 1000");
    is_had_at_once(&cache);
}

#[test]
fn who_lives_under_another_name_of_the_cache_counts_too() {
    let (directory, cache) = cache();
    let script = format!("mount --bind {} \"$1\"", cache.display());
    let alias = directory.path().join("alias");
    fs::create_dir(&alias).unwrap();
    let Some(mut owner) = agent_with_mount(&script, &alias) else { skip!("needs CAP_SYS_ADMIN, to mount") };
    owner.hold(&cache);
    let stray = Stray::of(&mut owner, &alias.join("build"), "exec sleep 1000");
    let mut next = Agent::spawn(
        Command::new("nsenter").args(["-m", "-t", &owner.pid().to_string()]).arg(program("agent")),
    );
    next.ask("message");
    owner.kill();
    assert_eq!(next.acquire(&cache, 50).code, Code::Timeout as i32);
    stray.kill();
    assert_eq!(next.acquire(&cache, 10_000).code, OK);
}

/// The kernel notes the start of a process in hundredths of a second; what is nearer together counts as an orphan.
fn a_tick_passes() {
    let begun = Instant::now();
    eventually("a tick has passed", || begun.elapsed() > Duration::from_millis(30));
}

/// A process that stands in the cache: killed and reaped when dropped.
struct Bystander(Child);

impl Bystander {
    fn start(program: &str, arguments: &[&str], cache: &Path) -> Bystander {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Bystander(command.spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_unrelated_process_in_the_cache_holds_nobody_up() {
    let (_directory, cache) = cache();
    // Of this session, but there before the owner.
    let _before = Bystander::start("sleep", &["1000"], &cache);
    a_tick_passes();
    let mut owner = Agent::start();
    owner.hold(&cache);
    let session = Bystander::start("setsid", &["sleep", "1000"], &cache);
    let pid = session.0.id() as i32;
    eventually("it has a session of its own", || unsafe { libc::getsid(pid) } == pid);
    owner.kill();
    is_had_at_once(&cache);
}

/// As from the terminal whose job was killed.
#[test]
fn what_the_shell_of_the_session_starts_afterwards_is_no_orphan() {
    let (_directory, cache) = cache();
    let agent = program("agent");
    // The shell leads the session, and its first child owns the lock.
    let script = format!(
        "{} & owner=$!; read line; (cd {} && exec sleep 1000) & echo $!; wait",
        agent.display(),
        cache.display()
    );
    let fifo = cache.with_extension("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = script.replacen(" &", &format!(" <{} >/dev/null &", fifo.display()), 1);
    let mut shell = Agent::spawn(Command::new("setsid").args(["sh", "-c", &script]));
    let mut commands = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    use std::io::Write;
    writeln!(commands, "acquire {} -1", cache.display()).unwrap();
    eventually("the child has the lock", || query(&cache).unwrap().record_agrees == 1);
    shell.send("");
    let other = Stray(shell.reply().code as u32);
    eventually("it stands in the cache", || {
        fs::read_link(format!("/proc/{}/cwd", other.0))
            .is_ok_and(|place| place == cache.canonicalize().unwrap())
    });
    drop(commands);
    eventually("the owner is gone", || query(&cache).unwrap().pid == 0);
    let told = query(&cache).unwrap();
    assert_eq!((told.record_pid > 0, told.orphans), (true, 0));
    is_had_at_once(&cache);
}

/// Ranks that were started in the cache, some after the owner took the lock, and wait for it.
#[test]
fn ranks_that_wait_for_the_lock_are_nobodys_orphans() {
    let (_directory, cache) = cache();
    let mut owner = Agent::start();
    owner.hold(&cache);
    let mut ranks: Vec<Agent> =
        (0..4).map(|_| Agent::spawn(Command::new(program("agent")).current_dir(&cache))).collect();
    for rank in &mut ranks {
        rank.send(&format!("acquire {} 10000", cache.display()));
    }
    eventually("all wait", || ranks.iter().all(|rank| waits_in_kernel(rank.pid())));
    owner.kill();
    while !ranks.is_empty() {
        let mut holder = None;
        eventually("one has it", || {
            let told = query(&cache).unwrap();
            holder =
                ranks.iter().position(|rank| i64::from(rank.pid()) == told.pid && told.record_agrees == 1);
            holder.is_some()
        });
        let mut rank = ranks.remove(holder.unwrap());
        let lock = rank.reply().value();
        rank.release(lock);
    }
}

#[test]
fn a_record_of_another_boot_or_host_names_nobody_here() {
    let (_directory, cache) = cache();
    let orphan = orphan(&cache, &cache.join("build"), "exec sleep 1000");
    let record = fs::read_to_string(lock_file(&cache)).unwrap();
    for field in ["boot ", "pidns "] {
        let line = record.lines().find(|line| line.starts_with(field)).unwrap();
        let (last, digit) = (line.len() - 1, if line.ends_with('1') { "2" } else { "1" });
        fs::write(lock_file(&cache), record.replace(line, &format!("{}{digit}", &line[..last]))).unwrap();
        is_had_at_once(&cache);
    }
    fs::write(lock_file(&cache), &record).unwrap();
    assert_eq!(code(acquire(&cache, 0)), Code::Timeout as i32);
    orphan.kill();
}

#[test]
fn the_wait_for_orphans_is_shown_and_a_query_knows_them() {
    let (_directory, cache) = cache();
    let orphan = orphan(&cache, &cache.join("build"), "exec sleep 1000");
    let told = query(&cache).unwrap();
    assert_eq!((told.state, told.orphans, told.orphan_pid), (0, 1, orphan.0.into()));
    assert_eq!(first_look(&cache), (JITLOCK_WAITING_FOR_ORPHANS as i32, orphan.0.into()));
    assert_eq!(query(&cache).unwrap().state, 0, "the lock is not held");
}

/// A callback that forks: the child has lost the lock that the parent holds, and starts again behind it.
#[test]
fn a_child_of_the_callback_waits_for_its_parent() {
    unsafe extern "C" fn fork_once(_: *const jitlock_progress_t, user: *mut libc::c_void) -> i32 {
        let child = unsafe { &mut *user.cast::<i32>() };
        if *child == -1 {
            *child = unsafe { libc::fork() };
        }
        0
    }
    let (_directory, cache) = cache();
    let orphan = orphan(&cache, &cache.join("build"), "exec sleep 1000");
    let mut child = -1_i32;
    let options = capi::jitlock_options_t {
        progress: Some(fork_once),
        progress_interval_ms: 1,
        user: (&mut child as *mut i32).cast(),
        ..options(20_000, 0)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("it waits", || query(&cache).unwrap().pid != 0);
            std::thread::sleep(std::time::Duration::from_millis(50));
            orphan.kill();
        });
        let lock = acquire_with(&cache, &options);
        if child == 0 {
            // The child: its parent releases, and then the lock is its own.
            let done = lock.is_ok_and(|lock| release(lock).is_ok());
            unsafe { libc::_exit(if done { 42 } else { 1 }) };
        }
        release(lock.unwrap()).unwrap();
    });
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 42);
}
