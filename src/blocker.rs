//! What a wait waits for, as its watcher and the message of a timeout say it.

use std::fmt;
use std::path::PathBuf;

use crate::error::shown;
use crate::holder::{Holder, Process};

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// Somebody has the lock.
    Holder(Holder),
    /// The last owner died, and processes that it started still work in the cache.
    Orphans {
        /// The pid that the owner had.
        of: u32,
        /// Those that do.
        processes: Vec<Process>,
    },
    /// Torch's own lock in the cache.
    Baton {
        /// The file.
        path: PathBuf,
        /// Who has it open, as far as can be seen.
        processes: Vec<Process>,
        /// Why it cannot be told whether anybody has.
        unknown: Option<&'static str>,
    },
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Holder(holder) => holder.fmt(f),
            Blocker::Orphans { of, processes } => {
                write!(
                    f,
                    "its owner, pid {of}, died, but processes that it started still work in the cache: "
                )?;
                list(processes, f)
            }
            Blocker::Baton { path, processes, unknown: Some(why) } if processes.is_empty() => write!(
                f,
                "it cannot be told whether a torch build has {} open ({why}); if none runs, remove it",
                shown(path)
            ),
            Blocker::Baton { path, processes, .. } => {
                write!(f, "torch's own lock {} is in use", shown(path))?;
                f.write_str(if processes.is_empty() {
                    ", by a process that is not visible from here"
                } else {
                    " by "
                })?;
                list(processes, f)
            }
        }
    }
}

fn list(processes: &[Process], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    processes.iter().enumerate().try_for_each(|(index, process)| {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}pid {} ({})", process.pid, process.command)
    })
}
