//! A thread that waits, and the bell that ends its wait.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::handle::Thread;
use crate::lockfile::LockFile;
use crate::owner::State;
use crate::process::OwnFile;
use crate::queue::Busy;
use crate::sys::{self, SignalsBlocked, WaitEnd};

/// What a waiter is told.
pub(crate) enum Outcome {
    /// The lock is its own; with what the file said of the last owner.
    Granted(LockFile, State),
    /// Somebody else has it, for one who only wanted to try.
    Busy(Arc<Busy>),
    /// The waiting thread itself has it.
    Deadlock(PathBuf),
    Failed(Error),
}

/// One waiting thread. Its outcome is set at most once, by the helper of its queue.
pub(crate) struct Waiter {
    pub thread: Option<Thread>,
    pub try_once: bool,
    outcome: Mutex<Option<Outcome>>,
    bell: Bell,
}

enum Bell {
    /// The cheap one; signals do not end its wait.
    Condition(Condvar),
    /// A wait on a pipe ends when a signal was handled.
    Pipe { reader: OwnFile, writer: OwnFile },
}

impl Waiter {
    pub(crate) fn new(thread: Option<Thread>, try_once: bool, interruptible: bool) -> io::Result<Waiter> {
        let bell = match interruptible {
            false => Bell::Condition(Condvar::new()),
            true => {
                let mut writer = None;
                let reader = OwnFile::open(|| {
                    let (reader, end) = sys::pipe()?;
                    writer = Some(end);
                    Ok(reader)
                })?;
                let writer = OwnFile::open(|| writer.ok_or_else(|| io::ErrorKind::Other.into()))?;
                Bell::Pipe { reader, writer }
            }
        };
        Ok(Waiter { thread, try_once, outcome: Mutex::new(None), bell })
    }

    /// Tells the waiter its outcome. Never blocks.
    pub(crate) fn tell(&self, outcome: Outcome) {
        *self.outcome() = Some(outcome);
        self.wake();
    }

    /// Wakes the waiter, who finds its outcome, or goes on waiting.
    pub(crate) fn wake(&self) {
        match &self.bell {
            Bell::Condition(condition) => condition.notify_one(),
            // The pipe is empty, and its reader lives as long as this.
            Bell::Pipe { writer, .. } => _ = (&**writer).write(&[1]),
        }
    }

    /// What the waiter was told, if it was.
    pub(crate) fn take(&self) -> Option<Outcome> {
        self.outcome().take()
    }

    /// Waits to be told, or for the instant to come; if interruptible, also for one of the signals.
    pub(crate) fn wait(&self, until: Option<Instant>, signals: &SignalsBlocked) -> io::Result<WaitEnd> {
        match &self.bell {
            Bell::Condition(condition) => Ok(self.wait_condition(condition, until)),
            Bell::Pipe { reader, .. } => {
                let end = sys::wait_readable(Some(reader), until, signals)?;
                if end == WaitEnd::Rung {
                    let _ = (&**reader).read(&mut [0]);
                }
                Ok(end)
            }
        }
    }

    fn wait_condition(&self, condition: &Condvar, until: Option<Instant>) -> WaitEnd {
        let mut outcome = self.outcome();
        while outcome.is_none() {
            let Some(until) = until else {
                outcome = condition.wait(outcome).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(remaining) = until.checked_duration_since(Instant::now()) else {
                return WaitEnd::TimedOut;
            };
            outcome = condition.wait_timeout(outcome, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        WaitEnd::Rung
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
