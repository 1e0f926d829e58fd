//! What this process has: one table behind one mutex, and what a fork does with it.
//!
//! The mutex is never held across a call that can block, so a fork, which has to take it, never waits long for it.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::handle::Held;
use crate::owner::OwnRecord;
use crate::queue::Queue;
use crate::sys;

/// The state of this process.
pub(crate) struct Table {
    /// Locks that a caller has a handle for.
    pub held: Vec<Held>,
    /// Threads that wait, by what they wait for.
    pub queues: Vec<Queue>,
    /// What this process writes into a lock file, once it did; a forked child is another.
    own_record: Option<Arc<OwnRecord>>,
    /// Caches that were seen, with their lock files, on file systems of this host, which cannot hang, and the device of the
    /// lock file; sorted.
    local: Vec<(PathBuf, u64)>,
    /// Every descriptor of ours: what a forked child closes, unless it is to be inherited.
    descriptors: Vec<Descriptor>,
    /// Calls of open or close under way: what they make or end is in the process but not in the list.
    unsettled: usize,
    /// Forks that wait for those calls.
    forks: usize,
}

#[derive(Clone, Copy)]
struct Descriptor {
    number: sys::Descriptor,
    inherited: bool,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    held: Vec::new(),
    queues: Vec::new(),
    own_record: None,
    local: Vec::new(),
    descriptors: Vec::new(),
    unsettled: 0,
    forks: 0,
});

/// Told when `unsettled` falls to zero and a fork waits for that, and when it has waited.
static SETTLED: Condvar = Condvar::new();

/// How long a fork waits for descriptors to settle. A call that takes longer hangs in its file system, and its
/// descriptor does not exist yet.
const SETTLING: Duration = Duration::from_millis(50);

/// So many caches are remembered as local; beyond that the memory starts anew, at the price of a helper thread.
const LOCAL_CACHES: usize = 1024;

pub(crate) fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// The device that the lock file of `cache` was last seen on, if neither of the two can hang.
    pub(crate) fn local_device(&self, cache: &Path) -> Option<u64> {
        self.find_local(cache).ok().map(|index| self.local[index].1)
    }

    pub(crate) fn remember_local(&mut self, cache: &Path, device: u64) {
        if self.local.len() >= LOCAL_CACHES {
            self.local.clear();
        }
        match self.find_local(cache) {
            Ok(index) => self.local[index].1 = device,
            Err(index) => self.local.insert(index, (cache.to_owned(), device)),
        }
    }

    fn find_local(&self, cache: &Path) -> Result<usize, usize> {
        self.local.binary_search_by(|(known, _)| known.as_os_str().cmp(cache.as_os_str()))
    }

    /// Whether it was one of ours.
    fn forget_descriptor(&mut self, number: sys::Descriptor) -> bool {
        let index = self.descriptors.iter().position(|descriptor| descriptor.number == number);
        index.map(|index| self.descriptors.swap_remove(index)).is_some()
    }
}

/// The owner record of this process. Its pid is compared each time, since a raw `clone` runs no fork handler.
pub(crate) fn own_record() -> Arc<OwnRecord> {
    let known = table().own_record.clone();
    known.filter(|own| own.record.pid == sys::process_id()).unwrap_or_else(|| {
        let own = Arc::new(OwnRecord::new(sys::identity()));
        table().own_record = Some(own.clone());
        own
    })
}

/// An open file, never to be dropped by one who holds the table, that a forked child closes, and that is never open in a program the process executes.
#[derive(Debug)]
pub(crate) struct OwnFile(ManuallyDrop<File>);

impl OwnFile {
    /// Runs `open` so that no fork can come between the descriptor and its entry in the table.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<OwnFile> {
        unsettle().unsettled += 1;
        let file = open();
        let mut table = table();
        table.settle();
        let file = file?;
        table.descriptors.push(Descriptor { number: sys::descriptor_of(&file), inherited: false });
        Ok(OwnFile(ManuallyDrop::new(file)))
    }

    /// From now on children have it too, forked or executed.
    pub(crate) fn make_inheritable(&self) -> io::Result<()> {
        sys::make_inheritable(self)?;
        let number = sys::descriptor_of(self);
        for descriptor in table().descriptors.iter_mut().filter(|descriptor| descriptor.number == number) {
            descriptor.inherited = true;
        }
        Ok(())
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        {
            let mut table = unsettle();
            if !table.forget_descriptor(sys::descriptor_of(&self.0)) {
                // A forked child has closed it already, and the number may be another's by now.
                return;
            }
            table.unsettled += 1;
        }
        // Moves the descriptor out of a place that is never looked at again, and closes it once: an error of
        // close has closed it all the same, on every system we know (close(2)).
        sys::close(sys::descriptor_of(&self.0));
        table().settle();
    }
}

/// The table, for a call of open or close: none begins while a fork waits for those under way.
fn unsettle() -> MutexGuard<'static, Table> {
    let mut table = table();
    while table.forks > 0 {
        table = SETTLED.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
    table
}

impl Table {
    fn settle(&mut self) {
        self.unsettled -= 1;
        if self.unsettled == 0 && self.forks > 0 {
            SETTLED.notify_all();
        }
    }
}

thread_local! {
    /// Out of reach while a thread is torn down: its fork goes unwatched but for the pid checks. Held by a thread from just before its fork to just after it, in the parent and in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, Table>>> = const { RefCell::new(None) };
}

/// Has the rules of this file applied to every fork from now on. Called before the first descriptor is opened, and
/// not by a constructor of the library: a program that never locks pays nothing. Without a lock of its own, which a fork
/// meanwhile would leave locked in the child; two threads that come at once register the handlers twice, and these know.
pub(crate) fn watch_forks() -> io::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) {
        sys::at_fork(before_fork, in_parent, in_child)?;
        WATCHED.store(true, Ordering::Release);
    }
    Ok(())
}

extern "C" fn before_fork() {
    if FORKING.try_with(|forking| forking.borrow().is_some()).unwrap_or(true) {
        return;
    }
    let limit = Instant::now() + SETTLING;
    let mut table = table();
    table.forks += 1;
    while table.unsettled > 0 {
        let Some(remaining) = limit.checked_duration_since(Instant::now()) else { break };
        table = SETTLED.wait_timeout(table, remaining).unwrap_or_else(PoisonError::into_inner).0;
    }
    table.forks -= 1;
    SETTLED.notify_all();
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(table));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}

/// The child owns nothing. What the parent's threads were doing is forgotten, not undone: neither allocates nor
/// frees, since those threads are not there to finish what they held.
extern "C" fn in_child() {
    let _ = FORKING.try_with(|forking| {
        let Some(mut table) = forking.borrow_mut().take() else { return };
        for descriptor in table.descriptors.iter().filter(|descriptor| !descriptor.inherited) {
            sys::close(descriptor.number);
        }
        table.descriptors.retain(|descriptor| descriptor.inherited);
        mem::forget(mem::take(&mut table.queues));
        mem::forget(table.own_record.take());
        table.unsettled = 0;
    });
}
