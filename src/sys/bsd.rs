//! macOS and the BSDs: blocking flock as everywhere; without /proc nobody else's locks can be seen.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::unix::{check, kind_of, with_c_path};
use super::{FileId, FileStat, Identity, KernelHolder, KernelHolders, Mount, Openers, Process};

/// Linux has a flag against updates of the access time, for which see there.
pub(super) const KEEP_ACCESS_TIME: libc::c_int = 0;

/// Whether the mount is flagged local (statfs(2), MNT_LOCAL).
pub(crate) fn is_local(file: &File) -> io::Result<bool> {
    // SAFETY: an all-zero statfs is valid; the call only writes to it.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is ours.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer.f_flags as u64 & libc::MNT_LOCAL as u64 != 0)
}

/// The options that the lock manager goes by are not told here.
pub(crate) fn mount_of(_file: &File) -> Option<Mount> {
    None
}

/// macOS has no pipe2: a child forked by another thread between the calls inherits the pipe, which is harmless.
pub(super) fn io_pipe() -> io::Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for end in ends {
        // SAFETY: the descriptor was just made.
        unsafe {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK);
        }
    }
    Ok((ends[0], ends[1]))
}

/// pselect(2) on one descriptor, or none, with `mask` in force while it waits.
pub(super) fn poll_unmasked(
    descriptor: Option<RawFd>,
    remaining: Option<Duration>,
    mask: &libc::sigset_t,
) -> io::Result<i32> {
    // SAFETY: an all-zero set is an empty one.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    if let Some(descriptor) = descriptor {
        if descriptor as usize >= libc::FD_SETSIZE {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        // SAFETY: the descriptor is below the size of the set.
        unsafe { libc::FD_SET(descriptor, &mut set) };
    }
    let count = descriptor.map_or(0, |descriptor| descriptor + 1);
    let limit = remaining.map(super::unix::timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const libc::timespec);
    let none = std::ptr::null_mut();
    // SAFETY: every pointer outlives the call.
    match unsafe { libc::pselect(count, &mut set, none, none, limit, mask) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready),
    }
}

/// This process; without /proc the start time, boot and namespace stay unknown.
pub(crate) fn identity() -> Identity {
    let words: Vec<Vec<u8>> = std::env::args_os().map(std::os::unix::ffi::OsStringExt::into_vec).collect();
    Identity {
        pid: std::process::id(),
        group: super::unix::process_group(),
        session: super::unix::session(),
        host: super::unix::host_name(),
        command: words.join(&b' '),
        ..Identity::default()
    }
}

pub(crate) fn command_of(_pid: u32) -> Vec<u8> {
    Vec::new()
}

pub(crate) fn start_of(_pid: u32) -> Option<u64> {
    None
}

pub(crate) fn wall_clock(_start: u64) -> Option<SystemTime> {
    None
}

/// No interface names the holder of an flock here: the answer is "cannot tell".
pub(crate) fn kernel_holders(_id: FileId) -> KernelHolders {
    KernelHolders::default()
}

/// Without a list of processes nobody's orphans can be seen.
pub(crate) fn relatives(_group: u32, _session: u32) -> Vec<Process> {
    Vec::new()
}

pub(crate) fn process_of(_pid: u32) -> Option<Process> {
    None
}

pub(crate) fn places_of(_pid: u32) -> Option<Vec<PathBuf>> {
    None
}

pub(crate) fn openers(_id: FileId, _except: Option<&File>) -> Openers {
    Openers::default()
}

pub(crate) fn watch_process(_pid: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn after_boot(_ticks: u64) -> Option<Duration> {
    None
}

pub(crate) fn since_boot() -> Duration {
    Duration::ZERO
}

/// Leases are Linux's alone.
pub(crate) fn sole_opener(_file: &File, _owner: u32) -> io::Result<Option<Lease>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never made.
pub(crate) enum Lease {}

pub(crate) fn holds(_pid: u32, _id: FileId) -> Option<KernelHolder> {
    None
}

pub(crate) fn descends_from(other: u32, _start: u64) -> bool {
    [std::process::id(), std::os::unix::process::parent_id()].contains(&other)
}

pub(super) fn open_child_of_same_mount(parent: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    super::dir::open_child_of_same_device(parent, name)
}

/// Sets the bits on a directory without following a symlink.
pub(super) fn change_mode_of_child(parent: RawFd, name: &CStr, bits: libc::mode_t) -> io::Result<()> {
    // SAFETY: an open descriptor and a terminated name.
    check(unsafe { libc::fchmodat(parent, name.as_ptr(), bits, libc::AT_SYMLINK_NOFOLLOW) })
}

/// fstat(2)
pub(crate) fn stat(file: &File) -> io::Result<FileStat> {
    // SAFETY: an all-zero stat is valid; the call only writes to it.
    let mut answer: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is ours.
    check(unsafe { libc::fstat(file.as_raw_fd(), &mut answer) })?;
    Ok(FileStat::from(&answer))
}

/// lstat(2): of the path itself, not of what a symlink there points at.
pub(crate) fn stat_path(path: &Path) -> io::Result<FileStat> {
    with_c_path(path, |path| {
        // SAFETY: an all-zero stat is valid; the call only writes to it.
        let mut answer: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a terminated path, and a buffer of ours.
        check(unsafe { libc::lstat(path.as_ptr(), &mut answer) })?;
        Ok(FileStat::from(&answer))
    })
}

impl From<&libc::stat> for FileStat {
    fn from(stat: &libc::stat) -> FileStat {
        FileStat {
            id: FileId { device: stat.st_dev as u64, inode: stat.st_ino as u64 },
            kind: kind_of(stat.st_mode),
            links: stat.st_nlink as u64,
            mode: u32::from(stat.st_mode) & 0o7777,
            owner: stat.st_uid,
        }
    }
}

pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// For debuggers. macOS names only the calling thread.
pub(super) fn name_thread(name: &CStr) {
    #[cfg(target_os = "macos")]
    // SAFETY: a terminated string.
    unsafe {
        libc::pthread_setname_np(name.as_ptr());
    }
    #[cfg(not(target_os = "macos"))]
    let _ = name;
}
