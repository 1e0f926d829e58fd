//! A crash-safe lock around a JIT build cache, for processes of any language.
//!
//! The lock of a cache directory is an flock(2) on its sibling `<cache>.lock`. The kernel holds it for the process
//! and drops it when the process dies, so no lock is ever left behind; nothing else decides who holds it.
//!
//! A path becomes a lock file (`lockfile`), which is waited for with a deadline that flock itself does not have
//! (`wait`: the caller's side; `queue`: the one thread that asks the kernel). The new owner reads how the last one
//! ended (`owner`), waits for what a dead one left at work (`orphans`) and for torch's own lock (`baton`), writes its
//! name, and gets a number for what it holds (`handle`). While it holds it, it may
//! clear the cache (`cache`). Then it gives the number back. `lock` puts these in order; `holder` answers everybody
//! else's question of who has it, `scope` that of whom it excludes; `process` is what one process remembers, and what a fork does to that.
//!
//! C callers see [`capi`]; its header is `include/jitlock.h`.

#![deny(missing_docs, unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[allow(unsafe_code)]
pub mod capi;
mod lock;
mod lockfile;
mod lockdir;
mod patience;
mod wait;
mod waiter;
mod queue;
mod owner;
mod holder;
mod blocker;
mod orphans;
mod baton;
mod offload;
mod handle;
mod scope;
mod cache;
mod tree;
mod policy;
mod process;
mod error;
mod panics;
#[allow(unsafe_code)]
mod sys;

pub use baton::{Baton, BatonState};
pub use blocker::Blocker;
pub use error::{Argument, Code, Error};
pub use handle::Handle;
pub use holder::{query, Holder, HolderState, Process, Status};
pub use lock::{
    acquire, clear_cache, clear_held, info, release, remove_stale_baton, Info, Options, PreviousOwner,
};
pub use owner::Record;
pub use patience::{Progress, Waiting};
pub use policy::{timeout_for_baseline, BadEnvironment, Timeout, DEFAULT_TIMEOUT};
pub use scope::Scope;
