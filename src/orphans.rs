//! Orphaned compilers: a builder that is killed leaves its ninja and cc1plus behind, and they go on writing into the
//! cache for as long as the compile takes (measured with torch 1.13 and 2.15). They have none of our descriptors, so the
//! kernel sees no holder: the record of their dead owner has to tell who they are.

use std::path::Path;

use crate::blocker::Blocker;
use crate::cache::lies_in;
use crate::error::Error;
use crate::holder::{self, Process};
use crate::lockfile::LockFile;
use crate::owner::Record;
use crate::patience::{Obstacle, Patience, Way};
use crate::sys::{self, FileId};

/// Waits until the dead owner's orphans are gone.
pub(crate) fn outlast(patience: &mut Patience<'_>, record: &Record, file: &LockFile) -> Result<Way, Error> {
    let path = file.path();
    patience.outlast(&mut || {
        let pids = find(record, &file.paths.cache, path, file.id());
        let of = record.pid;
        Ok(pids.first().copied().map(|first| Obstacle {
            blocker: Box::new(move || {
                let processes = pids.iter().copied().map(Process::of).collect();
                Blocker::Orphans { of, processes }
            }),
            path: path.to_owned(),
            process: Some(first),
        }))
    })
}

/// Processes of the dead owner's group or session that were started after it took the lock, have lost their parent, and
/// work in the cache: a shell that happens to stand there is nobody's orphan, and neither is a rank that waits for the lock.
pub(crate) fn find(record: &Record, cache: &Path, lock: &Path, lock_id: FileId) -> Vec<u32> {
    let Ok(directory) = sys::stat_path(cache) else { return Vec::new() };
    // Elsewhere, or before the last boot, its numbers mean nothing.
    if !holder::is_from_here(record) {
        return Vec::new();
    }
    let everybody = sys::processes();
    let is_later = |process: &&sys::Process| {
        // The kernel's tick is coarser than our clock.
        sys::after_boot(process.start + 1).is_some_and(|start| start >= record.since_boot)
    };
    let is_relative =
        |process: &&sys::Process| process.group == record.group || process.session == record.session;
    let works_there = |process: &&sys::Process| match sys::places_of(process.pid) {
        Some(places) => places.iter().any(|place| lies_in(place, directory.id)),
        // Of another user: in doubt it is one, if it is of the very job.
        None => process.group == record.group,
    };
    let parent_of = |process: &sys::Process| everybody.iter().find(|other| other.pid == process.parent);
    let is_orphan = |process: &&sys::Process| {
        let mut process = *process;
        loop {
            if sys::descends_from(process.pid, process.start) || has_open(process.pid, lock, lock_id) {
                return false;
            }
            match parent_of(process) {
                // Orphans go to the first process, or to one that asked for them: not to the shell of the session.
                Some(parent) if parent.pid == record.session && parent.pid != 1 => return false,
                Some(parent) if is_later(&parent) => process = parent,
                _ => return true,
            }
        }
    };
    let orphans = everybody.iter().filter(is_relative).filter(is_later).filter(works_there).filter(is_orphan);
    orphans.map(|process| process.pid).collect()
}

/// Whether the process waits for the lock, or is about to.
fn has_open(pid: u32, lock: &Path, id: FileId) -> bool {
    let places = sys::places_of(pid).unwrap_or_default();
    places.iter().any(|place| {
        place.file_name() == lock.file_name() && sys::stat_path(place).is_ok_and(|stat| stat.id == id)
    })
}
