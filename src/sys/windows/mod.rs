//! Windows: LockFileEx through fs2 as the lock, share modes in the place of leases, directories by handle.
//!
//! Paths are UTF-8 over the C API and may be longer than MAX_PATH. There is no fork, no signal ends a wait, and the
//! kernel names no holders: the caller is told so.

mod api;
mod dir;
mod error;
mod file;
mod path;
mod process;

pub(crate) use {dir::Dir, error::*, file::*, path::*, process::*};
