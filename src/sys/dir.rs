//! Directories by descriptor, so that nobody can swap one for a symlink between two steps.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use super::unix::{check, with_c_path};
use super::{change_mode_of_child, open_child_of_same_mount, Entry};

/// An open directory.
pub(crate) struct Dir(NonNull<libc::DIR>);

pub(super) const OPEN_DIRECTORY: libc::c_int =
    libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;

impl Dir {
    /// Opens the directory at `path`; its last component must not be a symlink.
    pub(crate) fn open(path: &Path) -> io::Result<Dir> {
        with_c_path(path, |path| open_at(libc::AT_FDCWD, path)).and_then(Dir::new)
    }

    /// Opens the directory that `path` leads to.
    pub(crate) fn follow(path: &Path) -> io::Result<Dir> {
        Dir::open(&path.join("."))
    }

    /// Opens a directory below this one by its name; a symlink is an error.
    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Dir> {
        with_name(name, |name| open_at(self.descriptor(), name)).and_then(Dir::new)
    }

    /// The same, but not into another mount, be it of the same file system.
    pub(crate) fn child_of_same_mount(&self, name: &OsStr) -> io::Result<Dir> {
        with_name(name, |name| open_child_of_same_mount(self.descriptor(), name)).and_then(Dir::new)
    }

    fn new(descriptor: OwnedFd) -> io::Result<Dir> {
        // SAFETY: an open directory descriptor; on success the stream owns it.
        let stream = unsafe { libc::fdopendir(descriptor.as_raw_fd()) };
        let stream = NonNull::new(stream).ok_or_else(io::Error::last_os_error)?;
        let _ = descriptor.into_raw_fd();
        Ok(Dir(stream))
    }

    fn descriptor(&self) -> RawFd {
        // SAFETY: the stream is open.
        unsafe { libc::dirfd(self.0.as_ptr()) }
    }

    /// Gives the owner every right on the directory itself: a read-only one cannot be emptied.
    pub(crate) fn make_writable(&self) -> io::Result<()> {
        let mode = dir_stat(self.descriptor())?.st_mode & 0o7777;
        if mode & 0o700 == 0o700 {
            return Ok(());
        }
        // SAFETY: the descriptor is open.
        check(unsafe { libc::fchmod(self.descriptor(), mode | 0o700) })
    }

    /// The same for a directory below that may not even be opened.
    pub(crate) fn make_child_writable(&self, name: &OsStr) -> io::Result<()> {
        with_name(name, |name| change_mode_of_child(self.descriptor(), name, 0o700))
    }

    /// Every name but `.` and `..`.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.0.as_ptr()) };
        loop {
            errno::clear();
            // SAFETY: the stream is open; the entry is read before the next call.
            let entry = unsafe { libc::readdir(self.0.as_ptr()) };
            if entry.is_null() {
                return match errno::get() {
                    0 => Ok(entries),
                    error => Err(io::Error::from_raw_os_error(error)),
                };
            }
            // SAFETY: readdir answered a valid entry, and its name is terminated.
            let (name, kind) = unsafe { (CStr::from_ptr((*entry).d_name.as_ptr()), (*entry).d_type) };
            if name != c"." && name != c".." {
                let name = OsStr::from_bytes(name.to_bytes()).to_owned();
                entries.push(Entry { name, directory: kind == libc::DT_DIR });
            }
        }
    }

    /// unlink(2), or rmdir(2) for a directory.
    pub(crate) fn remove(&self, name: &OsStr, directory: bool) -> io::Result<()> {
        let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
        // SAFETY: an open descriptor and a terminated name.
        with_name(name, |name| check(unsafe { libc::unlinkat(self.descriptor(), name.as_ptr(), flags) }))
    }

    pub(crate) fn make_child(&self, name: &OsStr) -> io::Result<()> {
        // SAFETY: an open descriptor and a terminated name.
        with_name(name, |name| check(unsafe { libc::mkdirat(self.descriptor(), name.as_ptr(), 0o700) }))
    }

    /// rename(2) from this directory into another.
    pub(crate) fn rename(&self, name: &OsStr, into: &Dir, new_name: &OsStr) -> io::Result<()> {
        let (from, into) = (self.descriptor(), into.descriptor());
        with_name(name, |name| {
            with_name(new_name, |new_name| {
                // SAFETY: open descriptors and terminated names.
                check(unsafe { libc::renameat(from, name.as_ptr(), into, new_name.as_ptr()) })
            })
        })
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not used again.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

fn with_name<T>(name: &OsStr, call: impl FnOnce(&CStr) -> io::Result<T>) -> io::Result<T> {
    with_c_path(Path::new(name), call)
}

pub(super) fn open_at(parent: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: a terminated name and flags that create nothing.
    let descriptor = unsafe { libc::openat(parent, name.as_ptr(), OPEN_DIRECTORY) };
    check(descriptor)?;
    // SAFETY: just made, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(super) fn dir_stat(descriptor: RawFd) -> io::Result<libc::stat> {
    // SAFETY: an all-zero stat is valid; the call only writes to it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is ours.
    check(unsafe { libc::fstat(descriptor, &mut stat) })?;
    Ok(stat)
}

/// Opens a directory that lies on the same file system as its parent.
pub(super) fn open_child_of_same_device(parent: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    let child = open_at(parent, name)?;
    match dir_stat(child.as_raw_fd())?.st_dev == dir_stat(parent)?.st_dev {
        true => Ok(child),
        false => Err(io::Error::from_raw_os_error(libc::EXDEV)),
    }
}

/// readdir(3) tells the end from an error by errno alone.
mod errno {
    #[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
    use libc::__errno as location;
    #[cfg(any(target_os = "linux", target_os = "dragonfly"))]
    use libc::__errno_location as location;
    #[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
    use libc::__error as location;

    pub(super) fn clear() {
        // SAFETY: errno of this thread is always there.
        unsafe { *location() = 0 }
    }

    pub(super) fn get() -> i32 {
        // SAFETY: as above.
        unsafe { *location() }
    }
}
