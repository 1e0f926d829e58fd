//! A process that holds and wants locks by the commands of `peer.c`, and the programs of that kind.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the peers come from: one in C, one in Python where py-filelock could be installed.
pub struct Programs {
    pub c: PathBuf,
    pub python: Option<PathBuf>,
    pub library: PathBuf,
}

/// A lock as the tables name it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub command: &'static str,
    pub python: bool,
}

const fn in_c(name: &'static str, command: &'static str) -> Kind {
    Kind { name, command, python: false }
}

pub const OURS: Kind = in_c("jitlock", "jitlock");
pub const RAW: Kind = in_c("raw flock(2)", "raw");
pub const PROTOCOL: Kind = in_c("jitlock's system calls in plain C", "protocol");
pub const HELPER: Kind = in_c("flock(2) in a helper thread, in plain C", "helper");
pub const GPTQMODEL: Kind = in_c("GPTQModel's loop, 100 ms", "poll100");
pub const POLL50: Kind = in_c("py-filelock's loop in C, 50 ms", "poll50");
pub const BATON: Kind = in_c("FileBaton's rule, 100 ms", "baton");
pub const FILELOCK: Kind = Kind { name: "py-filelock", command: "filelock", python: true };
pub const OURS_CTYPES: Kind = Kind { name: "jitlock through ctypes", command: "jitlock", python: true };

impl Programs {
    pub fn prepare(directory: &Path) -> Programs {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = std::env::current_exe().unwrap().with_file_name("libjitlock.so");
        let library = directory.join("libjitlock.so.0");
        std::fs::copy(built, &library).unwrap();
        let c = directory.join("peer");
        let compiled = Command::new("cc")
            .args(["-std=gnu99", "-O2", "-pthread", "-I"])
            .arg(root.join("include"))
            .arg(root.join("benches/compare/peer.c"))
            .args([&library, Path::new("-o"), &c])
            .arg(format!("-Wl,-rpath,{}", directory.display()))
            .status();
        assert!(compiled.unwrap().success(), "cannot build peer.c");
        Programs { c, python: python_with_filelock(directory), library }
    }

    /// None for a Python peer without Python.
    pub fn start(&self, kind: Kind) -> Option<Peer> {
        let mut command = match (kind.python, &self.python) {
            (false, _) => Command::new(&self.c),
            (true, Some(python)) => {
                let mut command = Command::new(python);
                command
                    .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/peer.py"))
                    .arg(&self.library);
                command
            }
            (true, None) => return None,
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Peer { child, input, output, kind })
    }
}

/// A virtual environment with the newest py-filelock from PyPI.
fn python_with_filelock(directory: &Path) -> Option<PathBuf> {
    let environment = directory.join("python");
    let run =
        |command: &mut Command| command.stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    let python = environment.join("bin/python");
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        && run(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "filelock",
        ]));
    if !made {
        eprintln!("py-filelock cannot be installed: its rows are left out");
    }
    made.then_some(python)
}

pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    kind: Kind,
}

impl Peer {
    pub fn send(&mut self, verb: &str, path: &Path, number: impl std::fmt::Display) {
        writeln!(self.input, "{verb} {} {} {number}", self.kind.command, path.display()).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    pub fn numbers(&mut self) -> Vec<f64> {
        let line = self.line();
        let numbers = line.split_whitespace().map(|word| word.parse());
        numbers.collect::<Result<_, _>>().unwrap_or_else(|_| panic!("{}: {line}", self.kind.name))
    }

    pub fn ask(&mut self, verb: &str, path: &Path, number: impl std::fmt::Display) -> Vec<f64> {
        self.send(verb, path, number);
        self.numbers()
    }

    /// Begins to wait for the lock; [`Peer::numbers`] is the time when it has it.
    pub fn begin_hold(&mut self, path: &Path) {
        self.send("hold", path, 0);
        assert_eq!(self.line(), "waiting\n", "{}", self.kind.name);
    }

    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
