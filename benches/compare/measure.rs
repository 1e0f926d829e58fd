//! What is measured, and how. Peers take turns, so that whatever else the machine does hits all of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::peer::*;
use crate::report::{Row, Table};

const MICROSECOND: f64 = 1e3;
const MILLISECOND: f64 = 1e6;

pub struct Bench<'a> {
    pub programs: &'a Programs,
    /// On the file system that is measured.
    pub directory: &'a Path,
    /// Only to see that everything works: a tenth of the rounds.
    pub quick: bool,
}

impl Bench<'_> {
    fn rounds(&self, full: usize) -> usize {
        if self.quick {
            (full / 10).max(1)
        } else {
            full
        }
    }

    /// A cache that exists, with a lock file of its own.
    fn cache(&self, name: &str) -> PathBuf {
        let cache = self.directory.join(name);
        std::fs::create_dir_all(&cache).unwrap();
        cache
    }

    pub fn uncontended(&self) -> Table {
        const EACH: usize = 250;
        let cache = self.cache("uncontended");
        let kinds = [RAW, PROTOCOL, OURS, OURS_CTYPES, FILELOCK, BATON];
        let mut peers: Vec<Peer> = kinds.iter().filter_map(|&kind| self.programs.start(kind)).collect();
        let mut samples = vec![Vec::new(); peers.len()];
        let (mut fs2, mut fd_lock) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds(40) {
            for (peer, samples) in peers.iter_mut().zip(&mut samples) {
                let times = peer.ask("uncontended", &cache, EACH);
                // The first round is for warming up.
                samples.extend(times.into_iter().filter(|_| round > 0));
            }
            fs2.extend(rust_peer(EACH, || fs2_once(&cache)));
            fd_lock.extend(rust_peer(EACH, || fd_lock_once(&cache)));
        }
        let names = peers.iter().map(|peer| peer.name().to_owned());
        let mut rows: Vec<Row> =
            names.zip(samples).map(|(name, times)| Row::new(name, scaled(times, MICROSECOND))).collect();
        rows.push(Row::new("fs2 alone", scaled(fs2, MICROSECOND)));
        rows.push(Row::new("fd-lock", scaled(fd_lock, MICROSECOND)));
        table("Acquire and release, nobody else wants it", "us", rows)
    }

    /// From a release, or from the death of the holder, until the next process has the lock.
    pub fn handoff(&self, by_death: bool) -> Table {
        let cache = self.cache("handoff");
        let mut kinds = vec![RAW, HELPER, OURS, FILELOCK, GPTQMODEL];
        if !by_death {
            kinds.push(BATON);
        }
        let mut samples = vec![Vec::new(); kinds.len()];
        for round in 0..self.rounds(60) {
            for (kind, samples) in kinds.iter().zip(&mut samples) {
                let Some(mut holder) = self.programs.start(*kind) else { continue };
                let Some(mut waiter) = self.programs.start(*kind) else { continue };
                holder.begin_hold(&cache);
                holder.numbers();
                waiter.begin_hold(&cache);
                // Into its queue, or to anywhere in its interval.
                sleep(Duration::from_micros(60_000 + round as u64 * 7919 % 100_000));
                let begun = if by_death {
                    let begun = monotonic_now();
                    holder.kill();
                    begun
                } else {
                    holder.ask("release", &cache, 0)[0]
                };
                samples.push(waiter.numbers()[0] - begun);
                waiter.ask("release", &cache, 0);
            }
        }
        let rows = kinds.iter().zip(samples).filter(|(_, samples)| !samples.is_empty());
        let rows = rows.map(|(kind, times)| Row::new(kind.name, scaled(times, MICROSECOND))).collect();
        let title =
            if by_death { "Hand-over after SIGKILL of the holder" } else { "Hand-over after a release" };
        let mut table = table(title, "us", rows);
        if by_death {
            table.notes.push("FileBaton's waiters wait for ever: the file of the dead holder stays.".into());
        }
        table
    }

    /// Until the last of so many waiting processes, or threads of one process, has had the lock.
    pub fn convoy(&self, verb: &str, count: usize) -> Table {
        let cache = self.cache("convoy");
        let kinds = if verb == "threads" {
            vec![RAW, HELPER, OURS]
        } else {
            vec![RAW, HELPER, OURS, POLL50, GPTQMODEL]
        };
        let mut samples = vec![Vec::new(); kinds.len()];
        for round in 0..self.rounds(9) {
            for (kind, samples) in kinds.iter().zip(&mut samples) {
                // The polling ones take long and hardly vary.
                if round < 3 || [RAW, HELPER, OURS].contains(kind) {
                    let mut peer = self.programs.start(*kind).unwrap();
                    samples.extend(peer.ask(verb, &cache, count));
                }
            }
        }
        let rows =
            kinds.iter().zip(samples).map(|(kind, times)| Row::new(kind.name, scaled(times, MILLISECOND)));
        let who = if verb == "threads" { "threads of one process" } else { "processes" };
        table(format!("{count} waiting {who}, until the last has had it"), "ms", rows.collect())
    }

    /// CPU time and context switches of a wait of five seconds that times out.
    pub fn cost_of_a_wait(&self) -> (Table, Table) {
        const MILLIS: u32 = 5000;
        let mut rows = (Vec::new(), Vec::new());
        for kind in [OURS, FILELOCK, GPTQMODEL, BATON] {
            let cache = self.cache("wait");
            let (Some(mut holder), Some(mut waiter)) = (self.programs.start(kind), self.programs.start(kind))
            else {
                continue;
            };
            holder.begin_hold(&cache);
            holder.numbers();
            let cost = waiter.ask("wait", &cache, MILLIS);
            rows.0.push(Row::new(kind.name, vec![cost[0] / 1e3]));
            rows.1.push(Row::new(kind.name, vec![cost[1]]));
        }
        let title = "CPU time of a wait of 5 s";
        (table(title, "ms", rows.0), table("Context switches of a wait of 5 s", "", rows.1))
    }

    pub fn clear(&self) -> Table {
        let cache = self.cache("clear");
        let path = cache.to_str().unwrap();
        let mut samples = vec![Vec::new(); 3];
        for _ in 0..self.rounds(7) {
            let ours = || jitlock::clear_cache(&cache, jitlock::Timeout::Default).unwrap();
            let rm = || assert!(Command::new("rm").args(["-rf", path]).status().unwrap().success());
            let rmtree = || {
                let script = "import shutil, sys, time; begun = time.monotonic_ns(); shutil.rmtree(sys.argv[1]); print(time.monotonic_ns() - begun)";
                let output = Command::new("python3").args(["-c", script, path]).output().unwrap();
                String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap()
            };
            fill(&cache);
            samples[0].push(timed(rm));
            fill(&cache);
            samples[1].push(timed(ours));
            fill(&cache);
            // Without the start of Python.
            samples[2].push(rmtree());
        }
        let names = ["rm -rf", "jitlock", "shutil.rmtree"];
        let rows = names.iter().zip(samples).map(|(name, times)| Row::new(*name, scaled(times, MILLISECOND)));
        table("Clearing 10,000 files in 500 directories", "ms", rows.collect())
    }

    /// A dlopen in a new process, beside that of a library that every Python has; and the size of the library in KiB.
    pub fn load(&self) -> (Table, f64) {
        let library = self.programs.library.to_str().unwrap();
        let names = ["libcrypt.so.1", library];
        let mut samples = vec![Vec::new(); names.len()];
        for _ in 0..self.rounds(30) {
            for (name, samples) in names.iter().zip(&mut samples) {
                let script = "import ctypes, sys, time; begun = time.monotonic_ns(); ctypes.CDLL(sys.argv[1]); print(time.monotonic_ns() - begun)";
                let output = Command::new("python3").args(["-c", script, name]).output().unwrap();
                samples.extend(String::from_utf8(output.stdout).unwrap().trim().parse::<f64>());
            }
        }
        let size = std::fs::metadata(library).unwrap().len() as f64 / 1024.0;
        let rows = ["libcrypt, for comparison", "jitlock"]
            .iter()
            .zip(samples)
            .filter(|(_, times)| !times.is_empty());
        let rows = rows.map(|(name, times)| Row::new(*name, scaled(times, MICROSECOND))).collect();
        (table("dlopen in a new process, files in the page cache", "us", rows), size)
    }
}

fn table(title: impl Into<String>, unit: &'static str, rows: Vec<Row>) -> Table {
    Table { title: title.into(), unit, rows, notes: Vec::new() }
}

fn scaled(nanoseconds: Vec<f64>, unit: f64) -> Vec<f64> {
    nanoseconds.into_iter().map(|time| time / unit).collect()
}

fn timed(body: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    body();
    begun.elapsed().as_nanos() as f64
}

fn rust_peer(count: usize, once: impl Fn()) -> Vec<f64> {
    (0..count).map(|_| timed(&once)).collect()
}

fn open_lock(cache: &Path) -> std::fs::File {
    let path = cache.with_extension("lock");
    std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[allow(clippy::disallowed_methods)] // the peer is measured as it is
fn fs2_once(cache: &Path) {
    let file = open_lock(cache);
    fs2::FileExt::lock_exclusive(&file).unwrap();
    fs2::FileExt::unlock(&file).unwrap();
}

fn fd_lock_once(cache: &Path) {
    let mut lock = fd_lock::RwLock::new(open_lock(cache));
    drop(lock.write().unwrap());
}

fn fill(cache: &Path) {
    for directory in 0..500 {
        let directory = cache.join(directory.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        (0..20).for_each(|file| std::fs::write(directory.join(file.to_string()), "kernel").unwrap());
    }
}

/// CLOCK_MONOTONIC, which the peers' times are of.
fn monotonic_now() -> f64 {
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
