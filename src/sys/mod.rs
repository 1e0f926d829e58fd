//! What the protocol asks of the operating system, with one file per platform behind the same few functions.
//!
//! Nothing above this module knows a platform, and nothing in it knows the protocol.

#![allow(clippy::disallowed_methods)] // here is where they are called

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use unix::*;

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
pub(crate) use {lease::sole_opener, linux::*, proc::*};

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod bsd;
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) use bsd::*;

use std::io;

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
    Interrupted,
}

/// Whether the file was gone from under us: unlinked on a server by another of its clients.
pub(crate) fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}
