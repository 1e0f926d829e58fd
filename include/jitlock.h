/*
 * jitlock: a crash-safe lock around a JIT build cache, for processes of any language.
 *
 * Ranks of one job compile kernels into one cache directory. Whoever holds the lock of the directory builds, the
 * others wait and load. The lock is an flock(2) on the file `<cache_dir>.lock`, beside the cache: the kernel drops
 * it when its holder dies, so no lock is ever left behind, and nobody's pid, age or heartbeat decides anything.
 *
 *     jitlock_t lock;
 *     if (jitlock_acquire("/shared/cache/my_kernel", JITLOCK_TIMEOUT_DEFAULT, &lock) != JITLOCK_OK) {
 *         fprintf(stderr, "%s; using the slow path\n", jitlock_last_error_message());
 *         return slow_path();
 *     }
 *     if (!is_built("/shared/cache/my_kernel"))
 *         build("/shared/cache/my_kernel");
 *     load("/shared/cache/my_kernel");
 *     if (jitlock_release(lock) == JITLOCK_ERR_LOST)
 *         discard("/shared/cache/my_kernel");
 *
 * Calling sequence. Acquire; look whether the cache is built, since another process may just have done so; if
 * jitlock_info() says that the previous owner died, do not trust what is there (or have it deleted by
 * JITLOCK_CLEAR_IF_OWNER_DIED); build; release. Take several locks in one order everywhere, or expect timeouts.
 *
 * Deadline. Every wait has one, kept even where the file system hangs. Time is the monotonic clock's.
 *
 * Threads. Every function may be called from any thread. Threads of a process exclude each other like processes do.
 * Any thread may release; a thread that acquires what it holds already is told JITLOCK_ERR_DEADLOCK at once. After a
 * timeout one helper thread per lock may stay in the kernel until the lock is free; it ends by itself.
 *
 * Fork and exec. A forked child owns none of its parent's locks: its copies of the descriptors are closed by
 * pthread_atfork(3), its jitlock_release() is JITLOCK_ERR_NOT_OWNER, and the lock ends with the parent. No descriptor
 * is passed on by exec. JITLOCK_INHERIT asks for the opposite. Do not fork in a signal handler, nor on one thread while
 * another makes the process's first call of this library.
 *
 * Signals. No handler is installed, helper threads block every signal, and no signal is sent. No function may be
 * called from a signal handler.
 *
 * Torch. Whoever holds the lock exclusively is not in the way of torch's own lock in the cache, `<cache_dir>/lock`: an
 * acquire removes a stale one and waits for one in use, and it waits for compilers that a dead owner left at work in
 * the cache; see jitlock_remove_stale_baton(). Both within the deadline.
 *
 * Lost locks. The lock is advisory: it excludes those who take it. Who deletes the lock file lets a second holder in;
 * that cannot be prevented, but jitlock_release() and jitlock_info() tell. Never delete it, not even "stale" ones:
 * there are none.
 *
 * Other hosts. On NFS and the like the lock is as good as the server's: it excludes other hosts where the mount has
 * locking on, this host only where it is mounted nolock or local_lock, and is JITLOCK_ERR_UNSUPPORTED where there is none.
 * jitlock_info() and jitlock_query() tell which, and JITLOCK_REQUIRE_CLUSTER refuses what other hosts may not see.
 *
 * Environment. JITLOCK_TIMEOUT is the default timeout in seconds. JITLOCK_LOCK_DIR, an absolute path, has the lock
 * files lie in that directory of this host, for caches on file systems whose locks cannot be trusted; it excludes only
 * those on this host who have it set too. It is JITLOCK_ERR_PERMISSION if it is a symlink, another user's but root's, or
 * writable for others without being sticky.
 *
 * Other tools. flock(1), Python's fcntl.flock, py-filelock and GPTQModel's build lock exclude each other and us on the
 * same path.
 *
 * Memory. Paths are bytes in any encoding, on Windows UTF-8, and are copied before a call returns. Strings that are
 * returned belong to the library.
 *
 * Platforms. On macOS and FreeBSD no other process can be seen: a holder is known by its record alone, and orphans are not
 * waited for. On Windows the lock is LockFileEx, which is mandatory, and the system refuses to delete a lock file in use; there
 * is no fork, and JITLOCK_INHERIT and JITLOCK_INTERRUPTIBLE are JITLOCK_ERR_UNSUPPORTED.
 *
 * This file is made from src/capi.rs by cbindgen.
 */


#ifndef JITLOCK_H
#define JITLOCK_H

#include <stddef.h>
#include <stdint.h>

#define JITLOCK_VERSION_MAJOR 0
#define JITLOCK_VERSION_MINOR 1
#define JITLOCK_VERSION_PATCH 0
#define JITLOCK_VERSION_STRING "0.1.0"
/** Two digits each for minor and patch: 1.2.3 is 10203. */
#define JITLOCK_VERSION_NUMBER \
    (JITLOCK_VERSION_MAJOR * 10000 + JITLOCK_VERSION_MINOR * 100 + JITLOCK_VERSION_PATCH)

#if defined(__cplusplus) && __cplusplus >= 201703L
#define JITLOCK_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define JITLOCK_NODISCARD __attribute__((warn_unused_result))
#else
#define JITLOCK_NODISCARD
#endif

/** Timeout: wait without bound. */
#define JITLOCK_WAIT_FOREVER INT64_C(-1)

/**
 * Timeout: the environment variable JITLOCK_TIMEOUT, in seconds, fractions allowed; 600 s if it is not set or not a
 * number. In the latter case the message of a timeout says so.
 */
#define JITLOCK_TIMEOUT_DEFAULT INT64_C(-2)

/** Initial value of a #jitlock_options_t: the default timeout, no flags, nobody watching. */
#define JITLOCK_OPTIONS_INIT {sizeof(jitlock_options_t), JITLOCK_TIMEOUT_DEFAULT, 0, 0, 0, 0, 0, 0, 0}

/**
 * Flag: hold the lock as one of any number of readers. Readers write no owner record.
 */
#define JITLOCK_SHARED (1 << 0)

/**
 * Flag: children keep the lock, forked and executed ones: it is free when the last of them and this process have
 * released or ended. For a builder whose compilers must not outlive the lock. Without it children never have it.
 * #JITLOCK_ERR_UNSUPPORTED on Windows.
 */
#define JITLOCK_INHERIT (1 << 1)

/**
 * Flag: give no #JITLOCK_ERR_DEADLOCK. For runtimes whose calls move between threads (Go, Node.js, Java's virtual
 * threads), where the thread says nothing about who calls.
 */
#define JITLOCK_ANY_THREAD (1 << 2)

/**
 * Flag: a signal that is handled by the calling thread during the wait ends it with #JITLOCK_ERR_INTERRUPTED, whether
 * its handler was installed with SA_RESTART or not. Without it handlers run and the wait goes on.
 * #JITLOCK_ERR_UNSUPPORTED on Windows.
 */
#define JITLOCK_INTERRUPTIBLE (1 << 3)

/**
 * Flag: if the previous owner died, delete the cache directory before returning. Not with #JITLOCK_SHARED.
 */
#define JITLOCK_CLEAR_IF_OWNER_DIED (1 << 4)

/**
 * Flag: leave torch's own lock, `<cache_dir>/lock`, alone. Without it an exclusive acquire removes a stale one and
 * waits for one that is in use, as jitlock_remove_stale_baton() does.
 */
#define JITLOCK_KEEP_BATON (1 << 5)

/**
 * Flag: refuse, with #JITLOCK_ERR_UNSUPPORTED and a message that says which mount option to change, a lock that is not known
 * to exclude other hosts too: everything but #JITLOCK_SCOPE_CLUSTER. So on a local file system, and with JITLOCK_LOCK_DIR
 * in one.
 */
#define JITLOCK_REQUIRE_CLUSTER (1 << 6)

/**
 * The binary interface that this header describes.
 */
#define JITLOCK_ABI_VERSION 0

/**
 * What every call answers. Success is 0, errors are below. A number is never given another meaning.
 *
 * After any error but #JITLOCK_ERR_LOST the call has changed nothing: no lock is held that was not, no descriptor is
 * left open. jitlock_last_error_message() has the details.
 */
enum jitlock_status_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    JITLOCK_OK = 0,
    /**
     * A null pointer, an empty or too long path, one that is not UTF-8 on Windows, a negative timeout without a meaning, an
     * unknown flag, a directory that is never cleared.
     */
    JITLOCK_ERR_INVALID_ARGUMENT = -1,
    /**
     * The handle names no lock of this process: released already, made up, or another process's.
     */
    JITLOCK_ERR_INVALID_HANDLE = -2,
    /**
     * Not in time. The message names the holder, or the file system that does not answer. Take the path that needs no cache.
     */
    JITLOCK_ERR_TIMEOUT = -3,
    /**
     * The calling thread holds this lock itself and would wait for ever.
     */
    JITLOCK_ERR_DEADLOCK = -4,
    /**
     * #JITLOCK_INTERRUPTIBLE: a signal was handled during the wait.
     */
    JITLOCK_ERR_INTERRUPTED = -5,
    /**
     * The progress callback answered other than 0.
     */
    JITLOCK_ERR_CANCELLED = -6,
    /**
     * The lock file or the cache may not be touched by this user, or the lock path is not a regular file.
     */
    JITLOCK_ERR_PERMISSION = -7,
    /**
     * A parent of the cache, or the cache that is to be cleared, is not a directory.
     */
    JITLOCK_ERR_NOT_DIRECTORY = -8,
    /**
     * The file system has no locks, without which the library never goes on, or none that #JITLOCK_REQUIRE_CLUSTER asks for; or
     * a flag asks for what the platform does not have.
     */
    JITLOCK_ERR_UNSUPPORTED = -9,
    /**
     * No descriptor, thread or memory is left (EMFILE, ENFILE, EAGAIN, ENOMEM). Try again later.
     */
    JITLOCK_ERR_LIMIT = -10,
    /**
     * The handle came from the parent process by fork, and the parent still owns the lock.
     */
    JITLOCK_ERR_NOT_OWNER = -11,
    /**
     * Released, but the lock file was deleted or replaced while it was held: somebody else may have held the lock of
     * this cache at the same time. Throw away what was built.
     */
    JITLOCK_ERR_LOST = -12,
    /**
     * Any other error of the system.
     */
    JITLOCK_ERR_IO = -13,
    /**
     * A bug of this library.
     */
    JITLOCK_ERR_INTERNAL = -14,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_status_t jitlock_status_t;
#else
typedef int32_t jitlock_status_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How the previous owner of a lock ended: jitlock_info_t.previous_owner.
 */
enum jitlock_previous_owner_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It released the lock, or there was none.
     */
    JITLOCK_PREVIOUS_CLEAN = 0,
    /**
     * It ended without releasing: the cache may be half built.
     */
    JITLOCK_PREVIOUS_DIED = 1,
    /**
     * Cannot be known: it may have been one that writes no record (another program's flock, a user who may only read
     * the lock file, a full disk).
     */
    JITLOCK_PREVIOUS_UNKNOWN = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_previous_owner_t jitlock_previous_owner_t;
#else
typedef int32_t jitlock_previous_owner_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether a lock is held, as far as can be seen without taking it: jitlock_owner_t.state.
 */
enum jitlock_owner_state_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * A try would have succeeded.
     */
    JITLOCK_OWNER_NONE = 0,
    /**
     * Held exclusively.
     */
    JITLOCK_OWNER_EXCLUSIVE = 1,
    /**
     * Held by readers.
     */
    JITLOCK_OWNER_SHARED = 2,
    /**
     * No holder can be seen from here, which does not mean that there is none: it may be in another pid namespace, on
     * another host, or another user's. Only a try can tell.
     */
    JITLOCK_OWNER_NOT_VISIBLE = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_owner_state_t jitlock_owner_state_t;
#else
typedef int32_t jitlock_owner_state_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What became of torch's own lock, the file `lock` in a build directory: jitlock_info_t.baton; or what it is:
 * jitlock_owner_t.baton.
 */
enum jitlock_baton_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * None was there, or nobody looked (#JITLOCK_KEEP_BATON, #JITLOCK_SHARED).
     */
    JITLOCK_BATON_NONE = 0,
    /**
     * A stale one was removed.
     */
    JITLOCK_BATON_REMOVED = 1,
    /**
     * One in use was waited for, and is gone: its owner may just have built what is wanted.
     */
    JITLOCK_BATON_WAITED_FOR = 2,
    /**
     * It is there, and nobody has it open.
     */
    JITLOCK_BATON_STALE = 3,
    /**
     * Somebody has it open: a torch build is running.
     */
    JITLOCK_BATON_IN_USE = 4,
    /**
     * It is there, and it cannot be told whether anybody has it open.
     */
    JITLOCK_BATON_UNKNOWN = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_baton_t jitlock_baton_t;
#else
typedef int32_t jitlock_baton_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whom a lock excludes: jitlock_info_t.scope and jitlock_owner_t.scope. By the type and the options of the mount that the
 * lock file lies on (/proc/self/mountinfo).
 */
enum jitlock_scope_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The processes of this host. Whether those of other hosts too cannot be known from here: FUSE, virtiofs, 9P, BeeGFS and
     * others, whose servers may pass flock on or not; every network file system if this host is not Linux.
     */
    JITLOCK_SCOPE_UNKNOWN = 0,
    /**
     * The processes of this host: a local file system, NFS mounted nolock or local_lock=flock, Lustre with localflock, SMB
     * with nobrl or before Linux 5.5.
     */
    JITLOCK_SCOPE_HOST = 1,
    /**
     * The processes of every host that has the file system mounted in this way: NFS, SMB, Lustre with flock, Ceph.
     */
    JITLOCK_SCOPE_CLUSTER = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_scope_t jitlock_scope_t;
#else
typedef int32_t jitlock_scope_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a wait waits for: jitlock_progress_t.waiting_for.
 */
enum jitlock_waiting_for_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The holder of the lock.
     */
    JITLOCK_WAITING_FOR_HOLDER = 0,
    /**
     * The lock is had, but processes that its dead owner started still work in the cache.
     */
    JITLOCK_WAITING_FOR_ORPHANS = 1,
    /**
     * The lock is had, but torch's own lock in the cache is in use.
     */
    JITLOCK_WAITING_FOR_BATON = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum jitlock_waiting_for_t jitlock_waiting_for_t;
#else
typedef int32_t jitlock_waiting_for_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A held lock: a number below 2^53 that the library never uses twice in a process. It is no pointer: a number that
 * was released, made up or brought from another process is answered with #JITLOCK_ERR_INVALID_HANDLE.
 */
typedef uint64_t jitlock_t;

/**
 * Who holds a lock; see jitlock_query(). Strings are terminated, and cut where they are too long.
 */
typedef struct {
    /**
     * In: sizeof(jitlock_owner_t).
     */
    size_t struct_size;
    /**
     * A #jitlock_owner_state_t.
     */
    int32_t state;
    /**
     * How many processes were seen to have the lock: readers, or heirs of one that died.
     */
    uint32_t holders;
    /**
     * The first of them, by the kernel's word and in the caller's pid namespace; 0 if none is visible.
     */
    int64_t pid;
    /**
     * Milliseconds since 1970 when that process was started; 0 if unknown.
     */
    int64_t started_unix_ms;
    /**
     * Milliseconds since 1970 when the lock was acquired, from a record that agrees; 0 if unknown.
     */
    int64_t since_unix_ms;
    /**
     * Who wrote the owner record last without marking it as released, in the writer's pid namespace; 0 if nobody.
     */
    int64_t record_pid;
    /**
     * 1 if the record was written by the process that has the lock now; else 0.
     */
    int32_t record_agrees;
    /**
     * 1 if the holder is the calling process or one that it descends from: waiting for it may never end; else 0.
     */
    int32_t is_ancestor;
    /**
     * The host in the record.
     */
    char host[256];
    /**
     * The command line of the holder, or of the record if no holder is visible.
     */
    char command[512];
    /**
     * Torch's own lock in the cache: a #jitlock_baton_t. By jitlock_query() only; so are the rest.
     */
    int32_t baton;
    /**
     * How many processes that a dead owner started still work in the cache: the next owner will wait for them.
     */
    uint32_t orphans;
    /**
     * A process that has torch's lock open; 0 if none is visible.
     */
    int64_t baton_pid;
    /**
     * The first of the orphans; 0 if there are none.
     */
    int64_t orphan_pid;
    /**
     * A #jitlock_scope_t; if there is no lock file yet, of the one that would be made.
     */
    int32_t scope;
    /**
     * 0.
     */
    int32_t reserved;
} jitlock_owner_t;

/**
 * How a wait goes on; see #jitlock_progress_fn.
 */
typedef struct {
    /**
     * sizeof(jitlock_progress_t) of the library, which may know more fields than its caller.
     */
    size_t struct_size;
    /**
     * Nanoseconds since the call began.
     */
    uint64_t waited_ns;
    /**
     * Nanoseconds until the deadline; -1 if there is none.
     */
    int64_t remaining_ns;
    /**
     * For whom: its pid, started_unix_ms, command and is_ancestor; the rest for a holder of the lock. Valid during the
     * callback.
     */
    const jitlock_owner_t *owner;
    /**
     * For what: a #jitlock_waiting_for_t.
     */
    int32_t waiting_for;
    /**
     * 0.
     */
    int32_t reserved;
} jitlock_progress_t;

/**
 * Called while an acquire waits, on the thread that called it and with no lock of the library's held: it may call any
 * function of this library, except to acquire the same lock. It must not throw or longjmp. 0 goes on waiting,
 * anything else ends the wait with #JITLOCK_ERR_CANCELLED.
 */
typedef int (*jitlock_progress_fn)(const jitlock_progress_t *progress, void *user);

/**
 * How to acquire; see jitlock_acquire_with(). Start from #JITLOCK_OPTIONS_INIT.
 */
typedef struct {
    /**
     * sizeof(jitlock_options_t).
     */
    size_t struct_size;
    /**
     * As in jitlock_acquire(). Note that 0 tries once.
     */
    int64_t timeout_ms;
    /**
     * JITLOCK_SHARED and so on, or-ed; 0 for none.
     */
    uint32_t flags;
    /**
     * Milliseconds until the first call of `progress` and between calls; 0 means 1000.
     */
    uint32_t progress_interval_ms;
    /**
     * The lock file; NULL for the usual one, `<cache_dir>.lock`. Whoever shares the cache must name the same file.
     */
    const char *lock_path;
    /**
     * Watches the wait; NULL for nobody.
     */
    jitlock_progress_fn progress;
    /**
     * Passed to `progress`.
     */
    void *user;
    /**
     * The caller's buffer for the message of a failure, for runtimes that cannot tell on which thread they will ask
     * for it; NULL for none. Terminated, cut where too long, and "" on success.
     */
    char *error;
    /**
     * Bytes in `error`.
     */
    size_t error_size;
} jitlock_options_t;

/**
 * What a holder may ask about its lock; see jitlock_info().
 */
typedef struct {
    /**
     * In: sizeof(jitlock_info_t).
     */
    size_t struct_size;
    /**
     * A #jitlock_previous_owner_t.
     */
    int32_t previous_owner;
    /**
     * 1 if the lock file was deleted or replaced since, so that the lock excludes nobody any more; else 0.
     */
    int32_t lost;
    /**
     * 1 if the owner record was written; 0 if it could not be, or for a reader. Then nobody will be told should this
     * process die.
     */
    int32_t recorded;
    /**
     * The descriptor of the lock file. It is the library's: never close or unlock it.
     */
    int32_t fd;
    /**
     * Nanoseconds that the acquire took.
     */
    uint64_t waited_ns;
    /**
     * A #jitlock_baton_t: of the acquire, or of the last jitlock_remove_stale_baton().
     */
    int32_t baton;
    /**
     * A #jitlock_scope_t.
     */
    int32_t scope;
} jitlock_info_t;

/**
 * No lock. Never a valid handle.
 */
#define JITLOCK_NONE 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Acquire and release. Takes the lock of a cache directory exclusively, waiting for it if need be.
 *
 * @param cache_dir  The directory to protect, as bytes, UTF-8 on Windows; absolute, relative, or a symlink. Neither it nor its parents
 *                   need exist: the parents of the lock file are made, the cache is not.
 * @param timeout_ms Milliseconds to wait, 0 to INT64_MAX; 0 tries once. #JITLOCK_WAIT_FOREVER,
 *                   #JITLOCK_TIMEOUT_DEFAULT. Any other negative is refused. A try can fail although nobody holds the
 *                   lock: who gave up a wait may get it all the same, and gives it back at once.
 * @param lock       Receives the handle; #JITLOCK_NONE on failure.
 * @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_TIMEOUT, #JITLOCK_ERR_DEADLOCK,
 *         #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_NOT_DIRECTORY, #JITLOCK_ERR_UNSUPPORTED, #JITLOCK_ERR_LIMIT,
 *         #JITLOCK_ERR_IO or #JITLOCK_ERR_INTERNAL.
 *
 * Threads: any; threads of one process exclude each other like processes. Fork: a child does not own the lock and its
 * copy of the descriptor is closed; it may acquire for itself. Signals: the library installs no handler; the
 * caller's handlers run during a wait and do not shorten it. A wait burns no CPU and does not poll, except on network
 * file systems. A file system that does not answer at all can make a call with timeout 0 last 1 s.
 */
jitlock_status_t jitlock_acquire(const char *cache_dir,
                                 int64_t timeout_ms,
                                 jitlock_t *lock);

/**
 * The same with options. Beyond the codes of jitlock_acquire(): #JITLOCK_ERR_INTERRUPTED with
 * #JITLOCK_INTERRUPTIBLE, #JITLOCK_ERR_CANCELLED by the callback, and with #JITLOCK_CLEAR_IF_OWNER_DIED those of
 * jitlock_clear_held().
 *
 * @param options NULL is the same as #JITLOCK_OPTIONS_INIT. A structure larger than the library's is taken if what the
 *                library does not know is zero.
 */
jitlock_status_t jitlock_acquire_with(const char *cache_dir,
                                      const jitlock_options_t *options,
                                      jitlock_t *lock);

/**
 * Gives a lock back. The handle is void afterwards, with #JITLOCK_ERR_LOST too.
 *
 * Any thread of the process that acquired it. The owner record is marked as released; a process that ends without
 * this call counts as died.
 *
 * @return #JITLOCK_OK; #JITLOCK_ERR_LOST: released, but the lock did not exclude everybody all the time;
 *         #JITLOCK_ERR_TIMEOUT: the file system, one that is not of this host, has not answered for 10 s; the lock is
 *         released as soon as it does;
 *         #JITLOCK_ERR_INVALID_HANDLE and #JITLOCK_ERR_NOT_OWNER (in a forked child): nothing was changed;
 *         #JITLOCK_ERR_INTERNAL.
 */
jitlock_status_t jitlock_release(jitlock_t lock);

/**
 * Clear. Acquires the lock, deletes the cache directory with all that is in it, and releases.
 *
 * The directory is renamed in one step before anything is deleted, so that a crash leaves the cache whole or gone;
 * what such a crash leaves beside it, `.jitlock-trash-*`, goes with the next clear. A mount point, or a
 * cache whose parent may not be written, is emptied in place instead, by the same rule. Symlinks are removed, never
 * followed; mounts are never entered. A cache that does not exist is success. Refused with
 * #JITLOCK_ERR_INVALID_ARGUMENT are `/`, home directories, what contains one, and what contains the lock file.
 *
 * @return As jitlock_acquire() and jitlock_clear_held(), and #JITLOCK_ERR_LOST.
 */
jitlock_status_t jitlock_clear_cache(const char *cache_dir,
                                     int64_t timeout_ms);

/**
 * Clears the cache of a lock that is held exclusively, and goes on holding it: a forced rebuild.
 *
 * @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT (a reader's lock, or a refused directory),
 *         #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER, #JITLOCK_ERR_NOT_DIRECTORY (a file is there; the cache
 *         is as it was), #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_LIMIT or #JITLOCK_ERR_IO (the message names the
 *         first path that would not go; the cache is as it was, or gone except for what could not be deleted),
 *         #JITLOCK_ERR_TIMEOUT (torch's own lock in it is in use, and the cache is as it was; or a file system that is not of
 *         this host has not answered for 10 s, and the clear goes on as soon as it does) or #JITLOCK_ERR_INTERNAL.
 */
jitlock_status_t jitlock_clear_held(jitlock_t lock);

/**
 * Torch's own lock. Removes `<build_dir>/lock` if it is stale, and waits while it is in use. An exclusive acquire does the
 * same for the cache directory itself; this is for build directories below it, each of which has a lock of torch's own.
 *
 * Torch before 2.14 holds its lock while the file exists, and whoever is killed leaves it behind; newer ones take an flock
 * on it and leave the file there, on which an older torch would wait for ever. It counts as stale if no process has it
 * open. The kernel says so by a lease (fcntl(2), F_SETLEASE), whatever the pid or mount namespace. Where no lease can be
 * had (another user's file without CAP_LEASE, no Linux), an flock and /proc tell; where they cannot (not every process
 * is visible, a network file system), the file is waited for and never removed on a guess. No signal reaches the
 * program's handlers. Only a regular file of that name is ever removed.
 *
 * A process that waits for a lock of torch's before 2.14 by itself takes its end for "built", whoever removes the file,
 * and fails to load what nobody has built. Those that acquire the cache's lock first do not have the problem.
 *
 * @param lock       An exclusive lock of the cache.
 * @param build_dir  The cache directory, or one below it. It need not exist.
 * @param timeout_ms As in jitlock_acquire(). 0 looks once.
 * @return #JITLOCK_OK: there is none any more, and jitlock_info() says what became of it.
 *         #JITLOCK_ERR_TIMEOUT: it is still in use, or cannot be told to be stale; the message names the file, and who
 *         has it open. #JITLOCK_ERR_PERMISSION: it is stale, and may not be removed. #JITLOCK_ERR_INVALID_ARGUMENT (a
 *         reader's lock, a directory that lies elsewhere), #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER,
 *         #JITLOCK_ERR_LIMIT, #JITLOCK_ERR_IO, #JITLOCK_ERR_INTERNAL. The lock stays held, whatever the answer.
 */
jitlock_status_t jitlock_remove_stale_baton(jitlock_t lock,
                                            const char *build_dir,
                                            int64_t timeout_ms);

/**
 * Inspect. What the library knows of a lock that this process holds.
 *
 * @param info Set its struct_size; written on success only.
 * @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_INVALID_HANDLE, #JITLOCK_ERR_NOT_OWNER,
 *         #JITLOCK_ERR_TIMEOUT (a file system that is not of this host has not answered for 10 s) or #JITLOCK_ERR_INTERNAL.
 */
jitlock_status_t jitlock_info(jitlock_t lock,
                              jitlock_info_t *info);

/**
 * Who holds the lock of a cache now, asked without taking it, creating anything or needing write permission.
 *
 * The kernel's answer comes first (on Linux, /proc/locks and the `lock:` lines of /proc/PID/fdinfo), so a dead process
 * is never named as the holder; the owner record adds since when. Elsewhere only the record can be read.
 *
 * @param owner Set its struct_size; written on success only.
 * @return #JITLOCK_OK, #JITLOCK_ERR_INVALID_ARGUMENT, #JITLOCK_ERR_PERMISSION, #JITLOCK_ERR_NOT_DIRECTORY,
 *         #JITLOCK_ERR_TIMEOUT (the file system has not answered for 10 s), #JITLOCK_ERR_LIMIT, #JITLOCK_ERR_IO or
 *         #JITLOCK_ERR_INTERNAL.
 */
jitlock_status_t jitlock_query(const char *cache_dir,
                               jitlock_owner_t *owner);

/**
 * Policy. The timeout for a kernel whose compilation was measured once: JITLOCK_TIMEOUT if it is set to a number, else
 * 600 s or five times the baseline, whichever is more.
 *
 * @param compile_baseline_seconds Not a number, negative or 0: no baseline.
 * @return Milliseconds, 0 to INT64_MAX, to be passed to jitlock_acquire(). Never fails.
 */
int64_t jitlock_timeout_ms(double compile_baseline_seconds);

/**
 * Text. A short sentence for a code, static and never NULL; for a number that is no code it says so.
 */
const char *jitlock_strerror(int32_t status);

/**
 * The calling thread's last failure in full: what failed, with which path, what the system said, and for a timeout who
 * holds the lock and since when. "" before the first failure; a success leaves it as it was.
 *
 * @return Never NULL. Valid until this thread's next failure in this library.
 */
const char *jitlock_last_error_message(void);

/**
 * The version of the library that is loaded, "MAJOR.MINOR.PATCH"; compare with #JITLOCK_VERSION_STRING.
 */
const char *jitlock_version(void);

/**
 * The version of the binary interface of the library that is loaded; compare with #JITLOCK_ABI_VERSION. It changes only
 * when a program built against an older header could break.
 */
uint32_t jitlock_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* JITLOCK_H */
