//! Orphaned compilers: a builder that is killed leaves its ninja and cc1plus behind, and they go on writing into the
//! cache for as long as the compile takes (measured with torch 1.13 and 2.15). They have none of our descriptors, so the
//! kernel sees no holder: the record of their dead owner has to tell who they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocker::Blocker;
use crate::cache::real_lies_in;
use crate::error::Error;
use crate::holder::{self, Process};
use crate::lockfile::LockFile;
use crate::offload;
use crate::owner::Record;
use crate::patience::{Obstacle, Patience, Way};
use crate::sys::{self, FileId};

/// Waits until the dead owner's orphans are gone.
pub(crate) fn outlast(
    patience: &mut Patience<'_>,
    record: &Arc<Record>,
    file: &LockFile,
) -> Result<Way, Error> {
    let path = file.path();
    let limit = patience.limit();
    patience.outlast(&mut || {
        let (record, paths, id) = (record.clone(), file.paths.clone(), file.id());
        let of = record.pid;
        // Their working directories may lie in file systems that hang, wherever the cache is.
        let find = move || Ok(find(&record, &paths.cache, &paths.lock, id));
        let pids = offload::answer(true, path, limit, find)?;
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
    let is_later = |process: &sys::Process| {
        // The kernel's tick is coarser than our clock.
        sys::after_boot(process.start + 1).is_some_and(|start| start >= record.since_boot)
    };
    let works_there = |places: &Option<Vec<PathBuf>>, process: &sys::Process| match places {
        Some(places) => places.iter().any(|place| real_lies_in(place, directory.id)),
        // Of another user: in doubt it is one, if it is of the very job.
        None => process.group == record.group,
    };
    // It waits for the lock, or is about to.
    let is_waiting = |places: &Option<Vec<PathBuf>>| {
        places.iter().flatten().any(|place| {
            place.file_name() == lock.file_name()
                && sys::stat_path(place).is_ok_and(|stat| stat.id == lock_id)
        })
    };
    let is_orphan = |process: &sys::Process| {
        let mut process = *process;
        loop {
            match sys::process_of(process.parent) {
                // Orphans go to the first process, or to one that asked for them: not to the shell of the session.
                Some(parent) if parent.pid == record.session && parent.pid != 1 => return false,
                Some(parent) if is_later(&parent) => process = parent,
                _ => return true,
            }
            if sys::descends_from(process.pid, process.start) || is_waiting(&sys::places_of(process.pid)) {
                return false;
            }
        }
    };
    let mut orphans = sys::relatives(record.group, record.session);
    orphans.retain(|process| {
        // The dead one itself may take a while to be gone.
        if process.pid == record.pid || !is_later(process) || sys::descends_from(process.pid, process.start) {
            return false;
        }
        let places = sys::places_of(process.pid);
        works_there(&places, process) && !is_waiting(&places) && is_orphan(process)
    });
    orphans.iter().map(|process| process.pid).collect()
}
