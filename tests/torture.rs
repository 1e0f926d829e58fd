//! A storm: processes of several languages and strangers take one lock in every way while they are killed, stopped and signalled,
//! while its file is deleted and the cache cleared. Nobody may be beside anybody, nobody may wait for ever, nothing may be left.
//!
//! `JITLOCK_TEST_KILLS=10000 cargo test --test torture -- --nocapture` is the long form.

mod common;
use common::*;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PROCESSES: usize = 12;

struct Process {
    child: Child,
    is_python: bool,
}

struct Storm {
    directory: TempDir,
    cache: std::path::PathBuf,
    random: Random,
    running: Vec<Process>,
    /// Stopped ones go on then.
    stopped: VecDeque<(Instant, u32)>,
    /// Deleted lock files: while they are open no new one can have their inode's number.
    deleted: VecDeque<File>,
    started: u32,
    ended: u32,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let (directory, cache) = scratch();
        Storm {
            directory,
            cache,
            random: Random(seed),
            running: Vec::new(),
            stopped: VecDeque::new(),
            deleted: VecDeque::new(),
            started: 0,
            ended: 0,
        }
    }

    fn start_one(&mut self) {
        self.started += 1;
        let kind = self.random.below(12);
        let is_python = kind < 2;
        let mut command = if is_python {
            let mut python = Command::new("python3");
            python.arg(Path::new(ROOT).join("tests/python/storm.py"));
            python.env("PYTHONPATH", Path::new(ROOT).join("python")).env("JITLOCK_LIBRARY", library());
            python.env("PYTHONDONTWRITEBYTECODE", "1");
            python
        } else {
            Command::new(program("storm"))
        };
        command.arg(&self.cache).arg(self.directory.path()).arg(self.started.to_string());
        command.args(["ours", "stranger"].get(kind as usize));
        self.running.push(Process { child: command.spawn().unwrap(), is_python });
    }

    /// One that came to its end by itself did so without a complaint.
    fn reap(&mut self) {
        let mut ended = 0;
        self.running.retain_mut(|one| match one.child.try_wait().unwrap() {
            None => true,
            Some(status) => {
                ended += 1;
                assert!(status.success(), "{status}; {}", violations(self.directory.path()));
                false
            }
        });
        self.ended += ended;
    }

    fn kill_one(&mut self) {
        let mut index = self.random.below(self.running.len() as u64) as usize;
        // Python takes long to come to the lock at all.
        if self.running[index].is_python && self.random.below(8) > 0 {
            index = self.running.iter().position(|one| !one.is_python).unwrap_or(index);
        }
        let mut victim = self.running.swap_remove(index);
        victim.child.kill().unwrap();
        let status = victim.child.wait().unwrap();
        // It may have come to its end meanwhile.
        assert!(status.signal() == Some(libc::SIGKILL) || status.success(), "{status}");
    }

    fn signal_one(&mut self, signal: i32) -> u32 {
        let index = self.random.below(self.running.len() as u64) as usize;
        let pid = self.running[index].child.id();
        unsafe { libc::kill(pid as i32, signal) };
        pid
    }

    fn step(&mut self) -> bool {
        self.reap();
        while self.running.len() < PROCESSES {
            self.start_one();
        }
        std::thread::sleep(Duration::from_micros(self.random.below(4000)));
        while self.stopped.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let (_, pid) = self.stopped.pop_front().unwrap();
            if self.running.iter().any(|one| one.child.id() == pid) {
                unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            }
        }
        match self.random.below(20) {
            0..=1 => {
                let pid = self.signal_one(libc::SIGSTOP);
                self.stopped.push_back((Instant::now() + Duration::from_millis(10), pid));
            }
            2..=3 => {
                self.signal_one(libc::SIGWINCH);
            }
            4..=5 => {
                let lock = lock_file(&self.cache);
                self.deleted.extend(File::options().read(true).open(&lock));
                let _ = fs::remove_file(lock);
                self.deleted.drain(..self.deleted.len().saturating_sub(100));
            }
            6 => {
                let answer = clear(&self.cache, 2);
                let allowed = [Code::Timeout as i32, Code::Lost as i32];
                assert!(
                    answer.as_ref().map_or_else(|(code, _)| allowed.contains(code), |()| true),
                    "{answer:?}"
                );
            }
            7 => drop(File::create_new(self.cache.join("lock"))),
            _ => {
                self.kill_one();
                return true;
            }
        }
        false
    }

    fn end(mut self) -> TempDir {
        for Process { child, .. } in &mut self.running {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.directory
    }
}

#[test]
fn in_a_storm_nobody_is_beside_anybody_nobody_waits_for_ever_and_nothing_is_left() {
    let kills: u32 = std::env::var("JITLOCK_TEST_KILLS").map_or(300, |text| text.parse().unwrap());
    let mut storm = Storm::new(20_261_206);
    let mut killed = 0;
    while killed < kills {
        killed += u32::from(storm.step());
    }
    let (cache, started, ended) = (storm.cache.clone(), storm.started, storm.ended);
    let directory = storm.end();
    // What the killed ones left running comes to its end.
    let lock = acquire(&cache, 30_000).unwrap();
    clear_held(lock).unwrap();
    release(lock).unwrap();
    assert_eq!(violations(directory.path()), "");
    let left = fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name());
    let trash = left.filter(|name| name.to_string_lossy().starts_with(".jitlock-trash")).count();
    assert_eq!(trash, 0, "a clear sweeps what interrupted ones left");
    let holds = Testimony::read(directory.path());
    let had_by = |kind| holds.iter().filter(|hold| hold.kind == kind).count();
    let [writers, readers, compilers, strangers] = [b'W', b'R', b'C', b'S'].map(had_by);
    assert!(writers > kills as usize / 4 && readers.min(compilers).min(strangers) > 0);
    assert_eq!(overlap(holds), None, "two holders");
    println!(
        "{kills} kills; {started} processes, {ended} came to their end; held by {writers} writers, \
         {readers} readers, {compilers} compilers and {strangers} strangers, never by two at once"
    );
}

fn violations(directory: &Path) -> String {
    fs::read_to_string(directory.join("violations")).unwrap_or_default()
}

/// A hold that somebody was a witness of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Testimony {
    begin: u64,
    end: u64,
    pid: u64,
    kind: u8,
}

impl Testimony {
    /// Each hold once, up to the last moment that is known of it.
    fn read(directory: &Path) -> Vec<Testimony> {
        let bytes = fs::read(directory.join("testimony")).unwrap();
        assert_eq!(bytes.len() % 32, 0);
        let mut holds: HashMap<(u64, u64, u8), Testimony> = HashMap::new();
        for record in bytes.chunks_exact(32) {
            let number = |index: usize| u64::from_ne_bytes(record[8 * index..][..8].try_into().unwrap());
            let [begin, end, pid] = [0, 1, 2].map(number);
            let kind = number(3) as u8;
            let hold = holds.entry((pid, begin, kind)).or_insert(Testimony { begin, end, pid, kind });
            hold.end = hold.end.max(end);
        }
        holds.into_values().collect()
    }

    fn excludes(&self, other: &Testimony) -> bool {
        let both = [self.kind, other.kind];
        // A compiler of one's own; readers; and a stranger knows nothing of compilers.
        (self.pid, self.begin) != (other.pid, other.begin)
            && both != [b'R'; 2]
            && !(both.contains(&b'S') && both.contains(&b'C'))
    }
}

/// Two that had the lock at once, if there are any.
fn overlap(mut holds: Vec<Testimony>) -> Option<(Testimony, Testimony)> {
    holds.sort_by_key(|hold| hold.begin);
    let mut present: Vec<Testimony> = Vec::new();
    holds.into_iter().find_map(|hold| {
        present.retain(|earlier| earlier.end >= hold.begin);
        let other = present.iter().copied().find(|other| other.excludes(&hold));
        present.push(hold);
        other.map(|other| (other, hold))
    })
}

#[test]
fn the_judge_knows_two_holders_from_one() {
    let hold = |begin, end, kind| Testimony { begin, end, pid: begin, kind };
    let guilty = |holds: &[Testimony]| overlap(holds.to_vec()).is_some();
    assert!(!guilty(&[hold(5, 9, b'W'), hold(1, 4, b'W'), hold(10, 12, b'R'), hold(11, 13, b'R')]));
    for (first, second) in
        [(b'W', b'W'), (b'W', b'R'), (b'R', b'W'), (b'C', b'W'), (b'C', b'R'), (b'S', b'W')]
    {
        assert!(guilty(&[hold(5, 9, second), hold(1, 6, first)]));
    }
    assert!(!guilty(&[hold(1, 6, b'C'), hold(5, 9, b'S')]));
}
