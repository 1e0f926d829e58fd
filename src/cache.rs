//! What may be done while the lock is held: clearing the cache, so that a crash leaves it whole or gone.
//!
//! The directory is renamed to a hidden sibling first, in one step, and then deleted at leisure. Every step works on
//! open directories, so a symlink put in the way is deleted, never followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Argument, Error};
use crate::lockfile::Paths;
use crate::offload;
use crate::sys::{self, Dir, Entry, FileId, Kind};
use crate::tree;

/// How far a clear came before it failed.
pub(crate) enum Failure {
    /// The cache is as it was.
    Untouched(Error),
    /// The cache is gone, but what it was could not all be deleted. The next clear tries again.
    Remains(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let (Failure::Untouched(error) | Failure::Remains(error)) = failure;
        error
    }
}

/// Deletes the cache directory and all that is in it. The caller holds the exclusive lock. A missing directory is
/// success.
pub(crate) fn clear(paths: &Paths) -> Result<(), Failure> {
    let cache = &paths.cache;
    let (parent_path, name) = split(cache).map_err(Failure::Untouched)?;
    let parent = match Dir::follow(parent_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        answer => answer.map_err(|source| untouched("open", parent_path, source))?,
    };
    let trash = trash_name(name);
    // What an interrupted clear left behind. It is in nobody's way: if it will not go, the rename below tells.
    let leftover = tree::delete(&parent, &trash, &parent_path.join(&trash));
    match sys::stat_path(cache) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return leftover.map_err(Failure::Remains),
        Err(source) => return Err(untouched("inspect", cache, source)),
        Ok(stat) if stat.kind != Kind::Directory => {
            return Err(untouched("clear", cache, sys::not_a_directory()));
        }
        Ok(stat) => refuse_precious(paths, stat.id).map_err(Failure::Untouched)?,
    }
    match parent.rename(name, &parent, &trash) {
        Ok(()) => tree::delete(&parent, &trash, cache).map_err(Failure::Remains),
        // By another holder, if the lock file was replaced: gone is gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A mount point (EBUSY, EXDEV), a parent that may not be written, or a trash that may not be replaced.
        Err(_) => clear_in_place(cache),
    }
}

fn untouched(action: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::Untouched(Error::system(action, path, source))
}

fn split(cache: &Path) -> Result<(&Path, &OsStr), Error> {
    match (cache.parent(), cache.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(Argument::Clear { path: cache.to_owned(), why: "it is the root directory" }.into()),
    }
}

/// `.jitlock-trash-` and a hash of the cache's name (FNV-1a, 64 bits): the same for every process, and short enough
/// where the name itself leaves no room.
fn trash_name(name: &OsStr) -> OsString {
    let hash = name.as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!(".jitlock-trash-{hash:016x}").into()
}

/// The root, a home directory or one that contains it, and the place where the lock file itself lies.
fn refuse_precious(paths: &Paths, cache: FileId) -> Result<(), Error> {
    let refuse = |why| Err(Argument::Clear { path: paths.cache.clone(), why }.into());
    let homes = [std::env::var_os("HOME").map(PathBuf::from), sys::home_of_user()];
    for home in homes.into_iter().flatten() {
        // A home may lie in a file system that hangs, wherever the cache is.
        let ours = home.clone();
        if offload::answer(true, &home, offload::silence(), move || Ok(lies_in(&ours, cache)))? {
            return refuse("it is the home directory, or contains it");
        }
    }
    if paths.lock.parent().is_some_and(|parent| lies_in(parent, cache)) {
        return refuse("its lock file lies in it");
    }
    match sys::stat_path(Path::new("/")) {
        Ok(root) if root.id == cache => refuse("it is the root directory"),
        _ => Ok(()),
    }
}

/// Whether `path` is the directory or lies somewhere below it.
pub(crate) fn lies_in(path: &Path, directory: FileId) -> bool {
    std::fs::canonicalize(path).is_ok_and(|real| real_lies_in(&real, directory))
}

/// The same of a path without symlinks.
pub(crate) fn real_lies_in(path: &Path, directory: FileId) -> bool {
    path.ancestors().any(|ancestor| sys::stat_path(ancestor).is_ok_and(|stat| stat.id == directory))
}

/// Moves everything into a hidden directory of the cache's own, all of it or nothing, and deletes that.
fn clear_in_place(path: &Path) -> Result<(), Failure> {
    let cache = Dir::open(path).map_err(|source| untouched("open", path, source))?;
    let trash = trash_name(OsStr::new(""));
    tree::delete(&cache, &trash, path).map_err(Failure::Untouched)?;
    let entries = cache.entries().map_err(|source| untouched("list", path, source))?;
    if entries.is_empty() {
        return Ok(());
    }
    cache.make_child(&trash).map_err(|source| untouched("clear", path, source))?;
    let into = cache.child(&trash).map_err(|source| untouched("open", path, source))?;
    for (done, entry) in entries.iter().enumerate() {
        offload::step();
        if let Err(source) = move_entry(&cache, &into, &entry.name) {
            // The names are free, since we hold the lock.
            let back = |entry: &Entry| into.rename(&entry.name, &cache, &entry.name);
            if entries[..done].iter().rev().map(back).all(|answer| answer.is_ok()) {
                let _ = cache.remove(&trash, true);
                return Err(untouched("remove", &path.join(&entry.name), source));
            }
            // What cannot be whole again must go, one by one.
            for entry in &entries {
                tree::delete(&cache, &entry.name, &path.join(&entry.name)).map_err(Failure::Remains)?;
            }
            break;
        }
    }
    drop(into);
    tree::delete(&cache, &trash, path).map_err(Failure::Remains)
}

/// A directory needs to be writable itself to change its parent (rename(2), EACCES).
fn move_entry(from: &Dir, into: &Dir, name: &OsStr) -> io::Result<()> {
    match from.rename(name, into, name) {
        Err(error) if sys::is_denied(&error) => {
            from.make_child_writable(name)?;
            from.rename(name, into, name)
        }
        answer => answer,
    }
}
