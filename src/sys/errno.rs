//! What the errors of a Unix mean to the protocol; errno(3).

use std::io;

super::meanings! {
    /// This user or this mount may not do it.
    is_denied: libc::EACCES | libc::EPERM | libc::EROFS;
    /// Nothing on this mount can be changed.
    is_read_only: libc::EROFS;
    /// Nothing is there, or it lies where this user may not look, and so cannot build either.
    is_out_of_reach: libc::ENOENT | libc::ENOTDIR | libc::EACCES;
    /// A parent of the path is no directory.
    is_not_directory: libc::ENOTDIR;
    /// What was opened as a directory is another thing: a link (ELOOP; ENOTDIR where O_DIRECTORY is looked at first;
    /// EMLINK on FreeBSD), or any other file.
    is_other_than_directory: libc::ELOOP | libc::ENOTDIR | libc::EMLINK;
    /// `open` refused because the last component is a symlink: ELOOP, and EMLINK on FreeBSD.
    is_symlink_refusal: libc::ELOOP | libc::EMLINK;
    /// The name or the path is too long for its file system.
    is_too_long: libc::ENAMETOOLONG;
    /// Descriptors, threads or memory are used up.
    is_limit: libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN;
    /// The file was gone from under us: unlinked on a server by another of its clients.
    is_stale: libc::ESTALE;
    /// Somebody's lease on the file is being broken, for which O_NONBLOCK asks not to wait.
    is_in_use: libc::EWOULDBLOCK;
    /// The file system grants this lock to writers only.
    is_for_writers: libc::EBADF;
    /// The file system has no locks.
    has_no_locks: libc::ENOLCK | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP | NOT_SUPPORTED;
}

/// Another number than EOPNOTSUPP on macOS.
#[cfg(target_vendor = "apple")]
const NOT_SUPPORTED: i32 = libc::ENOTSUP;
#[cfg(not(target_vendor = "apple"))]
const NOT_SUPPORTED: i32 = libc::ENOSYS;

/// For what should be a directory.
pub(crate) fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTDIR)
}

/// For a chain of symlinks without an end.
pub(crate) fn endless_links() -> io::Error {
    io::Error::from_raw_os_error(libc::ELOOP)
}

/// For a file that others replace all the time.
pub(crate) fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}
