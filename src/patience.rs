//! How long a caller waits, how it watches that, and what ends its wait.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::blocker::Blocker;
use crate::error::Error;
use crate::policy::{Deadline, Timeout};
use crate::process::OwnFile;
use crate::sys::{self, SignalsBlocked, WaitEnd};

/// A file system that nobody has heard of yet has so long to answer, even to a caller that only tries.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// The first pause between two looks at what is in the way, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A look at a wait that lasts.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// Since the call began.
    pub waited: Duration,
    /// Until the deadline; none without one.
    pub remaining: Option<Duration>,
    /// For whom.
    pub blocker: &'a Blocker,
}

/// How a caller watches its wait, and ends it: called on its own thread, `false` cancels.
pub struct Progress<'a> {
    /// The first call comes after this long, and the next ones at this interval.
    pub every: Duration,
    /// What is called.
    pub call: &'a mut dyn FnMut(&Waiting<'_>) -> bool,
}

/// What one call of the library may take.
pub(crate) struct Patience<'a> {
    pub deadline: Deadline,
    pub interruptible: bool,
    progress: Option<Progress<'a>>,
    /// When the progress is due.
    next_call: Option<Instant>,
}

/// Something in the way of a caller who has the lock.
pub(crate) struct Obstacle {
    /// What it is: found out only if somebody wants to know, since that takes its time.
    pub blocker: Box<dyn Fn() -> Blocker>,
    /// Its path, for messages.
    pub path: PathBuf,
    /// A process whose end is worth another look.
    pub process: Option<u32>,
}

/// How a wait for an obstacle ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Free,
    /// After a wait.
    Cleared,
    /// The progress callback forked, and this is the child, which holds nothing.
    Forked,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(timeout: Timeout, interruptible: bool, progress: Option<Progress<'a>>) -> Patience<'a> {
        let deadline = Deadline::new(timeout);
        let next_call = progress.as_ref().and_then(|progress| deadline.started.checked_add(progress.every));
        Patience { deadline, interruptible, progress, next_call }
    }

    /// When a file system that does not answer is given up.
    pub(crate) fn limit(&self) -> Option<Instant> {
        match self.deadline.try_once {
            true => Some(self.deadline.started + FIRST_ANSWER),
            false => self.deadline.at,
        }
    }

    /// The next moment at which there is something to do.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        match (self.limit(), self.next_call) {
            (Some(limit), Some(next_call)) => Some(limit.min(next_call)),
            (limit, next_call) => limit.or(next_call),
        }
    }

    /// The signals that end a wait, blocked until it waits.
    pub(crate) fn signals(&self) -> SignalsBlocked {
        match self.interruptible {
            true => SignalsBlocked::new(),
            false => SignalsBlocked::none(),
        }
    }

    /// Shows the caller its wait; false if it wants no more of it.
    pub(crate) fn show(&mut self, blocker: &Blocker, signals: &SignalsBlocked) -> bool {
        let Some(progress) = &mut self.progress else { return true };
        let waiting = Waiting {
            waited: self.deadline.started.elapsed(),
            remaining: self.deadline.remaining(),
            blocker,
        };
        let go_on = {
            let _unblocked = signals.lifted();
            (progress.call)(&waiting)
        };
        self.next_call = Instant::now().checked_add(progress.every);
        go_on
    }

    pub(crate) fn timeout(&self, path: PathBuf, blocker: Blocker) -> Error {
        Error::Timeout {
            path,
            waited: self.deadline.started.elapsed(),
            blocker: Box::new(blocker),
            note: self.deadline.note.clone(),
        }
    }

    /// Waits, with the lock held, until `look` finds nothing in the way any more.
    pub(crate) fn outlast(
        &mut self,
        look: &mut dyn FnMut() -> Result<Option<Obstacle>, Error>,
    ) -> Result<Way, Error> {
        let mut way = Way::Free;
        let mut pause = FIRST_PAUSE;
        let signals = self.signals();
        while let Some(obstacle) = look()? {
            way = Way::Cleared;
            let now = Instant::now();
            if self.deadline.try_once || self.deadline.at.is_some_and(|at| at <= now) {
                return Err(self.timeout(obstacle.path, (obstacle.blocker)()));
            }
            if self.next_call.is_some_and(|at| at <= now) {
                let pid = sys::process_id();
                let go_on = self.show(&(obstacle.blocker)(), &signals);
                if sys::process_id() != pid {
                    return Ok(Way::Forked);
                }
                if !go_on {
                    return Err(Error::Cancelled(obstacle.path));
                }
            }
            let process = obstacle.process.and_then(|pid| OwnFile::open(|| sys::watch_process(pid)).ok());
            let until = self.next_event().map_or(now + pause, |event| event.min(now + pause));
            let end = sys::wait_readable(process.as_deref(), Some(until), &signals);
            match end.map_err(|source| Error::system("wait for", &obstacle.path, source))? {
                WaitEnd::Interrupted if self.interruptible => return Err(Error::Interrupted(obstacle.path)),
                _ => pause = LONGEST_PAUSE.min(pause * 2),
            }
        }
        Ok(way)
    }
}
