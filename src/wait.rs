//! A lock file is waited for: the caller's side of the wait.
//!
//! On a file system of this host a free lock is taken right here. Everything that may hang, the first look at an
//! unknown file system included, is left to the helper of [`crate::queue`].

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::blocker::Blocker;
use crate::error::Error;
use crate::handle::{self, Thread};
use crate::holder::{Holder, Look};
use crate::lockfile::{self, LockFile, Target, Try};
use crate::owner::{self, State};
use crate::patience::Patience;
use crate::process::{self, table};
use crate::queue::{self, Busy};
use crate::sys::{self, FileId, WaitEnd};
use crate::waiter::{Outcome, Waiter};

/// A wish for a lock.
pub(crate) struct Wish<'a> {
    pub target: Target,
    pub patience: Patience<'a>,
    /// The calling thread, where waiting for oneself shall be told.
    pub thread: Option<Thread>,
    /// The holder that the progress was last told of.
    pub last_holder: Option<u32>,
}

pub(crate) fn lock(wish: &mut Wish<'_>) -> Result<(LockFile, State), Error> {
    let mut current = None;
    let known = table().local_device(&wish.target.cache);
    if let Some(device) = known.filter(|_| wish.patience.deadline.try_once || !others_wait(&wish.target)) {
        match lockfile::attempt(&wish.target, Some(device))? {
            Try::Granted(file) => {
                let state = owner::read(&file);
                return Ok((file, state));
            }
            Try::Busy(file) if handle::is_held_by(&table().held, wish.thread, file.id()) => {
                return Err(Error::Deadlock(file.path().to_owned()));
            }
            Try::Busy(file) if wish.patience.deadline.try_once => {
                return Err(timeout(wish, Some(&Busy::of(&file, None))))
            }
            Try::Busy(file) => current = Some(file.id()),
            Try::Moved => {}
        }
    }
    stand_in_queue(wish, current)
}

/// Whoever comes while others of this process wait does not overtake them.
fn others_wait(target: &Target) -> bool {
    table().queues.iter().any(|queue| queue.target == *target && !queue.waiters.is_empty())
}

fn stand_in_queue(wish: &mut Wish<'_>, current: Option<FileId>) -> Result<(LockFile, State), Error> {
    let Patience { interruptible, .. } = wish.patience;
    let signals = wish.patience.signals();
    let waiter = Waiter::new(wish.thread, wish.patience.deadline.try_once, interruptible);
    let waiter = waiter.map_err(|source| Error::system("wait for", &wish.target.cache, source))?;
    let waiter = Arc::new(waiter);
    queue::join(&wish.target, current, &waiter)?;
    // Found out now, while there is time, and not between the grant and the return.
    process::own_record();
    let limit = wish.patience.limit();
    loop {
        let end = waiter.wait(wish.patience.next_event(), &signals);
        match end.map_err(|source| Error::system("wait for", &wish.target.cache, source)) {
            Ok(WaitEnd::Rung) => {
                if let Some(outcome) = waiter.take() {
                    return finish(wish, outcome);
                }
            }
            Ok(WaitEnd::TimedOut) if limit.is_some_and(|limit| Instant::now() >= limit) => {
                let busy = queue::leave(&waiter);
                // Granted in the last moment is granted.
                return waiter
                    .take()
                    .map_or_else(|| Err(timeout(wish, busy.as_deref())), |outcome| finish(wish, outcome));
            }
            Ok(WaitEnd::TimedOut) => {
                let pid = sys::process_id();
                let holder =
                    holder(queue::busy(&waiter).as_deref(), Look::Thorough { likely: wish.last_holder });
                wish.last_holder = holder.processes.first().map(|first| first.pid);
                let go_on = wish.patience.show(&Blocker::Holder(holder), &signals);
                if sys::process_id() != pid {
                    // The callback forked, and this is the child: nobody will ever serve this waiter here.
                    mem::forget(waiter);
                    return lock(wish);
                }
                if !go_on {
                    queue::leave(&waiter);
                    return Err(Error::Cancelled(wish.target.cache.clone()));
                }
            }
            Ok(WaitEnd::Interrupted) => {
                queue::leave(&waiter);
                return Err(Error::Interrupted(wish.target.cache.clone()));
            }
            Err(error) => {
                queue::leave(&waiter);
                return Err(error);
            }
        }
    }
}

fn finish(wish: &Wish<'_>, outcome: Outcome) -> Result<(LockFile, State), Error> {
    match outcome {
        Outcome::Granted(file, state) => {
            if !file.may_hang {
                table().remember_local(&wish.target.cache, file.id().device);
            }
            Ok((file, state))
        }
        Outcome::Busy(busy) => Err(timeout(wish, Some(&busy))),
        Outcome::Deadlock(path) => Err(Error::Deadlock(path)),
        Outcome::Failed(error) => Err(error),
    }
}

fn timeout(wish: &Wish<'_>, busy: Option<&Busy>) -> Error {
    let look = match wish.patience.deadline.try_once {
        true => Look::Quick,
        false => Look::Thorough { likely: wish.last_holder },
    };
    let path = busy.map_or_else(|| lock_of(&wish.target), |busy| busy.path.clone());
    wish.patience.timeout(path, Blocker::Holder(holder(busy, look)))
}

fn holder(busy: Option<&Busy>, look: Look) -> Holder {
    match busy {
        None => Holder::silent(),
        Some(busy) => Holder::of(busy.id, &busy.path, busy.local, busy.record.clone(), look),
    }
}

/// The lock path as far as it can be told without a look at a file system that does not answer.
fn lock_of(target: &Target) -> PathBuf {
    target.explicit.clone().unwrap_or_else(|| {
        let mut path = target.cache.components().collect::<PathBuf>().into_os_string();
        path.push(".lock");
        path.into()
    })
}
