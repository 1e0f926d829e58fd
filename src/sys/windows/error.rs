//! What the errors of Windows mean to the protocol; winerror.h.

use std::io;

const INVALID_FUNCTION: i32 = 1;
const FILE_NOT_FOUND: i32 = 2;
const PATH_NOT_FOUND: i32 = 3;
const TOO_MANY_OPEN_FILES: i32 = 4;
const ACCESS_DENIED: i32 = 5;
const NOT_ENOUGH_MEMORY: i32 = 8;
const OUT_OF_MEMORY: i32 = 14;
const WRITE_PROTECT: i32 = 19;
const SHARING_VIOLATION: i32 = 32;
pub(super) const LOCK_VIOLATION: i32 = 33;
const NOT_SUPPORTED: i32 = 50;
const BUFFER_OVERFLOW: i32 = 111;
const MAX_THREADS_REACHED: i32 = 164;
const FILENAME_TOO_LONG: i32 = 206;
const DIRECTORY: i32 = 267;
const DELETE_PENDING: i32 = 303;
const PRIVILEGE_NOT_HELD: i32 = 1314;
const NO_SYSTEM_RESOURCES: i32 = 1450;
const COMMITMENT_LIMIT: i32 = 1455;
const CANT_RESOLVE_FILENAME: i32 = 1921;

super::super::meanings! {
    /// This user or this volume may not do it.
    is_denied: ACCESS_DENIED | WRITE_PROTECT | PRIVILEGE_NOT_HELD;
    /// Nothing on this volume can be changed.
    is_read_only: WRITE_PROTECT;
    /// Nothing is there, or it lies where this user may not look, and so cannot build either.
    is_out_of_reach: FILE_NOT_FOUND | PATH_NOT_FOUND | DIRECTORY | ACCESS_DENIED;
    /// A parent of the path is no directory.
    is_not_directory: DIRECTORY;
    /// What was opened as a directory is another thing: a link, a junction, or any other file.
    is_other_than_directory: DIRECTORY;
    /// Never: a link is opened as itself, and is no regular file.
    is_symlink_refusal: CANT_RESOLVE_FILENAME;
    /// The name or the path is too long for its file system.
    is_too_long: FILENAME_TOO_LONG | BUFFER_OVERFLOW;
    /// Handles, threads or memory are used up.
    is_limit: TOO_MANY_OPEN_FILES | NOT_ENOUGH_MEMORY | OUT_OF_MEMORY | MAX_THREADS_REACHED | NO_SYSTEM_RESOURCES
        | COMMITMENT_LIMIT;
    /// The file is being deleted.
    is_stale: DELETE_PENDING;
    /// Somebody has the file open and does not share it.
    is_in_use: SHARING_VIOLATION;
    /// Never: whoever may read may lock.
    is_for_writers: CANT_RESOLVE_FILENAME;
    /// The file system has no locks.
    has_no_locks: INVALID_FUNCTION | NOT_SUPPORTED;
}

/// For what should be a directory.
pub(crate) fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(DIRECTORY)
}

/// For a chain of links without an end.
pub(crate) fn endless_links() -> io::Error {
    io::Error::from_raw_os_error(CANT_RESOLVE_FILENAME)
}

/// For a file that is going away.
pub(crate) fn stale() -> io::Error {
    io::Error::from_raw_os_error(DELETE_PENDING)
}

pub(super) fn too_long() -> io::Error {
    io::Error::from_raw_os_error(FILENAME_TOO_LONG)
}
