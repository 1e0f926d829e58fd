//! Everything that can go wrong, with what its message needs, and the one code of the C API that each means.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::blocker::Blocker;
use crate::policy::BadEnvironment;
use crate::sys;

/// Why a call failed. After any of them but [`Error::Lost`] the caller holds nothing that it did not hold before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that no call could honour.
    #[error("invalid argument: {0}")]
    InvalidArgument(#[from] Argument),
    /// The handle names no lock of this process: released before, made up, or of another process.
    #[error("handle {0:#x} names no lock held by this process: released already, or never acquired here")]
    InvalidHandle(u64),
    /// The handle was inherited from a parent by `fork`.
    #[error("handle {0:#x} belongs to the parent process: a forked child does not own its parent's locks")]
    NotOwner(u64),
    /// The deadline passed.
    #[error("timed out after {} s waiting for {}: {blocker}{}", seconds(.waited), shown(.path), hint(.note))]
    Timeout {
        /// The lock file, or torch's.
        path: PathBuf,
        /// How long the call waited.
        waited: Duration,
        /// What is in the way, as far as can be seen.
        blocker: Box<Blocker>,
        /// Set when `JITLOCK_TIMEOUT` could not be understood.
        note: Option<BadEnvironment>,
    },
    /// A file system that does not answer was given up. A release or a clear is done as soon as it does; a lock that
    /// comes then is given back.
    #[error("gave up after waiting for an answer of the file system of {}", shown(.0))]
    Silent(PathBuf),
    /// The calling thread holds the lock already and would wait for itself.
    #[error("this thread already holds {}: it would wait for itself", shown(.0))]
    Deadlock(PathBuf),
    /// A signal was handled while waiting, and the caller had asked to be told.
    #[error("interrupted by a signal while waiting for {}", shown(.0))]
    Interrupted(PathBuf),
    /// The progress callback asked to stop.
    #[error("cancelled by the progress callback while waiting for {}", shown(.0))]
    Cancelled(PathBuf),
    /// The lock path is taken by something that must not be locked, or followed.
    #[error("{} is a {kind}, not a regular file: refused as a lock file", shown(.path))]
    NotALockFile {
        /// The lock path.
        path: PathBuf,
        /// What is there.
        kind: &'static str,
    },
    /// The lock file may not be opened by this user.
    #[error("cannot open {}{}: {source}", shown(.path), permissions(.mode_and_owner))]
    Denied {
        /// The lock file.
        path: PathBuf,
        /// Its permission bits and owner, where they can be read.
        mode_and_owner: Option<(u32, u32)>,
        /// The system's answer.
        source: io::Error,
    },
    /// The file system grants an exclusive lock to writers only, and this user cannot write.
    #[error(
        "cannot lock {}: its file system wants write permission for an exclusive lock, and the file could only \
         be opened for reading: {source}", shown(.path)
    )]
    ReadOnlyLock {
        /// The lock file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file system has no locks. Going on without one would not be a lock.
    #[error("the file system of {} does not support locks: {source}", shown(.path))]
    Unsupported {
        /// The lock file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Other hosts may not see the lock, and the caller wants one that they see.
    #[error("{} need not exclude other hosts, as JITLOCK_REQUIRE_CLUSTER asks: {why}", shown(.path))]
    NotCluster {
        /// The lock file.
        path: PathBuf,
        /// What says so, and what to do about it.
        why: String,
    },
    /// This platform has no such thing.
    #[error("{0} is not supported on this platform")]
    NotHere(&'static str),
    /// The environment's directory for lock files cannot be trusted.
    #[error("JITLOCK_LOCK_DIR {} is refused: {why}", shown(.path))]
    LockDirRefused {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name too long for its file system once `.lock` is appended.
    #[error("the lock path {} is too long for its file system: {source}", shown(.path))]
    NameTooLong {
        /// The lock path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The lock file was deleted or replaced while the lock was held.
    #[error("{} was deleted or replaced while it was held: another process may have held the lock too", shown(.0))]
    Lost(PathBuf),
    /// Any other failed system call.
    #[error("cannot {action} {}: {source}", shown(.path))]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A bug of this library.
    #[error("internal error: {0}")]
    Internal(String),
}

/// What is wrong with an argument.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Argument {
    /// A pointer that must not be null.
    #[error("{0} is NULL")]
    Null(&'static str),
    /// A path in an encoding that this platform cannot take.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// An empty path.
    #[error("the path of the cache directory is empty")]
    EmptyPath,
    /// A directory for lock files that is another one for each working directory.
    #[error("JITLOCK_LOCK_DIR {} is no absolute path", shown(.0))]
    LockDir(PathBuf),
    /// A path that has no sibling.
    #[error("{} has no parent directory to put a lock file in", shown(.0))]
    NoParent(PathBuf),
    /// A timeout below zero that is no named constant.
    #[error("timeout of {0} ms: below zero only JITLOCK_WAIT_FOREVER (-1) and JITLOCK_TIMEOUT_DEFAULT (-2) have a meaning")]
    Timeout(i64),
    /// Flags that this version does not know.
    #[error("unknown flags {0:#x}")]
    Flags(u32),
    /// A shared lock does not allow to clear.
    #[error("a shared lock does not allow its cache to be cleared")]
    SharedClear,
    /// A shared lock does not allow to remove torch's lock.
    #[error("a shared lock does not allow to remove torch's lock")]
    SharedBaton,
    /// A build directory that the lock does not protect.
    #[error("the build directory {} does not lie in the cache whose lock is held", shown(.0))]
    NotInCache(PathBuf),
    /// A structure smaller than its first version.
    #[error("{name}.struct_size is {size}: set it to sizeof({name})")]
    StructSize {
        /// The C name of the structure.
        name: &'static str,
        /// The size the caller gave.
        size: usize,
    },
    /// A directory that nobody means to lose.
    #[error("refusing to clear {}: {why}", shown(.path))]
    Clear {
        /// The directory.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
}

/// The codes of the C API. 0 is success; a number is never used again for another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)] // documented where C sees them: `jitlock_status_t` in capi.rs
pub enum Code {
    InvalidArgument = -1,
    InvalidHandle = -2,
    Timeout = -3,
    Deadlock = -4,
    Interrupted = -5,
    Cancelled = -6,
    Permission = -7,
    NotDirectory = -8,
    Unsupported = -9,
    Limit = -10,
    NotOwner = -11,
    Lost = -12,
    Io = -13,
    Internal = -14,
}

impl Error {
    /// A failed system call on a lock file, sorted by what the caller can do about it.
    #[cold]
    #[inline(never)]
    pub(crate) fn system(action: &'static str, path: &Path, source: io::Error) -> Error {
        let path = path.to_owned();
        match sys::is_too_long(&source) {
            true => Error::NameTooLong { path, source },
            false => Error::System { action, path, source },
        }
    }

    /// The code that the C API answers.
    pub fn code(&self) -> Code {
        match self {
            Error::InvalidArgument(_) | Error::NameTooLong { .. } => Code::InvalidArgument,
            Error::InvalidHandle(_) => Code::InvalidHandle,
            Error::NotOwner(_) => Code::NotOwner,
            Error::Timeout { .. } | Error::Silent(_) => Code::Timeout,
            Error::Deadlock(_) => Code::Deadlock,
            Error::Interrupted(_) => Code::Interrupted,
            Error::Cancelled(_) => Code::Cancelled,
            Error::NotALockFile { .. }
            | Error::Denied { .. }
            | Error::ReadOnlyLock { .. }
            | Error::LockDirRefused { .. } => Code::Permission,
            Error::Unsupported { .. } | Error::NotCluster { .. } | Error::NotHere(_) => Code::Unsupported,
            Error::Lost(_) => Code::Lost,
            Error::System { source, .. } => match source {
                _ if sys::is_denied(source) => Code::Permission,
                _ if sys::is_not_directory(source) => Code::NotDirectory,
                _ if sys::is_limit(source) => Code::Limit,
                _ => Code::Io,
            },
            Error::Internal(_) => Code::Internal,
        }
    }
}

impl Code {
    /// A short sentence for each code.
    pub fn text(self) -> &'static std::ffi::CStr {
        match self {
            Code::InvalidArgument => c"invalid argument",
            Code::InvalidHandle => c"no such lock: released already, or never acquired by this process",
            Code::Timeout => c"timed out waiting for the lock",
            Code::Deadlock => c"the calling thread already holds this lock",
            Code::Interrupted => c"interrupted by a signal",
            Code::Cancelled => c"cancelled by the progress callback",
            Code::Permission => c"permission denied",
            Code::NotDirectory => c"not a directory",
            Code::Unsupported => c"this file system or platform does not support what was asked for",
            Code::Limit => c"out of descriptors, threads or memory",
            Code::NotOwner => c"the lock belongs to the parent process",
            Code::Lost => c"the lock file was deleted or replaced while the lock was held",
            Code::Io => c"input/output error",
            Code::Internal => c"internal error",
        }
    }
}

/// A path in one line, whatever bytes it is made of.
pub(crate) fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// Text that fits in a line, whatever bytes it comes from.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut line = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(line, "\\u{{{:x}}}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line
}

/// Seconds with three decimals. Formatting floating point numbers would be a tenth of the library.
pub(crate) fn seconds(duration: &Duration) -> String {
    format!("{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

fn permissions(mode_and_owner: &Option<(u32, u32)>) -> String {
    mode_and_owner.map(|(mode, owner)| format!(" (mode {mode:04o}, owner uid {owner})")).unwrap_or_default()
}

fn hint(bad: &Option<BadEnvironment>) -> String {
    bad.as_ref().map(|bad| format!(" ({bad})")).unwrap_or_default()
}
