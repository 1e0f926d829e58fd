//! System calls that every Unix has: open, stat, fork handlers, signal masks.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Access, Kind, WaitEnd};

/// An open file of this process, by number.
pub(crate) type Descriptor = RawFd;

pub(crate) fn descriptor_of(file: &File) -> Descriptor {
    file.as_raw_fd()
}

/// Children can be given a lock, and signals end a wait.
pub(crate) const HAS_HEIRS: bool = true;
pub(crate) const HAS_SIGNALS: bool = true;

/// A path of the C API's, which is any bytes.
pub(crate) fn path_of(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes)))
}

pub(crate) fn name_of(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// What no name of a file may have in it.
pub(crate) fn ends_name(byte: u8) -> bool {
    byte == b'/'
}

/// The path under the working directory, without a look at the file system.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    Ok(std::env::current_dir()?.join(path))
}

/// A name that is there, as its directory lists it: the same here.
pub(crate) fn as_listed(path: PathBuf) -> PathBuf {
    path
}

/// Opens a lock file: close-on-exec, never through a symlink, never waiting for the other end of a FIFO, and
/// never as descriptor 0, 1 or 2, where a stray `printf` of the program would write into it.
pub(crate) fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).mode(0o666);
    match access {
        Access::ReadOnly | Access::Sole => {}
        Access::ReadWrite => _ = options.write(true),
        Access::Create => _ = options.write(true).create_new(true),
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = options.custom_flags(flags | super::KEEP_ACCESS_TIME).open(path);
    if file.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
        // Only the file's owner may ask for that.
        file = options.custom_flags(flags).open(path);
    }
    let file = file?;
    if file.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(file);
    }
    // SAFETY: the descriptor is open; the call makes another, or answers -1.
    let moved = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `moved` was made by the call above, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(moved) })
}

/// unlink(2) of a file that is open here.
pub(crate) fn unlink(path: &Path, _file: &File) -> io::Result<()> {
    // SAFETY: a terminated path.
    with_c_path(path, |path| check(unsafe { libc::unlink(path.as_ptr()) }))
}

/// mkdir(2), whoever else does so at the same time; of the mode, what the umask leaves.
pub(crate) fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    // SAFETY: a terminated path.
    match with_c_path(path, |path| check(unsafe { libc::mkdir(path.as_ptr(), mode as libc::mode_t) })) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        answer => answer,
    }
}

/// What kind of file the mode of a stat or statx says it is.
pub(super) fn kind_of(mode: libc::mode_t) -> Kind {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Kind::Regular,
        libc::S_IFDIR => Kind::Directory,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        _ => Kind::Device,
    }
}

pub(super) fn check(answer: libc::c_int) -> io::Result<()> {
    match answer {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn read_at(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Lets a descriptor pass through `exec`, for children that shall keep the lock alive.
pub(crate) fn make_inheritable(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open; F_SETFD takes an int.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) })
}

/// Closes a descriptor by its number, once: after an error it is closed all the same (close(2), "Dealing with
/// error returns from close").
pub(crate) fn close(descriptor: Descriptor) {
    // SAFETY: the caller owns the number: it was taken out of the one `File` that named it, or this is a forked
    // child, where that `File` is out of reach.
    unsafe { libc::close(descriptor) };
}

/// Has the three functions called around every `fork` of the process; pthread_atfork(3).
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: the functions live as long as the library, which is linked with `-z nodelete`.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The user whose rights this process has.
pub(crate) fn user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

pub(super) fn process_group() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpgrp() as u32 }
}

pub(super) fn session() -> u32 {
    // SAFETY: 0 means the calling process.
    unsafe { libc::getsid(0) as u32 }
}

/// The host's name as the kernel has it (of this UTS namespace).
pub(super) fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for the length given; one byte is left for the terminator.
    let answer = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    if answer != 0 {
        return String::new();
    }
    let length = buffer.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// The home directory that the user database knows for this user; `$HOME` is the caller's to look at.
pub(crate) fn home_of_user() -> Option<PathBuf> {
    let mut buffer = vec![0; 16 * 1024];
    // SAFETY: an all-zero passwd is valid, it is only written to.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the call and the length is the buffer's.
    let answer = unsafe {
        libc::getpwuid_r(libc::geteuid(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found)
    };
    if answer != 0 || found.is_null() || entry.pw_dir.is_null() {
        return None;
    }
    // SAFETY: getpwuid_r pointed it at a terminated string in `buffer`, which is still alive.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    Some(OsStr::from_bytes(home.to_bytes()).into())
}

/// A signal mask of this thread for as long as it lives: every signal is blocked, except those that a fault of the
/// thread's own raises.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        // SAFETY: an all-zero set is valid; the calls only write to it.
        let all = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
                libc::sigdelset(&mut all, fault);
            }
            all
        };
        SignalsBlocked::set(&all)
    }

    /// Changes nothing: a wait with these ends at any signal that this thread would handle.
    pub(crate) fn none() -> SignalsBlocked {
        // SAFETY: an all-zero set is valid; without a new mask the call only reads the present one.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut before);
            SignalsBlocked { before }
        }
    }

    /// The mask from before, for as long as the result lives.
    pub(crate) fn lifted(&self) -> SignalsBlocked {
        SignalsBlocked::set(&self.before)
    }

    fn set(mask: &libc::sigset_t) -> SignalsBlocked {
        // SAFETY: an all-zero set is valid; the call writes it, and only touches this thread's mask.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, &mut before);
            SignalsBlocked { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that the constructor read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Both ends of a close-on-exec pipe.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let (read, write) = super::io_pipe()?;
    // SAFETY: both descriptors were just made and belong to nobody else.
    Ok(unsafe { (File::from_raw_fd(read), File::from_raw_fd(write)) })
}

/// Waits until `bell` can be read, if there is one, the deadline passes or a signal that was not blocked before
/// `signals` was handled on this thread. A signal that comes just before the wait ends it too: `pselect` swaps the mask
/// and waits in one step, and unlike most calls it is never restarted (signal(7)).
pub(crate) fn wait_readable(
    bell: Option<&File>,
    deadline: Option<Instant>,
    signals: &SignalsBlocked,
) -> io::Result<WaitEnd> {
    let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    match super::poll_unmasked(bell.map(AsRawFd::as_raw_fd), remaining, &signals.before) {
        Ok(0) => Ok(WaitEnd::TimedOut),
        Ok(_) => Ok(WaitEnd::Rung),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(WaitEnd::Interrupted),
        Err(error) => Err(error),
    }
}

pub(super) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos() as _,
    }
}

/// Calls with the path as the kernel wants it; a path of usual length needs no memory for that.
pub(super) fn with_c_path<T>(path: &Path, call: impl FnOnce(&CStr) -> io::Result<T>) -> io::Result<T> {
    let bytes = path.as_os_str().as_bytes();
    let mut buffer = [0; 512];
    if bytes.len() < buffer.len() {
        buffer[..bytes.len()].copy_from_slice(bytes);
        let terminated = CStr::from_bytes_with_nul(&buffer[..=bytes.len()]);
        return call(terminated.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?);
    }
    let terminated = CString::new(bytes);
    call(&terminated.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?)
}
