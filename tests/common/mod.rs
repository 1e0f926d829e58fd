//! What the tests share: scratch directories, C programs, and other processes that hold and want locks.

#![allow(dead_code, unused_imports)] // each test file uses its own part

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use jitlock::capi;
pub use jitlock::Code;
pub use tempfile::TempDir;

pub const OK: i32 = 0;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A directory that is gone after the test, and the path of a cache in it.
pub fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::Builder::new().prefix("jitlock-test-").tempdir().unwrap();
    let cache = directory.path().join("cache");
    (directory, cache)
}

/// Where a cache's lock file is expected.
pub fn lock_file(cache: &Path) -> PathBuf {
    let mut path = cache.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Skips the rest of a test with a printed reason, for what this machine does not have.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        println!("skipped: {}", format!($($reason)*));
        return;
    }};
}

/// Polls until the condition holds; a test that waits ten seconds for it has failed.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < limit, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a call answered: success or the code, and the message.
pub type Answer<T> = Result<T, (i32, String)>;

fn answer<T>(status: capi::jitlock_status_t, value: T) -> Answer<T> {
    match status as i32 {
        OK => Ok(value),
        code => Err((code, last_message())),
    }
}

pub fn last_message() -> String {
    unsafe { CStr::from_ptr(capi::jitlock_last_error_message()) }.to_string_lossy().into_owned()
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// jitlock_acquire() in this process.
pub fn acquire(cache: &Path, timeout_ms: i64) -> Answer<u64> {
    let mut lock = 0;
    answer(unsafe { capi::jitlock_acquire(c_path(cache).as_ptr(), timeout_ms, &mut lock) }, ()).map(|()| lock)
}

/// jitlock_acquire_with() in this process.
pub fn acquire_with(cache: &Path, options: &capi::jitlock_options_t) -> Answer<u64> {
    let mut lock = 0;
    answer(unsafe { capi::jitlock_acquire_with(c_path(cache).as_ptr(), options, &mut lock) }, ())
        .map(|()| lock)
}

/// What a watcher is told at its first look, for what and for whom it waits, before it cancels the wait.
pub fn first_look(cache: &Path) -> (i32, i64) {
    unsafe extern "C" fn watch(progress: *const capi::jitlock_progress_t, user: *mut libc::c_void) -> i32 {
        let progress = unsafe { &*progress };
        let seen = unsafe { &mut *user.cast::<(i32, i64)>() };
        *seen = (progress.waiting_for, unsafe { &*progress.owner }.pid);
        1
    }
    let mut seen = (0, 0_i64);
    let options = capi::jitlock_options_t {
        progress: Some(watch),
        progress_interval_ms: 1,
        user: (&mut seen as *mut (i32, i64)).cast(),
        ..options(10_000, 0)
    };
    assert_eq!(code(acquire_with(cache, &options)), Code::Cancelled as i32);
    seen
}

pub fn options(timeout_ms: i64, flags: u32) -> capi::jitlock_options_t {
    capi::jitlock_options_t {
        struct_size: std::mem::size_of::<capi::jitlock_options_t>(),
        timeout_ms,
        flags,
        progress_interval_ms: 0,
        lock_path: std::ptr::null(),
        progress: None,
        user: std::ptr::null_mut(),
        error: std::ptr::null_mut(),
        error_size: 0,
    }
}

pub fn release(lock: u64) -> Answer<()> {
    answer(capi::jitlock_release(lock), ())
}

pub fn clear(cache: &Path, timeout_ms: i64) -> Answer<()> {
    answer(unsafe { capi::jitlock_clear_cache(c_path(cache).as_ptr(), timeout_ms) }, ())
}

pub fn clear_held(lock: u64) -> Answer<()> {
    answer(capi::jitlock_clear_held(lock), ())
}

pub fn info(lock: u64) -> Answer<capi::jitlock_info_t> {
    let mut info: capi::jitlock_info_t = unsafe { std::mem::zeroed() };
    info.struct_size = std::mem::size_of_val(&info);
    answer(unsafe { capi::jitlock_info(lock, &mut info) }, ()).map(|()| info)
}

pub fn remove_stale_baton(lock: u64, build_dir: &Path, timeout_ms: i64) -> Answer<()> {
    answer(unsafe { capi::jitlock_remove_stale_baton(lock, c_path(build_dir).as_ptr(), timeout_ms) }, ())
}

pub fn query(cache: &Path) -> Answer<capi::jitlock_owner_t> {
    let mut owner: capi::jitlock_owner_t = unsafe { std::mem::zeroed() };
    owner.struct_size = std::mem::size_of_val(&owner);
    answer(unsafe { capi::jitlock_query(c_path(cache).as_ptr(), &mut owner) }, ()).map(|()| owner)
}

pub fn previous_owner(lock: u64) -> i32 {
    info(lock).unwrap().previous_owner
}

/// The code of a failure.
pub fn code<T: std::fmt::Debug>(answer: Answer<T>) -> i32 {
    answer.expect_err("this should have failed").0
}

/// The shared library that cargo built beside this test.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libjitlock.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// A directory with the library under its soname, where programs find it.
pub fn library_directory() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        for name in ["libjitlock.so", "libjitlock.so.0"] {
            replace(&directory.join(name), |new| std::os::unix::fs::symlink(library(), new).unwrap());
        }
    });
    directory
}

/// Makes a file so that a test that runs beside this one sees the old one or the new one.
fn replace(path: &Path, make: impl FnOnce(&Path)) {
    let new = path.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
    make(&new);
    std::fs::rename(new, path).unwrap();
}

/// A C program of `tests/c`, built against the checked-in header and the shared library.
pub fn program(name: &str) -> PathBuf {
    let directory = library_directory();
    let rpath = format!("-Wl,-rpath,{}", directory.display());
    compile(name, name, &["-pthread", "-L", directory.to_str().unwrap(), "-ljitlock", &rpath])
}

/// A preloaded library of `tests/c` that changes what the system answers.
pub fn shim(name: &str) -> PathBuf {
    compile(name, &format!("{name}.so"), &["-shared", "-fPIC", "-ldl"])
}

/// Once per test program.
fn compile(source: &str, result: &str, arguments: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(result);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.insert(path.clone()) {
        replace(&path, |new| {
            let status = Command::new("cc")
                .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
                .arg(Path::new(ROOT).join("include"))
                .arg(Path::new(ROOT).join("tests/c").join(source).with_extension("c"))
                .arg("-o")
                .arg(new)
                .args(arguments)
                .status();
            assert!(status.unwrap().success(), "cannot build {source}");
        });
    }
    path
}

/// Another process, told what to do line by line. Killed and reaped when dropped.
pub struct Agent {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// One line of an agent's.
#[derive(Debug, Clone)]
pub struct Reply {
    pub code: i32,
    pub words: Vec<String>,
    pub text: String,
}

impl Agent {
    pub fn start() -> Agent {
        Agent::spawn(&mut Command::new(program("agent")))
    }

    pub fn spawn(command: &mut Command) -> Agent {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Agent { child, input, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send(&mut self, line: &str) {
        let mut input = self.input.as_ref().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    pub fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let code = words.first().unwrap_or_else(|| panic!("the agent said nothing")).parse();
        let text = words.get(2..).unwrap_or_default().join(" ");
        Reply { code: code.unwrap(), words, text }
    }

    pub fn ask(&mut self, line: &str) -> Reply {
        self.send(line);
        self.reply()
    }

    pub fn acquire(&mut self, cache: &Path, timeout_ms: i64) -> Reply {
        self.ask(&format!("acquire {} {timeout_ms}", cache.display()))
    }

    /// Acquires, and takes nothing but success.
    pub fn hold(&mut self, cache: &Path) -> u64 {
        let reply = self.acquire(cache, 10_000);
        assert_eq!(reply.code, OK, "{}", reply.text);
        reply.value()
    }

    pub fn release(&mut self, lock: u64) -> Reply {
        self.ask(&format!("release {lock}"))
    }

    pub fn signal(&self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.pid() as i32, signal) }, 0);
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Reply {
    pub fn value(&self) -> u64 {
        self.words[1].parse().unwrap()
    }

    pub fn number(&self, index: usize) -> i64 {
        self.words[index].parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that nobody waits for: killed when dropped.
pub struct Stray(pub u32);

impl Stray {
    /// Left behind by the agent, in its session and group, working in the directory.
    pub fn of(agent: &mut Agent, directory: &Path, command: &str) -> Stray {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stray-of-{}", agent.pid()));
        let (directory, shown) = (directory.display(), file.display());
        let start = format!("(cd {directory} && {command}) >/dev/null 2>&1 </dev/null & echo $! >{shown}");
        agent.ask(&format!("system {start}"));
        let pid: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        std::fs::remove_file(file).unwrap();
        let stray = Stray(pid);
        let place = |pid: u32| std::fs::metadata(format!("/proc/{pid}/cwd")).unwrap().ino();
        let here = place(agent.pid());
        // A shell that executes a program has moved and opened everything by then.
        let program = command.strip_prefix("exec ").map_or("sh", |line| line.split(' ').next().unwrap());
        eventually("the stray is at work", || {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            place(pid) != here && name.trim() == program
        });
        stray
    }

    pub fn kill(&self) {
        unsafe { libc::kill(self.0 as i32, libc::SIGKILL) };
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The fenced block of the README that follows `<!-- tested: NAME -->`.
pub fn snippet(name: &str) -> String {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("<!-- tested: {name} -->\n```{name}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Whether this process may do what root may.
pub fn is_root() -> bool {
    unsafe { libc::geteuid() == 0 }
}

/// By another process: while this one had the copy open for writing, a fork of another test's could inherit that, and then the
/// copy cannot be executed (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

pub const NOBODY: u32 = 65534;

/// An agent of another user. Its program lies where that user can read it.
pub fn agent_of(uid: u32, directory: &Path) -> Agent {
    Agent::spawn(&mut agent_command_of(uid, directory))
}

pub fn agent_command_of(uid: u32, directory: &Path) -> Command {
    let copy = directory.join("agent");
    if !copy.exists() {
        copy_program(&library(), &directory.join("libjitlock.so.0"));
        copy_program(&program("agent"), &copy);
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]).arg(copy);
    command.env("LD_LIBRARY_PATH", directory);
    command
}

/// A directory that every user may enter.
pub fn open_scratch(mode: u32) -> (TempDir, PathBuf) {
    let (directory, _) = scratch();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let shared = directory.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    (directory, shared.join("cache"))
}

/// An agent with a mount at the path, in a mount namespace of its own; none where that is not allowed.
pub fn agent_with_mount(script: &str, path: &Path) -> Option<Agent> {
    let mut command = Command::new("unshare");
    let script = format!("{script} && exec \"$0\"");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]).arg(program("agent")).arg(path);
    works("unshare", &["-m", "true"]).then(|| Agent::spawn(&mut command))
}

/// Whether a program and its arguments work here at all.
pub fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// An agent as the last of another program's arguments.
pub fn agent_by(program: &str, arguments: &[&str]) -> Agent {
    Agent::spawn(Command::new(program).args(arguments).arg(self::program("agent")))
}

/// Whether a task of the process sleeps in the call.
pub fn sleeps_in(pid: u32, call: i64) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default())
        .any(|line| line.split(' ').next().and_then(|number| number.parse().ok()) == Some(call))
}

/// Whether a task of the process sleeps in flock(2): it stands in the kernel's queue.
pub fn waits_in_kernel(pid: u32) -> bool {
    sleeps_in(pid, libc::SYS_flock)
}

/// xorshift: the moments differ from each other, not from run to run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
