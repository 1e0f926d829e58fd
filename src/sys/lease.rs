//! Leases: the kernel's word that nobody else has a file open, whatever their pid or mount namespace (fcntl(2), "Leases").

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::unix::check;

/// As in the kernel's include/uapi/asm-generic/fcntl.h; the libc crate has them for some targets only.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// While it lives, whoever opens the file waits.
pub(crate) struct Lease<'a>(&'a File);

/// A lease on the file if nobody else has it open, and none if somebody has. An error: it cannot be told this way.
///
/// Whoever opens the file meanwhile has a signal sent to the holder of the lease, by default SIGIO, which kills. It is
/// SIGURG here, ignored by default, and sent to the calling thread alone: to be called on a helper of ours, which
/// blocks all signals, so that the program's handlers never see it.
pub(crate) fn sole_opener(file: &File, owner: u32) -> io::Result<Option<Lease<'_>>> {
    // SAFETY: no arguments.
    let me = Owner { kind: F_OWNER_TID, id: unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t };
    // SAFETY: an open descriptor, and a structure that outlives the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), F_SETOWN_EX, &me) })?;
    // SAFETY: an open descriptor and an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    let granted = match set(file, libc::F_WRLCK) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            as_user(owner, || set(file, libc::F_WRLCK))
        }
        answer => answer,
    };
    match granted {
        Ok(()) => Ok(Some(Lease(file))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Closing the file would do as well.
        let _ = set(self.0, libc::F_UNLCK);
    }
}

fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an open descriptor and an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })
}

/// Only the file's owner may have a lease, or who has CAP_LEASE, which root in a container lacks by default. But it may
/// become the owner in the eyes of the file system, for this thread and these calls; others are just refused.
fn as_user<T>(user: u32, call: impl FnOnce() -> T) -> T {
    // SAFETY: concerns the calling thread alone, and is undone below.
    let before = unsafe { libc::setfsuid(user) };
    let answer = call();
    // SAFETY: as above.
    unsafe { libc::setfsuid(before as libc::uid_t) };
    answer
}
