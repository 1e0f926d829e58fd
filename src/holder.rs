//! Who holds a lock now: first by the kernel's word, then by the record in the file. Nothing here takes the lock.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::baton::{self, BatonState};
use crate::error::{printable, seconds, Error};
use crate::lockfile::{self, Paths};
use crate::offload;
use crate::orphans;
use crate::owner::{self, Record, State};
use crate::process::{self, OwnFile};
use crate::scope::{self, Scope};
use crate::sys::{self, Access, FileId, KernelHolders, Kind, Mode};

/// What can be said of a lock's holder from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What is known.
    pub state: HolderState,
    /// The processes that have the lock, where the kernel shows them.
    pub processes: Vec<Process>,
    /// What the last owner wrote and did not mark as released.
    pub record: Option<Arc<Record>>,
    /// Whether the record was written by the process that has the lock.
    pub record_agrees: bool,
}

/// Whether a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// A try would have succeeded.
    Free,
    /// One process, or a family that shares one descriptor, has it exclusively.
    Held,
    /// Readers have it.
    Shared,
    /// Nobody can be seen, which says nothing: the holder may be in another pid namespace, of another user, or on
    /// another host. Only a try can tell.
    NotVisible,
    /// Held, by somebody who wrote no record, and a mere try does not take the time to look for more.
    NotLookedFor,
}

/// How long to look for a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Whether it is the one who wrote the record.
    Quick,
    /// Whoever it is; see [`sys::kernel_holders`] for the price. First whether it still is this one.
    Thorough { likely: Option<u32> },
}

/// A process that has the lock, or is in the way otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// In this process's pid namespace.
    pub pid: u32,
    /// Its command line, made printable.
    pub command: String,
    /// When it started.
    pub started: Option<SystemTime>,
    /// Whether it is this process itself or one that it descends from: then a wait may never end.
    pub ancestor: bool,
}

/// What stands between a caller and a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who holds the lock.
    pub holder: Holder,
    /// What a dead owner left running: the next owner will wait for it.
    pub orphans: Vec<Process>,
    /// Torch's own lock in the cache.
    pub baton: BatonState,
    /// Whom the lock excludes, or would, if there is no lock file yet.
    pub scope: Scope,
}

/// Who holds the lock of `cache`, and what else is in the way: asked without taking it and without write permission.
pub fn query(cache: &Path, explicit: Option<&Path>) -> Result<Status, Error> {
    let cache = lockfile::absolute(cache)?;
    let explicit = explicit.map(lockfile::absolute).transpose()?;
    let shown = cache.clone();
    offload::answer(true, &shown, offload::silence(), move || look_around(&cache, explicit.as_deref()))
}

fn look_around(cache: &Path, explicit: Option<&Path>) -> Result<Status, Error> {
    let Paths { cache, lock, .. } = lockfile::paths(cache, explicit, false)?;
    let baton = baton::state(&cache)?;
    let file = match OwnFile::open(|| sys::open(&lock, Access::ReadOnly)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Status {
                holder: Holder::free(),
                orphans: Vec::new(),
                baton,
                scope: scope_beside(&lock),
            });
        }
        answer => answer.map_err(|source| Error::system("open", &lock, source))?,
    };
    let inspected = sys::stat(&file).and_then(|stat| Ok((stat, sys::is_local(&file)?)));
    let (stat, local) = inspected.map_err(|source| Error::system("inspect", &lock, source))?;
    if stat.kind != Kind::Regular {
        return Err(Error::NotALockFile { path: lock, kind: stat.kind.name() });
    }
    let look = Look::Thorough { likely: None };
    let holder = Holder::new(stat.id, local, owner::read_from(&file).into_record(), look);
    let orphans = match &holder {
        Holder { state: HolderState::Free, record: Some(record), .. } => {
            orphans::find(record, &cache, &lock, stat.id).into_iter().map(Process::of).collect()
        }
        _ => Vec::new(),
    };
    Ok(Status { holder, orphans, baton, scope: scope::of(&file, local).0 })
}

/// The scope of a lock file that is still to be made, by the nearest directory that is there.
fn scope_beside(lock: &Path) -> Scope {
    let Some(directory) = lock.parent().and_then(lockfile::nearest_directory) else { return Scope::Unknown };
    sys::is_local(&directory).map_or(Scope::Unknown, |local| scope::of(&directory, local).0)
}

impl Holder {
    fn free() -> Holder {
        Holder { state: HolderState::Free, ..Holder::silent() }
    }

    /// Of a lock file whose file system does not answer.
    pub(crate) fn silent() -> Holder {
        Holder { state: HolderState::NotVisible, processes: Vec::new(), record: None, record_agrees: false }
    }

    /// Of a lock file that was seen held. Reading it again can hang where the file system is not of this host: there
    /// the helper's last reading, `record`, has to do.
    pub(crate) fn of(
        id: FileId,
        path: &Path,
        local: bool,
        record: Option<Arc<Record>>,
        look: Look,
    ) -> Holder {
        let fresh = || {
            let file = OwnFile::open(|| sys::open(path, Access::ReadOnly)).ok()?;
            let same = sys::stat(&file).is_ok_and(|stat| stat.id == id);
            same.then(|| owner::read_from(&file)).and_then(State::into_record)
        };
        Holder::new(id, local, if local { fresh() } else { record }, look)
    }

    fn new(id: FileId, local: bool, record: Option<Arc<Record>>, look: Look) -> Holder {
        let likely = match look {
            Look::Quick => None,
            Look::Thorough { likely } => likely,
        };
        let mut candidates = record.iter().map(|record| record.pid).chain(likely);
        let known =
            candidates.find_map(|pid| sys::holds(pid, id)).filter(|holder| holder.mode == Mode::Exclusive);
        let seen = match (known, look) {
            (Some(holder), _) => KernelHolders { holders: vec![holder], complete: true },
            (None, Look::Thorough { .. }) => sys::kernel_holders(id),
            (None, Look::Quick) => KernelHolders::default(),
        };
        let record_agrees = record.as_ref().is_some_and(|record| {
            seen.holders.iter().any(|holder| holder.pid == record.pid) && is_of_living_process(record)
        });
        let state = match seen.holders.first().map(|holder| holder.mode) {
            Some(Mode::Exclusive) => HolderState::Held,
            Some(Mode::Shared) => HolderState::Shared,
            None if seen.complete && local => HolderState::Free,
            None if look == Look::Quick && record.is_none() => HolderState::NotLookedFor,
            None => HolderState::NotVisible,
        };
        let processes = seen.holders.iter().map(|holder| Process::of(holder.pid)).collect();
        Holder { state, processes, record, record_agrees }
    }

    /// Since when the lock is held, if its holder wrote that down.
    pub fn since(&self) -> Option<SystemTime> {
        self.record.as_ref().filter(|_| self.record_agrees).map(|record| record.since)
    }
}

impl Process {
    pub(crate) fn of(pid: u32) -> Process {
        let start = sys::start_of(pid);
        Process {
            pid,
            command: printable(&sys::command_of(pid)),
            started: start.and_then(sys::wall_clock),
            ancestor: start.is_some_and(|start| sys::descends_from(pid, start)),
        }
    }
}

/// Whether the record's pid means a process that has not been recycled since.
fn is_of_living_process(record: &Record) -> bool {
    is_from_here(record) && sys::start_of(record.pid) == Some(record.start)
}

/// Whether the record's numbers mean something here: those of this very namespace and boot.
pub(crate) fn is_from_here(record: &Record) -> bool {
    let me = &process::own_record().record;
    record.boot == me.boot && record.pid_namespace == me.pid_namespace
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.processes.as_slice(), &self.record) {
            ([], Some(record)) => write!(
                f,
                "its holder is not visible from here; the last to write its record was pid {} on host {} ({}), {} ago",
                record.pid,
                record.host,
                record.command,
                age(record.since)
            ),
            ([], None) if self.state == HolderState::NotLookedFor => {
                f.write_str("it is held, by somebody who wrote no record")
            }
            ([], None) => f.write_str("its holder is not visible from here and left no record"),
            ([first, others @ ..], _) => {
                f.write_str(if self.state == HolderState::Shared { "shared by " } else { "held by " })?;
                write!(f, "pid {} ({})", first.pid, first.command)?;
                match (self.since(), first.started) {
                    (Some(since), _) => write!(f, " for {}", age(since))?,
                    (None, Some(started)) => write!(f, ", which was started {} ago and wrote no record", age(started))?,
                    (None, None) => {}
                }
                if first.ancestor {
                    f.write_str(", which is this process or an ancestor of it")?;
                }
                others.iter().try_for_each(|other| write!(f, "; and by pid {}", other.pid))
            }
        }
    }
}

fn age(since: SystemTime) -> String {
    format!("{} s", seconds(&since.elapsed().unwrap_or_default()))
}
