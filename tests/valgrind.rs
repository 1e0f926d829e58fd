//! Every call, in every outcome that one process can have, under valgrind's memory checker.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;

fn every_call(agent: &mut Agent, cache: &Path) {
    let shown = cache.display();
    let lock = agent.hold(cache);
    assert_eq!(agent.acquire(cache, 10).code, Code::Deadlock as i32);
    assert_eq!(agent.ask(&format!("info {lock}")).code, OK);
    assert_eq!(agent.ask(&format!("query {shown}")).code, OK);
    std::fs::create_dir_all(cache.join("a/b")).unwrap();
    std::fs::write(cache.join("lock"), "").unwrap();
    assert_eq!(agent.ask(&format!("obstacles {shown}")).code, OK);
    assert_eq!(agent.ask(&format!("clear-held {lock}")).code, OK);
    assert_eq!(agent.release(lock).code, OK);
    assert_eq!(agent.release(lock).code, Code::InvalidHandle as i32);
    std::fs::create_dir_all(cache).unwrap();
    assert_eq!(agent.ask(&format!("clear {shown} 1000")).code, OK);

    let mut other = Agent::start();
    let held = other.hold(cache);
    for timeout in [0, 50] {
        assert_eq!(agent.acquire(cache, timeout).code, Code::Timeout as i32);
    }
    assert_eq!(agent.ask(&format!("remaining {shown} 60000")).code, Code::Cancelled as i32);
    agent.send(&format!("acquire {shown} 60000"));
    eventually("it stands in the queue", || waits_in_kernel(agent.pid()));
    assert_eq!(other.release(held).code, OK);
    let lock = agent.reply();
    assert_eq!(agent.release(lock.value()).code, OK);

    other.hold(cache);
    other.kill();
    let lock = agent.hold(cache);
    std::fs::remove_file(lock_file(cache)).unwrap();
    assert_eq!(agent.release(lock).code, Code::Lost as i32);
    std::fs::create_dir(lock_file(cache)).unwrap();
    assert_eq!(agent.acquire(cache, 0).code, Code::Permission as i32);
    assert_eq!(agent.ask(&format!("query {shown}")).code, Code::Permission as i32);
    assert_eq!(agent.acquire(Path::new("/"), 0).code, Code::InvalidArgument as i32);
}

#[test]
fn no_call_touches_memory_that_is_not_its_own_or_loses_any() {
    if !works("valgrind", &["--version"]) {
        skip!("valgrind is not there");
    }
    let (_directory, cache) = scratch();
    let mut valgrind = Command::new("valgrind");
    // Only in this process: a forked child forgets what it can neither use nor free.
    valgrind.args(["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    let mut agent = Agent::spawn(valgrind.arg(program("agent")));
    every_call(&mut agent, &cache);
    agent.send("exit");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}
