//! Processes, threads and time.

use std::fs::File;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::super::{FileId, Identity, KernelHolder, KernelHolders, Process, WaitEnd};
use super::api;

/// There is no fork, a lock belongs to its handle and process, and no signal ends a wait.
pub(crate) const HAS_HEIRS: bool = false;
pub(crate) const HAS_SIGNALS: bool = false;

/// GetExitCodeProcess's answer for one that lives.
const STILL_ACTIVE: u32 = 259;

/// From 1601, where FILETIME begins, to 1970.
const EPOCH: Duration = Duration::from_secs(11_644_473_600);

pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// This process. Its start is the moment of its creation, by which a recycled pid is told without a boot id.
pub(crate) fn identity() -> Identity {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let host = host_name();
    Identity {
        pid: process_id(),
        start: start_of(process_id()).unwrap_or_default(),
        boot: host.clone(),
        host,
        command: words.join(" ").into_bytes(),
        ..Identity::default()
    }
}

fn host_name() -> String {
    let mut name = [0; 256];
    let mut length = name.len() as u32;
    // SAFETY: a buffer of the length given, which becomes the name's.
    let done =
        unsafe { api::GetComputerNameExW(api::COMPUTER_NAME_DNS_HOSTNAME, name.as_mut_ptr(), &mut length) };
    if done == 0 {
        return String::new();
    }
    String::from_utf16_lossy(&name[..length as usize])
}

/// In the unit of FILETIME, 100 ns; none if it has ended, or is not ours to look at.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    // SAFETY: any number will do.
    let process = unsafe { api::OpenProcess(api::PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if process.is_null() {
        return None;
    }
    // SAFETY: just made, and nobody else knows it.
    let process = unsafe { OwnedHandle::from_raw_handle(process) };
    let (mut code, mut times) = (0, [0; 4]);
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: an open handle, and room for every answer.
    let known = unsafe {
        api::GetExitCodeProcess(process.as_raw_handle(), &mut code) != 0
            && api::GetProcessTimes(process.as_raw_handle(), created, ended, kernel, user) != 0
    };
    (known && code == STILL_ACTIVE).then_some(times[0])
}

pub(crate) fn wall_clock(start: u64) -> Option<SystemTime> {
    let since_1601 = Duration::new(start / 10_000_000, (start % 10_000_000 * 100) as u32);
    since_1601.checked_sub(EPOCH).map(|since_1970| SystemTime::UNIX_EPOCH + since_1970)
}

pub(crate) fn since_boot() -> Duration {
    // SAFETY: no arguments.
    Duration::from_millis(unsafe { api::GetTickCount64() })
}

/// Not the unit that [`start_of`] counts in.
pub(crate) fn after_boot(_start: u64) -> Option<Duration> {
    None
}

pub(crate) fn command_of(_pid: u32) -> Vec<u8> {
    Vec::new()
}

pub(crate) fn descends_from(other: u32, _start: u64) -> bool {
    other == process_id()
}

/// Nobody inherits a lock here, so nobody is left with one.
pub(crate) fn relatives(_group: u32, _session: u32) -> Vec<Process> {
    Vec::new()
}

pub(crate) fn process_of(_pid: u32) -> Option<Process> {
    None
}

pub(crate) fn places_of(_pid: u32) -> Option<Vec<PathBuf>> {
    None
}

/// No interface names the holder of a lock: the answer is "cannot tell".
pub(crate) fn kernel_holders(_id: FileId) -> KernelHolders {
    KernelHolders::default()
}

pub(crate) fn holds(_pid: u32, _id: FileId) -> Option<KernelHolder> {
    None
}

pub(crate) fn watch_process(_pid: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Rights are lists here, which the system applies by itself.
pub(crate) fn user() -> u32 {
    0
}

pub(crate) fn home_of_user() -> Option<PathBuf> {
    std::env::var_os("USERPROFILE").map(PathBuf::from)
}

/// Without a fork there is nothing to be called around it. But the helper threads live in this library: once loaded it
/// stays, whatever FreeLibrary says.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    _parent: extern "C" fn(),
    _child: extern "C" fn(),
) -> io::Result<()> {
    let mut module = std::ptr::null_mut();
    let flags = api::MODULE_PIN | api::MODULE_FROM_ADDRESS;
    // SAFETY: an address within this library, and room for the answer.
    api::check(unsafe { api::GetModuleHandleExW(flags, prepare as *const u16, &mut module) })
}

/// Starts a detached thread.
pub(crate) fn spawn(body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name("jitlock".into()).spawn(body).map(drop)
}

/// There are none.
pub(crate) struct SignalsBlocked;

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        SignalsBlocked
    }

    pub(crate) fn none() -> SignalsBlocked {
        SignalsBlocked
    }

    pub(crate) fn lifted(&self) -> SignalsBlocked {
        SignalsBlocked
    }
}

/// For waits that signals end: see [`HAS_SIGNALS`].
pub(crate) fn pipe() -> io::Result<(File, File)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Waits until the deadline. There is nothing to wait for besides: see [`pipe`] and [`watch_process`].
pub(crate) fn wait_readable(
    bell: Option<&File>,
    deadline: Option<Instant>,
    _signals: &SignalsBlocked,
) -> io::Result<WaitEnd> {
    if bell.is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    thread::sleep(deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now())));
    Ok(WaitEnd::TimedOut)
}
