//! A path becomes a lock file: which file stands for a cache, how it is opened, and whether it still is the one
//! that others will find.
//!
//! Nothing here ever deletes, truncates or writes to a lock file: the inode is what processes agree on.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Argument, Error};
use crate::lockdir;
use crate::process::OwnFile;
use crate::scope::{self, Scope};
use crate::sys::{self, Access, FileId, FileStat, Kind, Mode};

/// What is to be locked, as the caller named it: absolute, and not yet looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub cache: PathBuf,
    /// The caller's own choice of a lock file.
    pub explicit: Option<PathBuf>,
    pub mode: Mode,
    /// Only a lock that every host of a cluster sees will do.
    pub cluster: bool,
    /// Whether the missing parents of the lock file are made.
    pub make_parents: bool,
}

/// A cache and the file that is locked for it.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The directory, its last component no longer a symlink.
    pub cache: PathBuf,
    /// What was there when the path was resolved.
    pub found: Option<FileStat>,
    pub lock: PathBuf,
}

const SUFFIX: &str = ".lock";

/// Symlinks followed before a chain of them counts as a loop; the kernel's own limit (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// So often a lock file may come and go while it is being opened.
const MOST_TURNS: usize = 16;

/// The path as given, made absolute without a look at the file system, so that a later chdir changes nothing.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    if path.as_os_str().is_empty() {
        return Err(Argument::EmptyPath.into());
    }
    sys::absolute(path).map_err(|source| Error::system("find the directory of", path, source))
}

/// `<cache>.lock`, a sibling of the cache, so that clearing the cache leaves it alone. All spellings of a cache
/// agree: its last component is resolved here, its parents by the kernel. The cache need not exist.
pub(crate) fn paths(cache: &Path, explicit: Option<&Path>, may_make: bool) -> Result<Paths, Error> {
    let (cache, found) = resolve(cache)?;
    if let Some(lock) = explicit {
        return Ok(Paths { cache, found, lock: lock.to_owned() });
    }
    if cache.parent().is_none() {
        return Err(Argument::NoParent(cache).into());
    }
    if let Some(lock) = lockdir::lock_of(&cache, may_make)? {
        return Ok(Paths { cache, found, lock });
    }
    let mut lock = OsString::with_capacity(cache.as_os_str().len() + SUFFIX.len());
    lock.push(&cache);
    lock.push(SUFFIX);
    Ok(Paths { lock: lock.into(), cache, found })
}

/// The path with its last component followed to what is no symlink, and what that is; none if nothing is there.
fn resolve(path: &Path) -> Result<(PathBuf, Option<FileStat>), Error> {
    let mut path = Cow::Borrowed(path);
    for _ in 0..MOST_LINKS {
        let plain = without_trailing_dots(&path);
        if plain.as_os_str().as_encoded_bytes().ends_with(b"..") && plain.file_name().is_none() {
            path = fs::canonicalize(plain).map_err(|source| Error::system("resolve", plain, source))?.into();
            continue;
        }
        match sys::stat_path(plain) {
            Ok(stat) if stat.kind == Kind::Symlink => {
                let target =
                    fs::read_link(plain).map_err(|source| Error::system("resolve", plain, source))?;
                path = plain.parent().unwrap_or(Path::new("/")).join(target).into();
            }
            Ok(stat) => return Ok((sys::as_listed(plain.to_owned()), Some(stat))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((plain.to_owned(), None)),
            Err(source) => return Err(Error::system("resolve", plain, source)),
        }
    }
    Err(Error::system("resolve", &path, sys::endless_links()))
}

/// `a/b` for `a/b/`, `a/b//` and `a/b/.`, which the standard library knows, but takes its time to.
fn without_trailing_dots(path: &Path) -> &Path {
    match path.as_os_str().as_encoded_bytes().last() {
        Some(b'/' | b'.') => path.components().as_path(),
        _ => path,
    }
}

/// One try, from the path to the lock, without waiting in any queue. `known_local` is the device of the local file
/// system that the lock file was last seen on.
pub(crate) fn attempt(target: &Target, known_local: Option<u64>) -> Result<Try, Error> {
    let paths = paths(&target.cache, target.explicit.as_deref(), true)?;
    let (file, access) = match open_or_create(&paths.lock, target.make_parents) {
        Err(Error::System { source, .. }) if is_passing(&source) => return Ok(Try::Moved),
        answer => answer?,
    };
    let granted = sys::try_lock(&file, target.mode);
    // After the try, so that one look tells what it is and whether it was deleted before the lock was ours.
    let inspect = |source| Error::system("inspect", &paths.lock, source);
    let stat = sys::stat(&file).map_err(inspect)?;
    if stat.kind != Kind::Regular {
        return Err(Error::NotALockFile { path: paths.lock, kind: stat.kind.name() });
    }
    let local = known_local == Some(stat.id.device) || sys::is_local(&file).map_err(inspect)?;
    let may_hang = !(local && cache_is_local(&paths, stat.id.device));
    let file = LockFile {
        file,
        paths,
        stat,
        writable: access != Access::ReadOnly,
        created: access == Access::Create,
        local,
        may_hang,
        held: AtomicBool::new(matches!(granted, Ok(true))),
        inherited: false,
        pid: sys::process_id(),
    };
    if target.cluster {
        file.refuse_unless_cluster()?;
    }
    match granted {
        // Had it been moved away instead, that would be as if it were moved now: the release will tell.
        Ok(true) if local && stat.links == 0 => Ok(Try::Moved),
        Ok(true) if local => Ok(Try::Granted(file)),
        Ok(true) => file.granted_if_current(),
        Ok(false) => Ok(Try::Busy(file)),
        Err(error) => file.refused(error),
    }
}

/// Whether the cache lies on a file system of this host, as the lock file on `device` does.
fn cache_is_local(paths: &Paths, device: u64) -> bool {
    match paths.found {
        Some(cache) if cache.id.device == device => true,
        None if paths.lock.parent() == paths.cache.parent() => true,
        _ => nearest_directory(&paths.cache).is_some_and(|place| sys::is_local(&place).unwrap_or(false)),
    }
}

/// The directory at the path, or the nearest one above it that is there.
pub(crate) fn nearest_directory(path: &Path) -> Option<OwnFile> {
    // A dot, since a directory may be named by a symlink, which a lock file may not.
    path.ancestors().find_map(|place| OwnFile::open(|| sys::open(&place.join("."), Access::ReadOnly)).ok())
}

/// Errors of open that are over in a moment: the file is going away, or somebody has it for themselves.
fn is_passing(error: &io::Error) -> bool {
    sys::is_stale(error) || sys::is_in_use(error)
}

/// An open lock file. Closing it, by dropping it, gives the lock back if it is held.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: OwnFile,
    pub paths: Paths,
    pub stat: FileStat,
    /// Whether this process may write an owner record.
    pub writable: bool,
    /// Whether this call made it, so that nobody can have held it before.
    pub created: bool,
    /// Whether this host's kernel alone answers for its locks.
    pub local: bool,
    /// Whether the file system of the lock file, or that of the cache, can leave a caller without an answer.
    pub may_hang: bool,
    held: AtomicBool,
    inherited: bool,
    /// Whose lock it is: a child's copy of this gives nothing back.
    pid: u32,
}

/// What a try came to.
pub(crate) enum Try {
    Granted(LockFile),
    Busy(LockFile),
    /// The path names another file, or none, by the time the lock was granted.
    Moved,
}

impl LockFile {
    /// Waits in the kernel's queue for it, and calls `granted` as soon as that is over.
    pub(crate) fn lock(self, mode: Mode, granted: impl FnOnce()) -> Result<Try, Error> {
        match sys::lock(&self.file, mode) {
            Ok(()) => {
                granted();
                self.held.store(true, Ordering::Relaxed);
                self.granted_if_current()
            }
            Err(error) => self.refused(error),
        }
    }

    /// Makes sure that the file is the one which others will meet.
    fn granted_if_current(self) -> Result<Try, Error> {
        match self.is_current() {
            Ok(true) => Ok(Try::Granted(self)),
            Ok(false) => Ok(Try::Moved),
            Err(source) => Err(Error::system("inspect", &self.paths.lock, source)),
        }
    }

    fn refused(&self, source: io::Error) -> Result<Try, Error> {
        let path = self.paths.lock.clone();
        match source {
            // To be asked again after a pause.
            _ if sys::is_stale(&source) || source.kind() == io::ErrorKind::Interrupted => Ok(Try::Moved),
            _ if sys::is_for_writers(&source) && !self.writable => Err(Error::ReadOnlyLock { path, source }),
            _ if sys::has_no_locks(&source) => Err(Error::Unsupported { path, source }),
            _ => Err(Error::system("lock", &path, source)),
        }
    }

    /// Whether the path still leads to this very file. On a network file system the kernel's memory of the path may
    /// be old, and only a fresh open asks the server (nfs(5), close-to-open cache consistency).
    pub(crate) fn is_current(&self) -> io::Result<bool> {
        let found = match self.local {
            true => sys::stat_path(&self.paths.lock),
            false => OwnFile::open(|| sys::open(&self.paths.lock, Access::ReadOnly))
                .and_then(|file| sys::stat(&file)),
        };
        match found {
            Ok(found) => Ok(found.id == self.stat.id),
            Err(error) if error.kind() == io::ErrorKind::NotFound || sys::is_stale(&error) => Ok(false),
            Err(error) if sys::is_symlink_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whom the lock excludes, and what says so.
    pub(crate) fn scope(&self) -> (Scope, String) {
        scope::of(&self.file, self.local)
    }

    fn refuse_unless_cluster(&self) -> Result<(), Error> {
        match self.scope() {
            (Scope::Cluster, _) => Ok(()),
            (_, why) => Err(Error::NotCluster { path: self.paths.lock.clone(), why }),
        }
    }

    pub(crate) fn id(&self) -> FileId {
        self.stat.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.paths.lock
    }

    pub(crate) fn descriptor(&self) -> sys::Descriptor {
        sys::descriptor_of(&self.file)
    }

    pub(crate) fn file(&self) -> &fs::File {
        &self.file
    }

    /// Children share the lock from now on, and keep it until the last of them is gone.
    pub(crate) fn make_inheritable(&mut self) -> Result<(), Error> {
        self.inherited = true;
        self.file.make_inheritable().map_err(|source| Error::system("share", &self.paths.lock, source))
    }
}

impl LockFile {
    /// Gives the lock back before the descriptor is closed: a child made by a raw `clone` may still share it.
    pub(crate) fn unlock(&self) {
        if self.held.swap(false, Ordering::Relaxed) && self.pid == sys::process_id() {
            // Cannot fail on an open descriptor; if it did, closing would do.
            let _ = sys::unlock(&self.file);
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // What is meant to be inherited ends with its last descriptor.
        if !self.inherited {
            self.unlock();
        }
    }
}

/// Opens without O_CREAT first: in a sticky directory fs.protected_regular refuses O_CREAT for another user's
/// file, to root too (proc_sys_fs(5)). Makes the missing parents, whoever else does so at the same time.
fn open_or_create(path: &Path, mut make_parents: bool) -> Result<(OwnFile, Access), Error> {
    for _ in 0..MOST_TURNS {
        let error = match OwnFile::open(|| sys::open(path, Access::ReadWrite)) {
            Ok(file) => return Ok((file, Access::ReadWrite)),
            Err(error) => error,
        };
        if sys::is_denied(&error) {
            let file =
                OwnFile::open(|| sys::open(path, Access::ReadOnly)).map_err(|_| denied(path, error))?;
            return Ok((file, Access::ReadOnly));
        }
        if error.kind() != io::ErrorKind::NotFound {
            return Err(not_opened(path, error));
        }
        match OwnFile::open(|| sys::open(path, Access::Create)) {
            Ok(file) => return Ok((file, Access::Create)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && make_parents => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                make_directories(parent)?;
                make_parents = false;
            }
            Err(error) if sys::is_denied(&error) => return Err(denied(path, error)),
            Err(error) => return Err(not_opened(path, error)),
        }
    }
    Err(Error::system("open", path, sys::stale()))
}

/// Whoever else makes them at the same time.
fn make_directories(path: &Path) -> Result<(), Error> {
    let missing: Vec<&Path> = path.ancestors().take_while(|parent| sys::stat_path(parent).is_err()).collect();
    for parent in missing.into_iter().rev() {
        sys::make_directory(parent, 0o777).map_err(|source| Error::system("create", parent, source))?;
    }
    Ok(())
}

fn denied(path: &Path, source: io::Error) -> Error {
    match sys::stat_path(path) {
        Ok(stat) if stat.kind != Kind::Regular => not_a_lock_file(path, stat.kind),
        found => {
            let mode_and_owner = found.ok().map(|stat| (stat.mode, stat.owner));
            Error::Denied { path: path.to_owned(), mode_and_owner, source }
        }
    }
}

fn not_opened(path: &Path, source: io::Error) -> Error {
    match sys::stat_path(path) {
        Ok(stat) if stat.kind != Kind::Regular => not_a_lock_file(path, stat.kind),
        _ => Error::system("open", path, source),
    }
}

fn not_a_lock_file(path: &Path, kind: Kind) -> Error {
    Error::NotALockFile { path: path.to_owned(), kind: kind.name() }
}
