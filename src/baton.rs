//! Torch's own lock, `<build_dir>/lock`: what was left behind is removed, what is in use is waited for.
//!
//! Up to torch 2.13 the file means "held" while it exists (FileBaton), so a killed builder leaves it, and everybody
//! after it waits for ever. From 2.14 on torch takes an flock on it and leaves the file there, on which an older torch
//! would hang. Both builders have the file open as long as they build, so it is stale if nobody has it open: a lease
//! says so, and holds newcomers off until the file is gone. Nothing else is believed: no age, no pid.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::blocker::Blocker;
use crate::error::Error;
use crate::holder::Process;
use crate::offload;
use crate::patience::{Obstacle, Patience, Way, FIRST_ANSWER};
use crate::process::OwnFile;
use crate::sys::{self, Access, Dir, FileId, FileStat, Kind, Mode};

/// The only name that torch gives it.
const NAME: &str = "lock";

/// So often a file may be replaced between two steps of one look.
const MOST_LOOKS: usize = 16;

/// What became of torch's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baton {
    /// None was there, or nobody looked.
    None,
    /// A stale one was removed.
    Removed,
    /// One in use was waited for, so somebody else may just have built.
    WaitedFor,
}

/// What a look at torch's lock tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatonState {
    /// None is there.
    Absent,
    /// It is there, and nobody has it open.
    Stale,
    /// Somebody has it open: these processes, as far as they can be seen.
    InUse(Vec<u32>),
    /// It cannot be told whether anybody has.
    Unknown(&'static str),
}

/// Whose locks of torch's a caller cares for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batons {
    None,
    /// Of the cache, as of any build directory.
    Own,
    /// Of the build directories in the cache as well, all of which are about to be deleted.
    All,
}

/// The same as the look itself finds it.
enum Verdict {
    Absent,
    Stale,
    InUse(FileId),
    Unknown(&'static str),
}

/// Removes stale locks of torch's; waits while one is in use. The caller holds our lock. What became of the cache's own
/// is the answer; none if the progress callback forked, and this is the child.
pub(crate) fn settle(
    patience: &mut Patience<'_>,
    cache: &Path,
    may_hang: bool,
    batons: Batons,
) -> Result<Option<Baton>, Error> {
    if batons == Batons::None {
        return Ok(Some(Baton::None));
    }
    let own = settle_one(patience, &cache.join(NAME), may_hang)?;
    if batons == Batons::All {
        let ours = cache.to_owned();
        let entries = move || Ok(Dir::open(&ours).and_then(|cache| cache.entries()).unwrap_or_default());
        let entries = offload::answer(may_hang, cache, patience.limit(), entries)?;
        for entry in entries.iter().filter(|entry| entry.directory) {
            if settle_one(patience, &cache.join(&entry.name).join(NAME), may_hang)?.is_none() {
                return Ok(None);
            }
        }
    }
    Ok(own)
}

fn settle_one(patience: &mut Patience<'_>, path: &Path, may_hang: bool) -> Result<Option<Baton>, Error> {
    if !may_hang && is_absent(path) {
        return Ok(Some(Baton::None));
    }
    let mut removed = false;
    // Where nothing can hang, a look is always waited for, so none that was given up removes anything later.
    let limit = patience.limit().filter(|_| may_hang);
    let way = patience.outlast(&mut || {
        let (id, unknown) = match look(path, limit, true)? {
            Verdict::Absent => return Ok(None),
            Verdict::Stale => {
                removed = true;
                return Ok(None);
            }
            Verdict::InUse(id) => (Some(id), None),
            Verdict::Unknown(why) => (None, Some(why)),
        };
        let own_path = path.to_owned();
        let blocker = move || {
            let pids = id.map(|id| sys::openers(id, None).pids).unwrap_or_default();
            let processes = pids.into_iter().map(Process::of).collect();
            Blocker::Baton { path: own_path.clone(), processes, unknown }
        };
        Ok(Some(Obstacle { blocker: Box::new(blocker), path: path.to_owned(), process: None }))
    })?;
    Ok(match way {
        Way::Forked => None,
        Way::Cleared => Some(Baton::WaitedFor),
        Way::Free if removed => Some(Baton::Removed),
        Way::Free => Some(Baton::None),
    })
}

/// What can be said of torch's lock in the build directory, which is left as it is.
pub(crate) fn state(build_dir: &Path) -> Result<BatonState, Error> {
    let path = build_dir.join(NAME);
    if is_absent(&path) {
        return Ok(BatonState::Absent);
    }
    Ok(match look(&path, Some(Instant::now() + FIRST_ANSWER), false)? {
        Verdict::Absent => BatonState::Absent,
        Verdict::Stale => BatonState::Stale,
        Verdict::InUse(id) => BatonState::InUse(sys::openers(id, None).pids),
        Verdict::Unknown(why) => BatonState::Unknown(why),
    })
}

fn is_absent(path: &Path) -> bool {
    sys::stat_path(path).is_err_and(|error| sys::is_out_of_reach(&error))
}

/// On a thread of ours, where a lease may be taken, and which may hang.
fn look(path: &Path, limit: Option<Instant>, remove: bool) -> Result<Verdict, Error> {
    let ours = path.to_owned();
    let answer = offload::by(limit, move || match examine(&ours, remove) {
        // It may have been another one's look, like this one: those take microseconds.
        Ok(Verdict::InUse(_)) => {
            thread::sleep(Duration::from_millis(1));
            examine(&ours, remove)
        }
        verdict => verdict,
    });
    let answer = answer.map_err(|source| Error::system("start a thread for", path, source))?;
    answer.unwrap_or(Ok(Verdict::Unknown("its file system does not answer")))
}

fn examine(path: &Path, remove: bool) -> Result<Verdict, Error> {
    let inspect = |source| Error::system("inspect", path, source);
    for _ in 0..MOST_LOOKS {
        let found = match sys::stat_path(path) {
            Err(error) if sys::is_out_of_reach(&error) => return Ok(Verdict::Absent),
            // Nothing that torch made.
            Ok(stat) if stat.kind != Kind::Regular => return Ok(Verdict::Absent),
            Ok(stat) => stat,
            Err(source) => return Err(inspect(source)),
        };
        let file = match OwnFile::open(|| sys::open(path, Access::Sole)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound || sys::is_symlink_refusal(&error) => {
                continue
            }
            // Somebody else has a lease on it, to do the same as we; or, on Windows, has it open.
            Err(error) if sys::is_in_use(&error) => return Ok(Verdict::InUse(found.id)),
            Err(error) if sys::is_denied(&error) => return Ok(Verdict::Unknown("it may not be opened")),
            Err(source) => return Err(Error::system("open", path, source)),
        };
        let stat = sys::stat(&file).map_err(inspect)?;
        let local = sys::is_local(&file).map_err(inspect)?;
        let alone = match local {
            true => sys::sole_opener(&file, stat.owner),
            // A lease of one host says nothing of the others.
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        let state = match &alone {
            Ok(Some(_lease)) => Verdict::Stale,
            Ok(None) => Verdict::InUse(stat.id),
            Err(_) => without_lease(&file, stat, local),
        };
        if !matches!(state, Verdict::Stale) || !remove || removed(path, &file, stat)? {
            return Ok(state);
        }
    }
    Ok(Verdict::Unknown("it is another file at each look"))
}

/// An flock keeps the torch of today off, and the processes of this host can be asked; where not all of them can be seen,
/// one of them may be an older torch.
fn without_lease(file: &OwnFile, stat: FileStat, local: bool) -> Verdict {
    let locked = sys::try_lock(file, Mode::Exclusive);
    let openers = sys::openers(stat.id, Some(file));
    match locked {
        Ok(false) => Verdict::InUse(stat.id),
        _ if !openers.pids.is_empty() => Verdict::InUse(stat.id),
        Ok(true) if openers.complete && local => Verdict::Stale,
        _ if !local => Verdict::Unknown("other hosts may have it open, and its file system does not tell"),
        _ => Verdict::Unknown("it is another user's, and not all processes are visible from here"),
    }
}

/// Unlinks the file, while its lease or flock is held; false if the path leads to another one by now.
fn removed(path: &Path, file: &OwnFile, stat: FileStat) -> Result<bool, Error> {
    if !sys::stat_path(path).is_ok_and(|now| now.id == stat.id) {
        return Ok(false);
    }
    match sys::unlink(path, file) {
        // Where nothing can be removed, nothing can be built.
        Err(error) if sys::is_read_only(&error) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::system("remove the stale", path, source)),
        Ok(()) => Ok(true),
    }
}
