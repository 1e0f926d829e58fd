//! Real torch, of before and since 2.14: no build hangs, no running build is disturbed. `tests/lab/torch/install` brings both.

mod common;
use common::*;
use jitlock::capi::jitlock_baton_t::{JITLOCK_BATON_IN_USE, JITLOCK_BATON_STALE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// An existence lock.
    Old,
    /// An flock.
    New,
}

use Generation::{New, Old};

impl Generation {
    fn python(self) -> PathBuf {
        match self {
            Old => "/usr/bin/python3".into(),
            New => Path::new(ROOT).join("target/lab/torch/bin/python"),
        }
    }

    fn is_installed(self) -> bool {
        let python = self.python();
        let finds = ["-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"];
        python.exists() && works(python.to_str().unwrap(), &finds)
    }
}

macro_rules! for_each_generation {
    ($($generation:ident)|+) => {{
        let mut all = Vec::new();
        $(if $generation.is_installed() {
            all.push($generation);
        } else {
            println!("skipped: torch is not installed for {}", $generation.python().display());
        })+
        all
    }};
}

/// A build directory, and what the compilers in it did.
struct Site {
    _directory: TempDir,
    build_dir: PathBuf,
    gate: PathBuf,
    log: PathBuf,
}

impl Site {
    fn new() -> Site {
        let (directory, build_dir) = scratch();
        fs::create_dir(&build_dir).unwrap();
        let (gate, log) = (directory.path().join("gate"), directory.path().join("log"));
        fs::write(&log, "").unwrap();
        Site { _directory: directory, build_dir, gate, log }
    }

    /// A process with torch imported, of whatever generation.
    fn rank(&self, generation: Generation) -> Rank {
        let lab = Path::new(ROOT).join("tests/lab/torch");
        let python = generation.python();
        let path = format!("{}:{}", python.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(&python);
        command.arg(lab.join("rank.py")).arg(lab.join("plain.cpp")).stderr(Stdio::null());
        command.env("PATH", path).env("PYTHONPATH", Path::new(ROOT).join("python"));
        command.env("JITLOCK_LIBRARY", library()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("CXX", lab.join("slow-c++")).env("GATE", &self.gate).env("LOG", &self.log);
        Rank(Agent::spawn(&mut command))
    }

    fn protected(&self, generation: Generation, seconds: f64) -> Rank {
        let mut rank = self.rank(generation);
        rank.ready();
        assert_eq!(rank.0.ask(&format!("protect {seconds}")).code, OK);
        rank
    }

    fn close_gate(&self) {
        fs::write(&self.gate, "").unwrap();
    }

    fn open_gate(&self) {
        fs::remove_file(&self.gate).unwrap();
    }

    fn compiles(&self) -> usize {
        fs::read_to_string(&self.log).unwrap().matches("begin").count()
    }

    fn baton(&self) -> PathBuf {
        self.build_dir.join("lock")
    }

    /// No compiler began before the one before it had ended.
    fn one_compiler_at_a_time(&self) {
        let log = fs::read_to_string(&self.log).unwrap();
        let mut working = 0;
        for line in log.lines() {
            working += if line.starts_with("begin") { 1 } else { -1 };
            assert!(working <= 1, "two compilers in one build directory:\n{log}");
        }
    }

    fn stands_still(&self) {
        eventually("the compiler stands at the gate", || self.compiles() > 0);
    }
}

struct Rank(Agent);

impl Rank {
    /// Importing torch takes seconds.
    fn ready(&mut self) {
        self.0.reply();
    }

    fn load(&mut self, site: &Site) {
        self.0.send(&format!("load {}", site.build_dir.display()));
    }

    fn loaded(&mut self) {
        let reply = self.0.reply();
        assert_eq!((reply.code, reply.words.get(1).map(String::as_str)), (OK, Some("42")), "{}", reply.text);
    }
}

#[test]
fn without_us_an_old_torch_hangs_after_a_killed_builder() {
    for generation in for_each_generation!(Old) {
        let site = Site::new();
        let (mut builder, mut next) = (site.rank(generation), site.rank(generation));
        builder.ready();
        next.ready();
        site.close_gate();
        builder.load(&site);
        site.stands_still();
        builder.0.kill();
        site.open_gate();
        next.load(&site);
        // Twenty times as long as a build takes.
        let begun = Instant::now();
        eventually("it had its time", || begun.elapsed() > Duration::from_secs(4));
        let told = query(&site.build_dir).unwrap();
        assert_eq!(told.baton, JITLOCK_BATON_STALE as i32);
        assert_eq!(next.0.child.try_wait().unwrap(), None);
        assert!(!site.build_dir.join("plain.so").exists(), "nobody builds");
        // Now with us, in another process: the next one builds, and the plain one goes on.
        let mut ours = site.protected(generation, 30.0);
        ours.load(&site);
        ours.loaded();
        assert!(!site.baton().exists());
    }
}

#[test]
fn after_a_killed_builder_the_next_one_waits_for_its_compilers_and_builds() {
    for generation in for_each_generation!(Old | New) {
        let site = Site::new();
        let (mut builder, mut next) = (site.protected(generation, 30.0), site.protected(generation, 30.0));
        site.close_gate();
        builder.load(&site);
        site.stands_still();
        builder.0.kill();
        // Somebody who happens to stand there holds nobody up.
        let mut bystander =
            Command::new("setsid").args(["sleep", "1000"]).current_dir(&site.build_dir).spawn().unwrap();
        let pid = bystander.id() as i32;
        eventually("it has a session of its own", || unsafe { libc::getsid(pid) } == pid);
        next.load(&site);
        eventually("the next one has the lock", || {
            query(&site.build_dir).unwrap().pid == next.0.pid().into()
        });
        assert_eq!(site.compiles(), 1, "{generation:?}: it does not build beside the orphans");
        let (_, message) = acquire(&site.build_dir, 50).unwrap_err();
        assert!(message.contains(&format!("pid {}", next.0.pid())), "{message}");
        site.open_gate();
        next.loaded();
        site.one_compiler_at_a_time();
        assert_eq!(site.compiles(), 2, "{generation:?}: its artefact is its own");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn a_timeout_names_the_orphans_and_the_same_process_can_try_again() {
    for generation in for_each_generation!(Old | New) {
        let site = Site::new();
        let (mut builder, mut next) = (site.protected(generation, 30.0), site.protected(generation, 0.5));
        site.close_gate();
        builder.load(&site);
        site.stands_still();
        builder.0.kill();
        let compiler = fs::read_to_string(&site.log).unwrap().trim().replace("begin", "pid");
        next.load(&site);
        let reply = next.0.reply();
        assert_eq!(reply.code, Code::Timeout as i32, "{}", reply.text);
        assert!(reply.text.contains(&compiler) && reply.text.contains("ninja"), "{compiler}: {}", reply.text);
        site.open_gate();
        eventually("the orphans are gone", || query(&site.build_dir).unwrap().orphans == 0);
        next.load(&site);
        next.loaded();
        site.one_compiler_at_a_time();
    }
}

#[test]
fn eight_cold_ranks_build_once() {
    for generation in for_each_generation!(Old | New) {
        let site = Site::new();
        let mut ranks: Vec<Rank> = (0..8).map(|_| site.rank(generation)).collect();
        for rank in &mut ranks {
            rank.ready();
            assert_eq!(rank.0.ask("protect 60").code, OK);
        }
        ranks.iter_mut().for_each(|rank| rank.load(&site));
        ranks.iter_mut().for_each(Rank::loaded);
        assert_eq!(site.compiles(), 1, "{generation:?}");
    }
}

#[test]
fn a_build_by_plain_torch_is_waited_for_by_both_generations() {
    let generations = for_each_generation!(Old | New);
    for plain in generations.clone() {
        for ours in generations.clone() {
            let site = Site::new();
            let (mut builder, mut waiter) = (site.rank(plain), site.protected(ours, 60.0));
            builder.ready();
            site.close_gate();
            builder.load(&site);
            site.stands_still();
            waiter.load(&site);
            eventually("it has our lock", || query(&site.build_dir).unwrap().pid == waiter.0.pid().into());
            let told = query(&site.build_dir).unwrap();
            assert_eq!((told.baton, told.baton_pid), (JITLOCK_BATON_IN_USE as i32, builder.0.pid().into()));
            assert!(site.baton().exists());
            site.open_gate();
            builder.loaded();
            waiter.loaded();
            site.one_compiler_at_a_time();
        }
    }
}

/// A finished torch of today leaves its file, on which one of yesterday would hang.
#[test]
fn the_generations_take_turns_in_one_directory() {
    if for_each_generation!(Old | New).len() < 2 {
        return;
    }
    let site = Site::new();
    for generation in [New, Old, New, Old] {
        fs::remove_file(site.build_dir.join("plain.so")).ok();
        let mut plain = site.rank(New);
        plain.ready();
        plain.load(&site);
        plain.loaded();
        assert!(site.baton().exists(), "left by the new one");
        let mut ours = site.protected(generation, 30.0);
        ours.load(&site);
        ours.loaded();
    }
}

/// Plain torch gets in between our lock and torch's own, inside the protected load.
#[test]
fn a_stranger_who_gets_in_between_the_two_locks_is_waited_for_and_outlived() {
    for generation in for_each_generation!(Old | New) {
        let site = Site::new();
        let mut rank = site.protected(generation, 1.0);
        let build_dir = site.build_dir.display();
        let reply = rank.0.ask(&format!("late {build_dir} 100"));
        assert_eq!(reply.code, Code::Timeout as i32, "{generation:?}: {}", reply.text);
        assert_eq!(site.compiles(), 0, "{generation:?}: the stranger is not disturbed");
        rank.0.ask("undo");
        rank.0.ask("protect 30");
        let reply = rank.0.ask(&format!("late {build_dir} 0.3"));
        assert_eq!((reply.code, &*reply.words[1]), (OK, "42"), "{generation:?}: {}", reply.text);
        assert_eq!(site.compiles(), 1, "{generation:?}: the timeout was not taken for a build");
    }
}

#[test]
fn an_inline_extension_and_a_loader_of_ones_own_are_safe_as_well() {
    for generation in for_each_generation!(Old | New) {
        let site = Site::new();
        let mut rank = site.protected(generation, 300.0);
        fs::write(site.baton(), "").unwrap();
        let reply = rank.0.ask(&format!("inline {}", site.build_dir.display()));
        assert_eq!((reply.code, &*reply.words[1]), (OK, "42"), "{generation:?}: {}", reply.text);
        // With the caller's own lock around a protected load, and around a plain one.
        for _ in 0..2 {
            let site = Site::new();
            fs::write(site.baton(), "").unwrap();
            let reply = rank.0.ask(&format!("under {}", site.build_dir.display()));
            assert_eq!((reply.code, &*reply.words[1]), (OK, "42"), "{generation:?}: {}", reply.text);
            rank.0.ask("undo");
            // What it was told to build once it does not build again in another place.
            rank = site.rank(generation);
            rank.ready();
        }
    }
}

/// `examples-c/torch_ext`: cold, warm, beside stale and living builders, forced.
#[test]
fn the_loader_in_cpp_builds_recovers_and_falls_back() {
    for generation in for_each_generation!(Old) {
        let (_directory, cache) = scratch();
        let example = Path::new(ROOT).join("examples-c/torch_ext");
        let python = format!("PYTHON={}", generation.python().display());
        let run = |arguments: &str| {
            let cache = format!("CACHE={}", cache.display());
            let mut make = Command::new("make");
            make.args(["-s", "-C", example.to_str().unwrap(), "run", &python, &cache]);
            make.arg(format!("ARGS={arguments}")).env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS");
            let output = make.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            said
        };
        let built = |said: &str| (said.contains("building"), said.contains("by torch"));

        let mut holder = Agent::start();
        let lock = holder.hold(&cache);
        let said = run("--timeout 0.1");
        let told = format!("pid {}", holder.pid());
        assert!(said.contains("taking the fallback: timed out") && said.contains(&told), "{said}");
        assert!(said.contains("by the fallback"), "{said}");
        holder.release(lock);

        assert_eq!(built(&run("")), (true, true), "cold");
        assert_eq!(built(&run("")), (false, true), "warm");
        let build_dir = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(build_dir.join("extension.so")).unwrap();
        let mut torch = Agent::start();
        torch.ask(&format!("filebaton {}", build_dir.join("lock").display()));
        for arguments in ["--timeout 0.1", "--force-rebuild --timeout 0.1"] {
            let said = run(arguments);
            assert!(said.contains("torch's own lock") && said.contains("by the fallback"), "{said}");
        }
        assert!(build_dir.join("lock").exists());
        torch.kill();
        assert_eq!(built(&run("")), (true, true), "after a killed builder");
        assert!(!build_dir.join("lock").exists());
        let said = run("--force-rebuild");
        assert!(said.contains("the cache is deleted"), "{said}");
        assert_eq!(built(&said), (true, true), "forced");
    }
}
