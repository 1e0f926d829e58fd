//! A lock file is waited for: the caller's side of a wait, with its deadline, its interrupts and its progress.
//!
//! On a file system of this host a free lock is taken right here. Everything that may hang, the first look at an
//! unknown file system included, is left to the helper of [`crate::queue`].

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::handle::{self, Thread};
use crate::holder::{Holder, Look};
use crate::lockfile::{self, LockFile, Target, Try};
use crate::owner::{self, State};
use crate::policy::Deadline;
use crate::process::{self, table};
use crate::queue::{self, Busy};
use crate::sys::{self, FileId, SignalsBlocked, WaitEnd};
use crate::waiter::{Outcome, Waiter};

/// A file system that nobody has heard of yet has so long to say whether a lock is free, even to a caller that
/// only tries.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// A wish for a lock.
pub(crate) struct Wish<'a> {
    pub target: Target,
    pub deadline: Deadline,
    /// The calling thread, where waiting for oneself shall be told.
    pub thread: Option<Thread>,
    pub interruptible: bool,
    pub progress: Option<Progress<'a>>,
    /// The holder that the progress was last told of.
    pub last_holder: Option<u32>,
}

/// A look at a wait that lasts.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// Since the call began.
    pub waited: Duration,
    /// Until the deadline; none without one.
    pub remaining: Option<Duration>,
    /// For whom.
    pub holder: &'a Holder,
}

/// How a caller watches its wait, and ends it: called on its own thread, `false` cancels.
pub struct Progress<'a> {
    /// The first call comes after this long, and the next ones at this interval.
    pub every: Duration,
    /// What is called.
    pub call: &'a mut dyn FnMut(&Waiting<'_>) -> bool,
}

pub(crate) fn lock(wish: &mut Wish<'_>) -> Result<(LockFile, State), Error> {
    let mut current = None;
    let known = table().local_device(&wish.target.cache);
    if let Some(device) = known.filter(|_| wish.deadline.try_once || !others_wait(&wish.target)) {
        match lockfile::attempt(&wish.target, Some(device))? {
            Try::Granted(file) => {
                let state = owner::read(&file);
                return Ok((file, state));
            }
            Try::Busy(file) if handle::is_held_by(&table().held, wish.thread, file.id()) => {
                return Err(Error::Deadlock(file.path().to_owned()));
            }
            Try::Busy(file) if wish.deadline.try_once => {
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
    let signals = wish.interruptible.then(SignalsBlocked::new);
    let waiter = Waiter::new(wish.thread, wish.deadline.try_once, wish.interruptible);
    let waiter = waiter.map_err(|source| Error::system("wait for", &wish.target.cache, source))?;
    let waiter = Arc::new(waiter);
    queue::join(&wish.target, current, &waiter)?;
    // Found out now, while there is time, and not between the grant and the return.
    process::own_record();
    let limit = match wish.deadline.try_once {
        true => Some(wish.deadline.started + FIRST_ANSWER),
        false => wish.deadline.at,
    };
    let mut next_call =
        wish.progress.as_ref().and_then(|progress| wish.deadline.started.checked_add(progress.every));
    loop {
        let until = match (limit, next_call) {
            (Some(limit), Some(next_call)) => Some(limit.min(next_call)),
            (limit, next_call) => limit.or(next_call),
        };
        let end = waiter.wait(until, signals.as_ref());
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
                let go_on = report(wish, &waiter, signals.as_ref());
                if sys::process_id() != pid {
                    // The callback forked, and this is the child: nobody will ever serve this waiter here.
                    mem::forget(waiter);
                    return lock(wish);
                }
                if !go_on {
                    queue::leave(&waiter);
                    return Err(Error::Cancelled(wish.target.cache.clone()));
                }
                let every = wish.progress.as_ref().map(|progress| progress.every);
                next_call = every.and_then(|every| Instant::now().checked_add(every));
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
            if file.local {
                table().remember_local(&wish.target.cache, file.id().device);
            }
            Ok((file, state))
        }
        Outcome::Busy(busy) => Err(timeout(wish, Some(&busy))),
        Outcome::Deadlock(path) => Err(Error::Deadlock(path)),
        Outcome::Failed(error) => Err(error),
    }
}

/// Shows the caller its wait; false if it wants no more of it.
fn report(wish: &mut Wish<'_>, waiter: &Arc<Waiter>, signals: Option<&SignalsBlocked>) -> bool {
    let Some(progress) = &mut wish.progress else { return true };
    let look = Look::Thorough { likely: wish.last_holder };
    let holder = holder(queue::busy(waiter).as_deref(), look);
    wish.last_holder = holder.processes.first().map(|first| first.pid);
    let waiting = Waiting {
        waited: wish.deadline.started.elapsed(),
        remaining: wish.deadline.remaining(),
        holder: &holder,
    };
    let _unblocked = signals.map(SignalsBlocked::lifted);
    (progress.call)(&waiting)
}

fn timeout(wish: &Wish<'_>, busy: Option<&Busy>) -> Error {
    let look = match wish.deadline.try_once {
        true => Look::Quick,
        false => Look::Thorough { likely: wish.last_holder },
    };
    Error::Timeout {
        path: busy.map_or_else(|| lock_of(&wish.target), |busy| busy.path.clone()),
        waited: wish.deadline.started.elapsed(),
        holder: Box::new(holder(busy, look)),
        note: wish.deadline.note.clone(),
    }
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
