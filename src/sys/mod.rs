//! What the protocol asks of the operating system, with one file per platform behind the same few functions.
//!
//! Nothing above this module knows a platform, and nothing in it knows the protocol.

#![allow(clippy::disallowed_methods)] // here is where they are called

/// Questions about an error, each answered by the platform's numbers for it.
macro_rules! meanings {
    ($($(#[$text:meta])+ $question:ident: $($number:path)|+;)+) => {$(
        $(#[$text])+
        pub(crate) fn $question(error: &io::Error) -> bool {
            error.raw_os_error().is_some_and(|number| [$($number),+].contains(&number))
        }
    )+};
}
use meanings;

mod lock;
pub(crate) use lock::*;

#[cfg(unix)]
mod errno;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use {errno::*, unix::*};

#[cfg(unix)]
mod thread;
#[cfg(unix)]
pub(crate) use thread::spawn;

#[cfg(unix)]
mod dir;
#[cfg(unix)]
pub(crate) use dir::Dir;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod proc;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod lease;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod mount;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use {lease::sole_opener, linux::*, mount::mount_of, proc::*};

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod bsd;
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) use bsd::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) use windows::*;

use std::ffi::OsString;

/// How a lock file, or torch's, is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Network file systems grant an exclusive lock to writers only (flock(2), NFS details).
    ReadWrite,
    ReadOnly,
    /// Read+write, and it must not be there yet.
    Create,
    /// To be removed if nobody else has it open. Where an open can exclude others (Windows), this one does.
    Sole,
}

/// One name in a directory.
pub(crate) struct Entry {
    pub name: OsString,
    /// What the directory itself says; where it does not know, `false`, and removing it will tell.
    pub directory: bool,
}

/// How a lock is held: by one, or by any number of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

/// What makes two descriptors one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// What a path leads to. Only a regular file can be a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    #[cfg_attr(windows, allow(dead_code))]
    Socket,
    Device,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Regular => "regular file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "FIFO",
            Kind::Socket => "socket",
            Kind::Device => "device",
        }
    }
}

/// What a caller may want to know of a file, from one system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileStat {
    pub id: FileId,
    pub kind: Kind,
    /// Names; none is left of a deleted file.
    pub links: u64,
    /// Permission bits.
    pub mode: u32,
    pub owner: u32,
}

/// The mount that a file lies on, and the kernel that has it.
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Of the file system: `nfs4`.
    pub kind: String,
    pub options: Vec<String>,
    /// The first two numbers of its release.
    pub kernel: (u32, u32),
}

/// Who this process is, for the owner record: what does not change while it lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub pid: u32,
    /// Start of the process in the kernel's own unit; with `boot` it tells a recycled pid.
    pub start: u64,
    /// Process group and session.
    pub group: u32,
    pub session: u32,
    pub pid_namespace: u64,
    pub boot: String,
    pub host: String,
    pub command: Vec<u8>,
}

/// A process as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    /// As in [`Identity`].
    pub start: u64,
}

/// Who has a file open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Openers {
    pub pids: Vec<u32>,
    /// Whether nobody could have been missed on this host.
    pub complete: bool,
}

/// A process that has a file locked now, by the kernel's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelHolder {
    pub pid: u32,
    pub mode: Mode,
}

/// The kernel's answer to "who has this file locked".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelHolders {
    pub holders: Vec<KernelHolder>,
    /// Whether a holder could not have been missed. Where it is false an empty list says nothing.
    pub complete: bool,
}

/// A wait that ended without its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Rung,
    TimedOut,
    #[cfg_attr(windows, allow(dead_code))]
    Interrupted,
}
