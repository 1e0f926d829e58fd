//! Threads of this process that wait for one lock stand in one queue, and one helper thread asks the kernel for
//! all of them, one after the other.
//!
//! Only a helper ever blocks in a file system. So a caller keeps its deadline although flock(2) has none, whatever
//! the file system does. A helper that nobody waits for any more stays in its system call, which cannot be
//! called off without a signal: the next thread that wants the same lock finds it there and adopts it. If the
//! lock comes and nobody wants it, the helper gives it back at once and ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::handle;
use crate::lockfile::{self, LockFile, Target, Try};
use crate::offload;
use crate::owner::{self, Record};
use crate::panics;
use crate::process::{table, Table};
use crate::sys::FileId;
use crate::waiter::{Outcome, Waiter};

/// The waiting threads of one target, in the order in which they came.
pub(crate) struct Queue {
    number: u64,
    pub target: Target,
    /// The lock file that is held by somebody else, once that is known.
    pub busy: Option<Arc<Busy>>,
    pub waiters: Vec<Arc<Waiter>>,
}

/// A lock file as the helper last saw it held.
#[derive(Debug)]
pub(crate) struct Busy {
    pub id: FileId,
    pub path: PathBuf,
    pub local: bool,
    /// What its holder wrote, read by the helper since reading can hang too.
    pub record: Option<Arc<Record>>,
}

impl Busy {
    pub(crate) fn of(file: &LockFile, record: Option<Arc<Record>>) -> Busy {
        Busy { id: file.id(), path: file.path().to_owned(), local: file.local, record }
    }
}

/// The first pause between two tries, where there is no queue of the kernel's to wait in, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Puts the waiter at the end of its queue; starts the helper if there is none. A helper that waits for another file
/// than the one at the path now, `current`, is left to those who came before the file was replaced.
pub(crate) fn join(target: &Target, current: Option<FileId>, waiter: &Arc<Waiter>) -> Result<(), Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let serves = |queue: &&mut Queue| {
        let file = queue.busy.as_ref().map(|busy| busy.id);
        queue.target == *target && (current.is_none() || file.is_none() || file == current)
    };
    let mut table = table();
    let Table { held, queues, .. } = &mut *table;
    if let Some(queue) = queues.iter_mut().rfind(serves) {
        // The helper told those who were there when it began to wait.
        if let Some(busy) =
            queue.busy.as_ref().filter(|busy| handle::is_held_by(held, waiter.thread, busy.id))
        {
            return Err(Error::Deadlock(busy.path.clone()));
        }
        queue.waiters.push(waiter.clone());
        return Ok(());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let helper = (number, target.clone());
    offload::spawn(move || serve(helper.0, &helper.1))
        .map_err(|source| Error::system("start a thread for", &target.cache, source))?;
    table.queues.push(Queue { number, target: target.clone(), busy: None, waiters: vec![waiter.clone()] });
    Ok(())
}

/// Takes the waiter out again: afterwards it has its outcome or never gets one. Answers what its queue knows of the
/// lock.
pub(crate) fn leave(waiter: &Arc<Waiter>) -> Option<Arc<Busy>> {
    let mut table = table();
    let (queue, place) = table.find_waiter(waiter)?;
    queue.waiters.remove(place);
    queue.busy.clone()
}

/// What the waiter's queue knows of the lock.
pub(crate) fn busy(waiter: &Arc<Waiter>) -> Option<Arc<Busy>> {
    table().find_waiter(waiter).and_then(|(queue, _)| queue.busy.clone())
}

fn serve(number: u64, target: &Target) {
    loop {
        let mut answer = None;
        let caught = panics::catch(&mut || {
            answer = obtain(number, target);
            Ok(())
        });
        let Some(answer) = caught.map_or_else(|bug| Some(Err(bug)), |()| answer) else { return };
        let outcome = match answer {
            Ok(file) => {
                let state = owner::read(&file);
                Outcome::Granted(file, state)
            }
            Err(error) => Outcome::Failed(error),
        };
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
            answer = if file.local { file.lock(target.mode, || wake_first(number)) } else { Ok(Try::Moved) };
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
    // Whoever was told may be gone already: then its bell is closed here, which takes the table.
    let mut told = Vec::new();
    let mut guard = table();
    let Table { held, queues, .. } = &mut *guard;
    let Some(index) = queues.iter().position(|queue| queue.number == number) else { return false };
    let queue = &mut queues[index];
    let busy = Arc::new(Busy::of(file, owner::read(file).into_record()));
    queue.busy = Some(busy.clone());
    queue.waiters.retain(|waiter| {
        let outcome = match () {
            () if handle::is_held_by(held, waiter.thread, file.id()) => Outcome::Deadlock(busy.path.clone()),
            () if waiter.try_once => Outcome::Busy(busy.clone()),
            () => return true,
        };
        waiter.tell(outcome);
        told.push(waiter.clone());
        false
    });
    if !file.may_hang {
        guard.remember_local(&target.cache, file.id().device);
    }
    guard.goes_on(number)
}

/// A thread takes longer to wake up than the helper to look at what it got: it had better begin at once.
fn wake_first(number: u64) {
    let table = table();
    if let Some(first) = table.find_queue(number).and_then(|index| table.queues[index].waiters.first()) {
        first.wake();
    }
}

fn anybody_waits(number: u64) -> bool {
    table().goes_on(number)
}

/// Hands the outcome to the first in the queue. False: nobody is left, and the queue is gone.
fn deliver(number: u64, outcome: Outcome) -> bool {
    // What is dropped last of all, since that takes the table: an outcome that nobody wants, or the bell of one who was told
    // and is gone already.
    let (mut unwanted, mut first) = (Some(outcome), None);
    let mut table = table();
    if let Some(queue) = table.queues.iter_mut().find(|queue| queue.number == number) {
        if !queue.waiters.is_empty() {
            let waiter = first.insert(queue.waiters.remove(0));
            unwanted.take().into_iter().for_each(|outcome| waiter.tell(outcome));
        }
    }
    table.goes_on(number)
}

impl Table {
    /// The queue that the waiter stands in, and its place there.
    fn find_waiter(&mut self, waiter: &Arc<Waiter>) -> Option<(&mut Queue, usize)> {
        self.queues.iter_mut().find_map(|queue| {
            let place = queue.waiters.iter().position(|other| Arc::ptr_eq(other, waiter))?;
            Some((queue, place))
        })
    }

    fn find_queue(&self, number: u64) -> Option<usize> {
        self.queues.iter().position(|queue| queue.number == number)
    }

    /// Ends the queue if nobody stands in it; whether it goes on.
    fn goes_on(&mut self, number: u64) -> bool {
        match self.find_queue(number) {
            Some(index) if self.queues[index].waiters.is_empty() => {
                self.queues.remove(index);
                false
            }
            found => found.is_some(),
        }
    }
}
