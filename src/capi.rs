//! The C API. Every function here only translates: arguments in, a call of the core, a code out.
//!
//! The doc comments are the text of `include/jitlock.h`, which cbindgen makes from this file.

#![allow(non_camel_case_types)]
// What a C caller has to promise is the text of each function, not a section of it.
#![allow(clippy::missing_safety_doc)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem;
use std::path::Path;
use std::ptr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::baton::{Baton, BatonState};
use crate::blocker::Blocker;
use crate::error::{Argument, Code, Error};
use crate::handle::Handle;
use crate::holder::{self, Holder, HolderState, Process};
use crate::lock::{self, Options, PreviousOwner};
use crate::panics;
use crate::patience::{Progress, Waiting};
use crate::policy::{self, Timeout};
use crate::scope::Scope;
use crate::sys;

/// A held lock: a number below 2^53 that the library never uses twice in a process. It is no pointer: a number that
/// was released, made up or brought from another process is answered with #JITLOCK_ERR_INVALID_HANDLE.
pub type jitlock_t = u64;

/// No lock. Never a valid handle.
pub const JITLOCK_NONE: jitlock_t = 0;

/// Timeout: wait without bound.
///
/// cbindgen:ignore
pub const JITLOCK_WAIT_FOREVER: i64 = -1;

/// Timeout: the environment variable JITLOCK_TIMEOUT, in seconds, fractions allowed; 600 s if it is not set or not
/// a number. In the latter case the message of a timeout says so.
///
/// cbindgen:ignore
pub const JITLOCK_TIMEOUT_DEFAULT: i64 = -2;

/// Flag: hold the lock as one of any number of readers. Readers write no owner record.
pub const JITLOCK_SHARED: u32 = 1 << 0;

/// Flag: children keep the lock, forked and executed ones: it is free when the last of them and this process have
/// released or ended. For a builder whose compilers must not outlive the lock. Without it children never have it.
/// #JITLOCK_ERR_UNSUPPORTED on Windows.
pub const JITLOCK_INHERIT: u32 = 1 << 1;

/// Flag: give no #JITLOCK_ERR_DEADLOCK. For runtimes whose calls move between threads (Go, Node.js, Java's virtual
/// threads), where the thread says nothing about who calls.
pub const JITLOCK_ANY_THREAD: u32 = 1 << 2;

/// Flag: a signal that is handled by the calling thread during the wait ends it with #JITLOCK_ERR_INTERRUPTED, whether
/// its handler was installed with SA_RESTART or not. Without it handlers run and the wait goes on.
/// #JITLOCK_ERR_UNSUPPORTED on Windows.
pub const JITLOCK_INTERRUPTIBLE: u32 = 1 << 3;

/// Flag: if the previous owner died, delete the cache directory before returning. Not with #JITLOCK_SHARED.
pub const JITLOCK_CLEAR_IF_OWNER_DIED: u32 = 1 << 4;

/// Flag: leave torch's own lock, `<cache_dir>/lock`, alone. Without it an exclusive acquire removes a stale one and
/// waits for one that is in use, as jitlock_remove_stale_baton() does.
pub const JITLOCK_KEEP_BATON: u32 = 1 << 5;

/// Flag: refuse, with #JITLOCK_ERR_UNSUPPORTED and a message that says which mount option to change, a lock that is not known
/// to exclude other hosts too: everything but #JITLOCK_SCOPE_CLUSTER. So on a local file system, and with JITLOCK_LOCK_DIR
/// in one.
pub const JITLOCK_REQUIRE_CLUSTER: u32 = 1 << 6;

const ALL_FLAGS: u32 = JITLOCK_SHARED
    | JITLOCK_INHERIT
    | JITLOCK_ANY_THREAD
    | JITLOCK_INTERRUPTIBLE
    | JITLOCK_CLEAR_IF_OWNER_DIED
    | JITLOCK_KEEP_BATON
    | JITLOCK_REQUIRE_CLUSTER;

/// What every call answers. Success is 0, errors are below. A number is never given another meaning.
///
/// After any error but #JITLOCK_ERR_LOST the call has changed nothing: no lock is held that was not, no descriptor is
/// left open. jitlock_last_error_message() has the details.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_status_t {
    /// Done.
    JITLOCK_OK = 0,
    /// A null pointer, an empty or too long path, one that is not UTF-8 on Windows, a negative timeout without a meaning, an
    /// unknown flag, a directory that is never cleared.
    JITLOCK_ERR_INVALID_ARGUMENT = -1,
    /// The handle names no lock of this process: released already, made up, or another process's.
    JITLOCK_ERR_INVALID_HANDLE = -2,
    /// Not in time. The message names the holder, or the file system that does not answer. Take the path that needs no cache.
    JITLOCK_ERR_TIMEOUT = -3,
    /// The calling thread holds this lock itself and would wait for ever.
    JITLOCK_ERR_DEADLOCK = -4,
    /// #JITLOCK_INTERRUPTIBLE: a signal was handled during the wait.
    JITLOCK_ERR_INTERRUPTED = -5,
    /// The progress callback answered other than 0.
    JITLOCK_ERR_CANCELLED = -6,
    /// The lock file or the cache may not be touched by this user, or the lock path is not a regular file.
    JITLOCK_ERR_PERMISSION = -7,
    /// A parent of the cache, or the cache that is to be cleared, is not a directory.
    JITLOCK_ERR_NOT_DIRECTORY = -8,
    /// The file system has no locks, without which the library never goes on, or none that #JITLOCK_REQUIRE_CLUSTER asks for; or
    /// a flag asks for what the platform does not have.
    JITLOCK_ERR_UNSUPPORTED = -9,
    /// No descriptor, thread or memory is left (EMFILE, ENFILE, EAGAIN, ENOMEM). Try again later.
    JITLOCK_ERR_LIMIT = -10,
    /// The handle came from the parent process by fork, and the parent still owns the lock.
    JITLOCK_ERR_NOT_OWNER = -11,
    /// Released, but the lock file was deleted or replaced while it was held: somebody else may have held the lock of
    /// this cache at the same time. Throw away what was built.
    JITLOCK_ERR_LOST = -12,
    /// Any other error of the system.
    JITLOCK_ERR_IO = -13,
    /// A bug of this library.
    JITLOCK_ERR_INTERNAL = -14,
}

/// How the previous owner of a lock ended: jitlock_info_t.previous_owner.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_previous_owner_t {
    /// It released the lock, or there was none.
    JITLOCK_PREVIOUS_CLEAN = 0,
    /// It ended without releasing: the cache may be half built.
    JITLOCK_PREVIOUS_DIED = 1,
    /// Cannot be known: it may have been one that writes no record (another program's flock, a user who may only read
    /// the lock file, a full disk).
    JITLOCK_PREVIOUS_UNKNOWN = 2,
}

/// What became of torch's own lock, the file `lock` in a build directory: jitlock_info_t.baton; or what it is:
/// jitlock_owner_t.baton.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_baton_t {
    /// None was there, or nobody looked (#JITLOCK_KEEP_BATON, #JITLOCK_SHARED).
    JITLOCK_BATON_NONE = 0,
    /// A stale one was removed.
    JITLOCK_BATON_REMOVED = 1,
    /// One in use was waited for, and is gone: its owner may just have built what is wanted.
    JITLOCK_BATON_WAITED_FOR = 2,
    /// It is there, and nobody has it open.
    JITLOCK_BATON_STALE = 3,
    /// Somebody has it open: a torch build is running.
    JITLOCK_BATON_IN_USE = 4,
    /// It is there, and it cannot be told whether anybody has it open.
    JITLOCK_BATON_UNKNOWN = 5,
}

/// Whom a lock excludes: jitlock_info_t.scope and jitlock_owner_t.scope. By the type and the options of the mount that the
/// lock file lies on (/proc/self/mountinfo).
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_scope_t {
    /// The processes of this host. Whether those of other hosts too cannot be known from here: FUSE, virtiofs, 9P, BeeGFS and
    /// others, whose servers may pass flock on or not; every network file system if this host is not Linux.
    JITLOCK_SCOPE_UNKNOWN = 0,
    /// The processes of this host: a local file system, NFS mounted nolock or local_lock=flock, Lustre with localflock, SMB
    /// with nobrl or before Linux 5.5.
    JITLOCK_SCOPE_HOST = 1,
    /// The processes of every host that has the file system mounted in this way: NFS, SMB, Lustre with flock, Ceph.
    JITLOCK_SCOPE_CLUSTER = 2,
}

impl From<Scope> for jitlock_scope_t {
    fn from(scope: Scope) -> jitlock_scope_t {
        match scope {
            Scope::Unknown => jitlock_scope_t::JITLOCK_SCOPE_UNKNOWN,
            Scope::Host => jitlock_scope_t::JITLOCK_SCOPE_HOST,
            Scope::Cluster => jitlock_scope_t::JITLOCK_SCOPE_CLUSTER,
        }
    }
}

/// What a holder may ask about its lock; see jitlock_info().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jitlock_info_t {
    /// In: sizeof(jitlock_info_t).
    pub struct_size: usize,
    /// A #jitlock_previous_owner_t.
    pub previous_owner: i32,
    /// 1 if the lock file was deleted or replaced since, so that the lock excludes nobody any more; else 0.
    pub lost: i32,
    /// 1 if the owner record was written; 0 if it could not be, or for a reader. Then nobody will be told should this
    /// process die.
    pub recorded: i32,
    /// The descriptor of the lock file. It is the library's: never close or unlock it.
    pub fd: i32,
    /// Nanoseconds that the acquire took.
    pub waited_ns: u64,
    /// A #jitlock_baton_t: of the acquire, or of the last jitlock_remove_stale_baton().
    pub baton: i32,
    /// A #jitlock_scope_t.
    pub scope: i32,
}

/// Whether a lock is held, as far as can be seen without taking it: jitlock_owner_t.state.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_owner_state_t {
    /// A try would have succeeded.
    JITLOCK_OWNER_NONE = 0,
    /// Held exclusively.
    JITLOCK_OWNER_EXCLUSIVE = 1,
    /// Held by readers.
    JITLOCK_OWNER_SHARED = 2,
    /// No holder can be seen from here, which does not mean that there is none: it may be in another pid namespace, on
    /// another host, or another user's. Only a try can tell.
    JITLOCK_OWNER_NOT_VISIBLE = 3,
}

/// Who holds a lock; see jitlock_query(). Strings are terminated, and cut where they are too long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct jitlock_owner_t {
    /// In: sizeof(jitlock_owner_t).
    pub struct_size: usize,
    /// A #jitlock_owner_state_t.
    pub state: i32,
    /// How many processes were seen to have the lock: readers, or heirs of one that died.
    pub holders: u32,
    /// The first of them, by the kernel's word and in the caller's pid namespace; 0 if none is visible.
    pub pid: i64,
    /// Milliseconds since 1970 when that process was started; 0 if unknown.
    pub started_unix_ms: i64,
    /// Milliseconds since 1970 when the lock was acquired, from a record that agrees; 0 if unknown.
    pub since_unix_ms: i64,
    /// Who wrote the owner record last without marking it as released, in the writer's pid namespace; 0 if nobody.
    pub record_pid: i64,
    /// 1 if the record was written by the process that has the lock now; else 0.
    pub record_agrees: i32,
    /// 1 if the holder is the calling process or one that it descends from: waiting for it may never end; else 0.
    pub is_ancestor: i32,
    /// The host in the record.
    pub host: [c_char; 256],
    /// The command line of the holder, or of the record if no holder is visible.
    pub command: [c_char; 512],
    /// Torch's own lock in the cache: a #jitlock_baton_t. By jitlock_query() only; so are the rest.
    pub baton: i32,
    /// How many processes that a dead owner started still work in the cache: the next owner will wait for them.
    pub orphans: u32,
    /// A process that has torch's lock open; 0 if none is visible.
    pub baton_pid: i64,
    /// The first of the orphans; 0 if there are none.
    pub orphan_pid: i64,
    /// A #jitlock_scope_t; if there is no lock file yet, of the one that would be made.
    pub scope: i32,
    /// 0.
    pub reserved: i32,
}

/// What a wait waits for: jitlock_progress_t.waiting_for.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jitlock_waiting_for_t {
    /// The holder of the lock.
    JITLOCK_WAITING_FOR_HOLDER = 0,
    /// The lock is had, but processes that its dead owner started still work in the cache.
    JITLOCK_WAITING_FOR_ORPHANS = 1,
    /// The lock is had, but torch's own lock in the cache is in use.
    JITLOCK_WAITING_FOR_BATON = 2,
}

/// How a wait goes on; see #jitlock_progress_fn.
#[repr(C)]
pub struct jitlock_progress_t {
    /// sizeof(jitlock_progress_t) of the library, which may know more fields than its caller.
    pub struct_size: usize,
    /// Nanoseconds since the call began.
    pub waited_ns: u64,
    /// Nanoseconds until the deadline; -1 if there is none.
    pub remaining_ns: i64,
    /// For whom: its pid, started_unix_ms, command and is_ancestor; the rest for a holder of the lock. Valid during the
    /// callback.
    pub owner: *const jitlock_owner_t,
    /// For what: a #jitlock_waiting_for_t.
    pub waiting_for: i32,
    /// 0.
    pub reserved: i32,
}

/// Called while an acquire waits, on the thread that called it and with no lock of the library's held: it may call any
/// function of this library, except to acquire the same lock. It must not throw or longjmp. 0 goes on waiting,
/// anything else ends the wait with #JITLOCK_ERR_CANCELLED.
pub type jitlock_progress_fn =
    Option<unsafe extern "C" fn(progress: *const jitlock_progress_t, user: *mut c_void) -> c_int>;

/// How to acquire; see jitlock_acquire_with(). Start from #JITLOCK_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct jitlock_options_t {
    /// sizeof(jitlock_options_t).
    pub struct_size: usize,
    /// As in jitlock_acquire(). Note that 0 tries once.
    pub timeout_ms: i64,
    /// JITLOCK_SHARED and so on, or-ed; 0 for none.
    pub flags: u32,
    /// Milliseconds until the first call of `progress` and between calls; 0 means 1000.
    pub progress_interval_ms: u32,
    /// The lock file; NULL for the usual one, `<cache_dir>.lock`. Whoever shares the cache must name the same file.
    pub lock_path: *const c_char,
    /// Watches the wait; NULL for nobody.
    pub progress: jitlock_progress_fn,
    /// Passed to `progress`.
    pub user: *mut c_void,
    /// The caller's buffer for the message of a failure, for runtimes that cannot tell on which thread they will ask
    /// for it; NULL for none. Terminated, cut where too long, and "" on success.
    pub error: *mut c_char,
    /// Bytes in `error`.
    pub error_size: usize,
}

/// Acquire and release. Takes the lock of a cache directory exclusively, waiting for it if need be.
///
/// @param cache_dir  The directory to protect, as bytes, UTF-8 on Windows; absolute, relative, or a symlink. Neither it nor its parents
///                   need exist: the parents of the lock file are made, the cache is not.
/// @param timeout_ms Milliseconds to wait, 0 to INT64_MAX; 0 tries once. #JITLOCK_WAIT_FOREVER,
///                   #JITLOCK_TIMEOUT_DEFAULT. Any other negative is refused. A try can fail although nobody holds the
///                   lock: who gave up a wait may get it all the same, and gives it back at once.
/// @param lock       Receives the handle; #JITLOCK_NONE on failure.
/// @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_TIMEOUT, #JITLOCK_ERR_DEADLOCK,
///         #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_NOT_DIRECTORY, #JITLOCK_ERR_UNSUPPORTED, #JITLOCK_ERR_LIMIT,
///         #JITLOCK_ERR_IO or #JITLOCK_ERR_INTERNAL.
///
/// Threads: any; threads of one process exclude each other like processes. Fork: a child does not own the lock and its
/// copy of the descriptor is closed; it may acquire for itself. Signals: the library installs no handler; the
/// caller's handlers run during a wait and do not shorten it. A wait burns no CPU and does not poll, except on network
/// file systems. A file system that does not answer at all can make a call with timeout 0 last 1 s.
#[no_mangle]
pub unsafe extern "C" fn jitlock_acquire(
    cache_dir: *const c_char,
    timeout_ms: i64,
    lock: *mut jitlock_t,
) -> jitlock_status_t {
    answer(|| {
        // SAFETY: the caller's promise: null or valid for a write.
        let lock = unsafe { out(lock, "lock", JITLOCK_NONE) }?;
        // SAFETY: the caller's promise: null or a terminated string.
        let cache = unsafe { path(cache_dir, "cache_dir") }?;
        *lock = lock::acquire(Options::new(cache, Timeout::from_millis(timeout_ms)?))?.0;
        Ok(())
    })
}

/// The same with options. Beyond the codes of jitlock_acquire(): #JITLOCK_ERR_INTERRUPTED with
/// #JITLOCK_INTERRUPTIBLE, #JITLOCK_ERR_CANCELLED by the callback, and with #JITLOCK_CLEAR_IF_OWNER_DIED those of
/// jitlock_clear_held().
///
/// @param options NULL is the same as #JITLOCK_OPTIONS_INIT. A structure larger than the library's is taken if what the
///                library does not know is zero.
#[no_mangle]
pub unsafe extern "C" fn jitlock_acquire_with(
    cache_dir: *const c_char,
    options: *const jitlock_options_t,
    lock: *mut jitlock_t,
) -> jitlock_status_t {
    let mut buffer = (ptr::null_mut(), 0);
    let status = answer(|| {
        // SAFETY: the caller's promise: null or a structure of the size that it states.
        let options = unsafe { read_options(options) }?;
        buffer = (options.error, options.error_size);
        // SAFETY: the caller's promise: null or valid for a write.
        let lock = unsafe { out(lock, "lock", JITLOCK_NONE) }?;
        // SAFETY: the caller's promise: null or a terminated string.
        let cache = unsafe { path(cache_dir, "cache_dir") }?;
        *lock = acquire_with(cache, &options)?.0;
        Ok(())
    });
    // SAFETY: the caller's promise: null or a buffer of the size that it states.
    unsafe { copy_message(status, buffer) };
    status
}

/// Gives a lock back. The handle is void afterwards, with #JITLOCK_ERR_LOST too.
///
/// Any thread of the process that acquired it. The owner record is marked as released; a process that ends without
/// this call counts as died.
///
/// @return #JITLOCK_OK; #JITLOCK_ERR_LOST: released, but the lock did not exclude everybody all the time;
///         #JITLOCK_ERR_TIMEOUT: the file system, one that is not of this host, has not answered for 10 s; the lock is
///         released as soon as it does;
///         #JITLOCK_ERR_INVALID_HANDLE and #JITLOCK_ERR_NOT_OWNER (in a forked child): nothing was changed;
///         #JITLOCK_ERR_INTERNAL.
#[no_mangle]
pub extern "C" fn jitlock_release(lock: jitlock_t) -> jitlock_status_t {
    answer(|| lock::release(Handle(lock)))
}

/// Clear. Acquires the lock, deletes the cache directory with all that is in it, and releases.
///
/// The directory is renamed in one step before anything is deleted, so that a crash leaves the cache whole or gone;
/// what such a crash leaves beside it, `.jitlock-trash-*`, goes with the next clear. A mount point, or a
/// cache whose parent may not be written, is emptied in place instead, by the same rule. Symlinks are removed, never
/// followed; mounts are never entered. A cache that does not exist is success. Refused with
/// #JITLOCK_ERR_INVALID_ARGUMENT are `/`, home directories, what contains one, and what contains the lock file.
///
/// @return As jitlock_acquire() and jitlock_clear_held(), and #JITLOCK_ERR_LOST.
#[no_mangle]
pub unsafe extern "C" fn jitlock_clear_cache(cache_dir: *const c_char, timeout_ms: i64) -> jitlock_status_t {
    answer(|| {
        // SAFETY: the caller's promise: null or a terminated string.
        let cache = unsafe { path(cache_dir, "cache_dir") }?;
        lock::clear_cache(cache, Timeout::from_millis(timeout_ms)?)
    })
}

/// Clears the cache of a lock that is held exclusively, and goes on holding it: a forced rebuild.
///
/// @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT (a reader's lock, or a refused directory),
///         #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER, #JITLOCK_ERR_NOT_DIRECTORY (a file is there; the cache
///         is as it was), #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_LIMIT or #JITLOCK_ERR_IO (the message names the
///         first path that would not go; the cache is as it was, or gone except for what could not be deleted),
///         #JITLOCK_ERR_TIMEOUT (torch's own lock in it is in use, and the cache is as it was; or a file system that is not of
///         this host has not answered for 10 s, and the clear goes on as soon as it does) or #JITLOCK_ERR_INTERNAL.
#[no_mangle]
pub extern "C" fn jitlock_clear_held(lock: jitlock_t) -> jitlock_status_t {
    answer(|| lock::clear_held(Handle(lock)))
}

/// Torch's own lock. Removes `<build_dir>/lock` if it is stale, and waits while it is in use. An exclusive acquire does the
/// same for the cache directory itself; this is for build directories below it, each of which has a lock of torch's own.
///
/// Torch before 2.14 holds its lock while the file exists, and whoever is killed leaves it behind; newer ones take an flock
/// on it and leave the file there, on which an older torch would wait for ever. It counts as stale if no process has it
/// open. The kernel says so by a lease (fcntl(2), F_SETLEASE), whatever the pid or mount namespace. Where no lease can be
/// had (another user's file without CAP_LEASE, no Linux), an flock and /proc tell; where they cannot (not every process
/// is visible, a network file system), the file is waited for and never removed on a guess. No signal reaches the
/// program's handlers. Only a regular file of that name is ever removed.
///
/// A process that waits for a lock of torch's before 2.14 by itself takes its end for "built", whoever removes the file,
/// and fails to load what nobody has built. Those that acquire the cache's lock first do not have the problem.
///
/// @param lock       An exclusive lock of the cache.
/// @param build_dir  The cache directory, or one below it. It need not exist.
/// @param timeout_ms As in jitlock_acquire(). 0 looks once.
/// @return #JITLOCK_OK: there is none any more, and jitlock_info() says what became of it.
///         #JITLOCK_ERR_TIMEOUT: it is still in use, or cannot be told to be stale; the message names the file, and who
///         has it open. #JITLOCK_ERR_PERMISSION: it is stale, and may not be removed. #JITLOCK_ERR_INVALID_ARGUMENT (a
///         reader's lock, a directory that lies elsewhere), #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER,
///         #JITLOCK_ERR_LIMIT, #JITLOCK_ERR_IO, #JITLOCK_ERR_INTERNAL. The lock stays held, whatever the answer.
#[no_mangle]
pub unsafe extern "C" fn jitlock_remove_stale_baton(
    lock: jitlock_t,
    build_dir: *const c_char,
    timeout_ms: i64,
) -> jitlock_status_t {
    answer(|| {
        // SAFETY: the caller's promise: null or a terminated string.
        let build_dir = unsafe { path(build_dir, "build_dir") }?;
        lock::remove_stale_baton(Handle(lock), build_dir, Timeout::from_millis(timeout_ms)?)
    })
}

/// Inspect. What the library knows of a lock that this process holds.
///
/// @param info Set its struct_size; written on success only.
/// @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER,
///         #JITLOCK_ERR_TIMEOUT (a file system that is not of this host has not answered for 10 s) or #JITLOCK_ERR_INTERNAL.
#[no_mangle]
pub unsafe extern "C" fn jitlock_info(lock: jitlock_t, info: *mut jitlock_info_t) -> jitlock_status_t {
    answer(|| {
        // SAFETY: the caller's promise: null or a structure of the size that it states.
        let size = unsafe { stated_size(info, mem::offset_of!(jitlock_info_t, baton), "jitlock_info_t") }?;
        let known = lock::info(Handle(lock))?;
        let answer = jitlock_info_t {
            struct_size: size,
            previous_owner: match known.previous {
                PreviousOwner::Clean => jitlock_previous_owner_t::JITLOCK_PREVIOUS_CLEAN,
                PreviousOwner::Died(_) => jitlock_previous_owner_t::JITLOCK_PREVIOUS_DIED,
                PreviousOwner::Unknown => jitlock_previous_owner_t::JITLOCK_PREVIOUS_UNKNOWN,
            } as i32,
            lost: known.lost.into(),
            recorded: known.recorded.into(),
            fd: known.descriptor,
            waited_ns: nanoseconds(known.waited),
            baton: match known.baton {
                Baton::None => jitlock_baton_t::JITLOCK_BATON_NONE,
                Baton::Removed => jitlock_baton_t::JITLOCK_BATON_REMOVED,
                Baton::WaitedFor => jitlock_baton_t::JITLOCK_BATON_WAITED_FOR,
            } as i32,
            scope: jitlock_scope_t::from(known.scope) as i32,
        };
        // SAFETY: as above; no more than the stated size is written.
        unsafe { write_sized(info, &answer, size) };
        Ok(())
    })
}

/// Who holds the lock of a cache now, asked without taking it, creating anything or needing write permission.
///
/// The kernel's answer comes first (on Linux, /proc/locks and the `lock:` lines of /proc/PID/fdinfo), so a dead process
/// is never named as the holder; the owner record adds since when. Elsewhere only the record can be read.
///
/// @param owner Set its struct_size; written on success only.
/// @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_NOT_DIRECTORY,
///         #JITLOCK_ERR_TIMEOUT (the file system has not answered for 10 s), #JITLOCK_ERR_LIMIT, #JITLOCK_ERR_IO or
///         #JITLOCK_ERR_INTERNAL.
#[no_mangle]
pub unsafe extern "C" fn jitlock_query(
    cache_dir: *const c_char,
    owner: *mut jitlock_owner_t,
) -> jitlock_status_t {
    answer(|| {
        // SAFETY: the caller's promise: null or a structure of the size that it states.
        let size = unsafe { stated_size(owner, mem::offset_of!(jitlock_owner_t, baton), "jitlock_owner_t") }?;
        // SAFETY: the caller's promise: null or a terminated string.
        let cache = unsafe { path(cache_dir, "cache_dir") }?;
        let known = holder::query(cache, None)?;
        let mut answer = describe(&known.holder);
        answer.struct_size = size;
        let (baton, pid) = match &known.baton {
            BatonState::Absent => (jitlock_baton_t::JITLOCK_BATON_NONE, None),
            BatonState::Stale => (jitlock_baton_t::JITLOCK_BATON_STALE, None),
            BatonState::InUse(pids) => (jitlock_baton_t::JITLOCK_BATON_IN_USE, pids.first()),
            BatonState::Unknown(_) => (jitlock_baton_t::JITLOCK_BATON_UNKNOWN, None),
        };
        answer.baton = baton as i32;
        answer.baton_pid = pid.map_or(0, |&pid| pid.into());
        answer.orphans = known.orphans.len() as u32;
        answer.scope = jitlock_scope_t::from(known.scope) as i32;
        answer.orphan_pid = known.orphans.first().map_or(0, |orphan| orphan.pid.into());
        // SAFETY: as above; no more than the stated size is written.
        unsafe { write_sized(owner, &answer, size) };
        Ok(())
    })
}

/// Policy. The timeout for a kernel whose compilation was measured once: JITLOCK_TIMEOUT if it is set to a number, else
/// 600 s or five times the baseline, whichever is more.
///
/// @param compile_baseline_seconds Not a number, negative or 0: no baseline.
/// @return Milliseconds, 0 to INT64_MAX, to be passed to jitlock_acquire(). Never fails.
#[no_mangle]
pub extern "C" fn jitlock_timeout_ms(compile_baseline_seconds: f64) -> i64 {
    let mut limit = policy::DEFAULT_TIMEOUT;
    answer(|| {
        limit = policy::timeout_for_baseline(compile_baseline_seconds);
        Ok(())
    });
    i64::try_from(limit.as_millis()).unwrap_or(i64::MAX)
}

/// Text. A short sentence for a code, static and never NULL; for a number that is no code it says so.
#[no_mangle]
pub extern "C" fn jitlock_strerror(status: i32) -> *const c_char {
    let code = ALL_CODES.into_iter().find(|code| *code as i32 == status);
    let text = match (status, code) {
        (0, _) => c"success",
        (_, Some(code)) => code.text(),
        (_, None) => c"unknown jitlock status",
    };
    text.as_ptr()
}

/// The calling thread's last failure in full: what failed, with which path, what the system said, and for a timeout who
/// holds the lock and since when. "" before the first failure; a success leaves it as it was.
///
/// @return Never NULL. Valid until this thread's next failure in this library.
#[no_mangle]
pub extern "C" fn jitlock_last_error_message() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library that is loaded, "MAJOR.MINOR.PATCH"; compare with #JITLOCK_VERSION_STRING.
#[no_mangle]
pub extern "C" fn jitlock_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The version of the binary interface of the library that is loaded; compare with #JITLOCK_ABI_VERSION. It changes only
/// when a program built against an older header could break.
#[no_mangle]
pub extern "C" fn jitlock_abi_version() -> u32 {
    JITLOCK_ABI_VERSION
}

/// The binary interface that this header describes.
pub const JITLOCK_ABI_VERSION: u32 = 0;

const ALL_CODES: [Code; 14] = [
    Code::InvalidArgument,
    Code::InvalidHandle,
    Code::Timeout,
    Code::Deadlock,
    Code::Interrupted,
    Code::Cancelled,
    Code::Permission,
    Code::NotDirectory,
    Code::Unsupported,
    Code::Limit,
    Code::NotOwner,
    Code::Lost,
    Code::Io,
    Code::Internal,
];

impl From<Code> for jitlock_status_t {
    fn from(code: Code) -> jitlock_status_t {
        use jitlock_status_t::*;
        match code {
            Code::InvalidArgument => JITLOCK_ERR_INVALID_ARGUMENT,
            Code::InvalidHandle => JITLOCK_ERR_INVALID_HANDLE,
            Code::Timeout => JITLOCK_ERR_TIMEOUT,
            Code::Deadlock => JITLOCK_ERR_DEADLOCK,
            Code::Interrupted => JITLOCK_ERR_INTERRUPTED,
            Code::Cancelled => JITLOCK_ERR_CANCELLED,
            Code::Permission => JITLOCK_ERR_PERMISSION,
            Code::NotDirectory => JITLOCK_ERR_NOT_DIRECTORY,
            Code::Unsupported => JITLOCK_ERR_UNSUPPORTED,
            Code::Limit => JITLOCK_ERR_LIMIT,
            Code::NotOwner => JITLOCK_ERR_NOT_OWNER,
            Code::Lost => JITLOCK_ERR_LOST,
            Code::Io => JITLOCK_ERR_IO,
            Code::Internal => JITLOCK_ERR_INTERNAL,
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The one boundary: a result or a panic of the core becomes a code, and the details the thread's last message.
fn answer(mut body: impl FnMut() -> Result<(), Error>) -> jitlock_status_t {
    let Err(error) = panics::catch(&mut body) else { return jitlock_status_t::JITLOCK_OK };
    let text = CString::new(error.to_string().replace('\0', "\\0")).unwrap_or_default();
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
    error.code().into()
}

/// # Safety
/// `place` is null or valid for a write.
unsafe fn out<'a, T>(place: *mut T, name: &'static str, initial: T) -> Result<&'a mut T, Error> {
    if place.is_null() {
        return Err(Argument::Null(name).into());
    }
    // SAFETY: not null, so valid for a write by the caller's promise.
    unsafe {
        place.write(initial);
        Ok(&mut *place)
    }
}

/// # Safety
/// `text` is null or a terminated string.
unsafe fn path<'a>(text: *const c_char, name: &'static str) -> Result<&'a Path, Error> {
    if text.is_null() {
        return Err(Argument::Null(name).into());
    }
    // SAFETY: not null, so a terminated string by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    sys::path_of(bytes).ok_or(Argument::NotUtf8(name).into())
}

/// The size that the caller states in the first field of a structure: at least that of the structure's first version, whose
/// callers know no more.
///
/// # Safety
/// `structure` is null or begins with an initialised size.
unsafe fn stated_size<T>(structure: *const T, least: usize, name: &'static str) -> Result<usize, Error> {
    if structure.is_null() {
        return Err(Argument::Null(name).into());
    }
    // SAFETY: not null; the size is the first field of each of our structures.
    let size = unsafe { structure.cast::<usize>().read() };
    match size >= least {
        true => Ok(size),
        false => Err(Argument::StructSize { name, size }.into()),
    }
}

/// # Safety
/// `place` has room for `size` bytes.
unsafe fn write_sized<T: Copy>(place: *mut T, value: &T, size: usize) {
    let known = mem::size_of::<T>().min(size);
    // SAFETY: both are at least `known` bytes long, and the value is ours alone.
    unsafe { ptr::copy_nonoverlapping((value as *const T).cast::<u8>(), place.cast::<u8>(), known) };
}

/// # Safety
/// `options` is null or a structure of the size that it states.
unsafe fn read_options(options: *const jitlock_options_t) -> Result<jitlock_options_t, Error> {
    let known = mem::size_of::<jitlock_options_t>();
    let mut copy = jitlock_options_t {
        struct_size: known,
        timeout_ms: JITLOCK_TIMEOUT_DEFAULT,
        flags: 0,
        progress_interval_ms: 0,
        lock_path: ptr::null(),
        progress: None,
        user: ptr::null_mut(),
        error: ptr::null_mut(),
        error_size: 0,
    };
    if options.is_null() {
        return Ok(copy);
    }
    // SAFETY: not null; the size is only read.
    let size = unsafe { stated_size(options, known, "jitlock_options_t") }?;
    // SAFETY: the caller's structure has `size` bytes, at least as many as ours, and any bytes are a valid one of ours.
    let rest = unsafe {
        ptr::copy_nonoverlapping(options.cast::<u8>(), (&mut copy as *mut jitlock_options_t).cast(), known);
        std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known)
    };
    match rest.iter().all(|&byte| byte == 0) {
        true => Ok(copy),
        // A wish that this version does not know must not be passed over in silence.
        false => Err(Argument::StructSize { name: "jitlock_options_t", size }.into()),
    }
}

fn acquire_with(cache: &Path, options: &jitlock_options_t) -> Result<Handle, Error> {
    let unknown = options.flags & !ALL_FLAGS;
    if unknown != 0 {
        return Err(Argument::Flags(unknown).into());
    }
    let flag = |flag: u32| options.flags & flag != 0;
    let lock_path = match options.lock_path.is_null() {
        true => None,
        // SAFETY: the caller's promise: a terminated string.
        false => Some(unsafe { path(options.lock_path, "lock_path") }?),
    };
    let every = match options.progress_interval_ms {
        0 => Duration::from_secs(1),
        millis => Duration::from_millis(millis.into()),
    };
    let user = options.user;
    let mut watch = options.progress.map(|watch| {
        move |waiting: &Waiting<'_>| {
            let (owner, waiting_for) = match waiting.blocker {
                Blocker::Holder(holder) => {
                    (describe(holder), jitlock_waiting_for_t::JITLOCK_WAITING_FOR_HOLDER)
                }
                Blocker::Orphans { processes, .. } => {
                    (in_the_way(processes), jitlock_waiting_for_t::JITLOCK_WAITING_FOR_ORPHANS)
                }
                Blocker::Baton { processes, .. } => {
                    (in_the_way(processes), jitlock_waiting_for_t::JITLOCK_WAITING_FOR_BATON)
                }
            };
            let progress = jitlock_progress_t {
                struct_size: mem::size_of::<jitlock_progress_t>(),
                waited_ns: nanoseconds(waiting.waited),
                remaining_ns: waiting
                    .remaining
                    .map_or(-1, |remaining| i64::try_from(remaining.as_nanos()).unwrap_or(i64::MAX)),
                owner: &owner,
                waiting_for: waiting_for as i32,
                reserved: 0,
            };
            // SAFETY: the caller's function, with a structure that outlives the call and the caller's own pointer.
            unsafe { watch(&progress, user) == 0 }
        }
    });
    lock::acquire(Options {
        cache,
        timeout: Timeout::from_millis(options.timeout_ms)?,
        lock_path,
        shared: flag(JITLOCK_SHARED),
        inherit: flag(JITLOCK_INHERIT),
        any_thread: flag(JITLOCK_ANY_THREAD),
        interruptible: flag(JITLOCK_INTERRUPTIBLE),
        clear_if_owner_died: flag(JITLOCK_CLEAR_IF_OWNER_DIED),
        require_cluster: flag(JITLOCK_REQUIRE_CLUSTER),
        keep_baton: flag(JITLOCK_KEEP_BATON),
        progress: watch.as_mut().map(|call| Progress { every, call }),
    })
}

/// # Safety
/// The buffer is null or has the size that is stated with it.
unsafe fn copy_message(status: jitlock_status_t, (buffer, size): (*mut c_char, usize)) {
    if buffer.is_null() || size == 0 {
        return;
    }
    let copy = |message: &CStr| {
        let length = message.to_bytes().len().min(size - 1);
        // SAFETY: the buffer has room for `length` bytes and the terminator.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), buffer, length);
            buffer.add(length).write(0);
        }
    };
    match status {
        jitlock_status_t::JITLOCK_OK => copy(c""),
        _ => LAST_ERROR.try_with(|last| copy(&last.borrow())).unwrap_or_else(|_| copy(c"")),
    }
}

/// Processes that are in the way without having the lock.
fn in_the_way(processes: &[Process]) -> jitlock_owner_t {
    let state = HolderState::NotVisible;
    describe(&Holder { state, processes: processes.to_vec(), record: None, record_agrees: false })
}

fn describe(holder: &Holder) -> jitlock_owner_t {
    let first = holder.processes.first();
    let record = holder.record.as_ref();
    let command = match (first, record) {
        (Some(first), _) => &first.command,
        (None, Some(record)) => &record.command,
        (None, None) => "",
    };
    let mut owner = jitlock_owner_t {
        struct_size: mem::size_of::<jitlock_owner_t>(),
        state: match holder.state {
            HolderState::Free => jitlock_owner_state_t::JITLOCK_OWNER_NONE,
            HolderState::Held => jitlock_owner_state_t::JITLOCK_OWNER_EXCLUSIVE,
            HolderState::Shared => jitlock_owner_state_t::JITLOCK_OWNER_SHARED,
            HolderState::NotVisible | HolderState::NotLookedFor => {
                jitlock_owner_state_t::JITLOCK_OWNER_NOT_VISIBLE
            }
        } as i32,
        holders: u32::try_from(holder.processes.len()).unwrap_or(u32::MAX),
        pid: first.map_or(0, |first| first.pid.into()),
        started_unix_ms: first.and_then(|first| first.started).map_or(0, unix_ms),
        since_unix_ms: holder.since().map_or(0, unix_ms),
        record_pid: record.map_or(0, |record| record.pid.into()),
        record_agrees: holder.record_agrees.into(),
        is_ancestor: first.is_some_and(|first| first.ancestor).into(),
        host: [0; 256],
        command: [0; 512],
        baton: 0,
        orphans: 0,
        baton_pid: 0,
        orphan_pid: 0,
        scope: 0,
        reserved: 0,
    };
    copy_text(&mut owner.host, record.map_or("", |record| &record.host));
    copy_text(&mut owner.command, command);
    owner
}

/// What fits before the terminator, cut between characters.
fn copy_text(field: &mut [c_char], text: &str) {
    let mut end = text.len().min(field.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (place, byte) in field.iter_mut().zip(text[..end].bytes()) {
        *place = byte as c_char;
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        assert_eq!(answer(|| panic!("a bug")), jitlock_status_t::JITLOCK_ERR_INTERNAL);
        // SAFETY: never null, always terminated.
        let message = unsafe { CStr::from_ptr(jitlock_last_error_message()) }.to_str().unwrap();
        assert!(message.contains("a bug"), "{message}");
    }

    #[test]
    fn every_code_has_its_text_and_its_number() {
        for code in ALL_CODES {
            assert_eq!(jitlock_status_t::from(code) as i32, code as i32);
            // SAFETY: static text.
            let text = unsafe { CStr::from_ptr(jitlock_strerror(code as i32)) };
            assert_eq!(text, code.text());
        }
    }
}
