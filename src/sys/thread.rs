//! Helper threads, by pthread_create(3) alone: what the standard library adds to a thread (a handle, hooks, a guard
//! against stack overflow) nobody would use, and it is a twentieth of the size of this library.

use std::ffi::c_void;
use std::io;

use super::unix::SignalsBlocked;

type Body = Box<dyn FnOnce() + Send>;

/// Enough for a path of PATH_MAX bytes many times over.
const STACK: usize = 256 * 1024;

/// Starts a detached thread with every signal blocked, so that none of the program's handlers ever runs on it.
pub(crate) fn spawn(body: Body) -> io::Result<()> {
    let _blocked = SignalsBlocked::new();
    let argument = Box::into_raw(Box::new(body));
    // SAFETY: the attributes are initialised before and destroyed after their use; `run` takes `argument` over if,
    // and only if, the thread was made.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(&mut thread, &attributes, run, argument.cast());
        libc::pthread_attr_destroy(&mut attributes);
        error
    };
    if error == 0 {
        return Ok(());
    }
    // SAFETY: no thread was made, so it is still ours.
    drop(unsafe { Box::from_raw(argument) });
    Err(io::Error::from_raw_os_error(error))
}

extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    super::name_thread(c"jitlock");
    // SAFETY: made by `spawn` for this thread alone.
    let body = unsafe { Box::from_raw(argument.cast::<Body>()) };
    body();
    std::ptr::null_mut()
}
