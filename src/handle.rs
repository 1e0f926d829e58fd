//! What the caller gets: a number that names one held lock of this process, and is never used for another.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::lock::Lock;
use crate::process::{table, Table};
use crate::sys::{self, FileId};

/// A held lock, by number. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A lock that somebody has a handle for.
pub(crate) struct Held {
    handle: Handle,
    /// The process that acquired it: a child's copy of this entry owns nothing.
    pid: u32,
    /// The thread that acquired it, where that means something to the caller.
    thread: Option<Thread>,
    lock: Arc<Lock>,
}

/// The thread that a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(u64);

impl Thread {
    /// The calling one. Works in a thread's last moments too, when the standard library's own number is gone.
    pub(crate) fn current() -> Thread {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! { static NUMBER: Cell<u64> = const { Cell::new(0) }; }
        NUMBER.with(|number| {
            if number.get() == 0 {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            Thread(number.get())
        })
    }
}

/// Whether `thread` itself holds the file, so that waiting for it would never end.
pub(crate) fn is_held_by(held: &[Held], thread: Option<Thread>, file: FileId) -> bool {
    let me = sys::process_id();
    thread.is_some()
        && held.iter().any(|held| held.thread == thread && held.pid == me && held.lock.id() == file)
}

impl Table {
    fn find(&self, handle: Handle) -> Result<usize, Error> {
        let found = self.held.iter().position(|held| held.handle == handle);
        let index = found.ok_or(Error::InvalidHandle(handle.0))?;
        match self.held[index].pid == sys::process_id() {
            true => Ok(index),
            false => Err(Error::NotOwner(handle.0)),
        }
    }
}

/// Gives the lock a number.
pub(crate) fn insert(lock: Lock, thread: Option<Thread>) -> Handle {
    let pid = sys::process_id();
    let handle = Handle(next_number(pid));
    table().held.push(Held { handle, pid, thread, lock: Arc::new(lock) });
    handle
}

/// The lock behind the number.
pub(crate) fn get(handle: Handle) -> Result<Arc<Lock>, Error> {
    let table = table();
    table.find(handle).map(|index| table.held[index].lock.clone())
}

/// Voids the number, so that no second call can release what it names.
pub(crate) fn remove(handle: Handle) -> Result<Arc<Lock>, Error> {
    let mut table = table();
    table.find(handle).map(|index| table.held.swap_remove(index).lock)
}

/// Numbers below 2^53, which every language can hold, JavaScript too. Multiplying by an odd number is a bijection,
/// so none comes twice in a process, nor in one that it forked; a start of its own makes those of strangers unknown here.
fn next_number(pid: u32) -> u64 {
    const MASK: u64 = (1 << 53) - 1;
    const ODD: u64 = 0x001b_8735_93a6_4d4b;
    static START: AtomicU64 = AtomicU64::new(0);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mine = start_of_numbers() | 1;
    let start = START
        .compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|first| first, |_| mine);
    let start = start.wrapping_add(u64::from(pid) << 31);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let number = start.wrapping_add(count).wrapping_mul(ODD) & MASK;
        if number != 0 {
            return number;
        }
    }
}

/// Differs between processes that start in the same nanosecond, too. It need not be secret: a handle is no capability.
fn start_of_numbers() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(sys::process_id()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_never_used_twice_and_fit_a_double() {
        let numbers: HashSet<u64> = (0..100_000).map(|_| next_number(1)).collect();
        assert_eq!(numbers.len(), 100_000);
        assert!(numbers.iter().all(|&number| number != 0 && number < 1 << 53));
        assert!((0..1000).all(|_| !numbers.contains(&next_number(2))), "a child's are its own");
    }

    #[test]
    fn threads_differ() {
        let here = Thread::current();
        assert_eq!(here, Thread::current());
        assert_ne!(here, std::thread::spawn(Thread::current).join().unwrap());
    }
}
