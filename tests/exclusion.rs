//! Never two holders, whoever they are and however they end.

mod common;
use common::*;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn contender(cache: &Path, scratch: &Path, rounds: u32, threads: u32, seed: u32) -> Child {
    let mut command = Command::new(program("contender"));
    command.arg(cache).arg(scratch).args([rounds, threads, seed].map(|number| number.to_string()));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Every contender ends well; what one complains of is the message.
fn finish(contenders: Vec<Child>) {
    for mut child in contenders {
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
    }
}

fn counter(scratch: &Path) -> u64 {
    std::fs::read_to_string(scratch.join("counter")).unwrap().trim().parse().unwrap()
}

/// Foreign contenders, which know nothing of us: the same section under a plain flock on the same path.
const FLOCK_1: &str = r#"
i=0
while [ $i -lt $ROUNDS ]; do
    flock -x "$LOCK" sh -c '
        printf "%015d\n" $$ 1<>"$0/inside"
        printf "%015d\n" $(( $(sed "s/^0*//" "$0/counter") + 1 )) 1<>"$0/counter"
        [ $(sed "s/^0*//" "$0/inside") = $$ ] || echo violation: two holders
    ' "$SCRATCH" || exit 3
    i=$((i + 1))
done
"#;

const PYTHON: &str = r#"
import fcntl, os, sys
lock, scratch, rounds = os.environ["LOCK"], os.environ["SCRATCH"], int(os.environ["ROUNDS"])
def put(name, number):
    with open(f"{scratch}/{name}", "r+b", buffering=0) as file:
        file.write(b"%015d\n" % number)
def get(name):
    with open(f"{scratch}/{name}", "rb") as file:
        return int(file.read(16))
for round in range(rounds):
    with open(lock, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        put("inside", os.getpid())
        put("counter", get("counter") + 1)
        if get("inside") != os.getpid():
            print("violation: two holders")
            sys.exit(3)
        fcntl.flock(file, fcntl.LOCK_UN)
"#;

fn foreign(program: &str, script: &str, cache: &Path, scratch: &Path, rounds: u32) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(script).env("LOCK", lock_file(cache)).env("SCRATCH", scratch);
    command.env("ROUNDS", rounds.to_string()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn eight_processes_of_eight_threads_and_strangers_never_overlap() {
    let (directory, cache) = scratch();
    let scratch = directory.path();
    std::fs::write(scratch.join("counter"), format!("{:015}\n", 0)).unwrap();
    std::fs::write(scratch.join("inside"), format!("{:015}\n", 0)).unwrap();
    let mut contenders: Vec<Child> = (0..8).map(|seed| contender(&cache, scratch, 20, 8, seed)).collect();
    contenders.push(foreign("sh", FLOCK_1, &cache, scratch, 20));
    contenders.push(foreign("python3", PYTHON, &cache, scratch, 50));
    finish(contenders);
    assert_eq!(counter(scratch), 8 * 8 * 20 + 20 + 50);
}

#[test]
fn a_killed_holder_frees_the_lock_for_a_waiter() {
    let (_directory, cache) = scratch();
    let (mut holder, mut waiter) = (Agent::start(), Agent::start());
    holder.hold(&cache);
    waiter.send(&format!("acquire {} 60000", cache.display()));
    eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
    holder.kill();
    assert_eq!(waiter.reply().code, OK);
}

#[test]
fn a_killed_waiter_is_in_nobodys_way() {
    let (_directory, cache) = scratch();
    let mut waiter = Agent::start();
    let lock = acquire(&cache, 0).unwrap();
    waiter.send(&format!("acquire {} -1", cache.display()));
    eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
    waiter.kill();
    release(lock).unwrap();
    release(acquire(&cache, 10_000).unwrap()).unwrap();
}

#[test]
fn a_stopped_holder_keeps_the_lock_however_long() {
    let (_directory, cache) = scratch();
    let mut holder = Agent::start();
    let lock = holder.hold(&cache);
    holder.signal(libc::SIGSTOP);
    assert_eq!(code(acquire(&cache, 300)), Code::Timeout as i32);
    holder.signal(libc::SIGCONT);
    assert_eq!(holder.release(lock).code, OK);
}

/// A process that holds the lock by itself and says so, until its standard input ends.
fn foreign_holder(program: &str, script: &str, cache: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(script).arg(lock_file(cache));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

const FLOCK_1_HOLDER: &str = r#"exec flock -x "$0" sh -c 'echo held; read line'"#;
const PYTHON_HOLDER: &str = "
import fcntl, sys
file = open(sys.argv[1], 'a+')
fcntl.flock(file, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.readline()
fcntl.flock(file, fcntl.LOCK_UN)
print('unlocked, not closed', flush=True)
sys.stdin.readline()
";

#[test]
fn foreign_holders_are_waited_for_and_named() {
    for (program, script) in [("sh", FLOCK_1_HOLDER), ("python3", PYTHON_HOLDER)] {
        let (_directory, cache) = scratch();
        let mut holder = foreign_holder(program, script, &cache);
        let (code, message) = acquire(&cache, 100).unwrap_err();
        assert_eq!(code, Code::Timeout as i32);
        assert!(message.contains("held by pid ") && message.contains("wrote no record"), "{message}");
        let named = if program == "sh" { "flock" } else { "python3" };
        assert!(message.contains(named), "{message}");
        holder.kill().unwrap();
        holder.wait().unwrap();
        release(acquire(&cache, 10_000).unwrap()).unwrap();
    }
}

#[test]
fn a_holder_that_unlocks_without_closing_lets_a_waiter_in() {
    let (_directory, cache) = scratch();
    let mut holder = foreign_holder("python3", PYTHON_HOLDER, &cache);
    let mut waiter = Agent::start();
    waiter.send(&format!("acquire {} 60000", cache.display()));
    eventually("the waiter stands in the queue", || waits_in_kernel(waiter.pid()));
    std::io::Write::write_all(holder.stdin.as_mut().unwrap(), b"\n").unwrap();
    assert_eq!(waiter.reply().code, OK);
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn locks_taken_in_two_orders_end_in_timeouts_that_name_each_other() {
    let (directory, _) = scratch();
    let caches = ["a", "b"].map(|name| directory.path().join(name));
    let mut agents = [Agent::start(), Agent::start()];
    for (agent, cache) in agents.iter_mut().zip(&caches) {
        agent.hold(cache);
    }
    for (agent, cache) in agents.iter_mut().zip(caches.iter().rev()) {
        agent.send(&format!("acquire {} 300", cache.display()));
    }
    let pids = agents.each_ref().map(Agent::pid);
    for (agent, other) in agents.iter_mut().zip(pids.iter().rev()) {
        let reply = agent.reply();
        assert_eq!(reply.code, Code::Timeout as i32);
        assert!(reply.text.contains(&format!("held by pid {other} ")), "{}", reply.text);
    }
}

#[test]
fn readers_share_and_exclude_a_writer() {
    let (_directory, cache) = scratch();
    let shared = options(0, jitlock::capi::JITLOCK_SHARED);
    let (first, second) = (acquire_with(&cache, &shared).unwrap(), acquire_with(&cache, &shared).unwrap());
    let mut writer = Agent::start();
    assert_eq!(writer.acquire(&cache, 0).code, Code::Timeout as i32);
    release(first).unwrap();
    assert_eq!(writer.acquire(&cache, 0).code, Code::Timeout as i32);
    release(second).unwrap();
    assert_eq!(writer.acquire(&cache, 0).code, OK);
    assert_eq!(code(acquire_with(&cache, &shared)), Code::Timeout as i32);
}
