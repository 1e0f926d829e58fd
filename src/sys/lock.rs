//! The lock itself: flock(2), and LockFileEx on Windows.

use std::fs::File;
use std::io;

use super::Mode;

/// Some FUSE clients answer EINTR without a signal, for a while: so often they are asked again.
const MOST_INTERRUPTIONS: usize = 100;

/// Takes the lock if nobody else has it.
pub(crate) fn try_lock(file: &File, mode: Mode) -> io::Result<bool> {
    let answer = uninterrupted(|| match mode {
        Mode::Exclusive => fs2::FileExt::try_lock_exclusive(file),
        Mode::Shared => fs2::FileExt::try_lock_shared(file),
    });
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits in the kernel's queue until the lock is ours.
pub(crate) fn lock(file: &File, mode: Mode) -> io::Result<()> {
    uninterrupted(|| match mode {
        Mode::Exclusive => fs2::FileExt::lock_exclusive(file),
        Mode::Shared => fs2::FileExt::lock_shared(file),
    })
}

/// Gives the lock back for every descriptor that shares this open file description.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    fs2::FileExt::unlock(file)
}

fn uninterrupted(call: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..MOST_INTERRUPTIONS {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}
