//! System calls that only Linux has, or where it knows a better way.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::unix::{check, kind_of, with_c_path};
use super::{FileId, FileStat};

/// statfs(2) magic numbers of file systems that other hosts, or a user's daemon, may answer for.
const REMOTE: [u32; 16] = [
    0x0000_6969, // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0000_517b, // SMB
    0x6573_5546, // FUSE, virtiofs
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x786f_4256, // vboxsf
];

/// A record is read right after somebody else wrote it, so each reading would have the inode's access time updated, which
/// costs more than the reading (open(2), O_NOATIME).
pub(super) const KEEP_ACCESS_TIME: libc::c_int = libc::O_NOATIME;

/// Whether the kernel of this host alone answers for the file's locks, and cannot hang on a server.
pub(crate) fn is_local(file: &File) -> io::Result<bool> {
    // SAFETY: an all-zero statfs is valid; the call only writes to it.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is ours.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(!REMOTE.contains(&(answer.f_type as u32)))
}

/// statx(2), for no more than is used. The times least of all: whoever has looked at them makes the next write of the
/// file update them anew, and that costs more than the write (multigrain timestamps, Linux 6.13).
fn statx(directory: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<FileStat> {
    const USED: libc::c_uint =
        libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_INO | libc::STATX_UID | libc::STATX_NLINK;
    // SAFETY: an all-zero statx is valid; the call only writes to it.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path, and a buffer of ours.
    check(unsafe { libc::statx(directory, path.as_ptr(), flags, USED, &mut answer) })?;
    Ok(FileStat {
        id: FileId {
            device: libc::makedev(answer.stx_dev_major, answer.stx_dev_minor),
            inode: answer.stx_ino,
        },
        kind: kind_of(answer.stx_mode.into()),
        links: answer.stx_nlink.into(),
        mode: u32::from(answer.stx_mode) & 0o7777,
        owner: answer.stx_uid,
    })
}

pub(crate) fn stat(file: &File) -> io::Result<FileStat> {
    statx(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// Of the path itself, not of what a symlink there points at.
pub(crate) fn stat_path(path: &Path) -> io::Result<FileStat> {
    with_c_path(path, |path| statx(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW))
}

/// For debuggers and `top`.
pub(super) fn name_thread(name: &CStr) {
    // SAFETY: a terminated string; PR_SET_NAME concerns the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub(super) fn io_pipe() -> io::Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        0 => Ok((ends[0], ends[1])),
        _ => Err(io::Error::last_os_error()),
    }
}

/// ppoll(2) on one descriptor, or none, with `mask` in force while it waits.
pub(super) fn poll_unmasked(
    descriptor: Option<RawFd>,
    remaining: Option<Duration>,
    mask: &libc::sigset_t,
) -> io::Result<i32> {
    // A negative descriptor is passed over.
    let mut event = libc::pollfd { fd: descriptor.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let limit = remaining.map(super::unix::timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const libc::timespec);
    // SAFETY: one pollfd, and pointers that outlive the call.
    match unsafe { libc::ppoll(&mut event, 1, limit, mask) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready),
    }
}

/// openat2(2) refuses to cross into another mount, a bind mount of the same file system too. Kernels before 5.6 and
/// some sandboxes do not have it: there the device number has to do.
pub(super) fn open_child_of_same_mount(parent: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero open_how is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = super::dir::OPEN_DIRECTORY as u64;
    how.resolve = libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: an open descriptor, a terminated name, and a structure of the size given.
    let answer =
        unsafe { libc::syscall(libc::SYS_openat2, parent, name.as_ptr(), &how, std::mem::size_of_val(&how)) };
    match RawFd::try_from(answer) {
        // SAFETY: just made, and nobody else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                super::dir::open_child_of_same_device(parent, name)
            }
            error => Err(error),
        },
    }
}

/// Adds permission bits to a directory that may not be opened, without following a symlink: by way of /proc, since
/// fchmodat(2) has no such flag before Linux 6.6.
pub(super) fn change_mode_of_child(parent: RawFd, name: &CStr, bits: libc::mode_t) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: an open descriptor and a terminated name.
    let descriptor = unsafe { libc::openat(parent, name.as_ptr(), flags) };
    check(descriptor)?;
    // SAFETY: just made, and nobody else knows it.
    let child = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mode = super::dir::dir_stat(child.as_raw_fd())?.st_mode & 0o7777;
    let path = CString::new(format!("/proc/self/fd/{}", child.as_raw_fd())).unwrap_or_default();
    // SAFETY: a terminated path.
    check(unsafe { libc::chmod(path.as_ptr(), mode | bits) })
}

/// getpid(2) without a system call each time: the page that remembers it is empty in every child, also of a raw `clone`
/// (MADV_WIPEONFORK, Linux 4.14).
pub(crate) fn process_id() -> u32 {
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let Some(new) = page_wiped_on_fork() else { return std::process::id() };
        // Two threads that come at once each map one; the second stays unused.
        page = PAGE
            .compare_exchange(page, new, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|first| first, |_| new);
    }
    // SAFETY: the page is never unmapped, and zero is a valid number.
    let remembered = unsafe { &*page };
    match remembered.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            remembered.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

fn page_wiped_on_fork() -> Option<*mut AtomicU32> {
    let size = std::mem::size_of::<AtomicU32>();
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that overlaps nothing.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above.
    match unsafe { libc::madvise(page, size, libc::MADV_WIPEONFORK) } {
        0 => Some(page.cast()),
        _ => {
            // SAFETY: as above, and nobody else knows it.
            unsafe { libc::munmap(page, size) };
            None
        }
    }
}

/// A descriptor that can be read once the process has ended; pidfd_open(2), Linux 5.3.
pub(crate) fn watch_process(pid: u32) -> io::Result<File> {
    // SAFETY: two integers.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(answer) {
        // SAFETY: just made, and nobody else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { File::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
