//! A bug of this library is an error to its caller: nothing unwinds into C, and nothing is printed into the standard error
//! of a program that never heard of Rust.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

thread_local! {
    /// How many of our calls are under way on this thread; a callback may make more of them.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// What this thread panicked with during one.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the body; a panic in it is [`Error::Internal`].
pub(crate) fn catch(body: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
    keep_quiet();
    let before = CALLS.try_with(|calls| calls.replace(calls.get() + 1));
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let _ = CALLS.try_with(|calls| calls.set(before.unwrap_or(0)));
    result.unwrap_or_else(|_| {
        let message = MESSAGE.try_with(|message| message.borrow_mut().take());
        Err(Error::Internal(message.ok().flatten().unwrap_or_default()))
    })
}

/// What panics outside of our calls goes to whatever hook there was.
fn keep_quiet() {
    // Not a Once: a fork meanwhile would leave it half done in the child for ever.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if CALLS.try_with(|calls| calls.get() > 0).unwrap_or(false) {
            let _ = MESSAGE.try_with(|message| *message.borrow_mut() = Some(info.to_string()));
        } else {
            before(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_where() {
        let error = catch(&mut || panic!("a bug")).unwrap_err().to_string();
        assert!(error.contains("a bug") && error.contains("panics.rs"), "{error}");
        assert!(catch(&mut || Ok(())).is_ok());
    }
}
