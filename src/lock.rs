//! From the wish to the handle and back: the order in which the other modules do their part.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::baton::{self, Baton, Batons};
use crate::cache::{self, Failure};
use crate::error::{Argument, Error};
use crate::handle::{self, Handle, Thread};
use crate::lockfile::{self, LockFile, Target};
use crate::offload;
use crate::orphans;
use crate::owner::{self, Record, State};
use crate::patience::{Patience, Progress, Way};
use crate::policy::Timeout;
use crate::process;
use crate::scope::Scope;
use crate::sys::{self, FileId, Kind, Mode};
use crate::wait::{self, Wish};

/// What to lock, and how.
pub struct Options<'a> {
    /// The directory to protect. It need not exist.
    pub cache: &'a Path,
    /// How long to wait.
    pub timeout: Timeout,
    /// Another lock file than `<cache>.lock`.
    pub lock_path: Option<&'a Path>,
    /// As one of several readers.
    pub shared: bool,
    /// Forked and executed children keep the lock alive until the last of them is gone.
    pub inherit: bool,
    /// The caller's calls move between threads: do not tell by thread that it waits for itself.
    pub any_thread: bool,
    /// A signal handled by the calling thread ends the wait.
    pub interruptible: bool,
    /// Delete the cache if its last owner died.
    pub clear_if_owner_died: bool,
    /// Refuse a lock that is not known to exclude other hosts.
    pub require_cluster: bool,
    /// Leave torch's own lock in the cache alone.
    pub keep_baton: bool,
    /// Watch the wait.
    pub progress: Option<Progress<'a>>,
}

impl<'a> Options<'a> {
    /// An exclusive lock of `cache`.
    pub fn new(cache: &'a Path, timeout: Timeout) -> Options<'a> {
        Options {
            cache,
            timeout,
            lock_path: None,
            shared: false,
            inherit: false,
            any_thread: false,
            interruptible: false,
            clear_if_owner_died: false,
            require_cluster: false,
            keep_baton: false,
            progress: None,
        }
    }
}

/// How the last owner ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviousOwner {
    /// It released the lock, or there was none.
    Clean,
    /// It did not: what it built may be half done. Who it was, if its record says so.
    Died(Option<Arc<Record>>),
    /// It may have been one that could not write a record.
    Unknown,
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct Lock {
    file: LockFile,
    mode: Mode,
    inherit: bool,
    /// Whether the owner record could be written.
    recorded: bool,
    previous: PreviousOwner,
    waited: Duration,
    /// What became of the last of torch's locks that was looked for under this one.
    baton: Mutex<Baton>,
    /// Taken by whoever works on the cache by the handle, so that a release on another thread waits for it.
    working: Mutex<()>,
    given_back: AtomicBool,
}

/// What a holder may ask about its lock.
#[derive(Clone, Debug)]
pub struct Info {
    /// How the last owner ended.
    pub previous: PreviousOwner,
    /// What became of torch's own lock, at the acquire or the last [`remove_stale_baton`].
    pub baton: Baton,
    /// Whether the lock file was deleted or replaced since.
    pub lost: bool,
    /// Whether the owner record was written; if not, the next owner cannot be told if this one dies.
    pub recorded: bool,
    /// Whom the lock excludes.
    pub scope: Scope,
    /// How long the acquire waited.
    pub waited: Duration,
    /// The descriptor of the lock file. Not to be closed.
    pub descriptor: i32,
}

/// Takes the lock.
pub fn acquire(options: Options<'_>) -> Result<Handle, Error> {
    let thread = (!options.any_thread).then(Thread::current);
    let lock = take(options, thread, Purpose::Hold)?;
    Ok(handle::insert(lock, thread))
}

/// Gives the lock back. The handle is void afterwards, whatever the answer, unless it never named a lock of this
/// process.
pub fn release(handle: Handle) -> Result<(), Error> {
    let lock = handle::remove(handle)?;
    lock.ask(|lock| {
        let _working = lock.working();
        lock.give_back()
    })
}

/// Takes the lock, deletes the cache, gives the lock back.
pub fn clear_cache(cache: &Path, timeout: Timeout) -> Result<(), Error> {
    match take(Options::new(cache, timeout), Some(Thread::current()), Purpose::Clear) {
        // Without a parent directory there is no cache, and nobody to exclude.
        Err(Error::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(lock) => Arc::new(lock).ask(|lock| {
            let cleared = cache::clear(&lock.file.paths).map_err(Error::from);
            let released = lock.give_back();
            cleared.and(released)
        }),
    }
}

/// Deletes the cache under a lock that is held already.
pub fn clear_held(handle: Handle) -> Result<(), Error> {
    let lock = handle::get(handle)?;
    if lock.mode == Mode::Shared {
        return Err(Argument::SharedClear.into());
    }
    lock.ask(|lock| {
        let _working = lock.working();
        let mut patience = Patience::new(Timeout::After(Duration::ZERO), false, None);
        baton::settle(&mut patience, &lock.file.paths.cache, lock.file.may_hang, Batons::All)?;
        cache::clear(&lock.file.paths).map_err(Error::from)
    })
}

/// Removes torch's own lock from a build directory in the cache whose lock is held, if nobody has it open; waits while
/// somebody has.
pub fn remove_stale_baton(handle: Handle, build_dir: &Path, timeout: Timeout) -> Result<(), Error> {
    let lock = handle::get(handle)?;
    if lock.mode == Mode::Shared {
        return Err(Argument::SharedBaton.into());
    }
    let _working = lock.working();
    let build_dir = lockfile::absolute(build_dir)?;
    let mut baton = Baton::None;
    let ours = build_dir.clone();
    if lock.clone().ask(move |lock| is_in_cache(&ours, &lock.file.paths.cache))? {
        let mut patience = Patience::new(timeout, false, None);
        baton =
            baton::settle(&mut patience, &build_dir, lock.file.may_hang, Batons::Own)?.unwrap_or(Baton::None);
    }
    *lock.baton.lock().unwrap_or_else(PoisonError::into_inner) = baton;
    Ok(())
}

/// Whether it is there; a failure if it is, and elsewhere.
fn is_in_cache(build_dir: &Path, cache: &Path) -> Result<bool, Error> {
    if !build_dir.exists() {
        return Ok(false);
    }
    match sys::stat_path(cache).is_ok_and(|cache| cache::lies_in(build_dir, cache.id)) {
        true => Ok(true),
        false => Err(Argument::NotInCache(build_dir.to_owned()).into()),
    }
}

/// What is known of a held lock.
pub fn info(handle: Handle) -> Result<Info, Error> {
    let lock = handle::get(handle)?;
    let baton = *lock.baton.lock().unwrap_or_else(PoisonError::into_inner);
    let (current, scope) = lock.clone().ask(|lock| Ok((lock.is_current(), lock.file.scope().0)))?;
    Ok(Info {
        previous: lock.previous.clone(),
        baton,
        lost: !current,
        recorded: lock.recorded,
        scope,
        waited: lock.waited,
        descriptor: lock.file.descriptor(),
    })
}

/// What a lock is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Hold,
    /// No more than deleting what is there, if anything is.
    Clear,
}

fn take(options: Options<'_>, thread: Option<Thread>, purpose: Purpose) -> Result<Lock, Error> {
    if options.shared && options.clear_if_owner_died {
        return Err(Argument::SharedClear.into());
    }
    for (asked, there, name) in [
        (options.inherit, sys::HAS_HEIRS, "a lock that children inherit"),
        (options.interruptible, sys::HAS_SIGNALS, "a wait that signals end"),
    ] {
        if asked && !there {
            return Err(Error::NotHere(name));
        }
    }
    process::watch_forks()
        .map_err(|source| Error::system("watch the forks of", Path::new("this process"), source))?;
    let mode = if options.shared { Mode::Shared } else { Mode::Exclusive };
    let mut wish = Wish {
        patience: Patience::new(options.timeout, options.interruptible, options.progress),
        target: Target {
            cache: lockfile::absolute(options.cache)?,
            explicit: options.lock_path.map(lockfile::absolute).transpose()?,
            mode,
            cluster: options.require_cluster,
            make_parents: purpose == Purpose::Hold,
        },
        thread,
        last_holder: None,
    };
    let inherit = options.inherit;
    let (mut file, previous, baton, wipe) = loop {
        let (file, state) = wait::lock(&mut wish)?;
        let previous = previous_owner(&file, state);
        let wipe = options.clear_if_owner_died && matches!(previous, PreviousOwner::Died(_));
        let batons = match () {
            // Readers do not build, so torch's lock is in nobody's way.
            () if options.keep_baton || options.shared => Batons::None,
            () if wipe || purpose == Purpose::Clear => Batons::All,
            () => Batons::Own,
        };
        match make_way(&mut wish.patience, &file, &previous, batons) {
            Ok(Some(baton)) => break (file, previous, baton, wipe),
            Ok(None) => continue,
            Err(error) => {
                let_go(file);
                return Err(error);
            }
        }
    };
    let (path, may_hang, limit) = (file.path().to_owned(), file.may_hang, wish.patience.limit());
    let started = wish.patience.deadline.started;
    // If the caller does not wait for the end of it, the lock is dropped there.
    offload::answer(may_hang, &path, limit, move || {
        if wipe {
            match cache::clear(&file.paths) {
                // What remains lies out of the next build's way.
                Ok(()) | Err(Failure::Remains(_)) => {}
                Err(Failure::Untouched(error)) => return Err(error),
            }
        }
        if inherit {
            file.make_inheritable()?;
        }
        // Last of all: until everything else is done, the file goes on saying that the previous owner died.
        let recorded = mode == Mode::Exclusive && owner::write(&file);
        Ok(Lock {
            file,
            mode,
            inherit,
            recorded,
            previous,
            waited: started.elapsed(),
            baton: Mutex::new(baton),
            working: Mutex::new(()),
            given_back: AtomicBool::new(false),
        })
    })
}

/// Gives back a lock that could not be used, before the caller hears of it unless its file system does not answer.
fn let_go(file: LockFile) {
    let (path, may_hang) = (file.path().to_owned(), file.may_hang);
    let _ = offload::answer(may_hang, &path, Some(Instant::now()), move || {
        drop(file);
        Ok(())
    });
}

/// Waits for those who work in the cache without the lock: a dead owner's compilers, and torch by itself. None: the
/// progress callback forked, and this is the child, which has lost the lock.
fn make_way(
    patience: &mut Patience<'_>,
    file: &LockFile,
    previous: &PreviousOwner,
    batons: Batons,
) -> Result<Option<Baton>, Error> {
    if let PreviousOwner::Died(Some(record)) = previous {
        if orphans::outlast(patience, record, file)? == Way::Forked {
            return Ok(None);
        }
    }
    baton::settle(patience, &file.paths.cache, file.local, batons)
}

impl Lock {
    /// Does what its file systems may not answer to; the file is closed there if this is the last of the lock.
    fn ask<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Lock) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (path, may_hang) = (self.file.path().to_owned(), self.file.may_hang);
        offload::answer(may_hang, &path, offload::silence(), move || work(&self))
    }

    fn working(&self) -> MutexGuard<'_, ()> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> FileId {
        self.file.id()
    }

    fn is_current(&self) -> bool {
        // What cannot be looked at is not what others will find.
        self.file.is_current().unwrap_or(false)
    }

    fn give_back(&self) -> Result<(), Error> {
        self.given_back.store(true, Ordering::Relaxed);
        let current = self.is_current();
        if self.recorded {
            owner::mark_released(&self.file);
        }
        if !self.inherit {
            self.file.unlock();
        }
        match current {
            true => Ok(()),
            false => Err(Error::Lost(self.file.path().to_owned())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.given_back.load(Ordering::Relaxed) {
            let _ = self.give_back();
        }
    }
}

fn previous_owner(file: &LockFile, state: State) -> PreviousOwner {
    match state {
        State::Held(record) => PreviousOwner::Died(record),
        State::Released if !silent_owners_possible(file) => PreviousOwner::Clean,
        State::Empty if file.created => PreviousOwner::Clean,
        State::Released | State::Empty | State::Unreadable => PreviousOwner::Unknown,
    }
}

/// Whether somebody could have held the lock who cannot write its file, so left no record, but can write the cache:
/// group or others, where the one is read-only for them and the other is not.
fn silent_owners_possible(file: &LockFile) -> bool {
    let class = |mode: u32, read: u32, write: u32| mode & read != 0 && mode & write == 0;
    let mode = file.stat.mode;
    let (group, others) = (class(mode, 0o040, 0o020), class(mode, 0o004, 0o002));
    if !group && !others {
        return false;
    }
    file.paths.found.is_some_and(|cache| {
        cache.kind == Kind::Directory
            && (group && cache.mode & 0o020 != 0 || others && cache.mode & 0o002 != 0)
    })
}
