//! Threads of this process that wait for one lock stand in one queue, and one helper thread asks the kernel for
//! all of them, one after the other.
//!
//! Only a helper ever blocks in a file system. So a caller keeps its deadline although flock(2) has none, whatever
//! the file system does. A helper that nobody waits for any more stays in its system call, which cannot be
//! called off without a signal: the next thread that wants the same lock finds it there and adopts it. If the
//! lock comes and nobody wants it, the helper gives it back at once and ends.

use std::collections::VecDeque;
use std::io;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::handle;
use crate::lockfile::{self, LockFile, Target, Try};
use crate::owner::{self, Record};
use crate::process::{table, Table};
use crate::sys::{FileId, SignalsBlocked};
use crate::waiter::{Outcome, Waiter};

/// The waiting threads of one target, in the order in which they came.
pub(crate) struct Queue {
    number: u64,
    pub target: Target,
    /// The lock file that is held by somebody else, once that is known.
    pub busy: Option<Busy>,
    pub waiters: VecDeque<Arc<Waiter>>,
}

/// A lock file as the helper last saw it held.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub id: FileId,
    pub path: PathBuf,
    pub local: bool,
    /// What its holder wrote, read by the helper since reading can hang too.
    pub record: Option<Record>,
}

/// The first pause between two tries, where there is no queue of the kernel's to wait in, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Name of the helper threads, as a debugger shows it.
pub(crate) const HELPER: &str = "jitlock";

/// Enough for a path of PATH_MAX bytes many times over.
const STACK: usize = 256 * 1024;

/// Puts the waiter at the end of its queue; starts the helper if there is none. A helper that waits for another file
/// than the one at the path now, `current`, is left to those who came before the file was replaced.
pub(crate) fn join(target: &Target, current: Option<FileId>, waiter: &Arc<Waiter>) -> Result<(), Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let serves = |queue: &&mut Queue| {
        let file = queue.busy.as_ref().map(|busy| busy.id);
        queue.target == *target && (current.is_none() || file.is_none() || file == current)
    };
    let mut table = table();
    if let Some(queue) = table.queues.iter_mut().rfind(serves) {
        queue.waiters.push_back(waiter.clone());
        return Ok(());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    spawn_helper(number, target.clone())
        .map_err(|source| Error::system("start a thread for", &target.cache, source))?;
    table.queues.push(Queue { number, target: target.clone(), busy: None, waiters: [waiter.clone()].into() });
    Ok(())
}

/// Takes the waiter out again: afterwards it has its outcome or never gets one. Answers what its queue knows of the
/// lock.
pub(crate) fn leave(waiter: &Arc<Waiter>) -> Option<Busy> {
    let mut table = table();
    let me = |other: &Arc<Waiter>| Arc::ptr_eq(other, waiter);
    let queue = table.queues.iter_mut().find(|queue| queue.waiters.iter().any(me))?;
    queue.waiters.retain(|other| !me(other));
    queue.busy.clone()
}

/// What the waiter's queue knows of the lock.
pub(crate) fn busy(waiter: &Arc<Waiter>) -> Option<Busy> {
    let table = table();
    let queue =
        table.queues.iter().find(|queue| queue.waiters.iter().any(|other| Arc::ptr_eq(other, waiter)))?;
    queue.busy.clone()
}

/// Starts the thread with every signal blocked, so that none of the program's handlers ever runs on it.
fn spawn_helper(number: u64, target: Target) -> io::Result<()> {
    let _blocked = SignalsBlocked::new();
    thread::Builder::new()
        .name(HELPER.into())
        .stack_size(STACK)
        .spawn(move || serve(number, &target))
        .map(drop)
}

fn serve(number: u64, target: &Target) {
    loop {
        let answer = panic::catch_unwind(|| obtain(number, target));
        let bug = |_| Some(Err(Error::Internal("a helper thread panicked".into())));
        let Some(answer) = answer.unwrap_or_else(bug) else { return };
        let outcome = answer.map_or_else(Outcome::Failed, Outcome::Granted);
        if !deliver(number, outcome) {
            return;
        }
    }
}

/// Gets the lock for whoever is first in the queue, however long it takes. None: nobody is left.
fn obtain(number: u64, target: &Target) -> Option<Result<LockFile, Error>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut answer = lockfile::attempt(target, None);
        if let Ok(Try::Busy(file)) = answer {
            if !announce(number, target, &file) {
                return None;
            }
            // Other hosts' lock managers may sit on a blocked request long after the lock is free: there we ask again.
            answer = if file.local { file.lock(target.mode) } else { Ok(Try::Moved) };
        }
        match answer {
            Ok(Try::Granted(file)) => return Some(Ok(file)),
            Ok(Try::Busy(_) | Try::Moved) => {}
            Err(error) => return Some(Err(error)),
        }
        if !anybody_waits(number) {
            return None;
        }
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Says that the lock is held: ends the wait of those who only try and of those who hold it themselves. False:
/// nobody is left, and the queue is gone.
fn announce(number: u64, target: &Target, file: &LockFile) -> bool {
    let record = owner::read(file).into_record();
    let mut guard = table();
    let Table { held, queues, .. } = &mut *guard;
    let Some(index) = queues.iter().position(|queue| queue.number == number) else { return false };
    let queue = &mut queues[index];
    let busy = Busy { id: file.id(), path: file.path().to_owned(), local: file.local, record };
    queue.busy = Some(busy.clone());
    queue.waiters.retain(|waiter| {
        let outcome = match () {
            () if handle::is_held_by(held, waiter.thread, file.id()) => Outcome::Deadlock(busy.path.clone()),
            () if waiter.try_once => Outcome::Busy(busy.clone()),
            () => return true,
        };
        waiter.tell(outcome);
        false
    });
    if file.local {
        guard.remember_local(&target.cache, file.id().device);
    }
    guard.goes_on(number)
}

fn anybody_waits(number: u64) -> bool {
    table().goes_on(number)
}

/// Hands the outcome to the first in the queue. False: nobody is left, and the queue is gone.
fn deliver(number: u64, outcome: Outcome) -> bool {
    let mut table = table();
    let mut unwanted = Some(outcome);
    if let Some(queue) = table.queues.iter_mut().find(|queue| queue.number == number) {
        if let Some(first) = queue.waiters.pop_front() {
            unwanted.take().into_iter().for_each(|outcome| first.tell(outcome));
        }
    }
    let more = table.goes_on(number);
    // Giving a lock back takes the table.
    drop(table);
    drop(unwanted);
    more
}

impl Table {
    /// Ends the queue if nobody stands in it; whether it goes on.
    fn goes_on(&mut self, number: u64) -> bool {
        self.queues.retain(|queue| queue.number != number || !queue.waiters.is_empty());
        self.queues.iter().any(|queue| queue.number == number)
    }
}
